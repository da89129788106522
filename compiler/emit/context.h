/* context.h: one compilation's MLIR context, and what MLIR said in it. */
#ifndef PISA_EMIT_CONTEXT_H
#define PISA_EMIT_CONTEXT_H

#include "dsl/text.h"
#include "mlir-c/IR.h"

struct context {
  MlirContext mlir; /* owned; dialects builtin, arith, cf, irdl, llvm, nvvm, scf; one thread */
  struct text said; /* every MLIR diagnostic since context_init, one a line, with its location */
};

/* |context| must stay at one address until context_fini: MLIR's diagnostic handler points to it. */
void context_init(struct context *context);
void context_fini(struct context *context);

/* Ends the process (internal_error) with what MLIR said, unless |ok|. */
void context_check(const struct context *context, int ok, const char *stage);

/* MLIR prints through callbacks: this one appends to the `struct text` at |user|. */
void text_of_mlir(MlirStringRef part, void *user);

#endif
