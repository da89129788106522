/* selection_test.c: plans of block selection: what is built, what cannot be, and that costs are
   those of the formulas. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/plan/cost.h"
#include "compiler/plan/cost_selection.h"
#include "compiler/plan/kept.h"
#include "compiler/plan/limits.h"
#include "dsl/arena.h"

#define CHECK(condition)                                                                           \
  ((condition)                                                                                     \
       ? (void)0                                                                                   \
       : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), failures++, (void)0))
static int failures;

/* That of the paper. */
static struct spec spec_of(void) {
  return (struct spec){
      .name = "test",
      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
      .pyramid = {.leaf = 64, .group = 2},
      .route = {.kind = ROUTE_PYRAMID,
                .score = SCORE_LSE,
                .reduce = REDUCE_SUM,
                .keep = 8,
                .always_blocks = ALWAYS_FIRST | ALWAYS_PREVIOUS | ALWAYS_CURRENT},
      .phases = {.prefill = true, .query_tile = 4},
  };
}

static const struct plan *plan_of(struct arena *arena, const struct spec *spec) {
  struct spec *copy = ARENA_NEW(arena, struct spec);
  *copy = *spec;
  return plan_choose(arena, copy, &target_sm90a, "");
}

static void plans(struct arena *arena) {
  struct spec spec = spec_of();
  const struct plan *plan = plan_of(arena, &spec);
  const struct plan_pyramid *p = &plan->pyramid;
  CHECK(plan->selects && !plan->routed && plan->n_rejections == 0);
  CHECK(p->clustered && p->group == 16 && p->query_tile == 4 && p->span == 16);
  CHECK(p->n_always == 1 && p->always[0].kind == ALWAYS_TOKENS_FIRST && p->always[0].end == 1);
  CHECK(p->previous && p->current && p->causal && p->attends && !p->flat && !p->decode);
  spec.route.start_nodes = 8;
  spec.phases.decode = true;
  CHECK(plan_of(arena, &spec)->pyramid.decode_start_nodes == 8);
  spec.route.decode_start_nodes = -1;
  CHECK(plan_of(arena, &spec)->pyramid.decode_start_nodes == 0);
  spec.route.decode_start_nodes = 128;
  CHECK(plan_of(arena, &spec)->pyramid.decode_start_nodes == 128);
  CHECK(plan_of(arena, &spec)->pyramid.start_nodes == 8);
  spec.phases.prefill = false;
  CHECK(!plan_of(arena, &spec)->pyramid.clustered);
}

static int kernels_of(const struct plan *plan) {
  const struct plan_kernel *kernels[PLAN_PYRAMID_KERNELS];
  return plan_pyramid_kernels(&plan->pyramid, kernels);
}

/* Leaves in the walk where they cannot be scored in clusters; the plan says why. */
static void stages(struct arena *arena) {
  struct spec spec = spec_of();
  CHECK(kernels_of(plan_of(arena, &spec)) == 11);
  spec.leaf_stage = LEAF_FUSED;
  CHECK(kernels_of(plan_of(arena, &spec)) == 7);
  CHECK(plan_of(arena, &spec)->n_rejections == 0);
  spec.leaf_stage = LEAF_AUTOMATIC;
  spec.pyramid.group = 4;
  const struct plan *plan = plan_of(arena, &spec);
  CHECK(!plan->pyramid.clustered && plan->n_rejections == 1);
  CHECK(strcmp(plan->rejections[0].candidate, "leaf_stage=clustered") == 0);
  spec = spec_of();
  spec.route.always_blocks = ALWAYS_FIRST;
  CHECK(!plan_of(arena, &spec)->pyramid.clustered);
  spec = spec_of();
  spec.route.score = SCORE_MEAN;
  CHECK(!plan_of(arena, &spec)->pyramid.clustered);
  spec.route.kind = ROUTE_FLAT;
  plan = plan_of(arena, &spec);
  CHECK(plan->pyramid.flat && kernels_of(plan) == 7 && plan->n_rejections == 0);
}

