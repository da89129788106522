/* code.c: in goes a plan; out come PTX and, where ptxas is, a cubin that keeps what the plan
 * promised. */
#include "compiler/pack/code.h"

#include "compiler/dialect/dialect.h"
#include "compiler/emit/nvptx.h"
#include "compiler/emit/passes.h"

/* ---- stages ---- */

void code_print_stage(struct context *context, const struct plan *plan, const struct source *source,
                      enum stage stage, struct text *out) {
  MlirModule module = method_build(context, plan, source);
  if (stage == STAGE_PISA)
    method_print(module, out);
  else
    method_lower(context, module, plan);
  if (stage == STAGE_MLIR)
    mlirOperationPrint(mlirModuleGetOperation(module), text_of_mlir, out);
  if (stage == STAGE_LLVM || stage == STAGE_PTX) {
    passes_run(context, module);
    nvptx_emit(context, module, plan->target->name, plan->target->ptx_version,
               stage == STAGE_LLVM ? out : NULL, stage == STAGE_PTX ? out : NULL);
  }
  mlirModuleDestroy(module);
}

/* ---- code ---- */

/* Returns how many. */
static int piecewise_kernels(const struct plan *plan, const struct plan_kernel *out[MAX_KERNELS]) {
  int n = 0;
  if (plan->routed) {
    out[n++] = &plan->statistics.kernel;
    if (plan->wants_residual)
      out[n++] = &plan->residual.kernel;
    out[n++] = &plan->route.kernel;
  }
  if (plan->prefills && !plan->attend_edge.causal)
    out[n++] = &plan->attend.kernel;
  if (plan->prefills)
    out[n++] = &plan->attend_edge.kernel;
  if (plan->decodes)
    n += plan_pyramid_kernels(&plan->pyramid, out + n);
  return n;
}

void code_kernels(const struct plan *plan, const struct plan_kernel *out[MAX_KERNELS + 1]) {
  int n = plan->selects ? plan_pyramid_kernels(&plan->pyramid, out) : piecewise_kernels(plan, out);
  if (plan->below && !plan->dense_edge.causal)
    out[n++] = &plan->dense.kernel;
  if (plan->below)
    out[n++] = &plan->dense_edge.kernel;
  out[n] = NULL;
}

static void check_kernel(const struct plan_kernel *planned, const struct ptxas_report *report,
                         struct text *why) {
  const struct ptxas_kernel *got = ptxas_kernel_find(report, planned->entry);
  if (!got) {
    text_printf(why, "%s: ptxas did not report it\n", planned->entry);
    return;
  }
  int spills = got->spill_stores + got->spill_loads;
  if (planned->entry_registers > 0 && got->registers != planned->entry_registers)
    text_printf(why, "%s: %d registers at entry, the plan needs %d\n", planned->entry,
                got->registers, planned->entry_registers);
  if (spills > planned->spill_budget)
    text_printf(why, "%s: %d bytes of spills, the plan allows %d\n", planned->entry, spills,
                planned->spill_budget);
  if (got->stack > 0 && spills == 0)
    text_printf(why, "%s: %d bytes of stack; an array did not become registers\n", planned->entry,
                got->stack);
}

bool code_check(const struct plan *plan, const struct ptxas_report *report, struct text *why) {
  const struct plan_kernel *kernels[MAX_KERNELS + 1];
  size_t before = why->size;
  code_kernels(plan, kernels);
  for (int i = 0; kernels[i]; i++)
    check_kernel(kernels[i], report, why);
  for (int i = 0; i < report->n_warnings; i++)
    text_printf(why, "%s\n", report->warnings[i]);
  if (why->size > before)
    text_puts(why, "this ptxas does not keep the plan; --no-ptxas leaves the cubin to the driver");
  return why->size == before;
}

bool code_compile(struct context *context, const struct plan *plan, const struct source *source,
                  const struct ptxas *ptxas, struct arena *arena, struct code *code,
                  struct text *why) {
  *code = (struct code){.report = {0}};
  text_init(&code->ptx);
  text_init(&code->cubin);
  code_print_stage(context, plan, source, STAGE_PTX, &code->ptx);
  if (!ptxas->path)
    return true;
  return ptxas_assemble(ptxas, plan->target->name, &code->ptx, arena, &code->cubin, &code->report,
                        why) &&
         code_check(plan, &code->report, why);
}

void code_fini(struct code *code) {
  text_fini(&code->ptx);
  text_fini(&code->cubin);
}
