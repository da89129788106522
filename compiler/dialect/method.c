/* method.c: in goes a plan; out comes its method as pisa ops, one per step, the attributes saying
 * what the spec said. */
#include "compiler/dialect/dialect.h"

#include <string.h>

#include "compiler/emit/internal.h"
#include "dsl/source.h"
#include "mlir-c/BuiltinAttributes.h"
#include "mlir-c/Dialect/IRDL.h"

extern const char pisa_irdl[];

enum { MAX_VALUES = 11 };

struct builder {
  struct context *context;
  const struct plan *plan;
  const struct source *source;
  MlirBlock body;
};

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

/* ---- one op ---- */

/* A location named |name| (it names the results when printed) at |span| of the spec. */
static MlirLocation location(const struct builder *b, const char *name, struct span span) {
  MlirLocation at = mlirLocationUnknownGet(b->context->mlir);
  if (b->source) {
    struct place place = source_place(b->source, span.begin);
    at = mlirLocationFileLineColGet(b->context->mlir, str(b->source->name), (unsigned)place.line,
                                    (unsigned)place.column);
  }
  return mlirLocationNameGet(b->context->mlir, str(name), at);
}

/* Attributes as the inside of a dictionary, in MLIR's syntax. */
static void add_attributes(const struct builder *b, MlirOperationState *state, const char *text) {
  struct text braced;
  text_init(&braced);
  text_printf(&braced, "{%s}", text);
  MlirAttribute dictionary = mlirAttributeParseGet(b->context->mlir, str(braced.data));
  context_check(b->context, !mlirAttributeIsNull(dictionary), text);
  for (intptr_t i = 0; i < mlirDictionaryAttrGetNumElements(dictionary); i++) {
    MlirNamedAttribute attribute = mlirDictionaryAttrGetElement(dictionary, i);
    mlirOperationStateAddAttributes(state, 1, &attribute);
  }
  text_fini(&braced);
}

/* NULL-terminated |shapes|: "B, H, Nq, D half" without the type, or "" for a result that is not
 * wanted. */
static MlirType type_of(const struct builder *b, const char *shape) {
  struct text text;
  text_init(&text);
  const char *space = strrchr(shape, ' ');
  const char *half = b->plan->spec->shape.type == TYPE_BF16 ? "bf16" : "f16";
  if (space)
    text_printf(&text, "!pisa.tensor<\"%.*s\", %s>", (int)(space - shape), shape,
                strcmp(space + 1, "half") == 0 ? half : space + 1);
  else
    text_puts(&text, "!pisa.none");
  MlirType type = mlirTypeParseGet(b->context->mlir, str(text.data));
  context_check(b->context, !mlirTypeIsNull(type), text.data);
  text_fini(&text);
  return type;
}

struct step {
  const char *op, *name; /* "pisa.route", and what its results are called */
  struct span span;
  const char *attributes;
  int n_operands, n_results;
  MlirValue operands[MAX_VALUES];
  const char *results[MAX_VALUES]; /* "B, Hk, NT, D half"; "" when not wanted */
};

static MlirOperation append(const struct builder *b, const struct step *step) {
  MlirOperationState state =
      mlirOperationStateGet(str(step->op), location(b, step->name, step->span));
  add_attributes(b, &state, step->attributes);
  mlirOperationStateAddOperands(&state, step->n_operands, step->operands);
  MlirType types[MAX_VALUES];
  for (int i = 0; i < step->n_results; i++)
    types[i] = type_of(b, step->results[i]);
  mlirOperationStateAddResults(&state, step->n_results, types);
  MlirOperation op = mlirOperationCreate(&state);
  context_check(b->context, !mlirOperationIsNull(op), step->op);
  mlirBlockAppendOwnedOperation(b->body, op);
  return op;
}

static MlirValue result(MlirOperation op, int i) {
  return mlirOperationGetResult(op, i);
}

/* ---- the steps ---- */

static MlirOperation input(const struct builder *b) {
  const struct spec *spec = b->plan->spec;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "heads = %d, kv_heads = %d, head_dim = %d, mask = \"none\"",
              spec->shape.heads, spec->shape.kv_heads, spec->shape.head_dim);
  MlirOperation op =
      append(b, &(struct step){
                    .op = "pisa.input",
                    .name = "qkv",
                    .span = spec->shape.span,
                    .attributes = attributes.data,
                    .n_results = 3,
                    .results = {"B, H, Nq, D half", "B, Hk, Nk, D half", "B, Hk, Nk, D half"},
                });
  text_fini(&attributes);
  return op;
}

