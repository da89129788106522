/* plan.c: in goes a spec that can be built; out comes the shape of its kernels. Candidates are
   tried in order of preference; the first that fits is taken, and every other one leaves its
   reason. */
#include "compiler/plan/choose.h"

#include "dsl/arena.h"
#include "runtime/abi.def"

/* A block flag is the token range that touches this block and no other: the first token, the last
 * token. */
int plan_always(const struct spec *spec, struct always_tokens out[PLAN_MAX_ALWAYS]) {
  int n = 0;
  if (spec->route.always_blocks & ALWAYS_FIRST)
    out[n++] = (struct always_tokens){.kind = ALWAYS_TOKENS_FIRST, .end = 1};
  if (spec->route.always_blocks & ALWAYS_LAST && n < PLAN_MAX_ALWAYS)
    out[n++] = (struct always_tokens){.kind = ALWAYS_TOKENS_LAST, .end = 1};
  for (int i = 0; i < spec->route.n_always && n < PLAN_MAX_ALWAYS; i++)
    out[n++] = spec->route.always[i];
  return n;
}

int plan_window(const struct spec *spec) {
  if (spec->route.always_window > 0)
    return spec->route.always_window;
  return spec->route.always_blocks & ALWAYS_DIAGONAL ? 0 : -1;
}

/* ---- statistics ---- */

/* A pass over blocks (statistics, residual): ring, a 1 KB tile of ones, a row of column sums per
   stage (sm90/ones.h), barriers padded to 256. */
struct pass_layout {
  int stages, ones_offset, barrier_offset, smem_bytes;
};

/* The deepest ring of up to 6 stages that fits, of |tiles| blocks each. */
static struct pass_layout fit_pass(struct arena *arena, struct plan *plan, const char *name,
                                   int tiles) {
  enum { ONES = 1024, ROW = 512, BARRIERS = 256 };
  const struct spec *spec = plan->spec;
  struct pass_layout pass = {0};
  for (int stages = 6; stages >= 2; stages--) {
    pass.stages = stages;
    pass.ones_offset = stages * tiles * spec->blocks.key * row_bytes(spec->shape.head_dim);
    pass.barrier_offset = pass.ones_offset + ONES + stages * ROW;
    pass.smem_bytes = pass.barrier_offset + BARRIERS;
    if (pass.smem_bytes <= plan->target->smem_bytes)
      break;
    reject(plan, arena_printf(arena, "%s stages=%d", name, stages),
           arena_printf(arena, "%d bytes of shared memory, a CTA has %d", pass.smem_bytes,
                        plan->target->smem_bytes));
  }
  return pass;
}

static void choose_statistics(struct arena *arena, struct plan *plan) {
  const struct spec *spec = plan->spec;
  struct plan_statistics *p = &plan->statistics;
  bool by_covariance = ranks_by(spec, TERM_LOG_COVARIANCE);
  bool sums_h = is_hybrid(spec) || ranks_by(spec, TERM_LOG_RESIDUAL);
  *p = (struct plan_statistics){
      .kernel = specialised(plan->target, "pisa_statistics"),
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .block = spec->blocks.key,
      .producer_registers = PRODUCER_REGISTERS,
      .consumer_registers = CONSUMER_REGISTERS,
      .wants_v = has_means(spec),
      .wants_h = by_covariance || sums_h,
      .wants_h_norm = by_covariance,
      .wants_h_sum = sums_h,
      .wants_variance = has_means(spec) && is_second_order(spec),
      .wants_trace = ranks_by(spec, TERM_LOG_KEY_VARIANCE),
  };
  struct pass_layout pass = fit_pass(arena, plan, "statistics", 3);
  p->stages = pass.stages;
  p->ones_offset = pass.ones_offset;
  p->barrier_offset = pass.barrier_offset;
  p->kernel.smem_bytes = pass.smem_bytes;
}

/* ---- residual ---- */

static void choose_residual(struct arena *arena, struct plan *plan) {
  const struct spec *spec = plan->spec;
  struct plan_residual *p = &plan->residual;
  *p = (struct plan_residual){
      .kernel = specialised(plan->target, "pisa_residual"),
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .block = spec->blocks.key,
      .producer_registers = PRODUCER_REGISTERS,
      .consumer_registers = CONSUMER_REGISTERS,
  };
  struct pass_layout pass = fit_pass(arena, plan, "residual", 2);
  p->stages = pass.stages;
  p->ones_offset = pass.ones_offset;
  p->barrier_offset = pass.barrier_offset;
  p->kernel.smem_bytes = pass.smem_bytes;
}

