/* code.h: the kernels of one plan as code, and every stage on the way there. */
#ifndef PISA_PACK_CODE_H
#define PISA_PACK_CODE_H

#include "compiler/emit/context.h"
#include "compiler/emit/ptxas.h"
#include "compiler/plan/plan.h"

struct source;

struct code {
  struct text ptx;            /* PTX of all kernels of a plan */
  struct text cubin;          /* empty without ptxas */
  struct ptxas_report report; /* empty without ptxas */
};

enum stage { STAGE_PISA, STAGE_MLIR, STAGE_LLVM, STAGE_PTX };

/* Appends |stage| of |plan| to |out|. |context| knows the pisa dialect. */
void code_print_stage(struct context *context, const struct plan *plan, const struct source *source,
                      enum stage stage, struct text *out);

/* Compiles |plan|; assembles it when |ptxas| has a path, and then holds ptxas's report against the
   plan (code_check). False: the world failed or the code is not fit to be shipped; |why| says so.
   code_fini in either case. */
bool code_compile(struct context *context, const struct plan *plan, const struct source *source,
                  const struct ptxas *ptxas, struct arena *arena, struct code *code,
                  struct text *why);
void code_fini(struct code *code);

/* What must hold of shipped code: entry registers as planned, spills within the plan's budget, no
   stack without spills, no warning from ptxas ('Potential Performance Loss' among them). Appends a
   line per breach to |why|. */
bool code_check(const struct plan *plan, const struct ptxas_report *report, struct text *why);

/* The kernels of |plan|, NULL-terminated, those of `below` last: in launch order. */
enum { MAX_KERNELS = PLAN_PYRAMID_KERNELS + 2 };
void code_kernels(const struct plan *plan, const struct plan_kernel *out[MAX_KERNELS + 1]);

#endif
