/* The shell of a kernel: entry block, parameters, dynamic shared memory, launch attributes; see
 * ir.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compiler/ir/build.h"
#include "dsl/text.h"

#define SMEM_SYMBOL "pisa_smem"

static void append_to_module(struct ir *k, const char *name, const char *attributes,
                             MlirRegion region) {
  MlirOperation op =
      ir_build(k, &(struct ir_build){
                      .name = name, .attributes = attributes, .n_regions = 1, .regions = &region});
  mlirBlockAppendOwnedOperation(mlirModuleGetBody(k->module), op);
}

/* One global for all kernels of the module: `extern __shared__`, aligned for 128-byte-swizzled
 * tiles. */
static void declare_shared_memory(struct ir *k) {
  MlirBlock body = mlirModuleGetBody(k->module);
  for (MlirOperation op = mlirBlockGetFirstOperation(body); !mlirOperationIsNull(op);
       op = mlirOperationGetNextInBlock(op)) {
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
    if (name.length == 16 && strncmp(name.data, "llvm.mlir.global", 16) == 0) {
      return;
    }
  }
  append_to_module(k, "llvm.mlir.global",
                   "sym_name = \"" SMEM_SYMBOL "\", global_type = !llvm.array<0 x i8>, "
                   "linkage = #llvm.linkage<external>, addr_space = 3 : i32, "
                   "alignment = 1024 : i64",
                   mlirRegionCreate());
}

static type arg_type(struct ir *k, enum ir_arg_kind kind) {
  switch (kind) {
  case IR_ARG_I32:
    return k->i32;
  case IR_ARG_I64:
    return k->i64;
  case IR_ARG_F32:
    return k->f32;
  case IR_ARG_MAP:
  case IR_ARG_PTR:
    break;
  }
  return k->ptr;
}

void kernel_begin(struct ir *k, int n_args, const struct ir_arg *args) {
  assert(n_args <= IR_MAX_ARGS);
  k->args = args;
  k->n_args = n_args;
  declare_shared_memory(k);
  type types[IR_MAX_ARGS];
  MlirLocation locations[IR_MAX_ARGS];
  for (int i = 0; i < n_args; i++) {
    types[i] = arg_type(k, args[i].kind);
    locations[i] = k->location;
  }
  k->body = mlirRegionCreate();
  k->entry = mlirBlockCreate(n_args, types, locations);
  mlirRegionAppendOwnedBlock(k->body, k->entry);
  k->block = k->entry;
  k->one = mlirOpResultGetOwner(i32(k, 1));
  for (int i = 0; i < n_args; i++) {
    k->arg[i] = mlirBlockGetArgument(k->entry, i);
    if (args[i].kind == IR_ARG_PTR) {
      k->arg[i] = OP(k, "llvm.addrspacecast", k->global, "", k->arg[i]);
    }
  }
  k->smem = OP0(k, "llvm.mlir.addressof", k->shared, "global_name = @" SMEM_SYMBOL);
}

void kernel_end(struct ir *k, const char *entry, int threads, int ctas_per_sm) {
  OP0(k, "llvm.return", NO_TYPE, "");
  struct text types, attributes, whole;
  text_init(&types);
  text_init(&attributes);
  text_init(&whole);
  for (int i = 0; i < k->n_args; i++) {
    const char *comma = i ? ", " : "";
    text_printf(&types, "%s%s", comma,
                k->args[i].kind == IR_ARG_I32   ? "i32"
                : k->args[i].kind == IR_ARG_I64 ? "i64"
                : k->args[i].kind == IR_ARG_F32 ? "f32"
                                                : "ptr");
    text_printf(&attributes, "%s%s", comma,
                k->args[i].kind == IR_ARG_MAP
                    ? "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, "
                      "nvvm.grid_constant}"
                    : "{}");
  }
  text_printf(&whole,
              "sym_name = \"%s\", function_type = !llvm.func<void (%s)>, "
              "linkage = #llvm.linkage<external>, CConv = #llvm.cconv<ccc>, nvvm.kernel, "
              "nvvm.reqntid = array<i32: %d, 1, 1>, nvvm.minctasm = %d : i32, arg_attrs = [%s]",
              entry, types.data, threads, ctas_per_sm, attributes.data);
  append_to_module(k, "llvm.func", whole.data, k->body);
  text_fini(&types);
  text_fini(&attributes);
  text_fini(&whole);
  k->block = mlirModuleGetBody(k->module);
  k->last_if = (MlirOperation){0};
}

static val special_register(struct ir *k, const char *name) {
  return OP0(k, name, k->i32, "");
}

val thread_index(struct ir *k) {
  return special_register(k, "nvvm.read.ptx.sreg.tid.x");
}

val cta_index(struct ir *k) {
  return special_register(k, "nvvm.read.ptx.sreg.ctaid.x");
}

val cta_count(struct ir *k) {
  return special_register(k, "nvvm.read.ptx.sreg.nctaid.x");
}
