/* make_tuned_pack.c: writes a pack of variants that differ in schedule and density, each with code
   of its own, whose launches the fake driver of ../runtime gives the named time.
   usage: make_tuned_pack FILE MS MS MS MS: half_tile=off at density 0.125 and at 0.25, then
   half_tile=on at both. Further MS are of half_tile=third, =fourth at 0.125, to have more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sha256.h"
#include "tests/runtime/sample_pack.h"

#define QUARTER                                                                                    \
  "route top_k score=mean term=log_covariance budget=density density=25/100 keep=0 threshold=0/1 " \
  "variance=diagonal\n"

static char manifest[1 << 15], parts[1 << 13];
static size_t manifest_size, parts_size;

static void add_variant(int i, const char *ms, const char *kernels) {
  static const char *const choices[] = {
      "half_tile=off density=0.125",   "half_tile=off density=0.25",
      "half_tile=on density=0.125",    "half_tile=on density=0.25",
      "half_tile=third density=0.125", "half_tile=fourth density=0.125"};
  char code[256], hex[PISA_SHA256_HEX + 1];
  int size = snprintf(code, sizeof code, ".version 8.6\n.target sm_90a\n// %d ms=%s\n", i, ms);
  pisa_sha256_hex(code, (size_t)size, hex);
  manifest_size +=
      (size_t)sprintf(manifest + manifest_size, "variant %d %s\n%spart ptx 0 %zu %d %s\n%s", i,
                      choices[i], i == 1 || i == 3 ? QUARTER : "", parts_size, size, hex, kernels);
  memcpy(parts + parts_size, code, (size_t)size);
  parts_size += (size_t)size;
}

/* The kernel lines of a variant of |made|. */
static void copy_kernels(const struct sample *made, char *out, size_t room) {
  const char *text = made->bytes + made->manifest_at, *begin = strstr(text, "kernel ");
  const char *end = strstr(text, "variant 1");
  snprintf(out, room, "%.*s", (int)(end - begin), begin);
}

int main(int argc, char **argv) {
  struct sample made, signed_pack;
  char kernels[1024];
  if (argc < 6 || argc > 8) {
    fprintf(stderr, "usage: make_tuned_pack FILE MS MS MS MS [MS [MS]]\n");
    return 2;
  }
  sample_make(&(struct sample_spec){.shape = "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none",
                                    .no_cubin = true},
              &made);
  copy_kernels(&made, kernels, sizeof kernels);
  const char *text = made.bytes + made.manifest_at, *end = strstr(text, "variants ");
  manifest_size = (size_t)sprintf(manifest, "%.*svariants %d\n", (int)(end - text), text, argc - 2);
  for (int i = 0; i < argc - 2; i++)
    add_variant(i, argv[i + 2], kernels);
  manifest_size += (size_t)sprintf(manifest + manifest_size, "end\n");
  sample_sign(manifest, manifest_size, parts, parts_size, &signed_pack);
  FILE *file = fopen(argv[1], "wb");
  bool ok = file && fwrite(signed_pack.bytes, 1, signed_pack.size, file) == signed_pack.size;
  sample_free(&made);
  sample_free(&signed_pack);
  return file && fclose(file) == 0 && ok ? 0 : 1;
}
