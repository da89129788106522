/* plan.c: in goes a spec that can be built; out comes the shape of its kernels. Candidates are
   tried in order of preference; the first that fits is taken, and every other one leaves its
   reason. */
#include "compiler/plan/plan.h"

#include <string.h>

#include "dsl/arena.h"
#include "runtime/abi.def"

enum {
  WARPGROUP = 128,
  CONSUMERS =
      2, /* computing warpgroups, each 64 query rows (attend) or 64 rows of H (statistics) */
  PRODUCER_REGISTERS = 24, /* 24 * 128 + 240 * 256 = 64512 of 65536 */
  CONSUMER_REGISTERS = 240,
  WORKING_REGISTERS =
      40, /* addresses, masks, row maxima and sums of a consumer thread, beside its fragments */
  BARRIER_BYTES = 8,
  ELEMENT_BYTES = 2,
  /* Bytes that attend may spill: in the producers' 24 registers and at item boundaries, away from
     the tile loop. With second_order q^2 lives there beside q and (g q), in registers where each
     warpgroup has its own stream. */
  ATTEND_SPILLS = 80,
  ATTEND_SPILLS_SQUARED = 112,
  ATTEND_SPILLS_SQUARED_STREAMS = 256,
  ATTEND_SPILLS_EDGE = 64, /* more, of the producers: sizes differ from item to item */
  MAX_REJECTIONS = 32
};

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

/* ---- what every kernel has ---- */

/* Registers at entry of a kernel with setmaxnreg: all of the SM, shared evenly, in steps of 8. */
static int entry_registers(const struct target *target, int threads) {
  return target->registers / threads / 8 * 8;
}

static struct plan_kernel specialised(const struct target *target, const char *entry) {
  int threads = (1 + CONSUMERS) * WARPGROUP;
  return (struct plan_kernel){
      .entry = entry,
      .threads = threads,
      .entry_registers = entry_registers(target, threads),
  };
}

/* Bytes of a row in shared memory: whole panels of 64 columns (128 bytes). */
static int row_bytes(int head_dim) {
  enum { PANEL_COLUMNS = 64 };
  return (head_dim + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * ELEMENT_BYTES;
}

static void reject(struct plan *plan, const char *candidate, const char *reason) {
  if (plan->n_rejections < MAX_REJECTIONS)
    plan->rejections[plan->n_rejections++] = (struct rejection){candidate, reason};
}

/* ---- statistics ---- */

static bool has_rest(const struct spec *spec, enum spec_tail rest) {
  return !spec->attend.all_exact && spec->attend.rest == rest;
}

static bool is_hybrid(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_HYBRID);
}

/* Whether unlisted blocks count as their means. */
static bool has_means(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_0) || is_hybrid(spec);
}

static bool is_linear(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_1);
}

static bool ranks_by(const struct spec *spec, enum spec_term term) {
  return spec->route.kind == ROUTE_TOP_K && spec->route.term == term;
}

static bool is_second_order(const struct spec *spec) {
  return !spec->attend.all_exact && spec->attend.mass_second_order;
}

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

static bool walks_pairs(const struct spec *spec) {
  return spec->route.kind == ROUTE_TOP_K && spec->lists == LISTS_UNION;
}

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

/* ---- attend ---- */

struct attend_candidate {
  int tile_k, k_stages, v_stages;
  const char *measured; /* NULL: take it when it fits; else why measurement spoke against it */
};

/* Query blocks of 128 rows: both computing warpgroups share a tile. */
static const struct attend_candidate SHARED[] = {
    {192, 2, 2, "list entries come in pairs: tiles of two blocks"},
    {176, 2, 2, NULL},
    {128, 3, 3, NULL},
    {128, 3, 2,
     "no faster at 24 heads x 128 than two stages: 65.9 us against 65.6 at 4096 tokens, 2.59 ms "
     "both "
     "at 32768"},
    {128, 2, 2, NULL},
    {64, 5, 5,
     "slower at 24 heads x 128 than tiles of 128: 68.8 us against 65.6 at 4096 tokens, 2.93 ms "
     "against 2.59 at "
     "32768"},
    {0},
};

/* Query blocks of 64 rows: each computing warpgroup has rings of its own. */
static const struct attend_candidate SPLIT[] = {
    {128, 2, 2,
     "slower at 24 heads x 128 than tiles of 64: 91.4 us against 77.3 at 4096 tokens, 3.86 ms "
     "against 3.3 at "
     "32768"},
    {64, 3, 4, NULL},
    {64, 2, 4, NULL},
    {64, 2, 3, NULL},
    {0},
};

bool plan_exps_beside(const struct plan_attend *p) {
  return p->narrow && p->streams > 1;
}

bool plan_reloads_queries(const struct plan_attend *p) {
  return p->pairs && !p->second_order && p->head_dim == 128;
}

int plan_mask_bytes(const struct plan_attend *p) {
  return (p->pairs ? 2 : 1) * PISA_MAX_MASK_WORDS * 4;
}

/* Two copies of Q (the second also stages O), or one where Q moves on to registers; rings of K and
   V, one full and one empty barrier per stage; of pairs those of O too, in the stages of Q. */
static void attend_layout(struct plan_attend *p, const struct attend_candidate *c) {
  int row = row_bytes(p->head_dim);
  p->tile_k = c->tile_k;
  p->q_stages = p->narrow && (p->streams > 1 || plan_reloads_queries(p)) ? 1 : 2;
  p->k_stages = c->k_stages;
  p->v_stages = c->v_stages;
  p->q_offset = 0;
  p->k_offset = p->q_offset + p->streams * p->q_stages * p->tile_q * row;
  p->v_offset = p->k_offset + p->streams * p->k_stages * p->tile_k * row;
  p->barrier_offset = p->v_offset + p->streams * p->v_stages * p->tile_k * row;
  int stages = p->streams * (p->q_stages + p->k_stages + p->v_stages);
  if (p->pairs)
    stages += CONSUMERS * p->q_stages;
  p->mask_offset = (p->barrier_offset + 2 * BARRIER_BYTES * stages + 15) / 16 * 16;
  int mask_bytes = p->means ? plan_mask_bytes(p) : 0;
  p->kernel.smem_bytes = p->mask_offset + p->streams * PLAN_MASK_STAGES * mask_bytes;
}

