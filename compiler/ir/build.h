/* build.h: how ir/'s own files make ops; nobody else includes it. */
#ifndef PISA_IR_BUILD_H
#define PISA_IR_BUILD_H

#include "compiler/ir/ir.h"

struct ir_build { /* what an op is made of */
  const char *name;
  const char *attributes; /* inside of a dictionary, MLIR syntax; "" for none */
  type result;            /* NO_TYPE for none */
  int n_operands, n_regions;
  const val *operands;
  const MlirRegion *regions; /* taken */
};

/* A detached op; the caller inserts it. */
MlirOperation ir_build(struct ir *k, const struct ir_build *what);

#endif
