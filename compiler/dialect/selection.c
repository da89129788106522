/* selection.c: in goes a plan that selects blocks; out come its steps as ops, prefill first. */
#include "compiler/dialect/step.h"

static const char IDS[] = "B, Hk, Nq, K i32", O[] = "B, H, Nq, D half", LSE[] = "B, H, Nq f32";

static MlirOperation pyramid(const struct builder *b, MlirOperation qkv) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "leaf = %d, group = %d", p->leaf, p->children);
  MlirOperation op =
      step_append(b, &(struct step){
                         .op = "pisa.pyramid",
                         .name = "nodes",
                         .span = b->plan->spec->pyramid.span,
                         .attributes = attributes.data,
                         .n_operands = 1,
                         .operands = {step_result(qkv, 1)},
                         .n_results = 2,
                         .results = {"Hk, P, D half", p->clustered ? "Hk, NL, leaf, D half" : ""},
                     });
  text_fini(&attributes);
  return op;
}

/* ---- lists ---- */

static const char *score_name(enum spec_score score) {
  switch (score) {
  case SCORE_HALF_VARIANCE:
    return "half_variance";
  case SCORE_LSE:
    return "lse";
  case SCORE_MEAN:
    break;
  }
  return "mean";
}

static const char *reduce_name(enum spec_reduce reduce) {
  switch (reduce) {
  case REDUCE_MAX:
    return "max";
  case REDUCE_LSE:
    return "lse";
  case REDUCE_MASS:
    return "mass";
  case REDUCE_MAX_MASS:
    return "max mass";
  case REDUCE_SUM:
  case REDUCE_NONE:
    break;
  }
  return "sum";
}

static void print_budget(const struct builder *b, struct text *out) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  text_printf(out, "keep = %d, score = \"%s\", reduce = \"%s\"", p->keep, score_name(p->score),
              reduce_name(p->reduce));
  int n = step_ranges(b->plan->spec, out);
  if (p->previous)
    text_printf(out, "%s\"previous\"", n++ > 0 ? ", " : "");
  if (p->current)
    text_printf(out, "%s\"current\"", n > 0 ? ", " : "");
  text_puts(out, "]");
}

static void print_start(int nodes, struct text *out) {
  if (nodes > 0)
    text_printf(out, ", start = \"at most %d nodes\"", nodes);
  else
    text_puts(out, ", start = \"root\"");
}

/* An op that makes lists of |n_results| from q, k and the means. */
static MlirOperation select_leaves(const struct builder *b, const char *name,
                                   const char *attributes, MlirOperation qkv, MlirValue means,
                                   const char *kept, const char *ids) {
  return step_append(b, &(struct step){
                            .op = name,
                            .name = "chosen",
                            .span = b->plan->spec->route.span,
                            .attributes = attributes,
                            .n_operands = 3,
                            .operands = {step_result(qkv, 0), step_result(qkv, 1), means},
                            .n_results = kept ? 2 : 1,
                            .results = {ids, kept},
                        });
}

static MlirOperation walk(const struct builder *b, MlirOperation qkv, MlirOperation nodes) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  struct text attributes;
  text_init(&attributes);
  print_budget(b, &attributes);
  print_start(p->start_nodes, &attributes);
  text_printf(&attributes, ", leaf_stage = \"%s\"", p->clustered ? "clustered" : "fused");
  MlirOperation op = select_leaves(b, "pisa.walk", attributes.data, qkv, step_result(nodes, 0),
                                   p->clustered ? "R, K i32" : "", p->clustered ? "" : IDS);
  text_fini(&attributes);
  return op;
}

/* The leaves of what |walked| kept, scored for clusters of queries. */
static MlirOperation leaves(const struct builder *b, MlirOperation qkv, MlirOperation nodes,
                            MlirOperation walked) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  struct span span = b->plan->spec->route.span;
  MlirValue kept = step_result(walked, 1);
  MlirOperation clusters = step_append(b, &(struct step){.op = "pisa.cluster",
                                                         .name = "clusters",
                                                         .span = span,
                                                         .attributes = "",
                                                         .n_operands = 1,
                                                         .operands = {kept},
                                                         .n_results = 1,
                                                         .results = {"NSEG, K chunk i32"}});
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "query_tile = %d, score = \"%s\", reduce = \"%s\"", p->query_tile,
              score_name(p->score), reduce_name(p->reduce));
  MlirOperation scores = step_append(
      b, &(struct step){
             .op = "pisa.leaf_score",
             .name = "scores",
             .span = span,
             .attributes = attributes.data,
             .n_operands = 3,
             .operands = {step_result(qkv, 0), step_result(nodes, 1), step_result(clusters, 0)},
             .n_results = 1,
             .results = {plan_is_mass(p) ? "R, slots, G f32" : "R, slots f32"},
         });
  text_clear(&attributes);
  print_budget(b, &attributes);
  MlirOperation op = step_append(b, &(struct step){.op = "pisa.pick",
                                                   .name = "chosen",
                                                   .span = span,
                                                   .attributes = attributes.data,
                                                   .n_operands = 2,
                                                   .operands = {kept, step_result(scores, 0)},
                                                   .n_results = 1,
                                                   .results = {IDS}});
  text_fini(&attributes);
  return op;
}

