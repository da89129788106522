/* statistics: one pass over q, k and v. For every block j of 64 (128) rows of a head

       qbar_j, kbar_j, vbar_j      means over the block's rows, stored as half
       H_j = sum_n (k_n - kbar_j)^T v_n     (D x D, never in memory; h_block.h)
       ||H_j||_F^2                 as 8 partial sums, one per warp, which the reader adds in order
       sum_j H_j                   f32, one partial per CTA and head
       var_j = (sum_n k_n^2 - len_j kbar_j^2) / len_j     by column; times a scale, as half
       tr C_j = sum of var_j       as 8 partial sums in the place of those of ||H_j||^2

   Blocks behind the keys of a sequence have zeros instead of all these. CTAs share the blocks of
   all key/value heads (blocks.h). Query heads that share keys and values come along: their blocks
   of query rows count through, one per block of the key/value head, while there are any. Nothing
   depends on timing: same input, same bits. */
#include <assert.h>

#include "compiler/kernels/blocks.h"
#include "compiler/kernels/h_block.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/tma.h"
#include "runtime/abi.def"

static const struct ir_arg statistics_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_STATISTICS_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_STATISTICS_##name])

enum { HALF = 2, F32 = 4 };

struct statistics { /* what both roles know */
  const struct plan_statistics *plan;
  struct pass pass;
  struct sequences sequences;
  struct range blocks;    /* this CTA's */
  val q_blocks, k_blocks; /* NQS, NT: block j of q (of k, v) exists when j is less */
};

static bool wants_squares(const struct statistics *a) {
  return a->plan->wants_variance || a->plan->wants_trace;
}

/* The inputs that are read and whose columns are summed, of a block with keys. */
static unsigned inputs_of(const struct statistics *a) {
  return a->plan->wants_v || a->plan->wants_h ? SET_Q | SET_K | SET_V : SET_Q | SET_K;
}

/* ---- the walk ---- */

/* Along the blocks of queries, where heads share keys: query heads [G head, G head + G) read
   key/value head |head|. Behind the blocks of the last one q_j runs on past NQS. */
struct query_walk {
  struct var member, q_j; /* of query head G head + member */
};

static struct query_walk query_start(struct ir *k, const struct statistics *a,
                                     const struct walk *walk) {
  struct query_walk w = {0};
  if (a->plan->group > 1) {
    val j = get(k, walk->j);
    val member = umin(k, udiv(k, j, a->q_blocks), i32(k, a->plan->group - 1));
    w.member = var_init(k, member);
    w.q_j = var_init(k, sub(k, j, mul(k, member, a->q_blocks)));
  }
  return w;
}

static void query_on(struct ir *k, const struct statistics *a, const struct query_walk *w,
                     val resets) {
  if (a->plan->group > 1) {
    val zero = i32(k, 0), member = get(k, w->member), q_j = add_const(k, get(k, w->q_j), 1);
    val ends = is_eq(k, q_j, a->q_blocks), others = is_lt(k, member, i32(k, a->plan->group - 1));
    val turns = both(k, ends, others);
    member = add(k, member, widen_bool(k, turns));
    set(k, w->member, choose(k, resets, zero, member));
    set(k, w->q_j, choose(k, either(k, resets, turns), zero, q_j));
  }
}

struct block {     /* heads count through the batch */
  val head, j;     /* of k and v */
  val q_head, q_j; /* of q */
  val keys;        /* of the sequence */
  val has_keys;    /* block j has some */
};

static val query_head(struct ir *k, const struct statistics *a, const struct query_walk *w,
                      val head) {
  const int group = a->plan->group;
  return group > 1 ? add(k, mul_const(k, head, group), get(k, w->member)) : head;
}

static struct block block_at(struct ir *k, const struct statistics *a, const struct walk *w,
                             const struct query_walk *q) {
  struct block b = {.head = get(k, w->head)};
  b.j = get(k, w->j);
  b.q_head = query_head(k, a, q, b.head);
  b.q_j = a->plan->group > 1 ? get(k, q->q_j) : b.j;
  b.keys = get(k, w->keys);
  b.has_keys = walk_has_keys(k, &a->sequences, w);
  return b;
}

