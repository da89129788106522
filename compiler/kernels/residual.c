/* residual: a second pass over k and v, once all H_j are summed. For every block j of a head

       ||H_j - Hbar||_F^2     as 8 partial sums, one per warp, which the reader adds in order
       Hbar = (1 / NT) sum_j H_j     from the partial sums of statistics, in the order of its CTAs

   H_j is formed again as there (h_block.h); Hbar stays in registers, in f32, while a CTA's blocks
   are of one head. Blocks behind the keys of a sequence do not count in NT and have zeros. */
#include "compiler/kernels/blocks.h"
#include "compiler/kernels/h_block.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/tma.h"
#include "runtime/abi.def"

static const struct ir_arg residual_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_RESIDUAL_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_RESIDUAL_##name])

enum { F32 = 4, INPUTS = 2, BOTH = SET_K | SET_V };

struct residual { /* what both roles know */
  const struct plan_residual *plan;
  struct pass pass;
  struct sequences sequences;
  struct range blocks; /* this CTA's */
};

/* ---- producer ---- */

static void load_block(struct ir *k, const struct residual *a, const struct walk *w,
                       struct slot slot) {
  const val maps[MAX_INPUTS] = {ARG(k), ARG(v)};
  struct place4 place = walk_place(k, &a->sequences, w);
  const struct place4 from[MAX_INPUTS] = {place, place};
  pass_load(k, &a->pass, slot, BOTH, maps, from);
}

static void ask_first(struct ir *k, const struct residual *a, const struct walk *w) {
  const val maps[MAX_INPUTS] = {ARG(k), ARG(v)};
  struct place4 place = walk_place(k, &a->sequences, w);
  const struct place4 from[MAX_INPUTS] = {place, place};
  pass_ask(k, &a->pass, BOTH, maps, from);
}

static void produce(struct ir *k, const void *kernel) {
  const struct residual *a = kernel;
  struct ring_place place = ring_start(k);
  struct walk walk = walk_start(k, &a->sequences, a->blocks.first);
  ask_first(k, a, &walk);
  walk_enter(k, &a->sequences, &walk);
  FOR (k, index, a->blocks.first, a->blocks.end) {
    IF (k, walk_has_keys(k, &a->sequences, &walk)) {
      struct slot slot = ring_slot(k, &place);
      ring_acquire(k, &a->pass.ring, slot);
      load_block(k, a, &walk, slot);
      ring_advance(k, &a->pass.ring, &place);
    }
    walk_on(k, &a->sequences, &walk);
  }
}

/* ---- consumers ---- */

struct sums {
  struct h_block x;
  struct frag h_bar;
};

/* This warpgroup's rows of Hbar. */
static void take_mean(struct ir *k, const struct residual *a, const struct sums *s,
                      const struct walk *w) {
  const int row_bytes = a->plan->head_dim * F32;
  const struct parts parts = {ARG(total_heads), ARG(stat_blocks), ARG(stat_ctas)};
  struct range slots = parts_of_head(k, &parts, get(k, w->head));
  frag_clear(k, &s->h_bar);
  IF (k, s->x.has_rows) {
    FOR (k, slot, slots.first, slots.end) {
      val part = at_row(k, ARG(h_part), slot, i32(k, a->plan->head_dim * row_bytes));
      val rows = at(k, part, mul_const(k, s->x.group, GROUP_ROWS * row_bytes));
      frag_add_f32(k, &s->h_bar, rows, &a->pass.lanes);
    }
  }
  val n = to_float(k, blocks_in(k, get(k, w->keys), a->plan->block));
  val each = reciprocal_approx(k, n);
  frag_scale_rows(k, &s->h_bar, (struct rowval){{each, each}});
}

/* This warp's part of ||H_j - Hbar||^2. */
static val consume_block(struct ir *k, const struct residual *a, const struct sums *s,
                         const struct walk *w, struct slot slot) {
  const struct h_block *x = &s->x;
  val keys = get(k, w->keys), j = get(k, w->j);
  pass_cut(k, &a->pass, slot, keys, ARG(n_k), j);
  h_block_multiply(k, &a->pass, x, slot, BOTH, true);
  h_block_wait_sums(k, x, BOTH, true);
  h_block_put_row(k, &a->pass, x, slot);
  struct rowval mean = h_block_mean(k, x, INPUT_K, inverse_rows(k, keys, j, a->plan->block));
  h_block_finish(k, &a->pass, x, slot);
  h_block_release(k, &a->pass, slot);
  h_block_centre(k, x, mean);
  frag_subtract(k, &x->h, &s->h_bar);
  return warp_sum(k, frag_square_sum(k, &x->h));
}

static void consume(struct ir *k, const void *kernel) {
  const struct residual *a = kernel;
  struct ring_place place = ring_start(k);
  struct walk walk = walk_start(k, &a->sequences, a->blocks.first);
  struct sums s = {.x = h_block_new(k, &a->pass, true)};
  s.h_bar = frag_new(k, a->plan->head_dim);
  walk_enter(k, &a->sequences, &walk);
  FOR (k, index, a->blocks.first, a->blocks.end) {
    struct var part = var_init(k, f32(k, 0));
    val enters = is_eq(k, get(k, walk.j), i32(k, 0));
    IF (k, walk_has_keys(k, &a->sequences, &walk)) {
      IF (k, either(k, enters, is_eq(k, index, a->blocks.first))) {
        take_mean(k, a, &s, &walk);
      }
      struct slot slot = ring_slot(k, &place);
      ring_wait(k, &a->pass.ring, slot);
      set(k, part, consume_block(k, a, &s, &walk, slot));
      ring_advance(k, &a->pass.ring, &place);
    }
    store_part(k, &a->pass, ARG(h_norm2), index, get(k, part));
    walk_on(k, &a->sequences, &walk);
  }
}

/* ---- the kernel ---- */

static struct residual residual_open(struct ir *k, const struct plan_residual *plan) {
  struct pass pass = {.head_dim = plan->head_dim,
                      .block = plan->block,
                      .inputs = INPUTS,
                      .stages = plan->stages,
                      .ones_offset = plan->ones_offset,
                      .barrier_offset = plan->barrier_offset,
                      .producer_registers = plan->producer_registers,
                      .consumer_registers = plan->consumer_registers};
  struct residual a = {.plan = plan, .pass = pass_open(k, pass, plan->kernel.smem_bytes)};
  a.sequences = (struct sequences){plan->block, ARG(total_heads), ARG(heads),
                                   ARG(blocks), ARG(n_k),         ARG(lengths)};
  a.blocks = cta_range(k, mul(k, ARG(total_heads), ARG(blocks)));
  return a;
}

void kernel_residual(struct ir *k, const struct plan_residual *plan) {
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_RESIDUAL_N_ARGS, residual_args);
  struct residual a = residual_open(k, plan);
  const val maps[MAX_INPUTS] = {ARG(k), ARG(v)};
  pass_run(k, &a.pass, maps, produce, consume, &a);
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
