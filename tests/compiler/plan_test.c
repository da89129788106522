/* plan_test.c: how many blocks are kept, and that costs are those of the formulas. */
#include <math.h>
#include <stdio.h>

#include "compiler/plan/cost.h"
#include "compiler/plan/kept.h"
#include "dsl/arena.h"

#define CHECK(condition)                                                                           \
  ((condition)                                                                                     \
       ? (void)0                                                                                   \
       : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), failures++, (void)0))
static int failures;

static struct spec spec_of(void) {
  return (struct spec){
      .name = "test",
      .shape = {.heads = 24, .kv_heads = 24, .head_dim = 128},
      .blocks = {.query = 128, .key = 64},
      .route = {.kind = ROUTE_TOP_K, .budget = BUDGET_DENSITY, .density = {29, 100}},
      .attend = {.rest = TAIL_TAYLOR_HYBRID},
  };
}

/* The most that any query block reads. */
static int64_t kept_most(const struct spec *spec, int64_t tokens) {
  int64_t most = 0;
  for (int64_t i = 0; i * spec->blocks.query < tokens; i++) {
    int64_t kept = kept_blocks(spec, tokens, i);
    CHECK(!kept_are_alike(spec) || i == 0 || kept == most);
    most = kept > most ? kept : most;
  }
  return most;
}

static void keeps(void) {
  struct spec spec = spec_of();
  CHECK(kept_most(&spec, 6400) == 29); /* exact decimals: 0.29 of 100 blocks */
  CHECK(kept_most(&spec, 64) == 1);
  CHECK(kept_most(&spec, 1) == 1);
  spec.route.budget = BUDGET_KEEP;
  spec.route.keep = 8;
  CHECK(kept_most(&spec, 6400) == 8);
  CHECK(kept_most(&spec, 130) == 3); /* capped at NT */

  spec.route.keep = 1;
  spec.route.always_blocks = ALWAYS_FIRST | ALWAYS_LAST;
  CHECK(kept_most(&spec, 6400) == 2);
  CHECK(kept_most(&spec, 64) == 1); /* first and last are the same block */
  spec.route.n_always = 2;
  spec.route.always[0] = (struct always_tokens){ALWAYS_RANGE, 100, 200}; /* blocks 1 to 3 */
  spec.route.always[1] = (struct always_tokens){ALWAYS_TOKENS_LAST, 0, 65};
  CHECK(kept_most(&spec, 6400) == 6);
  CHECK(kept_most(&spec, 6401) == 6); /* the last 65 tokens: a block of one token, and one of 64 */
  CHECK(kept_most(&spec, 150) == 3);
  spec.attend.all_exact = true;
  CHECK(kept_most(&spec, 6401) == 101);
  spec.shape.mask = MASK_CAUSAL; /* what its last row sees */
  CHECK(kept_blocks(&spec, 6401, 0) == 2 && kept_blocks(&spec, 6401, 1) == 4);
  CHECK(kept_blocks(&spec, 6401, 50) == 101 && kept_most(&spec, 6401) == 101);
}

static void windows(void) {
  struct spec spec = spec_of();
  spec.route.budget = BUDGET_KEEP;
  spec.route.keep = 1;
  CHECK(plan_window(&spec) == -1);
  spec.route.always_blocks = ALWAYS_DIAGONAL;
  CHECK(plan_window(&spec) == 0);
  CHECK(kept_most(&spec, 6400) == 2); /* 128 rows touch two blocks of 64 keys */
  spec.blocks.key = 128;
  CHECK(kept_most(&spec, 6400) == 1);
  spec.blocks.query = spec.blocks.key = 64;
  CHECK(kept_most(&spec, 6400) == 1);
  spec.route.always_blocks = 0;
  spec.route.always_window = 3;
  CHECK(plan_window(&spec) == 3);
  CHECK(kept_most(&spec, 6400) == 7);
  CHECK(kept_most(&spec, 320) == 5); /* clipped at both ends */
  spec.route.n_always = 1;
  spec.route.always[0] = (struct always_tokens){ALWAYS_RANGE, 0, 128};
  CHECK(kept_most(&spec, 6400) == 9);
  CHECK(kept_most(&spec, 512) == 8); /* query block 4: [1, 8), and 0 */
  CHECK(kept_blocks(&spec, 6400, 0) == 4 && kept_blocks(&spec, 6400, 50) == 9);
  spec.route.keep = 6; /* a list with fewer forced blocks is filled up */
  CHECK(kept_blocks(&spec, 6400, 0) == 6 && kept_blocks(&spec, 6400, 50) == 9);
}

