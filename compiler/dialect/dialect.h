/* dialect.h: a method as a module of pisa ops (pisa.irdl.mlir), and its replacement by kernels. */
#ifndef PISA_DIALECT_H
#define PISA_DIALECT_H

#include "compiler/emit/context.h"
#include "compiler/plan/plan.h"

struct source;

/* Makes the pisa dialect known to |context|; once per context. */
void dialect_load(struct context *context);

/* The method of |plan| as a module: one op per step, named results, locations in |source|. Owned by
 * the caller. */
MlirModule method_build(struct context *context, const struct plan *plan,
                        const struct source *source);

/* Prints |module| with its result names. */
void method_print(MlirModule module, struct text *out);

/* requires  a module made by method_build for |plan|
   recreates every step as the kernels of its plan, one llvm.func each: summarize -> statistics,
   route -> route, attend -> attend and attend_edge maintains nothing else: a module holds one
   method breaks    the pisa dialect: none of its ops remain; llvm, nvvm, arith and scf do */
void method_lower(struct context *context, MlirModule module, const struct plan *plan);

#endif
