/* pack_fuzz.c: bytes that nobody meant to be a pack. In: arbitrary bytes. Out: nothing; a crash, a
   sanitizer's report or an abort is the finding. The bytes are read three ways: as a file, as a
   manifest, and as manifest and parts with a right header, since no mutation finds a sha256.

   With libFuzzer this is a fuzz target. With FUZZ_STANDALONE it is a program of its own, for
   compilers without libFuzzer: pack_fuzz SECONDS FILE... mutates the files, by a fixed sequence of
   pseudo-random numbers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/pack.h"
#include "runtime/shape.h"
#include "tests/runtime/sample_pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what) {
  if (condition)
    return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

/* What manifest.h and method.h promise of everything that was accepted. */
static void check_method(const struct pisa_method *m) {
  require(m->heads >= 1 && m->kv_heads >= 1 && m->heads % m->kv_heads == 0, "heads");
  require(m->head_dim >= 64 && m->head_dim <= 256, "head_dim");
  require((m->query == 64 || m->query == 128) && (m->key == 64 || m->key == 128), "blocks");
  require(m->n_always >= 0 && m->n_always <= PISA_MAX_ALWAYS, "always");
  require(m->dense || m->budget != PISA_BUDGET_DENSITY || m->density_num >= 1, "density");
  static const int64_t tokens[] = {1, 64, 65, 4608, PISA_MAX_TOKENS};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    int64_t blocks = (tokens[i] + m->key - 1) / m->key, kept = pisa_kept(m, tokens[i], 0, 0);
    require(kept >= 1 && kept <= blocks, "kept");
    require(pisa_kept(m, tokens[i], 0.37, 0) <= blocks, "kept by density");
  }
}

static void check_manifest(const struct pisa_manifest *manifest) {
  require(manifest->n_variants >= 1 && strlen(manifest->name) > 0, "a name and a variant");
  for (int i = 0; i < manifest->n_variants; i++) {
    const struct pisa_variant *variant = &manifest->variants[i];
    check_method(&variant->method);
    require(variant->ptx.present && variant->ptx.size > 0, "ptx");
    for (int k = PISA_KERNEL_ATTEND; k < PISA_N_KERNELS; k++)
      require(variant->kernels[k].present && *variant->kernels[k].entry, "attend kernels");
  }
}

static void read_as_pack(const void *bytes, size_t size) {
  pisa_error error;
  pisa_pack *pack = NULL;
  pisa_status status = pisa_pack_read(bytes, size, &pack, &error);
  require(status == error.status && (status == PISA_OK) == (pack != NULL), "a status");
  require(status == PISA_OK || strlen(error.message) > 0, "a message");
  if (status)
    return;
  check_manifest(&pack->manifest);
  const char *settings[] = {"density=0.25"};
  int variant;
  if (!pisa_pack_find_variant(pack, settings, 1, &variant, &error))
    require(variant >= 0 && variant < pack->manifest.n_variants, "a variant");
  pisa_pack_close(pack);
}

static void read_as_manifest(const char *text, size_t size) {
  struct pisa_manifest manifest;
  pisa_error error;
  if (pisa_manifest_parse(text, size, &manifest, &error))
    return;
  check_manifest(&manifest);
  pisa_manifest_clear(&manifest);
}

/* The manifest ends behind the first line "end"; the rest are parts. */
static void read_signed(const char *text, size_t size) {
  static const char last[] = "\nend\n";
  size_t cut = 0, word = sizeof last - 1;
  while (cut + word <= size && memcmp(text + cut, last, word))
    cut++;
  if (cut + word > size)
    return;
  struct sample sample;
  sample_sign(text, cut + word, text + cut + word, size - cut - word, &sample);
  read_as_pack(sample.bytes, sample.size);
  sample_free(&sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = calloc(size + 1, 1); /* exact but for one byte: reading beyond is seen */
  if (!text)
    return 0;
  if (size)
    memcpy(text, data, size);
  read_as_pack(text, size);
  if (size)
    read_as_manifest(text, size);
  read_signed(text, size);
  free(text);
  return 0;
}

#ifdef FUZZ_STANDALONE

enum { MAX_INPUT = 1 << 16 };
static uint64_t state = 88172645463325252u;

static size_t random_below(size_t n) { /* xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n ? (size_t)(state % n) : 0;
}

static void mutate(uint8_t *bytes, size_t *size) {
  size_t at = random_below(*size), length = random_below(16);
  if (length > *size - at)
    length = *size - at;
  switch (random_below(5)) {
  case 0: /* flip a bit */
    if (*size)
      bytes[at] = (uint8_t)(bytes[at] ^ 1u << random_below(8));
    break;
  case 1: /* put a digit or a separator */
    if (*size)
      bytes[at] = (uint8_t) "0123456789 =/.\n-"[random_below(16)];
    break;
  case 2: /* cut some bytes out */
    memmove(bytes + at, bytes + at + length, *size - at - length);
    *size -= length;
    break;
  case 3: /* say some bytes twice */
    if (*size + length > MAX_INPUT)
      break;
    memmove(bytes + at + length, bytes + at, *size - at);
    *size += length;
    break;
  default: /* copy some bytes elsewhere */
    memmove(bytes + random_below(*size - length + 1), bytes + at, length);
  }
}

static size_t read_file(const char *path, uint8_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    fprintf(stderr, "cannot open %s\n", path);
    exit(2);
  }
  size_t size = fread(bytes, 1, MAX_INPUT, file);
  fclose(file);
  return size;
}

int main(int argc, char **argv) {
  static uint8_t seed[MAX_INPUT], bytes[MAX_INPUT];
  if (argc < 3)
    return 2;
  time_t end = time(NULL) + atoi(argv[1]);
  unsigned long runs = 0;
  while (time(NULL) < end) {
    size_t seed_size = read_file(argv[2 + runs / 1000 % (unsigned long)(argc - 2)], seed);
    for (int i = 0; i < 1000; i++, runs++) {
      size_t size = seed_size;
      memcpy(bytes, seed, size);
      for (size_t n = 1 + random_below(8); n > 0; n--)
        mutate(bytes, &size);
      LLVMFuzzerTestOneInput(bytes, size);
    }
  }
  printf("%lu runs\n", runs);
  return 0;
}

#endif
