/* pack.c: bytes -> pisa_pack. In: a file or memory. Out: a manifest and its parts, every byte
   covered by a digest that was checked; the layout is docs/ABI.md section 1. Nothing is used before
   it is verified. */
#include "runtime/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 128 }; /* "PISA-PACK", two numbers of at most 18 digits, a digest */
static const char magic[] = "PISA-PACK ";
static const size_t max_pack_bytes = (size_t)1 << 30;

struct header {
  size_t size; /* of the header line, '\n' included */
  size_t manifest_bytes;
  const char *sha256; /* 64 digits, not terminated */
};

/* Digits at |*at| up to the space after them, which is skipped; false for anything else. */
static bool read_number(const char **at, const char *end, int64_t *out) {
  const char *p = *at;
  *out = 0;
  for (; p < end && *p >= '0' && *p <= '9' && p - *at < 18; p++)
    *out = *out * 10 + (*p - '0');
  if (p == *at || p == end || *p != ' ')
    return false;
  *at = p + 1;
  return true;
}

static pisa_status read_header(const char *bytes, size_t size, struct header *out,
                               pisa_error *error) {
  size_t word = sizeof magic - 1;
  if (memcmp(bytes, magic, size < word ? size : word))
    return pisa_fail(error, PISA_CORRUPT, "not a pisa pack: it does not begin with '%.9s'", magic);
  const char *stop = memchr(bytes, '\n', size < MAX_HEADER ? size : MAX_HEADER);
  if (!stop && size < MAX_HEADER)
    return pisa_fail(error, PISA_CORRUPT, "the pack is truncated: %zu bytes, no header line", size);
  const char *at = bytes + word;
  int64_t abi, manifest_bytes;
  if (!stop || !read_number(&at, stop, &abi) || abi < 1)
    return pisa_fail(error, PISA_CORRUPT, "the header line of the pack is damaged");
  if (abi > PISA_ABI)
    return pisa_fail(error, PISA_CORRUPT,
                     "the pack has ABI %" PRId64 ", this library (%s) reads %d: update libpisa",
                     abi, PISA_VERSION, PISA_ABI);
  if (abi < PISA_ABI)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "the pack has ABI %" PRId64
                     ", older than the %d that this library (%s) reads: rebuild it",
                     abi, PISA_ABI, PISA_VERSION);
  if (!read_number(&at, stop, &manifest_bytes) || manifest_bytes < 1 ||
      stop - at != PISA_SHA256_HEX)
    return pisa_fail(error, PISA_CORRUPT, "the header line of the pack is damaged");
  *out = (struct header){(size_t)(stop + 1 - bytes), (size_t)manifest_bytes, at};
  if (size - out->size < out->manifest_bytes)
    return pisa_fail(error, PISA_CORRUPT,
                     "the pack is truncated: %zu of %zu bytes of the manifest are there",
                     size - out->size, out->manifest_bytes);
  return PISA_OK;
}

/* Parts lie one behind the other; a part may be the same range as an earlier one. |*end| is where
   the parts read so far end. */
static pisa_status check_part(const pisa_pack *pack, int variant, const char *kind,
                              const struct pisa_part *part, size_t *end, pisa_error *error) {
  char hex[PISA_SHA256_HEX + 1];
  if (!part->present)
    return PISA_OK;
  if (part->offset > *end)
    return pisa_fail(error, PISA_CORRUPT, "%s of variant %d leaves a gap of %zu bytes", kind,
                     variant, part->offset - *end);
  if (part->offset < *end && part->size > *end - part->offset)
    return pisa_fail(error, PISA_CORRUPT, "%s of variant %d overlaps another part", kind, variant);
  if (part->size > pack->parts_size || part->offset > pack->parts_size - part->size)
    return pisa_fail(error, PISA_CORRUPT,
                     "the pack is truncated: %s of variant %d ends at %zu of %zu", kind, variant,
                     part->offset + part->size, pack->parts_size);
  pisa_sha256_hex(pisa_part_bytes(pack, part), part->size, hex);
  if (strcmp(hex, part->sha256))
    return pisa_fail(error, PISA_CORRUPT,
                     "%s of variant %d is damaged: sha256 is %.12s..., not %.12s...", kind, variant,
                     hex, part->sha256);
  if (part->offset == *end)
    *end += part->size;
  return PISA_OK;
}

static pisa_status check_parts(const pisa_pack *pack, pisa_error *error) {
  size_t end = 0;
  for (int i = 0; i < pack->manifest.n_variants; i++) {
    const struct pisa_variant *variant = &pack->manifest.variants[i];
    pisa_status status = check_part(pack, i, "ptx", &variant->ptx, &end, error);
    if (!status)
      status = check_part(pack, i, "cubin", &variant->cubin, &end, error);
    if (status)
      return status;
  }
  if (end != pack->parts_size)
    return pisa_fail(error, PISA_CORRUPT, "%zu bytes follow the last part of the pack",
                     pack->parts_size - end);
  return PISA_OK;
}