/* Fragments of a consumer thread at the item boundary, in registers: O and S of 64 rows in fp32, P
   in half pairs, (g q) in half pairs for the first-order term, and Q where each warpgroup has its
   own stream. */
static int fragment_registers(const struct plan_attend *p) {
  int o = 64 * p->head_dim / WARPGROUP, s = 64 * p->tile_k / WARPGROUP;
  int gq = p->first_order || plan_reloads_queries(p) ? o / 2 : 0; /* or q in the place of g q */
  int q = p->streams > 1 ? o / 2 : 0;
  return o + s + s / 2 + gq + q;
}

/* NULL when |c| is laid out in |p| and fits. */
static const char *why_not(struct arena *arena, const struct plan *plan, struct plan_attend *p,
                           const struct attend_candidate *c) {
  attend_layout(p, c);
  int room = p->consumer_registers - WORKING_REGISTERS;
  if (p->tile_k % p->block != 0)
    return arena_printf(arena, "a tile holds whole blocks of %d keys", p->block);
  if (p->kernel.smem_bytes > plan->target->smem_bytes)
    return arena_printf(arena, "%d bytes of shared memory, a CTA has %d", p->kernel.smem_bytes,
                        plan->target->smem_bytes);
  if (fragment_registers(p) > room)
    return arena_printf(arena, "fragments take %d registers of a thread, %d of %d are free",
                        fragment_registers(p), room, p->consumer_registers);
  return c->measured;
}

static int attend_spills(const struct plan_attend *p) {
  if (!p->second_order)
    return ATTEND_SPILLS;
  return p->streams > 1 ? ATTEND_SPILLS_SQUARED_STREAMS : ATTEND_SPILLS_SQUARED;
}

/* What the spec says of an attend kernel; a pair of query blocks is walked like one of twice the
   rows. */
static struct plan_attend attend_of(const struct plan *plan, const char *entry, bool pairs) {
  const struct spec *spec = plan->spec;
  int tile_q = pairs ? 2 * spec->blocks.query : spec->blocks.query;
  struct plan_attend p = {
      .kernel = specialised(plan->target, entry),
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .tile_q = tile_q,
      .streams = CONSUMERS * 64 / tile_q,
      .block = spec->blocks.key,
      .producer_registers = PRODUCER_REGISTERS,
      .consumer_registers = CONSUMER_REGISTERS,
      .dense = spec->attend.all_exact,
      .linear = is_linear(spec),
      .means = has_means(spec),
      .first_order = is_hybrid(spec),
      .second_order = is_second_order(spec),
      .pairs = pairs,
      /* us at 24 heads x 128, 8192 tokens, with and without: union 202, 229, separate 227, 237.
         Query blocks of 128 rows gain at 4096 tokens, 63.5, 66.1, and lose at 16384, 697, 684. */
      .narrow = !spec->attend.all_exact && spec->blocks.query == 64,
  };
  p.kernel.spill_budget = attend_spills(&p);
  return p;
}

/* |fixed| with the first candidate that fits; every other one leaves its reason. */
static struct plan_attend fit_attend(struct arena *arena, struct plan *plan,
                                     const struct plan_attend *fixed) {
  struct plan_attend taken = *fixed;
  bool chosen = false;
  for (const struct attend_candidate *c = fixed->streams > 1 ? SPLIT : SHARED; c->tile_k; c++) {
    struct plan_attend p = *fixed;
    const char *reason = why_not(arena, plan, &p, c);
    if (!reason && !chosen) {
      taken = p;
      chosen = true;
    } else if (reason) {
      reject(plan,
             arena_printf(arena, "%s tile_k=%d k_stages=%d v_stages=%d",
                          fixed->kernel.entry + strlen("pisa_"), c->tile_k, c->k_stages,
                          c->v_stages),
             reason);
    }
  }
  return taken;
}

static void choose_attend(struct arena *arena, struct plan *plan) {
  bool pairs = walks_pairs(plan->spec);
  struct plan_attend p = attend_of(plan, "pisa_attend", pairs);
  p.half_tile = plan->spec->half_tile;
  if (p.head_dim == 64)
    reject(plan, "attend fma_exp2=1",
           "slower at 24 heads x 64, 4429 tokens: 63.2 us against 62.5; 66.5 with 2 of 8, 71.0 "
           "with 4");
  plan->attend = fit_attend(arena, plan, &p);
  plan->attend_edge = plan->attend;
  plan->attend_edge.kernel.entry = "pisa_attend_edge";
  plan->attend_edge.half_tile = false;
  if (pairs) { /* each list by itself */
    p = attend_of(plan, "pisa_attend_edge", false);
    plan->attend_edge = fit_attend(arena, plan, &p);
  }
  plan->attend_edge.edge = true;
  plan->attend_edge.causal = plan->spec->shape.mask == MASK_CAUSAL && plan->spec->attend.all_exact;
  plan->attend_edge.kernel.spill_budget += ATTEND_SPILLS_EDGE;
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
    choose_attend(arena, plan);
  if (plan->decodes)
    plan->pyramid = plan_decode_dense(spec);
  if (plan->below)
    choose_dense(arena, plan);
  return plan;
}
