/* lower.c: an external pass. In goes a module of pisa ops; out comes the same module with the
   kernels of the plan in their place. The ops say what happens and in which order, the plan says
   with what tiles. */
#include <string.h>

#include "compiler/dialect/dialect.h"
#include "compiler/ir/ir.h"
#include "compiler/kernels/kernels.h"
#include "mlir-c/Pass.h"

struct lowering {
  struct context *context;
  const struct plan *plan;
};

enum { MAX_STEPS = 16 };

static bool is_named(MlirOperation op, const char *name) {
  MlirStringRef s = mlirIdentifierStr(mlirOperationGetName(op));
  return s.length == strlen(name) && memcmp(s.data, name, s.length) == 0;
}

/* The kernels of one step of a piecewise method. */
static void emit_piecewise(struct ir *k, MlirOperation op, const struct plan *plan) {
  if (is_named(op, "pisa.summarize"))
    kernel_statistics(k, &plan->statistics);
  if (is_named(op, "pisa.residual"))
    kernel_residual(k, &plan->residual);
  if (is_named(op, "pisa.route"))
    kernel_route(k, &plan->route);
  if (is_named(op, "pisa.attend") || is_named(op, "pisa.attend_all")) {
    if (!plan->attend_edge.causal)
      kernel_attend(k, &plan->attend);
    kernel_attend(k, &plan->attend_edge);
  }
  if (is_named(op, "pisa.decode_attend_all")) {
    kernel_decode_attend(k, &plan->pyramid);
    kernel_decode_merge(k, &plan->pyramid);
  }
}

/* Of short calls, whatever the method is. */
static void emit_below(struct ir *k, const struct plan *plan) {
  if (!plan->dense_edge.causal)
    kernel_attend(k, &plan->dense);
  kernel_attend(k, &plan->dense_edge);
}

/* Of block selection. */
static const struct {
  const char *op;
  void (*kernel)(struct ir *, const struct plan_pyramid *);
} SELECTION[] = {
    {"pisa.pyramid", kernel_pyramid}, {"pisa.pyramid", kernel_pyramid_top},
    {"pisa.walk", kernel_walk},       {"pisa.cluster", kernel_cluster},
    {"pisa.cluster", kernel_scatter}, {"pisa.leaf_score", kernel_leaf_score},
    {"pisa.pick", kernel_pick},       {"pisa.flat", kernel_flat},
    {"pisa.csr", kernel_csr_count},   {"pisa.csr", kernel_csr_scan},
    {"pisa.csr", kernel_csr_fill},    {"pisa.attend_blocks", kernel_attend_blocks},
    {"pisa.append", kernel_append},   {"pisa.decode", kernel_decode},
};

/* The kernels of one step, appended to the module. */
static void emit(struct ir *k, MlirOperation op, const struct plan *plan) {
  if (is_named(op, "pisa.attend_below"))
    emit_below(k, plan);
  if (!plan->selects) {
    emit_piecewise(k, op, plan);
    return;
  }
  for (unsigned i = 0; i < sizeof SELECTION / sizeof *SELECTION; i++)
    if (is_named(op, SELECTION[i].op))
      SELECTION[i].kernel(k, &plan->pyramid);
}

static int collect(MlirModule module, MlirOperation steps[MAX_STEPS]) {
  int n = 0;
  MlirOperation op = mlirBlockGetFirstOperation(mlirModuleGetBody(module));
  for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
    if (n < MAX_STEPS && name.length > 5 && memcmp(name.data, "pisa.", 5) == 0)
      steps[n++] = op;
  }
  return n;
}

static void run(MlirOperation top, MlirExternalPass pass, void *user) {
  (void)pass;
  const struct lowering *lowering = user;
  MlirModule module = mlirModuleFromOperation(top);
  MlirOperation steps[MAX_STEPS];
  int n = collect(module, steps);
  struct ir k;
  ir_init(&k, lowering->context->mlir, module);
  for (int i = 0; i < n; i++)
    emit(&k, steps[i], lowering->plan);
  while (n > 0) /* users before what they use */
    mlirOperationDestroy(steps[--n]);
}

static void nothing(void *user) {
  (void)user;
}

static void *same(void *user) {
  return user;
}

void method_lower(struct context *context, MlirModule module, const struct plan *plan) {
  struct lowering lowering = {context, plan};
  MlirTypeIDAllocator ids = mlirTypeIDAllocatorCreate();
  MlirExternalPassCallbacks callbacks = {
      .construct = nothing, .destruct = nothing, .clone = same, .run = run};
  MlirPass pass = mlirCreateExternalPass(
      mlirTypeIDAllocatorAllocateTypeID(ids), mlirStringRefCreateFromCString("method-to-kernels"),
      mlirStringRefCreateFromCString("method-to-kernels"),
      mlirStringRefCreateFromCString("replace each step of a method by its kernels"),
      mlirStringRefCreateFromCString("builtin.module"), 0, NULL, callbacks, &lowering);
  MlirPassManager passes = mlirPassManagerCreate(context->mlir);
  mlirPassManagerAddOwnedPass(passes, pass);
  MlirLogicalResult ran = mlirPassManagerRunOnOp(passes, mlirModuleGetOperation(module));
  mlirPassManagerDestroy(passes);
  mlirTypeIDAllocatorDestroy(ids);
  context_check(context, mlirLogicalResultIsSuccess(ran), "method to kernels");
}