/* ---- route ---- */

static void choose_route(struct plan *plan) {
  const struct spec *spec = plan->spec;
  plan->route = (struct plan_route){
      .kernel = {.entry = "pisa_route", .threads = 512},
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .query = spec->blocks.query,
      .key = spec->blocks.key,
      .rows_per_cta = 16,
      .term = spec->route.term,
      .wants_window = plan_window(spec) >= 0,
      .reduces_h = is_hybrid(spec),
      .threshold = spec->route.budget == BUDGET_THRESHOLD,
      .variance = spec->route.variance,
      .pairs = walks_pairs(spec),
      .rest_follows = is_linear(spec),
  };
}

/* ---- all of it ---- */

static bool is_selection(const struct spec *spec) {
  return !spec->attend.all_exact &&
         (spec->route.kind == ROUTE_PYRAMID || spec->route.kind == ROUTE_FLAT);
}

struct plan *plan_dense(struct arena *arena, const struct plan *plan) {
  struct spec *spec = ARENA_NEW(arena, struct spec);
  *spec = *plan->spec;
  spec->attend.all_exact = true;
  spec->route.kind = ROUTE_NONE;
  spec->below.kind = BELOW_NEVER;
  spec->phases.prefill = true;
  spec->phases.decode = false;
  spec->lists = LISTS_SEPARATE;
  spec->half_tile = false;
  spec->blocks.query = PISA_DENSE_QUERY; /* the faster of the two */
  if (plan->selects)
    spec->blocks.key = PISA_DENSE_KEY;
  return plan_choose(arena, spec, plan->target, "");
}

static void choose_dense(struct arena *arena, struct plan *plan) {
  const struct plan *dense = plan_dense(arena, plan);
  plan->dense = dense->attend;
  plan->dense.kernel.entry = "pisa_dense";
  plan->dense_edge = dense->attend_edge;
  plan->dense_edge.kernel.entry = "pisa_dense_edge";
}

static void choose_selection(struct arena *arena, struct plan *plan) {
  const char *why = plan_why_not_clustered(plan->spec);
  plan->pyramid = plan_pyramid_choose(plan->spec, plan->target);
  if (plan->spec->route.kind == ROUTE_PYRAMID && !plan->pyramid.clustered && why)
    reject(plan, "leaf_stage=clustered", why);
  if (plan->below)
    choose_dense(arena, plan);
}

/* Below so many keys only prefill is dense: a decoding step has few queries at any length. */
static bool has_below(const struct spec *spec) {
  return !spec->attend.all_exact && spec->below.kind == BELOW_DENSE &&
         (!is_selection(spec) || spec->phases.prefill);
}

struct plan *plan_choose(struct arena *arena, const struct spec *spec, const struct target *target,
                         const char *choices) {
  struct plan *plan = ARENA_NEW(arena, struct plan);
  *plan = (struct plan){
      .spec = spec,
      .target = target,
      .choices = choices,
      .routed = spec->route.kind == ROUTE_TOP_K && !spec->attend.all_exact,
      .selects = is_selection(spec),
      .below = has_below(spec),
      .decodes = spec->attend.all_exact && spec->phases.decode,
      .prefills = !spec->attend.all_exact || !spec->phases.decode || spec->phases.prefill,
      .wants_residual = ranks_by(spec, TERM_LOG_RESIDUAL),
      .rejections = ARENA_ARRAY(arena, struct rejection, MAX_REJECTIONS),
  };
  if (plan->selects) {
    choose_selection(arena, plan);
    return plan;
  }
  if (plan->routed) {
    choose_statistics(arena, plan);
    choose_route(plan);
  }
  if (plan->wants_residual)
    choose_residual(arena, plan);
  if (plan->prefills)
    plan_choose_attend(arena, plan);
  if (plan->decodes)
    plan->pyramid = plan_decode_dense(spec);
  if (plan->below)
    choose_dense(arena, plan);
  return plan;
}