static int limits(struct arena *arena, const struct spec *spec) {
  return limits_of(arena, spec).n;
}

static void what_cannot_be(struct arena *arena) {
  struct spec spec = spec_of();
  CHECK(limits(arena, &spec) == 0);
  spec.phases.query_tile = 8;
  CHECK(limits(arena, &spec) == 1);
  spec.shape.kv_heads = 11; /* 3 heads take 4 rows */
  spec.shape.heads = 33;
  CHECK(plan_query_tile(&spec) == 16);
  spec.shape.kv_heads = 33;
  CHECK(plan_query_tile(&spec) == 64);
  spec.shape.kv_heads = 1; /* 33 heads */
  CHECK(plan_query_tile(&spec) == 4 && limits(arena, &spec) == 2);
  spec = spec_of();
  spec.leaf_stage = LEAF_CLUSTERED;
  CHECK(limits(arena, &spec) == 0);
  spec.route.start_nodes = 64;
  CHECK(limits(arena, &spec) == 1);
  spec.below.kind = BELOW_FLAT;
  CHECK(limits(arena, &spec) == 1);
  spec = spec_of();
  spec.below.kind = BELOW_DENSE;
  spec.phases.decode = true;
  CHECK(limits(arena, &spec) == 0);
  spec.pages.present = true;
  spec.pages.size = 64;
  CHECK(limits(arena, &spec) == 1); /* dense kernels find keys in one piece, */
  spec.phases.prefill = false;
  CHECK(limits(arena, &spec) == 0); /* which decode does not run */
}

/* Short prompts are attended densely; with a causal mask by the edge kernel alone. */
static void dense_below(struct arena *arena) {
  struct spec spec = spec_of();
  spec.below.kind = BELOW_DENSE;
  spec.below.tokens = 2048;
  const struct plan *plan = plan_of(arena, &spec);
  CHECK(plan->selects && plan->below && plan->dense_edge.causal && plan->dense_edge.dense);
  CHECK(plan->dense_edge.block == 64 && plan->dense_edge.tile_q == 128 && !plan->decodes);
  CHECK(strcmp(plan->dense_edge.kernel.entry, "pisa_dense_edge") == 0);
  struct costs costs = cost_of(plan, 2047);
  CHECK(costs.n_launches == 1 && costs.launch[0].kernel == &plan->dense_edge.kernel);
  spec.shape.mask = MASK_NONE;
  spec.route.always_blocks = 0;
  plan = plan_of(arena, &spec);
  CHECK(plan->below && !plan->dense_edge.causal && cost_of(plan, 64).attend == &plan->dense);
  spec = spec_of();
  spec.below.kind = BELOW_DENSE;
  spec.phases.prefill = false;
  spec.phases.decode = true;
  CHECK(!plan_of(arena, &spec)->below);
}

/* The decoding of dense packs: attention over all keys, and nothing that selects. */
static void dense_decoding(struct arena *arena) {
  struct spec spec = {.name = "test",
                      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
                      .blocks = {.query = 128, .key = 64},
                      .attend = {.all_exact = true},
                      .phases = {.prefill = true, .decode = true}};
  const struct plan_kernel *kernels[PLAN_PYRAMID_KERNELS];
  const struct plan *plan = plan_of(arena, &spec);
  const struct plan_pyramid *p = &plan->pyramid;
  CHECK(plan->prefills && plan->decodes && !plan->selects && plan->attend_edge.causal);
  CHECK(p->dense && p->causal && p->group == 16 && p->leaf == 64 && p->page == 0);
  CHECK(plan_pyramid_kernels(p, kernels) == 2 && kernels[0] == &p->decode_attend &&
        kernels[1] == &p->decode_merge);
  CHECK(limits(arena, &spec) == 0);
  spec.pages.present = true;
  spec.pages.size = 32;
  CHECK(limits(arena, &spec) == 1); /* prefill finds keys in one piece */
  spec.phases.prefill = false;
  CHECK(limits(arena, &spec) == 0);
  plan = plan_of(arena, &spec);
  CHECK(!plan->prefills && plan->decodes && plan->pyramid.page == 32);
  spec.shape.head_dim = 96;
  CHECK(limits(arena, &spec) == 1);
  spec.shape.kv_heads = 1;
  spec.shape.heads = 33;
  CHECK(limits(arena, &spec) == 2);
}