/* ---- producer ---- */

/* Where the tiles of a block lie, each in its map. */
struct tiles {
  val maps[MAX_INPUTS];
  struct place4 from[MAX_INPUTS];
};

static struct tiles tiles_of(struct ir *k, const struct statistics *a, const struct walk *walk,
                             const struct query_walk *queries) {
  struct place4 place = walk_place(k, &a->sequences, walk);
  struct tiles tiles = {{ARG(k), ARG(v), ARG(q)}, {place, place, place}};
  struct place4 *q = &tiles.from[INPUT_Q];
  val q_j = a->plan->group > 1 ? get(k, queries->q_j) : get(k, walk->j);
  q->head = query_head(k, a, queries, place.head);
  q->row = mul_const(k, q_j, a->plan->block);
  return tiles;
}

static void load_block(struct ir *k, const struct statistics *a, struct slot slot,
                       const struct walk *walk, const struct query_walk *queries) {
  struct tiles tiles = tiles_of(k, a, walk, queries);
  IF (k, walk_has_keys(k, &a->sequences, walk)) {
    pass_load(k, &a->pass, slot, inputs_of(a), tiles.maps, tiles.from);
  }
  ELSE (k) {
    pass_load(k, &a->pass, slot, SET_Q, tiles.maps, tiles.from);
  }
}

static void produce(struct ir *k, const void *kernel) {
  const struct statistics *a = kernel;
  struct ring_place place = ring_start(k);
  struct walk walk = walk_start(k, &a->sequences, a->blocks.first);
  struct query_walk queries = query_start(k, a, &walk);
  struct tiles first = tiles_of(k, a, &walk, &queries);
  pass_ask(k, &a->pass, inputs_of(a), first.maps, first.from);
  walk_enter(k, &a->sequences, &walk);
  FOR (k, index, a->blocks.first, a->blocks.end) {
    struct slot slot = ring_slot(k, &place);
    ring_acquire(k, &a->pass.ring, slot);
    load_block(k, a, slot, &walk, &queries);
    query_on(k, a, &queries, walk_on(k, &a->sequences, &walk));
    ring_advance(k, &a->pass.ring, &place);
  }
}

/* ---- consumers ---- */

struct sums {
  struct h_block x;
  struct frag h_sum; /* of H_j since the last flush */
};

struct output { /* one row of an array [heads, blocks, D] of half */
  val array, head, blocks, j;
};

static void store_row(struct ir *k, const struct statistics *a, const struct h_block *x,
                      struct output to, struct rowval value) {
  const int row_bytes = a->plan->head_dim * HALF;
  val index = add(k, mul(k, to.head, to.blocks), to.j);
  val row = at_row(k, to.array, index, i32(k, row_bytes));
  rowval_store_half(k, value, at(k, row, mul_const(k, x->group, GROUP_ROWS * HALF)),
                    &a->pass.lanes);
}

static void store_query_mean(struct ir *k, const struct statistics *a, const struct h_block *x,
                             struct block block) {
  val inverse = inverse_rows(k, ARG(n_q), block.q_j, a->plan->block);
  struct rowval mean = h_block_mean(k, x, INPUT_Q, inverse);
  IF (k, both(k, is_lt(k, block.q_j, a->q_blocks), x->has_rows)) {
    struct output to = {ARG(q_mean), block.q_head, a->q_blocks, block.q_j};
    store_row(k, a, x, to, mean);
  }
}

struct key_rows { /* of one block, in their outputs */
  struct rowval k_mean, v_mean, variance;
};

static void store_key_rows(struct ir *k, const struct statistics *a, const struct h_block *x,
                           struct block block, const struct key_rows *rows) {
  struct output to = {ARG(k_mean), block.head, a->k_blocks, block.j};
  IF (k, x->has_rows) {
    store_row(k, a, x, to, rows->k_mean);
    if (a->plan->wants_v) {
      to.array = ARG(v_mean);
      store_row(k, a, x, to, rows->v_mean);
    }
    if (a->plan->wants_variance) {
      to.array = ARG(k_variance);
      store_row(k, a, x, to, rowval_scale(k, rows->variance, ARG(variance_scale)));
    }
  }
}

