/* statistics: one pass over q, k and v. For every block j of 64 (128) rows of a head

       qbar_j, kbar_j, vbar_j      means over the block's rows, stored as half
       H_j = sum_n (k_n - kbar_j)^T v_n = K^T V - kbar_j vsum_j^T     (D x D, never in memory)
       ||H_j||_F^2                 as 8 partial sums, one per warp, which the reader adds in order
       sum_j H_j                   f32, one partial per CTA and head
       var_j = (sum_n k_n^2 - len_j kbar_j^2) / len_j     by column; times a scale, as half
       tr C_j = sum of var_j       as 8 partial sums in the place of those of ||H_j||^2

   Persistent: CTA c of C takes blocks [T c / C, T (c + 1) / C) of the T blocks of all key/value
   heads, one head after the other. Query heads that share keys and values come along: their blocks
   of query rows count through, one per block of the key/value head, while there are any. A
   producer thread fills the ring with q, k and v blocks; warpgroups compute 64 rows of H each, so
   for head_dim 64 only one has work, and for 96 the second has 32 rows of zeros. Nothing depends on
   timing: same input, same bits. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ones.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/tile.h"
#include "compiler/sm90/tma.h"
#include "compiler/sm90/wgmma.h"
#include "runtime/abi.def"

static const struct ir_arg statistics_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_STATISTICS_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_STATISTICS_##name])

enum { MAX_GROUPS = 2, GROUP_ROWS = 64, WARP_ROWS = 16, NORM_PARTS = 8, HALF = 2, F32 = 4 };
enum input { Q, K, V, INPUTS }; /* their order in a stage of the ring */

struct statistics { /* what both roles know */
  const struct plan_statistics *plan;
  int groups;  /* warpgroups that compute: 64 rows of H each */
  int columns; /* of every tile: head_dim in whole panels */
  struct lanes lanes;
  struct ring ring;
  val first, end;         /* this CTA's blocks */
  val q_blocks, k_blocks; /* NQS, NT: block j of q (of k, v) exists when j is less */
};

static int consumer_warps(const struct statistics *a) {
  return WARPGROUP_WARPS * a->groups;
}

static int input_bytes(const struct statistics *a) {
  return tile_bytes(a->plan->block, a->columns);
}

static bool wants_mean(const struct statistics *a, enum input input) {
  return input != V || a->plan->wants_v;
}

static bool wants(const struct statistics *a, enum input input) {
  return wants_mean(a, input) || a->plan->wants_h;
}

static bool wants_squares(const struct statistics *a) {
  return a->plan->wants_variance || a->plan->wants_trace;
}

struct block {     /* heads count through the batch */
  val head, j;     /* of k and v */
  val q_head, q_j; /* of q */
};

/* Query heads [G head, G head + G) read key/value head |head|. Behind the blocks of the last one
   q_j runs on past NQS. */
static struct block block_at(struct ir *k, const struct statistics *a, val index) {
  const int group = a->plan->group;
  val head = udiv(k, index, ARG(blocks));
  val j = sub(k, index, mul(k, head, ARG(blocks)));
  if (group == 1) {
    return (struct block){head, j, head, j};
  }
  val member = umin(k, udiv(k, j, a->q_blocks), i32(k, group - 1));
  return (struct block){head, j, add(k, mul_const(k, head, group), member),
                        sub(k, j, mul(k, member, a->q_blocks))};
}

static val has_keys(struct ir *k, const struct statistics *a, struct block block) {
  return is_lt(k, block.j, a->k_blocks);
}

static struct tile input_tile(struct ir *k, const struct statistics *a, struct slot slot,
                              enum input input) {
  int offset = (int)input * input_bytes(a);
  val address = add_const(k, ring_address(k, &a->ring, slot), offset);
  return tile_new(k, address, a->plan->block, a->columns);
}

/* ---- producer ---- */

/* Rows [row, row + 64) of a block. */
static void load_boxes(struct ir *k, const struct statistics *a, struct slot slot,
                       enum input inputs, val row, struct place4 from, struct place4 q_from) {
  const val map[INPUTS] = {ARG(q), ARG(k), ARG(v)};
  for (enum input i = Q; i < inputs; i++) {
    if (wants(a, i)) {
      struct tile tile = input_tile(k, a, slot, i);
      struct place4 place = i == Q ? q_from : from;
      tile.address = add(k, tile.address, mul_const(k, row, PANEL_ROW_BYTES));
      place.row = add(k, place.row, row);
      tma_load_rows(k, &tile, 0, map[i], place, ring_full(k, &a->ring, slot));
    }
  }
}

