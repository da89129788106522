/* method.c: in goes a plan; out comes its method as pisa ops, one per step, the attributes saying
   what the spec said. The steps of block selection are in selection.c. */
#include <string.h>

#include "compiler/dialect/step.h"
#include "compiler/emit/internal.h"
#include "mlir-c/BuiltinAttributes.h"
#include "mlir-c/Dialect/IRDL.h"

extern const char pisa_irdl[];

static MlirStringRef str(const char *s) {
  return mlirStringRefCreateFromCString(s);
}

void dialect_load(struct context *context) {
  MlirModule definition = mlirModuleCreateParse(context->mlir, str(pisa_irdl));
  context_check(context, !mlirModuleIsNull(definition), "pisa.irdl.mlir");
  context_check(context, mlirLogicalResultIsSuccess(mlirLoadIRDLDialects(definition)),
                "pisa.irdl.mlir");
  mlirModuleDestroy(definition);
}

/* ---- the steps ---- */

static MlirOperation summarize(const struct builder *b, MlirOperation qkv) {
  const struct plan_statistics *p = &b->plan->statistics;
  bool wants_norm = p->wants_h_norm || p->wants_trace;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "block = %d", p->block);
  MlirOperation op = step_append(
      b,
      &(struct step){
          .op = "pisa.summarize",
          .name = "means",
          .span = b->plan->spec->route.span,
          .attributes = attributes.data,
          .n_operands = 3,
          .operands = {step_result(qkv, 0), step_result(qkv, 1), step_result(qkv, 2)},
          .n_results = 6,
          .results = {"B, H, NQS, D half", "B, Hk, NT, D half",
                      p->wants_v ? "B, Hk, NT, D half" : "", wants_norm ? "B, Hk, NT, 8 f32" : "",
                      p->wants_h_sum ? "parts, D, D f32" : "",
                      p->wants_variance ? "B, Hk, NT, D half" : ""},
      });
  text_fini(&attributes);
  return op;
}

static MlirOperation residual(const struct builder *b, MlirOperation qkv, MlirOperation means) {
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "block = %d", b->plan->residual.block);
  MlirOperation op = step_append(
      b, &(struct step){
             .op = "pisa.residual",
             .name = "residuals",
             .span = b->plan->spec->route.term_span,
             .attributes = attributes.data,
             .n_operands = 3,
             .operands = {step_result(qkv, 1), step_result(qkv, 2), step_result(means, 4)},
             .n_results = 1,
             .results = {"B, Hk, NT, 8 f32"},
         });
  text_fini(&attributes);
  return op;
}

static const char *score_name(enum spec_term term) {
  switch (term) {
  case TERM_LOG_COVARIANCE:
    return "mean + log covariance";
  case TERM_LOG_RESIDUAL:
    return "mean + log residual";
  case TERM_LOG_KEY_VARIANCE:
    return "mean + log key_variance";
  case TERM_NONE:
    break;
  }
  return "mean";
}

static void print_budget(const struct spec *spec, struct text *out) {
  switch (spec->route.budget) {
  case BUDGET_KEEP:
    text_printf(out, "budget = \"keep %d\"", spec->route.keep);
    break;
  case BUDGET_DENSITY:
    text_printf(out, "budget = \"density %lld/%lld\"", (long long)spec->route.density.num,
                (long long)spec->route.density.den);
    break;
  case BUDGET_THRESHOLD:
    text_printf(out, "budget = \"threshold %lld/%lld, variance %s\"",
                (long long)spec->route.threshold.num, (long long)spec->route.threshold.den,
                spec->route.variance == VARIANCE_FULL ? "full" : "diagonal");
    break;
  }
}

static void print_always(const struct spec *spec, struct text *out) {
  int n = step_ranges(spec, out);
  if (plan_window(spec) >= 0)
    text_printf(out, "%s\"window %d\"", n > 0 ? ", " : "", plan_window(spec));
  text_puts(out, "]");
}

static const char *order_name(const struct plan_route *p) {
  if (p->pairs)
    return "shared first";
  return p->rest_follows ? "rest follows" : "ascending";
}

static MlirOperation route(const struct builder *b, MlirOperation means, MlirValue block_norm) {
  const struct spec *spec = b->plan->spec;
  const struct plan_route *p = &b->plan->route;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "query = %d, score = \"%s\", order = \"%s\", ", p->query,
              score_name(p->term), order_name(p));
  print_budget(spec, &attributes);
  print_always(spec, &attributes);
  MlirOperation op = step_append(
      b, &(struct step){
             .op = "pisa.route",
             .name = "chosen",
             .span = spec->route.span,
             .attributes = attributes.data,
             .n_operands = 4,
             .operands = {step_result(means, 0), step_result(means, 1), block_norm,
                          step_result(means, 4)},
             .n_results = 5,
             .results = {p->rest_follows ? "B, H, NTq, NT i32" : "B, H, NTq, k i32",
                         "B, H, NTq i32", "B, H, NTq, NT i1",
                         p->reduces_h ? "B, Hk, D, D half" : "", p->pairs ? "B, H, NTq/2 i32" : ""},
         });
  text_fini(&attributes);
  return op;
}