static void store_norm(struct ir *k, const struct statistics *a, struct block block, val part) {
  val index = add(k, mul(k, block.head, a->k_blocks), block.j);
  store_part(k, &a->pass, ARG(h_norm2), index, part);
}

/* What is written of a block that has no keys. */
static void store_nothing(struct ir *k, const struct statistics *a, const struct h_block *x,
                          struct block block) {
  const struct rowval zero = {{f32(k, 0), f32(k, 0)}};
  IF (k, is_lt(k, block.j, a->k_blocks)) {
    store_key_rows(k, a, x, block, &(struct key_rows){zero, zero, zero});
    if (a->plan->wants_h_norm || a->plan->wants_trace) {
      store_norm(k, a, block, f32(k, 0));
    }
  }
}

/* Sum of squares, less the mean's share, over the length. Rounding may leave less than nothing. */
static struct rowval variance_of(struct ir *k, const struct h_block *x, struct rowval squares,
                                 struct rowval mean, val inverse) {
  struct rowval sum = frag_any_column(k, &x->column[INPUT_K]), variance;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val rest = fused(k, negate(k, mean.r[r]), sum.r[r], squares.r[r]);
    variance.r[r] = maximum(k, mul(k, rest, inverse), f32(k, 0));
  }
  return variance;
}

/* Hands over the sum of H_j when the head or this CTA's range ends, in slot cta + head: unique, as
   along the CTAs' ranges one of the two grows at every flush. */
static void flush(struct ir *k, const struct statistics *a, const struct sums *s,
                  struct block block, val index) {
  val head_ends = is_eq(k, block.j, add_const(k, ARG(blocks), -1));
  val range_ends = is_eq(k, index, add_const(k, a->blocks.end, -1));
  IF (k, either(k, head_ends, range_ends)) {
    const int row_bytes = a->plan->head_dim * F32;
    val slot = add(k, cta_index(k), block.head);
    val part = at_row(k, ARG(h_part), slot, i32(k, a->plan->head_dim * row_bytes));
    val rows = at(k, part, mul_const(k, s->x.group, GROUP_ROWS * row_bytes));
    IF (k, s->x.has_rows) {
      frag_store_f32(k, &s->h_sum, rows, &a->pass.lanes);
    }
    frag_clear(k, &s->h_sum);
  }
}

/* Of the keys, before the products, beside which registers would run short. */
static struct rowval squares_of(struct ir *k, const struct statistics *a, const struct h_block *x,
                                struct slot slot) {
  struct tile keys = pass_tile(k, &a->pass, slot, INPUT_K);
  return tile_column_squares(k, &keys, x->group, &a->pass.lanes);
}

/* While K^T V is in flight the sums are dealt with. */
static void consume_all(struct ir *k, const struct statistics *a, const struct sums *s,
                        struct slot slot, struct block block) {
  const struct plan_statistics *plan = a->plan;
  const struct h_block *x = &s->x;
  struct rowval squares;
  struct key_rows rows;
  pass_cut(k, &a->pass, slot, block.keys, ARG(n_k), block.j);
  if (wants_squares(a)) {
    squares = squares_of(k, a, x, slot);
  }
  h_block_multiply(k, &a->pass, x, slot, inputs_of(a), plan->wants_h);
  h_block_wait_sums(k, x, inputs_of(a), plan->wants_h);
  if (plan->wants_h) {
    h_block_put_row(k, &a->pass, x, slot);
  } else {
    h_block_release(k, &a->pass, slot);
  }
  val inverse = inverse_rows(k, block.keys, block.j, plan->block);
  rows.k_mean = h_block_mean(k, x, INPUT_K, inverse);
  if (plan->wants_v) {
    rows.v_mean = h_block_mean(k, x, INPUT_V, inverse);
  }
  if (wants_squares(a)) {
    rows.variance = variance_of(k, x, squares, rows.k_mean, inverse);
  }
  store_query_mean(k, a, x, block);
  store_key_rows(k, a, x, block, &rows);
  if (plan->wants_trace) {
    store_norm(k, a, block, rowval_warp_sum(k, rows.variance));
  }
  if (plan->wants_h) {
    h_block_finish(k, &a->pass, x, slot);
    h_block_release(k, &a->pass, slot);
    h_block_centre(k, x, rows.k_mean);
  }
  if (plan->wants_h_norm) {
    store_norm(k, a, block, warp_sum(k, frag_square_sum(k, &x->h)));
  }
  if (plan->wants_h_sum) {
    frag_add(k, &s->h_sum, &x->h);
  }
}

