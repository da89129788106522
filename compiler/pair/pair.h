/* pair.h: a pack as C. X.c holds its bytes, X.h declares calls whose parameters are what the spec
   needs; both use libpisa through pisa.h (docs/embedding.md). */
#ifndef PISA_PAIR_H
#define PISA_PAIR_H

#include "compiler/pack/pack.h"

struct pair_names {
  const char *symbol; /* what all names of the pair begin with; symbol_refused says NULL of it */
  const char *base;   /* file name without folder and ending: the .c includes "base.h" */
};

/* Appends the two files. |bytes| are those of pack_write. Same pack and names, same text. */
void pair_write(const struct pack *pack, const struct text *bytes, const struct pair_names *names,
                struct text *header, struct text *source);

#endif
