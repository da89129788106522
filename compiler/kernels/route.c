/* route: which key blocks each query block reads exactly.

       score[i, j] = scale qbar_i . kbar_j  (+ ln(||H_j||_F + 1e-5), + ln(||H_j - Hbar||_F + 1e-5),
                                             + ln(max(tr C_j, 1e-8)))      nan counts as -inf
       list[i]     = the k largest, ties to the smaller j, forced blocks first; ascending
                     or all above a limit and the forced ones, or what the caller lists
       mask[i]     = bit j: block j is listed, or does not exist

   A tile is 16 query blocks of one head. First all warps of a tile score, straight from global
   memory, into shared memory (route_score.c): as unsigned keys that sort like the scores. Then
   every warp finds a threshold with exactly k keys of its row on or above it, or with ties of which
   it takes the first (route_select.c), and walks the row once more to write list and mask
   (route_lists.c).

   A tile has 16 warps, a query block each, and is a CTA. Where there are more tiles than the chip
   takes at once, a CTA has several, side by side, of 8 warps each: they read the same block means
   at the same time, which come from L2 once, and all SMs have equally much to do.

   Query heads [G h, G h + G) score the keys of key/value head h. CTAs from first_reducer on add up
   the partial sums of H_j that the statistics left: those behind the tiles, or all, when they have
   done with their tiles.
 */
#include "compiler/kernels/route.h"

#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg route_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ROUTE_ARGS(X)
#undef X
};

enum {
  MAX_THREADS = 1024, /* 64 registers a thread, and loads of some warps hide behind others' work */
  PER_LANE = 4,       /* elements of a sum of H_j */
  PER_WARP = 32 * PER_LANE,
  PARTS_AT_ONCE = 8 /* partial sums on their way: those of a head where there are 24 or more */
};

val blocks_of(struct ir *k, val n, int rows) {
  return udiv(k, add_const(k, n, rows - 1), i32(k, rows));
}

/* n_b of the sequence of query head |head|. */
static val keys_of(struct ir *k, val head) {
  struct var keys = var_init(k, ARG(n_k));
  IF (k, bit_not(k, is_null_pointer(k, ARG(lengths)))) {
    val place = mul_const(k, udiv(k, head, ARG(heads)), WORD);
    val length = load(k, k->i32, at(k, ARG(lengths), place), WORD);
    set(k, keys, smin(k, smax(k, length, i32(k, 0)), ARG(n_k)));
  }
  return get(k, keys);
}

val row_at(struct ir *k, const struct route *a, val row) {
  return at(k, a->rows, mul(k, row, a->row_bytes));
}

void tile_sync(struct ir *k, const struct route *a) {
  part_sync(k, a->group, mul_const(k, a->warps, 32));
}

/* x / G */
static val per_group(struct ir *k, const struct route *a, val x) {
  return a->plan->group == 1 ? x : udiv(k, x, i32(k, a->plan->group));
}

/* |x|, known to be the same for the whole warp: what is made of it takes no registers of lanes. */
static val of_warp(struct ir *k, val x) {
  return warp_read(k, x, i32(k, 0));
}

static val row_bytes(struct ir *k, val spans) {
  return mul_const(k, add_const(k, mul_const(k, spans, SPAN), ROW_PADDING), WORD);
}

static void route_tile(struct ir *k, struct route *a, val tile) {
  a->head = udiv(k, tile, ARG(row_tiles));
  a->kv_head = per_group(k, a, a->head);
  a->first = mul_const(k, sub(k, tile, mul(k, a->head, ARG(row_tiles))), MMA_ROWS);
  a->q_blocks = blocks_of(k, ARG(n_q), a->plan->key);
  a->q_tiles = blocks_of(k, ARG(n_q), a->plan->query);
  a->k_stride = blocks_of(k, ARG(n_k), a->plan->key);
  a->keys = of_warp(k, keys_of(k, a->head));
  a->k_blocks = blocks_of(k, a->keys, a->plan->key);
  a->spans = blocks_of(k, a->k_blocks, SPAN);
  a->row_bytes = row_bytes(k, smax(k, a->spans, i32(k, 1))); /* queries come first */
  val tile_bytes = mul_const(k, row_bytes(k, blocks_of(k, a->k_stride, SPAN)), MMA_ROWS);
  a->rows = at(k, k->smem, mul(k, a->group, tile_bytes));
  if (a->plan->threshold) {
    a->limit = var_init(k, f32(k, 0));
  }
  IF (k, is_null_pointer(k, ARG(given))) {
    route_score(k, a);
    tile_sync(k, a);
  }
  route_select(k, a);
}

/* Groups of warps with a tile each; one of 16 warps in plans with a threshold. */
static void route_tiles(struct ir *k, struct route *a) {
  val warp = a->lanes.warp, tile = cta_index(k);
  a->warps = i32(k, WARPS);
  a->group = i32(k, 0);
  if (!a->plan->threshold) {
    a->warps = ARG(tile_warps);
    val whole = is_eq(k, a->warps, i32(k, WARPS));
    a->group = shift_right(k, warp, choose(k, whole, i32(k, 4), i32(k, 3)));
    a->lanes.warp = bit_and(k, warp, add_const(k, a->warps, -1));
    tile = add(k, mul(k, tile, ARG(tiles)), a->group);
  }
  IF (k, is_lt(k, tile, mul(k, ARG(total_heads), ARG(row_tiles)))) {
    route_tile(k, a, tile);
  }
}

/* ---- sum of H_j ---- */