/* The blocks of inputs [0, inputs) that are wanted. */
static void load_inputs(struct ir *k, const struct statistics *a, struct slot slot,
                        struct block block, enum input inputs) {
  val batch = udiv(k, block.head, ARG(heads));
  val head = sub(k, block.head, mul(k, batch, ARG(heads)));
  struct place4 from = {mul_const(k, block.j, a->plan->block), head, batch}, q_from = from;
  if (a->plan->group > 1) {
    val before = mul(k, batch, mul_const(k, ARG(heads), a->plan->group));
    q_from.row = mul_const(k, block.q_j, a->plan->block);
    q_from.head = sub(k, block.q_head, before);
  }
  int wanted = wants(a, V) || inputs < V ? (int)inputs : INPUTS - 1;
  ring_expect(k, &a->ring, slot, wanted * input_bytes(a));
  if (a->plan->block == BOX_ROWS) {
    load_boxes(k, a, slot, inputs, i32(k, 0), from, q_from);
  } else { /* unrolled, the boxes of two halves are too many for the producer's registers */
    FOR_STEP(k, row, i32(k, 0), i32(k, a->plan->block), i32(k, BOX_ROWS)) {
      load_boxes(k, a, slot, inputs, row, from, q_from);
    }
  }
}

/* Where heads share keys, most blocks are of q alone. */
static void load_block(struct ir *k, const struct statistics *a, struct slot slot,
                       struct block block) {
  if (a->plan->group == 1) {
    load_inputs(k, a, slot, block, INPUTS);
    return;
  }
  IF (k, has_keys(k, a, block)) {
    load_inputs(k, a, slot, block, INPUTS);
  }
  ELSE (k) {
    load_inputs(k, a, slot, block, K);
  }
}

static void produce(struct ir *k, const struct statistics *a) {
  struct ring_place place = ring_start(k);
  FOR (k, index, a->first, a->end) {
    struct slot slot = ring_slot(k, &place);
    ring_acquire(k, &a->ring, slot);
    load_block(k, a, slot, block_at(k, a, index));
    ring_advance(k, &a->ring, &place);
  }
}

/* ---- consumers ---- */

struct sums { /* of one block, 64 columns of the inputs = 64 rows of H per warpgroup */
  val group;
  val has_rows; /* of this warp's 16 rows of H: they are not past head_dim */
  struct operand ones;
  struct frag_a ones_a;
  struct frag column[INPUTS]; /* sum over rows of each column, one per fragment row */
  struct frag v_sum;          /* vsum_j as a row, the same in every fragment row */
  struct frag h, h_sum;       /* K^T V, then H_j; sum of H_j since the last flush */
};

static struct sums sums_new(struct ir *k, const struct statistics *a) {
  const int head_dim = a->plan->head_dim;
  val past_rows = mul_const(k, add_const(k, a->lanes.warp, -WARPGROUP_WARPS), WARP_ROWS);
  bool whole = head_dim % GROUP_ROWS == 0;
  struct sums x = {
      .group = add_const(k, lanes_warpgroup(k, &a->lanes), -1),
      .has_rows = is_lt(k, whole ? i32(k, 0) : past_rows, i32(k, head_dim)),
      .ones = ones_operand(k, a->plan->ones_offset),
      .ones_a = a->plan->block > BOX_ROWS ? ones_frag_shared(k, a->plan->ones_offset)
                                          : ones_frag(k, a->plan->block),
      .v_sum = frag_new(k, head_dim),
      .h = frag_new(k, head_dim),
      .h_sum = frag_new(k, head_dim),
  };
  for (enum input i = Q; i < INPUTS; i++) {
    x.column[i] = frag_new(k, ONES_COLUMNS);
  }
  frag_clear(k, &x.h_sum);
  return x;
}

/* All matrix products of inputs [0, inputs) of a block: column sums X^T 1, and for H also 1^T V and
   K^T V. */