static void thresholds(void) {
  struct spec spec = spec_of();
  spec.route.budget = BUDGET_THRESHOLD;
  spec.route.threshold = (struct decimal){1, 1};
  CHECK(kept_most(&spec, 64000) == 159); /* 15.87 % of 1000 */
  spec.route.threshold = (struct decimal){100, 1};
  CHECK(kept_most(&spec, 64000) == 1); /* the best */
  spec.route.threshold = (struct decimal){2, 1};
  spec.route.always_window = 1;
  CHECK(kept_blocks(&spec, 64000, 0) == 3 + 23); /* 2.28 % of 997 beside */
}

static void costs(struct arena *arena) {
  struct spec spec = spec_of();
  spec.route.density = (struct decimal){125, 1000};
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  struct costs c = cost_of(plan, 32768);
  CHECK(c.n_launches == 3 && c.items == 24 * 256 && c.kept == 64);
  CHECK(c.exact_tiles == 32 && c.mean_tiles == 4);
  CHECK(fabs(c.dense_flops / (4.0 * 24 * 32768 * 32768 * 128) - 1) < 1e-12);
  /* (32 + 4) tiles of 4 * 128^3 and half a one for the first order, per item */
  CHECK(fabs(c.flops / (24 * 256 * 36.5 * 4 * 128 * 128 * 128) - 1) < 1e-12);
  CHECK(c.seconds > 2.4e-3 && c.seconds < 2.7e-3); /* 2.79 ms were measured */
  int64_t n = cost_crossover(arena, plan);
  CHECK(n > 0 && n < 4096);
  spec.attend.all_exact = true;
  spec.route.kind = ROUTE_NONE;
  CHECK(cost_crossover(arena, plan_choose(arena, &spec, &target_sm90a, "")) == 0);
}

/* Half the query rows: the same FLOP, twice the keys and values through L2. */
static void costs_of_streams(struct arena *arena) {
  struct spec spec = spec_of();
  struct costs wide = cost_of(plan_choose(arena, &spec, &target_sm90a, ""), 32768);
  spec.blocks.query = 64;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  struct costs narrow = cost_of(plan, 32768);
  CHECK(plan->attend.streams == 2 && plan->attend.tile_k == 64);
  CHECK(narrow.items == 2 * wide.items && narrow.exact_tiles == 148 && narrow.mean_tiles == 8);
  CHECK(fabs(narrow.flops / wide.flops - 1) < 1e-12);
  CHECK(narrow.launch[2].l2_bytes > 1.9 * wide.launch[2].l2_bytes);
}

/* The variance of 24 * 512 blocks of 64 keys x 128: two products of 64 x 64 x 64 each; and half a
   tile more of every mean tile. */
static void costs_of_variance(struct arena *arena) {
  struct spec spec = spec_of();
  struct costs zeroth = cost_of(plan_choose(arena, &spec, &target_sm90a, ""), 32768);
  spec.attend.mass_second_order = true;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  struct costs second = cost_of(plan, 32768);
  CHECK(plan->statistics.wants_variance && !plan->statistics.wants_trace);
  double statistics = second.launch[0].flops - zeroth.launch[0].flops;
  CHECK(fabs(statistics / (24 * 512 * 2 * 2 * 64.0 * 64 * 64) - 1) < 1e-12);
  double written = second.launch[0].hbm_bytes - zeroth.launch[0].hbm_bytes;
  CHECK(fabs(written / (24 * 512 * 128 * 2.0) - 1) < 1e-12);
  double attend = second.flops - zeroth.flops;
  CHECK(fabs(attend / (24 * 256 * 4 * 2 * 128.0 * 128 * 128) - 1) < 1e-12);
}

static void key_blocks_of_128(struct arena *arena) {
  struct spec spec = spec_of();
  spec.blocks.key = 128;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->statistics.block == 128 && plan->statistics.stages == 2 && plan->route.key == 128);
  CHECK(plan->statistics.kernel.smem_bytes <= target_sm90a.smem_bytes);
  CHECK(plan->attend.tile_k == 128 && plan->attend.block == 128);
  struct costs c = cost_of(plan, 32760);
  CHECK(c.key_blocks == 256 && c.kept == 74 && c.exact_tiles == 74 && c.mean_tiles == 2);
}

static void fits(struct arena *arena) {
  struct spec spec = spec_of();
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->statistics.kernel.smem_bytes <= target_sm90a.smem_bytes);
  CHECK(plan->attend.kernel.smem_bytes <= target_sm90a.smem_bytes);
  CHECK(plan->attend.tile_k == 128 && plan->attend.k_stages == 2 && plan->n_rejections > 0);
  CHECK(plan->attend_edge.edge && !plan->attend.edge);
  int threads = plan->attend.kernel.threads;
  CHECK(plan->attend.kernel.entry_registers * threads <= target_sm90a.registers);
  CHECK(plan->attend.producer_registers * 128 + plan->attend.consumer_registers * 256 <=
        target_sm90a.registers);
}