static pisa_status read_into(pisa_pack *pack, const char *bytes, size_t size, pisa_error *error) {
  struct header header = {0};
  char hex[PISA_SHA256_HEX + 1];
  pisa_status status = read_header(bytes, size, &header, error);
  if (status)
    return status;
  const char *manifest = bytes + header.size;
  pisa_sha256_hex(manifest, header.manifest_bytes, hex);
  if (memcmp(hex, header.sha256, PISA_SHA256_HEX))
    return pisa_fail(error, PISA_CORRUPT,
                     "the manifest is damaged: its sha256 is %.12s..., not %.12s...", hex,
                     header.sha256);
  status = pisa_manifest_parse(manifest, header.manifest_bytes, &pack->manifest, error);
  if (status)
    return status;
  pack->parts_size = size - header.size - header.manifest_bytes;
  pack->parts = malloc(pack->parts_size ? pack->parts_size : 1);
  if (!pack->parts)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for %zu bytes of code",
                     pack->parts_size);
  memcpy(pack->parts, manifest + header.manifest_bytes, pack->parts_size);
  return check_parts(pack, error);
}

pisa_status pisa_pack_read(const void *bytes, size_t size, pisa_pack **out, pisa_error *error) {
  pisa_clear(error);
  if (!bytes)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "bytes is NULL");
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  pisa_pack *pack = calloc(1, sizeof *pack);
  if (!pack)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for a pack");
  pisa_status status = read_into(pack, bytes, size, error);
  if (status)
    pisa_pack_close(pack);
  else
    *out = pack;
  return status;
}

/* Reads the whole stream; a file that does not begin like a pack is refused before it is read
 * whole. */
static pisa_status read_stream(FILE *file, char **out, size_t *out_size, pisa_error *error) {
  size_t size = 0, room = 1 << 16;
  char *bytes = malloc(room);
  while (bytes) {
    size += fread(bytes + size, 1, room - size, file);
    if (size < room || memcmp(bytes, magic, sizeof magic - 1))
      break;
    if (room >= max_pack_bytes) {
      free(bytes);
      return pisa_fail(error, PISA_UNSUPPORTED, "the file is larger than a pack can be (1 GiB)");
    }
    room *= 2;
    char *larger = realloc(bytes, room);
    if (!larger)
      free(bytes);
    bytes = larger;
  }
  if (!bytes)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for %zu bytes", room);
  if (ferror(file)) {
    free(bytes);
    return pisa_fail(error, PISA_IO, "cannot read: %s", strerror(errno));
  }
  *out = bytes;
  *out_size = size;
  return PISA_OK;
}

/* The table beside the pack. */
static pisa_status read_table(const char *path, pisa_pack *pack, pisa_error *error) {
  char beside[4096];
  if ((size_t)snprintf(beside, sizeof beside, "%s.tune", path) >= sizeof beside)
    return PISA_OK; /* no system opens a path of that length */
  return pisa_tune_load(beside, &pack->tune, error);
}

pisa_status pisa_pack_open(const char *path, pisa_pack **out, pisa_error *error) {
  pisa_clear(error);
  if (!path)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "path is NULL");
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  FILE *file = fopen(path, "rb");
  if (!file)
    return pisa_fail(error, PISA_IO, "%s: cannot open: %s", path, strerror(errno));
  char *bytes = NULL;
  size_t size = 0;
  pisa_pack *pack = NULL;
  pisa_status status = read_stream(file, &bytes, &size, error);
  if (!status)
    status = pisa_pack_read(bytes, size, &pack, error);
  free(bytes);
  fclose(file);
  if (status)
    return pisa_add_context(error, status, "%s", path);
  status = read_table(path, pack, error); /* whose messages name its own path */
  if (status)
    pisa_pack_close(pack);
  else
    *out = pack;
  return status;
}

void pisa_pack_close(pisa_pack *pack) {
  if (!pack)
    return;
  pisa_manifest_clear(&pack->manifest);
  pisa_tune_clear(&pack->tune);
  free(pack->parts);
  free(pack);
}

pisa_status pisa_pack_variant(const pisa_pack *pack, int variant, const struct pisa_variant **out,
                              pisa_error *error) {
  if (!pack)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "pack is NULL");
  if (variant < 0 || variant >= pack->manifest.n_variants)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "variant is %d, must be from 0 to %d", variant,
                     pack->manifest.n_variants - 1);
  *out = &pack->manifest.variants[variant];
  return PISA_OK;
}

pisa_status pisa_pack_get_info(const pisa_pack *pack, pisa_pack_info *out, pisa_error *error) {
  pisa_clear(error);
  if (!pack)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "pack is NULL");
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  const struct pisa_manifest *manifest = &pack->manifest;
  const struct pisa_method *method = &manifest->variants[0].method;
  *out = (pisa_pack_info){.name = manifest->name,
                          .compiler = manifest->compiler,
                          .target = manifest->target,
                          .manifest = manifest->text,
                          .type = method->type,
                          .heads = method->heads,
                          .kv_heads = method->kv_heads,
                          .head_dim = method->head_dim,
                          .n_variants = manifest->n_variants,
                          .has_cubin = manifest->variants[0].cubin.present,
                          .validated = manifest->validated};
  return PISA_OK;
}