static void forced(void) {
  struct spec spec = spec_of();
  CHECK(forced_nodes(&spec, 6400, 0, 64) == 1 && forced_nodes(&spec, 6400, 1, 64) == 2);
  CHECK(forced_nodes(&spec, 6400, 2, 64) == 3 && forced_nodes(&spec, 6400, 99, 64) == 3);
  CHECK(forced_nodes(&spec, 6400, 99, 128) == 2 && forced_nodes(&spec, 6400, 98, 128) == 3);
  CHECK(forced_nodes(&spec, 6400, 99, 8192) == 1);
  spec.route.n_always = 1;
  spec.route.always[0] = (struct always_tokens){ALWAYS_RANGE, 100, 300}; /* leaves 1 to 4 */
  CHECK(forced_nodes(&spec, 6400, 99, 64) == 7);
  CHECK(forced_nodes(&spec, 6400, 2, 64) == 3); /* the others are not seen yet */
}

/* A late query at 256 K tokens, at the paper's geometry: 13 levels, of which the root
   and those of 2, 4 and 8 nodes are not scored; 16 candidates, of which the first, and one or two
   around the own, are not ranked. */
static void costs(struct arena *arena) {
  struct spec spec = spec_of();
  const struct plan *plan = plan_of(arena, &spec);
  struct selection_costs c = selection_cost_of(plan, 262144);
  CHECK(c.levels == 13 && c.last[12].candidates == 1 && c.last[9].ranked == 0);
  CHECK(c.last[8].nodes == 16 && c.last[8].candidates == 16 && c.last[8].ranked == 14);
  CHECK(c.last[0].nodes == 4096 && c.last[0].candidates == 16 && c.last[0].ranked == 13);
  CHECK(c.query.means > 178 && c.query.means < 190 && c.query.keys > 790 && c.query.keys < 840);
  CHECK(c.n_launches == 8 && c.launch[7].kernel == &plan->pyramid.attend_blocks);
  CHECK(c.tile_queries == 4 && fabs(c.query.forced - 3) < 0.01);
  CHECK(c.expected.select > 3.9e-3 && c.expected.select < 4.4e-3); /* 4.07 to 4.35 ms measured */
  CHECK(c.expected.attend > 5.6e-3 && c.expected.attend < 6.6e-3); /* 6.22 */
  CHECK(c.expected.folded > 2.2e-3 && c.expected.folded < 2.6e-3); /* 2.41 */
  CHECK(c.expected.means > 5 * c.expected.folded);
  CHECK(selection_is_measured(plan));
}

/* Of the lists of four neighbours, 8 leaves each, 3 forced ones are the same: 23 of 32 are read,
   and all 64 rows are multiplied with them. */
static void tiles(struct arena *arena) {
  struct spec spec = spec_of();
  const struct plan *plan = plan_of(arena, &spec);
  struct selection_costs c = selection_cost_of(plan, 262144);
  const struct cost *blocks = &c.launch[c.n_launches - 1];
  double rows = selection_rows(plan, &c), keys = 23.0 / 4 * 64;
  CHECK(fabs(blocks->l2_bytes / (rows * (2 * keys + 32) * 64 * 2) - 1) < 0.01);
  CHECK(fabs(blocks->flops / (rows * keys * 64 * 4 * 64) - 1) < 0.01);
  spec.shape.heads = 16; /* 8 a key head: tiles of 8 queries, which read 43 of 64 leaves */
  plan = plan_of(arena, &spec);
  c = selection_cost_of(plan, 262144);
  blocks = &c.launch[c.n_launches - 1];
  keys = 43.0 / 8 * 64;
  CHECK(c.tile_queries == 8 && !selection_is_measured(plan));
  CHECK(fabs(blocks->l2_bytes / (rows * (2 * keys + 16) * 64 * 2) - 1) < 0.01);
  CHECK(fabs(blocks->flops / (rows * keys * 64 * 4 * 64) - 1) < 0.01);
  spec.shape.heads = 80; /* 40 a key head: each query alone */
  plan = plan_of(arena, &spec);
  c = selection_cost_of(plan, 262144);
  blocks = &c.launch[c.n_launches - 1];
  CHECK(c.tile_queries == 1 && !selection_is_measured(plan));
  CHECK(fabs(blocks->l2_bytes / (rows * (16 * 64 + 80) * 64 * 2) - 1) < 0.01);
}