static void wants(struct arena *arena) {
  struct spec spec = spec_of();
  spec.attend.rest = TAIL_TAYLOR_1;
  spec.attend.mass_second_order = true;
  spec.route.term = TERM_LOG_RESIDUAL;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  const struct plan_statistics *s = &plan->statistics;
  CHECK(s->wants_h && s->wants_h_sum && !s->wants_h_norm && !s->wants_v && !s->wants_variance);
  CHECK(plan->wants_residual && plan->residual.stages >= 2 && !plan->route.reduces_h);
  CHECK(plan->residual.kernel.smem_bytes <= target_sm90a.smem_bytes);
  CHECK(plan->attend.linear && plan->attend.second_order && !plan->attend.means);
  CHECK(plan->route.rest_follows && !plan->route.pairs && !plan->below);
  spec.attend.rest = TAIL_TAYLOR_HYBRID;
  spec.attend.mass_second_order = false;
  plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->statistics.wants_h_sum && plan->statistics.wants_v && plan->route.reduces_h);
  CHECK(!plan->attend.linear && !plan->route.rest_follows);
}

/* As much as dense attention, without the exponentials of what is not listed; the second pass
   reads k and v. */
static void costs_of_taylor_1(struct arena *arena) {
  struct spec spec = spec_of();
  spec.route.density = (struct decimal){125, 1000};
  spec.route.term = TERM_LOG_RESIDUAL;
  spec.attend.rest = TAIL_TAYLOR_1;
  struct costs c = cost_of(plan_choose(arena, &spec, &target_sm90a, ""), 32768);
  CHECK(c.n_launches == 4 && c.exact_tiles == 32 && c.linear_tiles == 224);
  CHECK(fabs(c.flops / c.dense_flops - 1) < 1e-12);
  CHECK(fabs(c.launch[3].exps / (24 * 32768.0 * (4096 + 448)) - 1) < 1e-12);
  CHECK(c.launch[1].hbm_bytes > 24 * 32768 * 128 * 4.0);
  CHECK(fabs(c.launch[1].flops / (24 * 512 * 2 * 64 * 128.0 * 128) - 1) < 1e-12);
}

static void half_tiles(struct arena *arena) {
  struct spec spec = spec_of();
  spec.half_tile = true;
  spec.route.budget = BUDGET_KEEP;
  spec.route.keep = 9;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->attend.half_tile);
  struct costs c = cost_of(plan, 64 * 65); /* 65 means: two halves */
  CHECK(c.exact_tiles == 4.5 && c.mean_tiles == 1);
  CHECK(cost_of(plan, 64 * 64).mean_tiles == 0.5);
}

/* Two query blocks of 64 rows in the CTA of one of 128; the general kernel has a stream for each.
 */
static void pairs(struct arena *arena) {
  struct spec spec = spec_of();
  spec.blocks.query = 64;
  struct costs apart = cost_of(plan_choose(arena, &spec, &target_sm90a, ""), 32768);
  spec.lists = LISTS_UNION;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->route.pairs && plan->attend.pairs && !plan->attend_edge.pairs);
  CHECK(plan->attend.tile_q == 128 && plan->attend.streams == 1 && plan->attend.tile_k == 128);
  CHECK(plan->attend_edge.tile_q == 64 && plan->attend_edge.streams == 2);
  CHECK(plan->attend_edge.edge && !plan->attend.edge);
  struct costs together = cost_of(plan, 32768);
  CHECK(together.items * 2 == apart.items && together.query_blocks == apart.query_blocks);
  CHECK(fabs(together.flops / apart.flops - 1) < 1e-12);
  CHECK(together.launch[2].l2_bytes < 0.8 * apart.launch[2].l2_bytes);
}

static void short_sequences(struct arena *arena) {
  struct spec spec = spec_of();
  spec.blocks.query = 64;
  spec.below.kind = BELOW_DENSE;
  spec.below.tokens = 1024;
  const struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  CHECK(plan->below && plan->dense.dense && !plan->dense.edge && plan->dense_edge.edge);
  CHECK(plan->dense.tile_q == 128 && plan->dense.block == 64 && !plan->dense.first_order);
  CHECK(plan->attend.tile_q == 64 && plan->attend.first_order);
  struct costs dense = cost_of(plan, 1023);
  CHECK(dense.n_launches == 1 && dense.kept == 16 && dense.query_blocks == 8);
  CHECK(dense.launch[0].kernel == &plan->dense.kernel);
  CHECK(cost_of(plan, 1024).n_launches == 3);
  int64_t n = cost_crossover(arena, plan);
  CHECK(n > 1024 && n < 4096);
}

int main(void) {
  struct arena arena;
  arena_init(&arena);
  keeps();
  windows();
  thresholds();
  costs(&arena);
  costs_of_streams(&arena);
  costs_of_variance(&arena);
  key_blocks_of_128(&arena);
  fits(&arena);
  wants(&arena);
  costs_of_taylor_1(&arena);
  half_tiles(&arena);
  pairs(&arena);
  short_sequences(&arena);
  arena_fini(&arena);
  return failures != 0;
}
