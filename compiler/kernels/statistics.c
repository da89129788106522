/* statistics: one pass over q, k and v. For every block j of 64 rows of a head

       qbar_j, kbar_j, vbar_j      means over the block's rows, stored as half
       H_j = sum_n (k_n - kbar_j)^T v_n = K^T V - kbar_j vsum_j^T     (D x D, never in memory)
       ||H_j||_F^2                 as 8 partial sums, one per warp, which the reader adds in order
       sum_j H_j                   f32, one partial per CTA and head

   Persistent: CTA c of G takes blocks [T c / G, T (c + 1) / G) of the T blocks of all heads, one
   head after the other. A producer thread fills the ring with q, k and v blocks; two warpgroups
   compute 64 rows of H each. Nothing depends on timing: same input, same bits. */
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

enum { GROUPS = 2, GROUP_ROWS = 64, CONSUMER_WARPS = 8, BF16 = 2, F32 = 4 };
enum input { Q, K, V, INPUTS }; /* their order in a stage of the ring */

struct statistics { /* what both roles know */
  const struct plan_statistics *plan;
  struct lanes lanes;
  struct ring ring;
  val first, end;         /* this CTA's blocks */
  val q_blocks, k_blocks; /* NQ64, NT: block j of q (of k, v) exists when j is less */
};

static bool wants_mean(const struct statistics *a, enum input input) {
  return input != V || a->plan->wants_v;
}

static bool wants(const struct statistics *a, enum input input) {
  return wants_mean(a, input) || a->plan->wants_h;
}

struct block {
  val head, j; /* head counts through the batch */
};

static struct block block_at(struct ir *k, val index) {
  val head = udiv(k, index, ARG(blocks));
  return (struct block){head, sub(k, index, mul(k, head, ARG(blocks)))};
}

static struct tile input_tile(struct ir *k, const struct statistics *a, struct slot slot,
                              enum input input) {
  int offset = (int)input * tile_bytes(a->plan->block, a->plan->head_dim);
  val address = add_const(k, ring_address(k, &a->ring, slot), offset);
  return tile_new(k, address, a->plan->block, a->plan->head_dim);
}

/* ---- producer ---- */

static void load_block(struct ir *k, const struct statistics *a, struct slot slot,
                       struct block block) {
  const val map[INPUTS] = {ARG(q), ARG(k), ARG(v)};
  val batch = udiv(k, block.head, ARG(heads));
  val head = sub(k, block.head, mul(k, batch, ARG(heads)));
  struct place4 from = {mul_const(k, block.j, a->plan->block), head, batch};
  int inputs = wants(a, V) ? INPUTS : INPUTS - 1;
  ring_expect(k, &a->ring, slot, inputs * tile_bytes(a->plan->block, a->plan->head_dim));
  for (enum input i = Q; i < INPUTS; i++) {
    if (wants(a, i)) {
      struct tile tile = input_tile(k, a, slot, i);
      tma_load_rows(k, &tile, 0, map[i], from, ring_full(k, &a->ring, slot));
    }
  }
}

static void produce(struct ir *k, const struct statistics *a) {
  struct ring_place place = ring_start(k);
  FOR (k, index, a->first, a->end) {
    struct slot slot = ring_slot(k, &place);
    ring_acquire(k, &a->ring, slot);
    load_block(k, a, slot, block_at(k, index));
    ring_advance(k, &a->ring, &place);
  }
}

/* ---- consumers ---- */

struct sums { /* of one block, 64 columns of the inputs = 64 rows of H per warpgroup */
  val group;
  struct operand ones;
  struct frag_a ones_a;
  struct frag column[INPUTS]; /* sum over rows of each column, one per fragment row */
  struct frag v_sum;          /* vsum_j as a row, the same in every fragment row */
  struct frag h, h_sum;       /* K^T V, then H_j; sum of H_j since the last flush */
};

