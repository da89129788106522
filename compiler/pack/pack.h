/* pack.h: a compiled spec as one file (docs/ABI.md). */
#ifndef PISA_PACK_H
#define PISA_PACK_H

#include "compiler/pack/code.h"
#include "compiler/plan/variants.h"

struct pack {
  const struct spec *spec; /* as written, --set applied */
  const struct variants *variants;
  const struct code **code; /* of each variant; variants with the same kernels share one */
  const char *compiler;     /* "pisac 0.1.0, LLVM 22.1.8, ptxas 13.0.88" */
};

/* Appends the whole file to |out|: header line, manifest, parts. Same pack, same bytes. */
void pack_write(const struct pack *pack, struct text *out);

/* Whether every part of |pack| is on the list of those that passed on a GPU
 * (docs/results/validation.json). */
bool pack_is_validated(const struct pack *pack);

#endif
