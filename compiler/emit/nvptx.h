/* nvptx.h: LLVM dialect -> LLVM IR -> PTX. The two C APIs of LLVM meet only here. */
#ifndef PISA_EMIT_NVPTX_H
#define PISA_EMIT_NVPTX_H

#include "compiler/emit/context.h"

/* Translates |module| (the state passes_run leaves; not changed), optimises it for |chip|
   ("sm_90a") at |ptx_version| (86: PTX 8.6) and appends LLVM IR to |llvm_ir| and PTX to |ptx|;
   either may be NULL. Failures are internal errors. */
void nvptx_emit(struct context *context, MlirModule module, const char *chip, int ptx_version,
                struct text *llvm_ir, struct text *ptx);

#endif