static struct sums sums_new(struct ir *k, const struct statistics *a) {
  const int head_dim = a->plan->head_dim;
  struct sums x = {
      .group = add_const(k, lanes_warpgroup(k, &a->lanes), -1),
      .ones = ones_operand(k, a->plan->ones_offset),
      .ones_a = ones_frag(k, a->plan->block),
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

/* All matrix products of a block: column sums X^T 1, and for H also 1^T V and K^T V. */
static void multiply(struct ir *k, const struct statistics *a, struct sums *x, struct slot slot) {
  const int steps = a->plan->block / K_STEP;
  struct operand transposed[INPUTS];
  for (enum input i = Q; i < INPUTS; i++) {
    struct tile tile = input_tile(k, a, slot, i);
    transposed[i] = tile_mn_major_at(k, &tile, x->group);
  }
  struct tile v_tile = input_tile(k, a, slot, V);
  struct operand v = tile_mn_major(k, &v_tile, 0);
  wgmma_fence(k);
  for (enum input i = Q; i < INPUTS; i++) {
    if (wants_mean(a, i)) {
      wgmma_ss(k, &x->column[i], WGMMA_FRESH, &transposed[i], &x->ones, steps);
    }
  }
  if (a->plan->wants_h) {
    wgmma_rs(k, &x->v_sum, WGMMA_FRESH, &x->ones_a, &v, steps);
    wgmma_ss(k, &x->h, WGMMA_FRESH, &transposed[K], &v, steps);
  }
  wgmma_commit(k);
}

static void finish_products(struct ir *k, const struct statistics *a, struct sums *x) {
  for (enum input i = Q; i < INPUTS; i++) {
    if (wants_mean(a, i)) {
      wgmma_wait(k, 0, &x->column[i], 0, NULL);
    }
  }
  if (a->plan->wants_h) {
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

struct output { /* one array [BH, blocks of a head, D] of means */
  val array, blocks;
};

static void store_mean(struct ir *k, const struct statistics *a, const struct sums *x,
                       struct output to, struct block block, struct rowval mean) {
  const int row_bytes = a->plan->head_dim * BF16;
  val index = add(k, mul(k, block.head, to.blocks), block.j);
  val row = at_row(k, to.array, index, i32(k, row_bytes));
  rowval_store_half(k, mean, at(k, row, mul_const(k, x->group, GROUP_ROWS * BF16)), &a->lanes);
}

/* Rank-1 centring with the mean as it is in f32, before it was rounded for storing. */
static void centre(struct ir *k, const struct sums *x, struct rowval k_mean) {
  frag_subtract_outer(k, &x->h, k_mean, &x->v_sum);
}

static void store_norm(struct ir *k, const struct statistics *a, const struct sums *x,
                       struct block block) {
  val sum = warp_sum(k, frag_square_sum(k, &x->h));
  val index = add(k, mul(k, block.head, a->k_blocks), block.j);
  val parts = at_row(k, ARG(h_norm2), index, i32(k, CONSUMER_WARPS * F32));
  val consumer_warp = add_const(k, a->lanes.warp, -WARPGROUP_WARPS);
  ONE_THREAD (k) {
    store(k, sum, at(k, parts, mul_const(k, consumer_warp, F32)), F32);
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
    frag_store_f32(k, &x->h_sum, rows, &a->lanes);
    frag_clear(k, &x->h_sum);
  }
}

static void consume_block(struct ir *k, const struct statistics *a, struct sums *x,
                          struct block block) {
  val q_inverse = inverse_length(k, a, ARG(n_q), block.j);
  val k_inverse = inverse_length(k, a, ARG(n_k), block.j);
  struct rowval mean[INPUTS];
  for (enum input i = Q; i < INPUTS; i++) {
    if (wants_mean(a, i)) {
      struct rowval sum = frag_any_column(k, &x->column[i]);
      mean[i] = rowval_scale(k, sum, i == Q ? q_inverse : k_inverse);
    }
  }
  if (a->plan->wants_h) {
    centre(k, x, mean[K]);
  }
  IF (k, is_lt(k, block.j, a->q_blocks)) {
    store_mean(k, a, x, (struct output){ARG(q_mean), a->q_blocks}, block, mean[Q]);
  }
  IF (k, is_lt(k, block.j, a->k_blocks)) {
    store_mean(k, a, x, (struct output){ARG(k_mean), a->k_blocks}, block, mean[K]);
    if (wants_mean(a, V)) {
      store_mean(k, a, x, (struct output){ARG(v_mean), a->k_blocks}, block, mean[V]);
    }
    if (a->plan->wants_h_norm) {
      store_norm(k, a, x, block);
    }
  }
  if (a->plan->wants_h_sum) {
    frag_add(k, &x->h_sum, &x->h);
  }
}

static void consume(struct ir *k, const struct statistics *a) {
  struct ring_place place = ring_start(k);
  struct sums x = sums_new(k, a);
  FOR (k, index, a->first, a->end) {
    struct slot slot = ring_slot(k, &place);
    struct block block = block_at(k, index);
    ring_wait(k, &a->ring, slot);
    multiply(k, a, &x, slot);
    finish_products(k, a, &x);
    ONE_THREAD (k) {
      ring_release(k, &a->ring, slot);
    }
    ring_advance(k, &a->ring, &place);
    consume_block(k, a, &x, block);
    if (a->plan->wants_h_sum) {
      flush(k, a, &x, block, index);
    }
  }
}

/* ---- the kernel ---- */

static val blocks_of(struct ir *k, const struct statistics *a, val n) {
  return udiv(k, add_const(k, n, a->plan->block - 1), i32(k, a->plan->block));
}

/* T x / G without 64-bit division: (T / G) x + (T mod G) x / G, for x <= G < 2^16. */
static val share(struct ir *k, val x) {
  val total = mul(k, ARG(total_heads), ARG(blocks)), ctas = cta_count(k);
  val each = udiv(k, total, ctas), rest = sub(k, total, mul(k, each, ctas));
  return add(k, mul(k, each, x), udiv(k, mul(k, rest, x), ctas));
}

static struct statistics statistics_open(struct ir *k, const struct plan_statistics *plan) {
  struct statistics a = {.plan = plan, .lanes = lanes_new(k)};
  int stage_bytes = INPUTS * tile_bytes(plan->block, plan->head_dim);
  a.ring = (struct ring){plan->stages, 0, stage_bytes, plan->barrier_offset};
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
  assert(plan->block == BOX_ROWS && plan->head_dim == GROUPS * GROUP_ROWS);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_STATISTICS_N_ARGS, statistics_args);
  struct statistics a = statistics_open(k, plan);
  IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
    ONE_THREAD (k) {
      ring_init(k, &a.ring, CONSUMER_WARPS);
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
    registers_grow(k, plan->consumer_registers);
    consume(k, &a);
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
