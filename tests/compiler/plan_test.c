/* plan_test.c: how many blocks are kept, and that costs are those of the formulas. */
#include <math.h>
#include <stdio.h>

#include "compiler/plan/cost.h"
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

static void keeps(void) {
  struct spec spec = spec_of();
  CHECK(cost_kept(&spec, 6400) == 29); /* exact decimals: 0.29 of 100 blocks */
  CHECK(cost_kept(&spec, 64) == 1);
  CHECK(cost_kept(&spec, 1) == 1);
  spec.route.budget = BUDGET_KEEP;
  spec.route.keep = 8;
  CHECK(cost_kept(&spec, 6400) == 8);
  CHECK(cost_kept(&spec, 130) == 3); /* capped at NT */

  spec.route.keep = 1;
  spec.route.always_blocks = ALWAYS_FIRST | ALWAYS_LAST;
  CHECK(cost_kept(&spec, 6400) == 2);
  CHECK(cost_kept(&spec, 64) == 1); /* first and last are the same block */
  spec.route.n_always = 2;
  spec.route.always[0] = (struct always_tokens){ALWAYS_RANGE, 100, 200}; /* blocks 1 to 3 */
  spec.route.always[1] = (struct always_tokens){ALWAYS_TOKENS_LAST, 0, 65};
  CHECK(cost_kept(&spec, 6400) == 6);
  CHECK(cost_kept(&spec, 6401) == 6); /* the last 65 tokens: a block of one token, and one of 64 */
  CHECK(cost_kept(&spec, 150) == 3);
  spec.attend.all_exact = true;
  CHECK(cost_kept(&spec, 6401) == 101);
}

static void windows(void) {
  struct spec spec = spec_of();
  spec.route.budget = BUDGET_KEEP;
  spec.route.keep = 1;
  CHECK(plan_window(&spec) == -1);
  spec.route.always_blocks = ALWAYS_DIAGONAL;
  CHECK(plan_window(&spec) == 0);
  CHECK(cost_kept(&spec, 6400) == 2); /* 128 rows touch two blocks of 64 keys */
  spec.blocks.key = 128;
  CHECK(cost_kept(&spec, 6400) == 1);
  spec.blocks.query = spec.blocks.key = 64;
  CHECK(cost_kept(&spec, 6400) == 1);
  spec.route.always_blocks = 0;
  spec.route.always_window = 3;
  CHECK(plan_window(&spec) == 3);
  CHECK(cost_kept(&spec, 6400) == 7);
  CHECK(cost_kept(&spec, 320) == 5); /* clipped at both ends */
  spec.route.n_always = 1;
  spec.route.always[0] = (struct always_tokens){ALWAYS_RANGE, 0, 128};
  CHECK(cost_kept(&spec, 6400) == 9);
  CHECK(cost_kept(&spec, 512) == 8); /* query block 4: [1, 8), and 0 */
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

int main(void) {
  struct arena arena;
  arena_init(&arena);
  keeps();
  windows();
  costs(&arena);
  costs_of_streams(&arena);
  costs_of_variance(&arena);
  key_blocks_of_128(&arena);
  fits(&arena);
  arena_fini(&arena);
  return failures != 0;
}
