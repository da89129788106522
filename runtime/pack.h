/* pack.h: a pack in memory, verified. Immutable once it is read; modules copy what they need. */
#ifndef PISA_RUNTIME_PACK_H
#define PISA_RUNTIME_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/manifest.h"

enum { PISA_ABI = 2 }; /* of the packs that this library reads */

struct pisa_pack {
  struct pisa_manifest manifest;
  uint8_t *parts; /* what follows the manifest in the file */
  size_t parts_size;
};

/* |variant| of |pack|, both checked; PISA_INVALID_ARGUMENT naming the one that is wrong. */
pisa_status pisa_pack_variant(const pisa_pack *pack, int variant, const struct pisa_variant **out,
                              pisa_error *error);

/* First byte of |part|; part->size bytes, not NUL-terminated. */
static inline const uint8_t *pisa_part_bytes(const pisa_pack *pack, const struct pisa_part *part) {
  return pack->parts + part->offset;
}

#endif
