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

/* Replaces every step of a module made by method_build for |plan| by the kernels of that plan, one
   llvm.func each: summarize -> statistics, residual, route, attend -> attend and attend_edge,
   attend_below -> dense and dense_edge. None of the dialect's ops remain. */
void method_lower(struct context *context, MlirModule module, const struct plan *plan);

#endif