static void multiply(struct ir *k, const struct statistics *a, struct sums *x, struct slot slot,
                     enum input inputs) {
  const int steps = a->plan->block / K_STEP;
  struct operand transposed[INPUTS];
  for (enum input i = Q; i < inputs; i++) {
    struct tile tile = input_tile(k, a, slot, i);
    transposed[i] = tile_mn_major_at(k, &tile, x->group);
  }
  struct tile v_tile = input_tile(k, a, slot, V);
  struct operand v = tile_mn_major(k, &v_tile, 0);
  wgmma_fence(k);
  for (enum input i = Q; i < inputs; i++) {
    if (wants_mean(a, i)) {
      wgmma_ss(k, &x->column[i], WGMMA_FRESH, &transposed[i], &x->ones, steps);
    }
  }
  if (a->plan->wants_h && inputs == INPUTS) {
    wgmma_rs(k, &x->v_sum, WGMMA_FRESH, &x->ones_a, 0, &v, steps);
    wgmma_ss(k, &x->h, WGMMA_FRESH, &transposed[K], &v, steps);
  }
  wgmma_commit(k);
}

static void finish_products(struct ir *k, const struct statistics *a, struct sums *x,
                            enum input inputs) {
  for (enum input i = Q; i < inputs; i++) {
    if (wants_mean(a, i)) {
      wgmma_wait(k, 0, &x->column[i], 0, NULL);
    }
  }
  if (a->plan->wants_h && inputs == INPUTS) {
    const struct frag_a *kept[] = {&x->ones_a};
    wgmma_wait(k, 0, &x->v_sum, 1, kept);
    wgmma_wait(k, 0, &x->h, 0, NULL);
  }
}

/* 1 / rows of block j of an array of n rows; 1 where there is no such block (its sums are zero). */
static val inverse_length(struct ir *k, const struct statistics *a, val n, val j) {
  val rest = sub(k, n, mul_const(k, j, a->plan->block));
  val length = smax(k, smin(k, rest, i32(k, a->plan->block)), i32(k, 1));
  return reciprocal_approx(k, to_float(k, length));
}

static struct rowval mean_of(struct ir *k, const struct sums *x, enum input input, val inverse) {
  return rowval_scale(k, frag_any_column(k, &x->column[input]), inverse);
}

struct output { /* one row of an array [heads, blocks, D] of half */
  val array, head, blocks, j;
};

static void store_row(struct ir *k, const struct statistics *a, const struct sums *x,
                      struct output to, struct rowval value) {
  const int row_bytes = a->plan->head_dim * HALF;
  val index = add(k, mul(k, to.head, to.blocks), to.j);
  val row = at_row(k, to.array, index, i32(k, row_bytes));
  rowval_store_half(k, value, at(k, row, mul_const(k, x->group, GROUP_ROWS * HALF)), &a->lanes);
}

/* Rank-1 centring with the mean as it is in f32, before it was rounded for storing. */
static void centre(struct ir *k, const struct sums *x, struct rowval k_mean) {
  frag_subtract_outer(k, &x->h, k_mean, &x->v_sum);
}

/* Sum of squares, less the mean's share, over the length. Rounding may leave less than nothing. */
static struct rowval variance_of(struct ir *k, const struct sums *x, struct rowval squares,
                                 struct rowval mean, val inverse) {
  struct rowval sum = frag_any_column(k, &x->column[K]), variance;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val rest = fused(k, negate(k, mean.r[r]), sum.r[r], squares.r[r]);
    variance.r[r] = maximum(k, mul(k, rest, inverse), f32(k, 0));
  }
  return variance;
}

/* This warp's share of what is wanted in h_norm2. */
static void store_part(struct ir *k, const struct statistics *a, struct block block, val sum) {
  val index = add(k, mul(k, block.head, a->k_blocks), block.j);
  val parts = at_row(k, ARG(h_norm2), index, i32(k, NORM_PARTS * F32));
  val consumer_warp = add_const(k, a->lanes.warp, -WARPGROUP_WARPS);
  ONE_THREAD (k) {
    val mine = at(k, parts, mul_const(k, consumer_warp, F32));
    store(k, sum, mine, F32);
    for (int part = consumer_warps(a); part < NORM_PARTS; part += consumer_warps(a)) {
      store(k, f32(k, 0), at_const(k, mine, part * F32), F32);
    }
  }
}

/* Hands over the sum of H_j when the head or this CTA's range ends, in slot cta + head: unique, as
   along the CTAs' ranges one of the two grows at every flush. */
