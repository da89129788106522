/* manifest.h: the text part of a pack (docs/ABI.md section 2). */
#ifndef PISA_PACK_MANIFEST_H
#define PISA_PACK_MANIFEST_H

#include "compiler/pack/pack.h"
#include "runtime/sha256.h"

struct part {
  size_t offset, size; /* from the end of the manifest, bytes */
  char sha256[PISA_SHA256_HEX + 1];
};

struct parts {            /* of one variant */
  struct part ptx, cubin; /* cubin.size = 0: none */
};

/* |parts| has one entry per variant. */
void manifest_write(const struct pack *pack, const struct parts *parts, struct text *out);

#endif