static MlirOperation summarize(const struct builder *b, MlirOperation qkv) {
  const struct plan_statistics *p = &b->plan->statistics;
  bool wants_norm = p->wants_h_norm || p->wants_trace;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "block = %d", p->block);
  MlirOperation op = append(b, &(struct step){
                                   .op = "pisa.summarize",
                                   .name = "means",
                                   .span = b->plan->spec->route.span,
                                   .attributes = attributes.data,
                                   .n_operands = 3,
                                   .operands = {result(qkv, 0), result(qkv, 1), result(qkv, 2)},
                                   .n_results = 6,
                                   .results = {"B, H, NQS, D half", "B, Hk, NT, D half",
                                               p->wants_v ? "B, Hk, NT, D half" : "",
                                               wants_norm ? "B, Hk, NT, 8 f32" : "",
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
  MlirOperation op = append(b, &(struct step){
                                   .op = "pisa.residual",
                                   .name = "residuals",
                                   .span = b->plan->spec->route.term_span,
                                   .attributes = attributes.data,
                                   .n_operands = 3,
                                   .operands = {result(qkv, 1), result(qkv, 2), result(means, 4)},
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
  struct always_tokens ranges[PLAN_MAX_ALWAYS];
  int n = plan_always(spec, ranges);
  text_puts(out, ", always = [");
  for (int i = 0; i < n; i++) {
    text_puts(out, i > 0 ? ", " : "");
    if (ranges[i].kind == ALWAYS_RANGE)
      text_printf(out, "\"tokens %lld..%lld\"", (long long)ranges[i].begin,
                  (long long)ranges[i].end);
    else
      text_printf(out, "\"tokens %s %lld\"",
                  ranges[i].kind == ALWAYS_TOKENS_FIRST ? "first" : "last",
                  (long long)ranges[i].end);
  }
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
  MlirOperation op = append(
      b, &(struct step){
             .op = "pisa.route",
             .name = "chosen",
             .span = spec->route.span,
             .attributes = attributes.data,
             .n_operands = 4,
             .operands = {result(means, 0), result(means, 1), block_norm, result(means, 4)},
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
      .operands = {result(qkv, 0), result(qkv, 1), result(qkv, 2)},
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
    MlirValue routed[] = {result(chosen, 0), result(chosen, 1), result(chosen, 2),
                          result(means, 1),  result(means, 2),  result(chosen, 3),
                          result(means, 5),  result(chosen, 4)};
    step.op = "pisa.attend";
    step.attributes = attributes.data;
    step.n_operands = 11;
    memcpy(&step.operands[3], routed, sizeof routed);
  }
  append(b, &step);
  text_fini(&attributes);
}

static void attend_below(const struct builder *b, MlirOperation qkv) {
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "tokens = %lld", (long long)b->plan->spec->below.tokens);
  append(b, &(struct step){
                .op = "pisa.attend_below",
                .name = "short",
                .span = b->plan->spec->below.span,
                .attributes = attributes.data,
                .n_operands = 3,
                .operands = {result(qkv, 0), result(qkv, 1), result(qkv, 2)},
                .n_results = 2,
                .results = {"B, H, Nq, D half", "B, H, Nq f32"},
            });
  text_fini(&attributes);
}

MlirModule method_build(struct context *context, const struct plan *plan,
                        const struct source *source) {
  struct builder b = {.context = context, .plan = plan, .source = source};
  MlirModule module = mlirModuleCreateEmpty(location(&b, plan->spec->name, plan->spec->name_span));
  MlirOperation top = mlirModuleGetOperation(module);
  mlirOperationSetAttributeByName(top, str("sym_name"),
                                  mlirStringAttrGet(context->mlir, str(plan->spec->name)));
  b.body = mlirModuleGetBody(module);
  MlirOperation qkv = input(&b), means = {0}, chosen = {0};
  if (plan->routed) {
    means = summarize(&b, qkv);
    MlirValue block_norm = result(plan->wants_residual ? residual(&b, qkv, means) : means,
                                  plan->wants_residual ? 0 : 3);
    chosen = route(&b, means, block_norm);
  }
  attend(&b, qkv, means, chosen);
  if (plan->below)
    attend_below(&b, qkv);
  context_check(context, mlirOperationVerify(top), "method does not verify");
  return module;
}
