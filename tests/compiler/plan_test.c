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
  costs(&arena);
  fits(&arena);
  arena_fini(&arena);
  return failures != 0;
}
