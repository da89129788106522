/* The context, any op, inline asm and locations; see ir.h. */
#include "compiler/ir/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/ir/build.h"
#include "mlir-c/BuiltinAttributes.h"

static MlirStringRef str(const char *s) {
  return mlirStringRefCreateFromCString(s);
}

/* We are wrong: an op or type our own code spelt does not exist. */
static _Noreturn void broken(const char *what, const char *text) {
  fprintf(stderr, "pisac: internal error: cannot make %s '%s'\n", what, text);
  abort();
}

type ir_type(struct ir *k, const char *text) {
  type t = mlirTypeParseGet(k->context, str(text));
  if (mlirTypeIsNull(t)) {
    broken("type", text);
  }
  return t;
}

void ir_init(struct ir *k, MlirContext context, MlirModule module) {
  *k = (struct ir){.context = context, .module = module};
  k->location = mlirLocationUnknownGet(context);
  k->block = mlirModuleGetBody(module);
  k->i1 = ir_type(k, "i1");
  k->i32 = ir_type(k, "i32");
  k->i64 = ir_type(k, "i64");
  k->f32 = ir_type(k, "f32");
  k->f32x2 = ir_type(k, "vector<2xf32>");
  k->i32x4 = ir_type(k, "vector<4xi32>");
  k->ptr = ir_type(k, "!llvm.ptr");
  k->global = ir_type(k, "!llvm.ptr<1>");
  k->shared = ir_type(k, "!llvm.ptr<3>");
  ir_set_half(k, false);
}

void ir_set_half(struct ir *k, bool is_f16) {
  k->half = ir_type(k, is_f16 ? "f16" : "bf16");
  k->half_x2 = ir_type(k, is_f16 ? "vector<2xf16>" : "vector<2xbf16>");
  k->half_name = is_f16 ? "f16" : "bf16";
}

void ir_here(struct ir *k, const char *file, int line) {
  k->location = mlirLocationFileLineColGet(k->context, str(file), (unsigned)line, 1);
}

bool is_null(val v) {
  return mlirValueIsNull(v);
}

static void add_attributes(struct ir *k, MlirOperationState *state, const char *attributes) {
  if (!*attributes) {
    return;
  }
  size_t size = strlen(attributes) + 3;
  char *text = malloc(size);
  if (!text) {
    broken("attributes", "out of memory");
  }
  snprintf(text, size, "{%s}", attributes);
  MlirAttribute dictionary = mlirAttributeParseGet(k->context, str(text));
  if (mlirAttributeIsNull(dictionary)) {
    broken("attributes", text);
  }
  free(text);
  intptr_t n = mlirDictionaryAttrGetNumElements(dictionary);
  for (intptr_t i = 0; i < n; i++) {
    MlirNamedAttribute attribute = mlirDictionaryAttrGetElement(dictionary, i);
    mlirOperationStateAddAttributes(state, 1, &attribute);
  }
}

MlirOperation ir_build(struct ir *k, const struct ir_build *what) {
  MlirOperationState state = mlirOperationStateGet(str(what->name), k->location);
  if (!mlirTypeIsNull(what->result)) {
    mlirOperationStateAddResults(&state, 1, &what->result);
  }
  if (what->n_operands > 0) {
    mlirOperationStateAddOperands(&state, what->n_operands, what->operands);
  }
  if (what->n_regions > 0) {
    mlirOperationStateAddOwnedRegions(&state, what->n_regions, what->regions);
  }
  add_attributes(k, &state, what->attributes);
  MlirOperation op = mlirOperationCreate(&state);
  if (mlirOperationIsNull(op)) {
    broken("op", what->name);
  }
  return op;
}

val ir_op(struct ir *k, const char *name, type result, const char *attributes, int n,
          const val *operands) {
  MlirOperation op = ir_build(k, &(struct ir_build){.name = name,
                                                    .attributes = attributes,
                                                    .result = result,
                                                    .n_operands = n,
                                                    .operands = operands});
  mlirBlockAppendOwnedOperation(k->block, op);
  return mlirTypeIsNull(result) ? (val){0} : mlirOperationGetResult(op, 0);
}

/* "!llvm.struct<(f32, f32, ...)>" */
static type struct_of(struct ir *k, type element_type, int n) {
  const char *name = mlirTypeEqual(element_type, k->f32) ? "f32" : "i32";
  char text[16 + 8 * 160];
  size_t used = (size_t)snprintf(text, sizeof text, "!llvm.struct<(");
  for (int i = 0; i < n; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, i ? ", %s" : "%s", name);
  }
  snprintf(text + used, sizeof text - used, ")>");
  return ir_type(k, text);
}

void ir_asm(struct ir *k, const char *text, const char *constraints, type result, int n_results,
            val *results, int n, const val *operands) {
  char attributes[8192];
  int size = snprintf(attributes, sizeof attributes,
                      "asm_string = \"%s\", constraints = \"%s\", asm_dialect = 0 : i64, "
                      "tail_call_kind = #llvm.tailcallkind<none>, has_side_effects",
                      text, constraints);
  if (size < 0 || (size_t)size >= sizeof attributes) {
    broken("asm", text);
  }
  type whole = n_results == 0 ? NO_TYPE : n_results == 1 ? result : struct_of(k, result, n_results);
  val r = ir_op(k, "llvm.inline_asm", whole, attributes, n, operands);
  if (n_results == 1) {
    results[0] = r;
    return;
  }
  for (int i = 0; i < n_results; i++) {
    char position[48];
    snprintf(position, sizeof position, "position = array<i64: %d>", i);
    results[i] = OP(k, "llvm.extractvalue", result, position, r);
  }
}
