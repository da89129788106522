/* step.c: in goes a step of a method; out comes its op, results named, place in the spec kept. */
#include "compiler/dialect/step.h"

#include <string.h>

#include "compiler/emit/internal.h"
#include "mlir-c/BuiltinAttributes.h"

static MlirStringRef str(const char *s) {
  return mlirStringRefCreateFromCString(s);
}

MlirLocation step_location(const struct builder *b, const char *name, struct span span) {
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

MlirOperation step_append(const struct builder *b, const struct step *step) {
  MlirOperationState state =
      mlirOperationStateGet(str(step->op), step_location(b, step->name, step->span));
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

MlirValue step_result(MlirOperation op, int i) {
  return mlirOperationGetResult(op, i);
}

MlirOperation step_input(const struct builder *b) {
  const struct spec *spec = b->plan->spec;
  struct text attributes;
  text_init(&attributes);
  text_printf(&attributes, "heads = %d, kv_heads = %d, head_dim = %d, mask = \"%s\"",
              spec->shape.heads, spec->shape.kv_heads, spec->shape.head_dim,
              spec->shape.mask == MASK_NONE ? "none" : "causal");
  MlirOperation op =
      step_append(b, &(struct step){
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

int step_ranges(const struct spec *spec, struct text *out) {
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
  return n;
}
