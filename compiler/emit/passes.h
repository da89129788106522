/* passes.h: from structured control flow and machine ops to the LLVM dialect. */
#ifndef PISA_EMIT_PASSES_H
#define PISA_EMIT_PASSES_H

#include "compiler/emit/context.h"

/* requires  llvm.func kernels made of llvm, nvvm, arith and scf ops
   recreates control flow as blocks and branches
   maintains kernel attributes, locations
   breaks    scf, arith, cf: only the llvm and nvvm dialects remain, ready for nvptx_translate
   Verifies before and after; a failure is an internal error. */
void passes_run(struct context *context, MlirModule module);

#endif