static void flush(struct ir *k, const struct statistics *a, struct sums *x, struct block block,
                  val index) {
  val head_ends = is_eq(k, block.j, add_const(k, ARG(blocks), -1));
  val range_ends = is_eq(k, index, add_const(k, a->end, -1));
  IF (k, either(k, head_ends, range_ends)) {
    const int row_bytes = a->plan->head_dim * F32;
    val slot = add(k, cta_index(k), block.head);
    val part = at_row(k, ARG(h_part), slot, i32(k, a->plan->head_dim * row_bytes));
    val rows = at(k, part, mul_const(k, x->group, GROUP_ROWS * row_bytes));
    IF (k, x->has_rows) {
      frag_store_f32(k, &x->h_sum, rows, &a->lanes);
    }
    frag_clear(k, &x->h_sum);
  }
}

static void consume_query_mean(struct ir *k, const struct statistics *a, struct sums *x,
                               struct block block, struct rowval mean) {
  IF (k, is_lt(k, block.q_j, a->q_blocks)) {
    struct output to = {ARG(q_mean), block.q_head, a->q_blocks, block.q_j};
    IF (k, x->has_rows) {
      store_row(k, a, x, to, mean);
    }
  }
}

/* |variance| where it is wanted, else NULL. */
static void consume_keys(struct ir *k, const struct statistics *a, struct sums *x,
                         struct block block, const struct rowval mean[INPUTS],
                         const struct rowval *variance) {
  IF (k, has_keys(k, a, block)) {
    IF (k, x->has_rows) {
      struct output to = {ARG(k_mean), block.head, a->k_blocks, block.j};
      store_row(k, a, x, to, mean[K]);
      if (wants_mean(a, V)) {
        to.array = ARG(v_mean);
        store_row(k, a, x, to, mean[V]);
      }
      if (a->plan->wants_variance) {
        to.array = ARG(k_variance);
        store_row(k, a, x, to, rowval_scale(k, *variance, ARG(variance_scale)));
      }
    }
    if (a->plan->wants_h_norm) {
      store_part(k, a, block, warp_sum(k, frag_square_sum(k, &x->h)));
    } else if (a->plan->wants_trace) {
      store_part(k, a, block, rowval_warp_sum(k, *variance));
    }
  }
  if (a->plan->wants_h_sum) {
    frag_add(k, &x->h_sum, &x->h);
  }
}

/* |squares| of the keys where they are wanted, else NULL. */
static void consume_sums(struct ir *k, const struct statistics *a, struct sums *x,
                         struct block block, enum input inputs, const struct rowval *squares) {
  struct rowval mean[INPUTS], variance;
  val q_inverse = inverse_length(k, a, ARG(n_q), block.q_j);
  val k_inverse = inverse_length(k, a, ARG(n_k), block.j);
  for (enum input i = Q; i < inputs; i++) {
    if (wants_mean(a, i)) {
      mean[i] = mean_of(k, x, i, i == Q ? q_inverse : k_inverse);
    }
  }
  if (inputs == INPUTS && a->plan->wants_h) {
    centre(k, x, mean[K]);
  }
  if (squares) {
    variance = variance_of(k, x, *squares, mean[K], k_inverse);
  }
  consume_query_mean(k, a, x, block, mean[Q]);
  if (inputs == INPUTS) {
    consume_keys(k, a, x, block, mean, squares ? &variance : NULL);
  }
}

/* Before the products, beside which registers would run short. Every lane has read its keys before
   one of them gives the stage back. */
static struct rowval key_squares(struct ir *k, const struct statistics *a, const struct sums *x,
                                 struct slot slot) {
  struct tile keys = input_tile(k, a, slot, K);
  struct rowval squares = tile_column_squares(k, &keys, x->group, &a->lanes);
  warp_sync(k);
  return squares;
}

static void consume_inputs(struct ir *k, const struct statistics *a, struct sums *x,
                           struct ring_place *place, struct block block, enum input inputs) {
  const bool wanted = wants_squares(a) && inputs == INPUTS;
  struct rowval squares;
  struct slot slot = ring_slot(k, place);
  if (wanted) {
    squares = key_squares(k, a, x, slot);
  }
  multiply(k, a, x, slot, inputs);
  finish_products(k, a, x, inputs);
  ONE_THREAD (k) {
    ring_release(k, &a->ring, slot);
  }
  ring_advance(k, &a->ring, place);
  consume_sums(k, a, x, block, inputs, wanted ? &squares : NULL);
}