/* From a crossover on, and not before, the rival takes more time. */
static void crossovers(struct arena *arena) {
  struct spec spec = spec_of();
  const struct plan *plan = plan_of(arena, &spec);
  int64_t least[] = {1024, 16384, 262144, 2048, 8192, SELECTION_LEAST_TOKENS};
  int64_t most[] = {8192, 65536, 1 << 20, 8192, 32768, 4096};
  for (int i = RIVAL_FLAT; i <= RIVAL_STEPS; i++) {
    const enum selection_rival rival = (enum selection_rival)i;
    int64_t n = selection_crossover(plan, rival);
    CHECK(n >= least[i] && n < most[i]);
    struct selection_costs at = selection_cost_of(plan, n);
    CHECK(selection_own_seconds(&at, rival) < selection_rival_seconds(&at, rival));
    if (n > SELECTION_LEAST_TOKENS) {
      struct selection_costs before = selection_cost_of(plan, n * 8 / 9 - 1);
      CHECK(selection_own_seconds(&before, rival) >= selection_rival_seconds(&before, rival));
    }
  }
}

static void costs_of_others(struct arena *arena) {
  struct spec spec = spec_of();
  struct selection_costs lse = selection_cost_of(plan_of(arena, &spec), 65536);
  struct selection_costs one = selection_cost_of(plan_of(arena, &spec), 1);
  CHECK(one.levels == 1 && one.query.listed == 1 && one.query.means == 0 && one.query.keys == 0);
  spec.route.start_nodes = 128;
  spec.leaf_stage = LEAF_FUSED;
  struct selection_costs wide = selection_cost_of(plan_of(arena, &spec), 65536);
  CHECK(wide.last[3].candidates == 128 && wide.last[4].candidates == 0);
  CHECK(wide.query.means > lse.query.means && wide.n_launches == 4);
  spec = spec_of();
  spec.route.reduce = REDUCE_MASS; /* forced nodes are scored, the first leaf by its mean */
  struct selection_costs mass = selection_cost_of(plan_of(arena, &spec), 65536);
  CHECK(mass.last[0].ranked == 16 && mass.query.keys > lse.query.keys);
  CHECK(mass.workspace > lse.workspace);
  double more = mass.expected.select / lse.expected.select; /* 1.186 measured */
  CHECK(more > 1.12 && more < 1.25);
  spec.route.score = SCORE_MEAN;
  spec.route.kind = ROUTE_FLAT;
  struct selection_costs flat = selection_cost_of(plan_of(arena, &spec), 65536);
  CHECK(flat.query.keys == 0 && fabs(flat.query.means / 512 - 1) < 0.02);
  CHECK(flat.expected.select == flat.expected.flat && flat.expected.flat == flat.expected.means);
}

int main(void) {
  struct arena arena;
  arena_init(&arena);
  plans(&arena);
  stages(&arena);
  what_cannot_be(&arena);
  dense_below(&arena);
  dense_decoding(&arena);
  forced();
  costs(&arena);
  tiles(&arena);
  crossovers(&arena);
  costs_of_others(&arena);
  arena_fini(&arena);
  return failures != 0;
}
