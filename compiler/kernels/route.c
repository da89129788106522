/* route: which key blocks each query block reads exactly.

       score[i, j] = scale qbar_i . kbar_j  (+ ln(||H_j||_F + 1e-5), + ln(||H_j - Hbar||_F + 1e-5),
                                             + ln(max(tr C_j, 1e-8)))      nan counts as -inf
       list[i]     = the k largest, ties to the smaller j, forced blocks first; ascending
                     or all above a limit and the forced ones, or what the caller lists
       mask[i]     = bit j: block j is listed, or does not exist

   A CTA has 16 query blocks of one head, a warp each. First all warps score, straight from global
   memory, into shared memory (route_score.c): as unsigned keys that sort like the scores. Then
   every warp finds a threshold with exactly k keys of its row on or above it, or with ties of which
   it takes the first (route_select.c), and walks the row once more to write list and mask
   (route_lists.c).

   Query heads [G h, G h + G) score the keys of key/value head h. CTAs behind those of all query
   heads add up the partial sums of H_j that the statistics left, 32 rows of a key/value head each.
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
  CTAS_PER_SM = 2, /* 64 registers a thread: one CTA's loads hide behind the other's work */
  H_ROWS = 32,     /* of the sum of one head that a CTA adds up, 8 elements a thread */
  PER_THREAD = 8
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

/* x / G */
static val per_group(struct ir *k, const struct route *a, val x) {
  return a->plan->group == 1 ? x : udiv(k, x, i32(k, a->plan->group));
}

/* |x|, known to be the same for the whole warp: what is made of it takes no registers of lanes. */
static val of_warp(struct ir *k, val x) {
  return warp_read(k, x, i32(k, 0));
}

/* What arithmetic alone says: before the kernel waits for those before it. */
static struct route route_open(struct ir *k, const struct plan_route *plan) {
  struct route a = {.plan = plan, .lanes = lanes_new(k)};
  a.head = udiv(k, cta_index(k), ARG(row_tiles));
  a.kv_head = per_group(k, &a, a.head);
  a.first = mul_const(k, sub(k, cta_index(k), mul(k, a.head, ARG(row_tiles))), MMA_ROWS);
  a.q_blocks = blocks_of(k, ARG(n_q), plan->key);
  a.q_tiles = blocks_of(k, ARG(n_q), plan->query);
  a.k_stride = blocks_of(k, ARG(n_k), plan->key);
  return a;
}

static void route_rows(struct ir *k, struct route *a) {
  a->keys = of_warp(k, keys_of(k, a->head));
  a->k_blocks = blocks_of(k, a->keys, a->plan->key);
  a->spans = blocks_of(k, a->k_blocks, SPAN);
  a->row_bytes = mul_const(k, add_const(k, mul_const(k, a->spans, SPAN), ROW_PADDING), WORD);
  if (a->plan->threshold) {
    a->limit = var_init(k, f32(k, 0));
  }
  IF (k, is_null_pointer(k, ARG(given))) {
    route_score(k, a);
    cta_sync(k);
  }
  route_select(k, a);
}

/* ---- sum of H_j ---- */

/* The statistics CTA that had block |index| of all key/value heads: CTA c of C had [T c / C,
   T (c + 1) / C). */
static val statistics_cta(struct ir *k, const struct route *a, val index) {
  val heads = per_group(k, a, ARG(total_heads));
  val total = mul(k, widen(k, heads), widen(k, ARG(stat_blocks)));
  val end = mul(k, add_const(k, index, 1), widen(k, ARG(stat_ctas)));
  return narrow(k, udiv(k, add_const(k, end, -1), total));
}

/* |h_scale| of a head, which is per n_k keys: per n_b where a sequence has fewer. */
static val scale_of_h(struct ir *k, const struct route *a, val head) {
  val keys = keys_of(k, mul_const(k, head, a->plan->group));
  val ratio = mul(k, to_float(k, ARG(n_k)), reciprocal_approx(k, to_float(k, keys)));
  val some = mul(k, ARG(h_scale), ratio);
  val fewer = choose(k, is_eq(k, keys, i32(k, 0)), f32(k, 0), some);
  return choose(k, is_eq(k, keys, ARG(n_k)), ARG(h_scale), fewer);
}

/* Element |first|, a multiple of PER_THREAD, of partial sums that are in the order of registers
   (frag_store_f32): its place in rows of head_dim. That and the three behind it are of two lanes'
   upper row, the others of the lower one, 8 rows further:
       (0, 0) (0, 1)  (8, 0) (8, 1)  (0, 2) (0, 3)  (8, 2) (8, 3)     row, column */