/* The statistics CTA that had block |index| of all key/value heads: CTA c of C had [T c / C,
   T (c + 1) / C). T C is less than 2^31. */
static val statistics_cta(struct ir *k, const struct route *a, val index) {
  val total = mul(k, per_group(k, a, ARG(total_heads)), ARG(stat_blocks));
  val end = mul(k, add_const(k, index, 1), ARG(stat_ctas));
  return udiv(k, add_const(k, end, -1), total);
}

/* |h_scale| of a head, which is per n_k keys: per n_b where a sequence has fewer. */
static val scale_of_h(struct ir *k, const struct route *a, val head) {
  val keys = keys_of(k, mul_const(k, head, a->plan->group));
  val ratio = mul(k, to_float(k, ARG(n_k)), reciprocal_approx(k, to_float(k, keys)));
  val some = mul(k, ARG(h_scale), ratio);
  val fewer = choose(k, is_eq(k, keys, i32(k, 0)), f32(k, 0), some);
  return choose(k, is_eq(k, keys, ARG(n_k)), ARG(h_scale), fewer);
}

/* This lane's elements of a head's partial sums from |slot| on, where there are any before |end|:
   -0 else, which changes no sum. */
static void load_parts(struct ir *k, val mine, val slot, val end, val x[PARTS_AT_ONCE][PER_LANE],
                       int slot_bytes) {
  val last = add_const(k, end, -1);
  for (int p = 0; p < PARTS_AT_ONCE; p++) {
    val now = add_const(k, slot, p);
    val part = at_row(k, mine, smin(k, now, last), i32(k, slot_bytes));
    val four = load(k, k->i32x4, part, PER_LANE * F32);
    for (int i = 0; i < PER_LANE; i++) {
      val some = float_of(k, element(k, four, i, k->i32));
      x[p][i] = choose(k, is_lt(k, now, end), some, f32(k, -0.0));
    }
  }
}

/* Adds PER_WARP elements of a head's partial sums, from |first| on, in the order of their CTAs;
   slot = cta + head. */
static void reduce_elements(struct ir *k, const struct route *a, val head, val first) {
  const int elements = a->plan->head_dim * a->plan->head_dim;
  val begin = mul(k, head, ARG(stat_blocks)), next = add(k, begin, ARG(stat_blocks));
  val slot = add(k, head, statistics_cta(k, a, begin));
  val end = add_const(k, add(k, head, statistics_cta(k, a, add_const(k, next, -1))), 1);
  val mine = add(k, first, mul_const(k, a->lanes.lane, PER_LANE));
  val parts = at(k, ARG(h_part), mul_const(k, mine, F32));
  struct var sum[PER_LANE];
  for (int i = 0; i < PER_LANE; i++) {
    sum[i] = var_init(k, f32(k, 0));
  }
  FOR_STEP(k, s, slot, end, i32(k, PARTS_AT_ONCE)) {
    val x[PARTS_AT_ONCE][PER_LANE];
    load_parts(k, parts, s, end, x, elements * F32);
    for (int p = 0; p < PARTS_AT_ONCE; p++) {
      for (int i = 0; i < PER_LANE; i++) {
        set(k, sum[i], add(k, get(k, sum[i]), x[p][i]));
      }
    }
  }
  val pair[PER_LANE / 2], scale = scale_of_h(k, a, head);
  for (int i = 0; i < PER_LANE / 2; i++) {
    pair[i] =
        pack_half(k, mul(k, get(k, sum[2 * i]), scale), mul(k, get(k, sum[2 * i + 1]), scale));
  }
  val out = at_row(k, ARG(h_sum), head, i32(k, elements * HALF));
  store(k, pack2(k, pair[0], pair[1]), at(k, out, mul_const(k, mine, HALF)), PER_LANE * HALF);
}

/* CTAs from the first that reduces share the sums of all heads, PER_WARP elements at a time. */
static void reduce_h(struct ir *k, const struct route *a, val warp) {
  const int pieces = a->plan->head_dim * a->plan->head_dim / PER_WARP; /* of a head */
  val cta_warps = mul(k, ARG(tiles), ARG(tile_warps)), first = ARG(first_reducer);
  val mine = add(k, mul(k, sub(k, cta_index(k), first), cta_warps), warp);
  val all = mul_const(k, per_group(k, a, ARG(total_heads)), pieces);
  FOR_STEP(k, piece, mine, all, mul(k, sub(k, cta_count(k), first), cta_warps)) {
    val head = udiv(k, piece, i32(k, pieces));
    reduce_elements(k, a, head, mul_const(k, sub(k, piece, mul_const(k, head, pieces)), PER_WARP));
  }
}

/* ---- the kernel ---- */

void kernel_route(struct ir *k, const struct plan_route *plan) {
  assert(plan->rows_per_cta == MMA_ROWS && plan->kernel.threads == MAX_THREADS);
  assert(plan->query == plan->key || plan->query == 2 * plan->key);
  assert(plan->head_dim * plan->head_dim % PER_WARP == 0);
  assert(plan->head_dim / 2 <= 32 * MAX_WORDS && plan->group >= 1);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ROUTE_N_ARGS, route_args);
  struct route a = {.plan = plan, .lanes = lanes_new(k)};
  val warp = a.lanes.warp;
  launch_handover(k);
  route_tiles(k, &a);
  if (plan->reduces_h) {
    IF (k, is_ge(k, cta_index(k), ARG(first_reducer))) {
      reduce_h(k, &a, warp);
    }
  }
  kernel_end_up_to(k, plan->kernel.entry, MAX_THREADS, 1);
}