/* All visible leaves as candidates; |below| > 0: in place of the walk for fewer keys. */
static MlirOperation flat(const struct builder *b, MlirOperation qkv, MlirOperation nodes,
                          int64_t below) {
  struct text attributes;
  text_init(&attributes);
  print_budget(b, &attributes);
  text_printf(&attributes, ", below = %lld", (long long)below);
  MlirOperation op =
      select_leaves(b, "pisa.flat", attributes.data, qkv, step_result(nodes, 0), NULL, IDS);
  text_fini(&attributes);
  return op;
}

static MlirOperation decode(const struct builder *b, MlirOperation qkv, MlirOperation nodes) {
  struct text attributes;
  text_init(&attributes);
  print_budget(b, &attributes);
  if (b->plan->pyramid.flat)
    text_puts(&attributes, ", start = \"leaves\"");
  else
    print_start(b->plan->pyramid.decode_start_nodes, &attributes);
  MlirOperation op =
      select_leaves(b, "pisa.decode", attributes.data, qkv, step_result(nodes, 0), NULL, IDS);
  text_fini(&attributes);
  return op;
}

/* ---- the rest ---- */

static MlirOperation append_keys(const struct builder *b, MlirOperation qkv) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "leaf = %d, group = %d", p->leaf, p->children);
  MlirOperation op = step_append(b, &(struct step){.op = "pisa.append",
                                                   .name = "nodes",
                                                   .span = b->plan->spec->phases.decode_span,
                                                   .attributes = attributes.data,
                                                   .n_operands = 1,
                                                   .operands = {step_result(qkv, 1)},
                                                   .n_results = 1,
                                                   .results = {"Hk, P, D half"}});
  text_fini(&attributes);
  return op;
}

/* The lists turned around. */
static void csr(const struct builder *b, MlirOperation chosen) {
  step_append(b, &(struct step){.op = "pisa.csr",
                                .name = "csr",
                                .span = b->plan->spec->route.span,
                                .attributes = "",
                                .n_operands = 1,
                                .operands = {step_result(chosen, 0)},
                                .n_results = 2,
                                .results = {"Hk, NL + 1 i32", "Hk, K T i32"}});
}

static void attend(const struct builder *b, const char *name, MlirOperation qkv,
                   MlirOperation chosen) {
  step_append(b, &(struct step){.op = name,
                                .name = "out",
                                .span = b->plan->spec->attend.span,
                                .attributes = "",
                                .n_operands = 4,
                                .operands = {step_result(qkv, 0), step_result(qkv, 1),
                                             step_result(qkv, 2), step_result(chosen, 0)},
                                .n_results = 2,
                                .results = {O, LSE}});
}

static void prefill(const struct builder *b, MlirOperation qkv) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  MlirOperation nodes = pyramid(b, qkv), chosen;
  if (p->flat_below)
    flat(b, qkv, nodes, b->plan->spec->below.tokens);
  if (p->flat)
    chosen = flat(b, qkv, nodes, 0);
  else
    chosen = walk(b, qkv, nodes);
  if (p->clustered)
    chosen = leaves(b, qkv, nodes, chosen);
  csr(b, chosen);
  if (p->attends)
    attend(b, "pisa.attend_blocks", qkv, chosen);
  if (b->plan->below)
    step_attend_below(b, qkv);
}

void step_selection(const struct builder *b, MlirOperation qkv) {
  const struct plan_pyramid *p = &b->plan->pyramid;
  if (p->prefill)
    prefill(b, qkv);
  if (!p->decode)
    return;
  MlirOperation chosen = decode(b, qkv, append_keys(b, qkv));
  if (p->attends)
    attend(b, "pisa.decode_attend", qkv, chosen);
}
