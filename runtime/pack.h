/* pack.h: a pack in memory, verified. Immutable once it is read; modules copy what they need. */
#ifndef PISA_RUNTIME_PACK_H
#define PISA_RUNTIME_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/manifest.h"
#include "runtime/tune.h"

enum { PISA_ABI = 3 }; /* of the packs that this library reads */

struct pisa_pack {
  struct pisa_manifest manifest;
  uint8_t *parts; /* what follows the manifest in the file */
  size_t parts_size;
  struct pisa_tune tune; /* PATH.tune, or what pisa_pack_read_tune got; else empty */
};

/* |variant| of |pack|, both checked; PISA_INVALID_ARGUMENT naming the one that is wrong. */
pisa_status pisa_pack_variant(const pisa_pack *pack, int variant, const struct pisa_variant **out,
                              pisa_error *error);

/* Whether variants with these choices compute the same but for rounding: all choices but those that
   docs/ABI.md section 2 calls schedule ones agree. */
bool pisa_same_result(const char *choices, const char *others);
/* Whether |choices| has all of the |n| settings, "name=value". */
bool pisa_has_settings(const char *choices, const char *const *settings, int n);
/* Whether the word of |choice|, "name=value...", is a schedule choice. */
bool pisa_is_schedule_choice(const char *choice);

/* First byte of |part|; part->size bytes, not NUL-terminated. */
static inline const uint8_t *pisa_part_bytes(const pisa_pack *pack, const struct pisa_part *part) {
  return pack->parts + part->offset;
}

#endif