static const char *rest_name(const struct spec *spec) {
  switch (spec->attend.rest) {
  case TAIL_TAYLOR_0:
    return "taylor 0";
  case TAIL_TAYLOR_1:
    return "taylor 1";
  case TAIL_TAYLOR_HYBRID:
    return "taylor hybrid";
  case TAIL_DROP:
    break;
  }
  return "drop";
}

static void attend(const struct builder *b, MlirOperation qkv, MlirOperation means,
                   MlirOperation chosen) {
  struct step step = {
      .op = "pisa.attend_all",
      .name = "out",
      .span = b->plan->spec->attend.span,
      .attributes = "",
      .n_operands = 3,
      .operands = {step_result(qkv, 0), step_result(qkv, 1), step_result(qkv, 2)},
      .n_results = 2,
      .results = {"B, H, Nq, D half", "B, H, Nq f32"},
  };
  struct text attributes;
  text_init(&attributes);
  const struct plan_attend *p = &b->plan->attend;
  if (!p->dense) {
    text_printf(&attributes, "rest = \"%s\", mass = \"%s\", walk = \"%s\"",
                rest_name(b->plan->spec),
                p->second_order         ? "second order"
                : p->means || p->linear ? "zeroth order"
                                        : "none",
                p->pairs ? "union" : "separate");
    MlirValue routed[] = {step_result(chosen, 0), step_result(chosen, 1), step_result(chosen, 2),
                          step_result(means, 1),  step_result(means, 2),  step_result(chosen, 3),
                          step_result(means, 5),  step_result(chosen, 4)};
    step.op = "pisa.attend";
    step.attributes = attributes.data;
    step.n_operands = 11;
    memcpy(&step.operands[3], routed, sizeof routed);
  }
  step_append(b, &step);
  text_fini(&attributes);
}

static void decode(const struct builder *b, MlirOperation qkv) {
  step_append(b, &(struct step){
                     .op = "pisa.decode_attend_all",
                     .name = "out",
                     .span = b->plan->spec->phases.decode_span,
                     .attributes = "",
                     .n_operands = 3,
                     .operands = {step_result(qkv, 0), step_result(qkv, 1), step_result(qkv, 2)},
                     .n_results = 2,
                     .results = {"B, H, Nq, D half", "B, H, Nq f32"},
                 });
}

void step_attend_below(const struct builder *b, MlirOperation qkv) {
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "tokens = %lld", (long long)b->plan->spec->below.tokens);
  step_append(b, &(struct step){
                     .op = "pisa.attend_below",
                     .name = "short",
                     .span = b->plan->spec->below.span,
                     .attributes = attributes.data,
                     .n_operands = 3,
                     .operands = {step_result(qkv, 0), step_result(qkv, 1), step_result(qkv, 2)},
                     .n_results = 2,
                     .results = {"B, H, Nq, D half", "B, H, Nq f32"},
                 });
  text_fini(&attributes);
}

static void piecewise(const struct builder *b, MlirOperation qkv) {
  const struct plan *plan = b->plan;
  MlirOperation means = {0}, chosen = {0};
  if (plan->routed) {
    means = summarize(b, qkv);
    MlirOperation norms = plan->wants_residual ? residual(b, qkv, means) : means;
    chosen = route(b, means, step_result(norms, plan->wants_residual ? 0 : 3));
  }
  if (plan->prefills)
    attend(b, qkv, means, chosen);
  if (plan->decodes)
    decode(b, qkv);
  if (plan->below)
    step_attend_below(b, qkv);
}

MlirModule method_build(struct context *context, const struct plan *plan,
                        const struct source *source) {
  struct builder b = {.context = context, .plan = plan, .source = source};
  MlirModule module =
      mlirModuleCreateEmpty(step_location(&b, plan->spec->name, plan->spec->name_span));
  MlirOperation top = mlirModuleGetOperation(module);
  mlirOperationSetAttributeByName(top, str("sym_name"),
                                  mlirStringAttrGet(context->mlir, str(plan->spec->name)));
  b.body = mlirModuleGetBody(module);
  MlirOperation qkv = step_input(&b);
  if (plan->selects)
    step_selection(&b, qkv);
  else
    piecewise(&b, qkv);
  context_check(context, mlirOperationVerify(top), "method does not verify");
  return module;
}
