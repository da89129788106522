/* pack.c: in go plans and their code; out come the bytes of a pack. The manifest needs the offsets
   of the parts and the header needs the digest of the manifest, so parts are placed first and the
   header is written last. */
#include "compiler/pack/pack.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/pack/manifest.h"
#include "compiler/pack/validation.h"
#include "runtime/sha256.h"

enum { PACK_ABI = 3 };

/* ---- parts ---- */

static struct part place(const struct text *bytes, size_t *end) {
  struct part part = {.offset = *end, .size = bytes->size};
  pisa_sha256_hex(bytes->data, bytes->size, part.sha256);
  *end += bytes->size;
  return part;
}

/* Index of the first variant with the same code as variant |i|. */
static int first_with_code(const struct pack *pack, int i) {
  for (int j = 0; j < i; j++)
    if (pack->code[j] == pack->code[i])
      return j;
  return i;
}

static void place_parts(const struct pack *pack, struct parts *parts) {
  size_t end = 0;
  for (int i = 0; i < pack->variants->n; i++) {
    int first = first_with_code(pack, i);
    if (first < i) {
      parts[i] = parts[first];
      continue;
    }
    parts[i].ptx = place(&pack->code[i]->ptx, &end);
    if (pack->code[i]->cubin.size > 0)
      parts[i].cubin = place(&pack->code[i]->cubin, &end);
  }
}

/* ---- validation ---- */

static int compare_digests(const void *key, const void *entry) {
  return strcmp(key, *(const char *const *)entry);
}

static bool is_listed(const struct text *bytes) {
  char hex[PISA_SHA256_HEX + 1];
  pisa_sha256_hex(bytes->data, bytes->size, hex);
  return bsearch(hex, validated_digests, (size_t)n_validated_digests, sizeof *validated_digests,
                 compare_digests) != NULL;
}

bool pack_is_validated(const struct pack *pack) {
  for (int i = 0; i < pack->variants->n; i++) {
    const struct code *code = pack->code[i];
    if (!is_listed(&code->ptx) || (code->cubin.size > 0 && !is_listed(&code->cubin)))
      return false;
  }
  return true;
}

/* ---- the file ---- */

void pack_write(const struct pack *pack, struct text *out) {
  struct parts *parts = calloc((size_t)pack->variants->n, sizeof *parts);
  if (!parts)
    abort();
  struct text manifest;
  text_init(&manifest);
  place_parts(pack, parts);
  manifest_write(pack, parts, &manifest);
  char digest[PISA_SHA256_HEX + 1];
  pisa_sha256_hex(manifest.data, manifest.size, digest);
  text_printf(out, "PISA-PACK %d %zu %s\n", PACK_ABI, manifest.size, digest);
  text_append(out, manifest.data, manifest.size);
  for (int i = 0; i < pack->variants->n; i++)
    if (first_with_code(pack, i) == i) {
      text_append(out, pack->code[i]->ptx.data, pack->code[i]->ptx.size);
      text_append(out, pack->code[i]->cubin.data, pack->code[i]->cubin.size);
    }
  text_fini(&manifest);
  free(parts);
}