static val place_of_part(struct ir *k, const struct route *a, val first) {
  enum { ROWS = 16, STEP = 128, COLUMNS = 8 }; /* of a warp; its elements of 8 columns */
  const int dim = a->plan->head_dim;
  val warp = udiv(k, first, i32(k, ROWS * dim)),
      rest = sub(k, first, mul_const(k, warp, ROWS * dim));
  val step = udiv(k, rest, i32(k, STEP)), in_step = bit_and(k, rest, i32(k, STEP - 1));
  val pair = udiv(k, in_step, i32(k, PER_THREAD)); /* of lanes: two make a row's 8 columns */
  val row = add(k, mul_const(k, warp, ROWS), shift_right(k, pair, i32(k, 1)));
  val column = add(k, mul_const(k, step, COLUMNS), mul_const(k, bit_and(k, pair, i32(k, 1)), 4));
  return add(k, mul_const(k, row, dim), column);
}

/* Adds PER_THREAD elements of a head's partial sums, from |first| on, in the order of their CTAs;
   slot = cta + head. */
static void reduce_elements(struct ir *k, const struct route *a, val head, val first) {
  const int elements = a->plan->head_dim * a->plan->head_dim;
  val begin = mul(k, widen(k, head), widen(k, ARG(stat_blocks)));
  val end = add(k, begin, widen(k, ARG(stat_blocks)));
  struct var sum[PER_THREAD];
  for (int i = 0; i < PER_THREAD; i++) {
    sum[i] = var_init(k, f32(k, 0));
  }
  val last_cta = statistics_cta(k, a, add_const(k, end, -1));
  FOR (k, c, statistics_cta(k, a, begin), add_const(k, last_cta, 1)) {
    val part = at_row(k, ARG(h_part), add(k, head, c), i32(k, elements * F32));
    val mine = at(k, part, mul_const(k, first, F32));
    for (int i = 0; i < PER_THREAD; i += 4) {
      val four = load(k, k->i32x4, at_const(k, mine, i * F32), 4 * F32);
      for (int z = 0; z < 4; z++) {
        val x = float_of(k, element(k, four, z, k->i32));
        set(k, sum[i + z], add(k, get(k, sum[i + z]), x));
      }
    }
  }
  val pair[PER_THREAD / 2], scale = scale_of_h(k, a, head);
  for (int i = 0; i < PER_THREAD / 2; i++) {
    pair[i] =
        pack_half(k, mul(k, get(k, sum[2 * i]), scale), mul(k, get(k, sum[2 * i + 1]), scale));
  }
  val out = at_row(k, ARG(h_sum), head, i32(k, elements * HALF));
  val mine = at(k, out, mul_const(k, place_of_part(k, a, first), HALF));
  for (int r = 0; r < 2; r++) {
    val four = pack2(k, pair[r], pair[r + 2]);
    store(k, four, at_const(k, mine, 8 * r * a->plan->head_dim * HALF), 4 * HALF);
  }
}

/* CTA |cta| of those that reduce: H_ROWS rows of one key/value head. */
static void reduce_h(struct ir *k, const struct route *a, val cta) {
  const int ctas = a->plan->head_dim / H_ROWS, elements = H_ROWS * a->plan->head_dim;
  assert(elements <= a->plan->kernel.threads * PER_THREAD);
  val head = udiv(k, cta, i32(k, ctas)), part = sub(k, cta, mul_const(k, head, ctas));
  val mine = mul_const(k, thread_index(k), PER_THREAD);
  bool all = elements == a->plan->kernel.threads * PER_THREAD;
  IF (k, is_lt(k, all ? i32(k, 0) : mine, i32(k, elements))) {
    reduce_elements(k, a, head, add(k, mul_const(k, part, elements), mine));
  }
}

/* ---- the kernel ---- */

void kernel_route(struct ir *k, const struct plan_route *plan) {
  assert(plan->rows_per_cta == MMA_ROWS && plan->kernel.threads == 32 * WARPS);
  assert(plan->query == plan->key || plan->query == 2 * plan->key);
  assert(plan->head_dim % H_ROWS == 0 && plan->head_dim / 2 <= 32 * MAX_WORDS && plan->group >= 1);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ROUTE_N_ARGS, route_args);
  struct route a = route_open(k, plan);
  launch_handover(k);
  if (plan->reduces_h) {
    IF (k, is_lt(k, a.head, ARG(total_heads))) {
      route_rows(k, &a);
    }
    ELSE (k) {
      reduce_h(k, &a, sub(k, cta_index(k), mul(k, ARG(total_heads), ARG(row_tiles))));
    }
  } else {
    route_rows(k, &a);
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, CTAS_PER_SM);
}