/* As load_block. */
static void consume_block(struct ir *k, const struct statistics *a, struct sums *x,
                          struct ring_place *place, struct block block) {
  if (a->plan->group == 1) {
    consume_inputs(k, a, x, place, block, INPUTS);
    return;
  }
  IF (k, has_keys(k, a, block)) {
    consume_inputs(k, a, x, place, block, INPUTS);
  }
  ELSE (k) {
    consume_inputs(k, a, x, place, block, K);
  }
}

static void consume(struct ir *k, const struct statistics *a) {
  struct ring_place place = ring_start(k);
  struct sums x = sums_new(k, a);
  FOR (k, index, a->first, a->end) {
    struct block block = block_at(k, a, index);
    ring_wait(k, &a->ring, ring_slot(k, &place));
    consume_block(k, a, &x, &place, block);
    if (a->plan->wants_h_sum) {
      flush(k, a, &x, block, index);
    }
  }
}

/* ---- the kernel ---- */

static val blocks_of(struct ir *k, const struct statistics *a, val n) {
  return udiv(k, add_const(k, n, a->plan->block - 1), i32(k, a->plan->block));
}

/* T x / C without 64-bit division: (T / C) x + (T mod C) x / C, for x <= C < 2^16. */
static val share(struct ir *k, val x) {
  val total = mul(k, ARG(total_heads), ARG(blocks)), ctas = cta_count(k);
  val each = udiv(k, total, ctas), rest = sub(k, total, mul(k, each, ctas));
  return add(k, mul(k, each, x), udiv(k, mul(k, rest, x), ctas));
}

static struct statistics statistics_open(struct ir *k, const struct plan_statistics *plan) {
  struct statistics a = {.plan = plan, .lanes = lanes_new(k)};
  a.columns = tile_columns(plan->head_dim);
  a.groups = a.columns / GROUP_ROWS;
  int stage_bytes = INPUTS * input_bytes(&a);
  a.ring = (struct ring){plan->stages, 0, stage_bytes, plan->barrier_offset, {0}};
  assert(plan->stages * stage_bytes <= plan->ones_offset);
  assert(plan->ones_offset + ONES_BYTES <= plan->barrier_offset);
  assert(plan->barrier_offset + ring_barrier_bytes(plan->stages) <= plan->kernel.smem_bytes);
  a.first = share(k, cta_index(k));
  a.end = share(k, add_const(k, cta_index(k), 1));
  a.q_blocks = blocks_of(k, &a, ARG(n_q));
  a.k_blocks = blocks_of(k, &a, ARG(n_k));
  return a;
}

void kernel_statistics(struct ir *k, const struct plan_statistics *plan) {
  assert(plan->block % BOX_ROWS == 0 && plan->head_dim % WARP_ROWS == 0);
  assert(!plan->wants_h_norm || !plan->wants_trace); /* they share h_norm2 */
  assert(plan->head_dim <= MAX_GROUPS * GROUP_ROWS && plan->group >= 1);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_STATISTICS_N_ARGS, statistics_args);
  struct statistics a = statistics_open(k, plan);
  IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
    ONE_THREAD (k) {
      ring_init(k, &a.ring, consumer_warps(&a));
      mbarrier_init_done(k);
      tma_prefetch(k, ARG(q));
      tma_prefetch(k, ARG(k));
      if (wants(&a, V)) {
        tma_prefetch(k, ARG(v));
      }
    }
  }
  ones_fill(k, plan->ones_offset);
  fence_async_proxy(k);
  cta_sync(k);
  launch_handover(k);
  IF (k, is_eq(k, lanes_warpgroup(k, &a.lanes), i32(k, 0))) {
    registers_shrink(k, plan->producer_registers);
    IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
      ONE_THREAD (k) {
        produce(k, &a);
      }
    }
  }
  ELSE (k) {
    val computes = is_le(k, lanes_warpgroup(k, &a.lanes), i32(k, a.groups));
    IF (k, a.groups == MAX_GROUPS ? is_eq(k, i32(k, 0), i32(k, 0)) : computes) {
      registers_grow(k, plan->consumer_registers);
      consume(k, &a);
    }
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