static void consume_queries(struct ir *k, const struct statistics *a, const struct sums *s,
                            struct slot slot, struct block block) {
  h_block_multiply(k, &a->pass, &s->x, slot, SET_Q, false);
  h_block_wait_sums(k, &s->x, SET_Q, false);
  h_block_release(k, &a->pass, slot);
  store_query_mean(k, a, &s->x, block);
  store_nothing(k, a, &s->x, block);
}

static void consume(struct ir *k, const void *kernel) {
  const struct statistics *a = kernel;
  struct ring_place place = ring_start(k);
  struct walk walk = walk_start(k, &a->sequences, a->blocks.first);
  struct query_walk queries = query_start(k, a, &walk);
  struct sums s = {.x = h_block_new(k, &a->pass, a->plan->wants_h)};
  if (a->plan->wants_h_sum) {
    s.h_sum = frag_new(k, a->plan->head_dim);
    frag_clear(k, &s.h_sum);
  }
  walk_enter(k, &a->sequences, &walk);
  FOR (k, index, a->blocks.first, a->blocks.end) {
    struct slot slot = ring_slot(k, &place);
    struct block block = block_at(k, a, &walk, &queries);
    ring_wait(k, &a->pass.ring, slot);
    IF (k, block.has_keys) {
      consume_all(k, a, &s, slot, block);
    }
    ELSE (k) {
      consume_queries(k, a, &s, slot, block);
    }
    if (a->plan->wants_h_sum) {
      flush(k, a, &s, block, index);
    }
    query_on(k, a, &queries, walk_on(k, &a->sequences, &walk));
    ring_advance(k, &a->pass.ring, &place);
  }
}

/* ---- the kernel ---- */

static struct statistics statistics_open(struct ir *k, const struct plan_statistics *plan) {
  struct pass pass = {.head_dim = plan->head_dim,
                      .block = plan->block,
                      .inputs = MAX_INPUTS,
                      .stages = plan->stages,
                      .ones_offset = plan->ones_offset,
                      .barrier_offset = plan->barrier_offset,
                      .producer_registers = plan->producer_registers,
                      .consumer_registers = plan->consumer_registers};
  struct statistics a = {.plan = plan, .pass = pass_open(k, pass, plan->kernel.smem_bytes)};
  a.sequences = (struct sequences){plan->block, ARG(total_heads), ARG(heads),
                                   ARG(blocks), ARG(n_k),         ARG(lengths)};
  a.blocks = cta_range(k, mul(k, ARG(total_heads), ARG(blocks)));
  a.q_blocks = blocks_in(k, ARG(n_q), plan->block);
  a.k_blocks = blocks_in(k, ARG(n_k), plan->block);
  return a;
}

void kernel_statistics(struct ir *k, const struct plan_statistics *plan) {
  assert(!plan->wants_h_norm || !plan->wants_trace); /* they share h_norm2 */
  assert(plan->group >= 1);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_STATISTICS_N_ARGS, statistics_args);
  struct statistics a = statistics_open(k, plan);
  val none = {0};
  const val maps[MAX_INPUTS] = {ARG(k), has_input(inputs_of(&a), INPUT_V) ? ARG(v) : none, ARG(q)};
  pass_run(k, &a.pass, maps, produce, consume, &a);
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
