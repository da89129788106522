/* make_pack.c: writes a pack whose manifest is sound and whose code is not: enough for everything
   that runs no kernel. usage: make_pack METHOD FILE, METHOD one of the names below. */
#include <stdio.h>
#include <string.h>

#include "runtime/sha256.h"

static const struct {
  int kv_heads; /* of 4 heads */
  const char *name, *route, *attend, *choices, *second;
} methods[] = {
    {2, "hybrid",
     "route top_k score=mean term=log_covariance budget=density density=25/100 keep=0\nalways "
     "last=1\n",
     "attend selected=exact rest=taylor_hybrid\n", " density=0.25",
     "variant 1 density=0.5\n"
     "route top_k score=mean term=log_covariance budget=density density=5/10 keep=0\n"},
    {2, "drop", "route top_k score=mean term=none budget=keep density=0/1 keep=2\n",
     "attend selected=exact rest=drop\n", "", NULL},
    {4, "device", "route top_k score=mean term=none budget=keep density=0/1 keep=2\n",
     "attend selected=exact rest=taylor_0\n", "", NULL},
    {2, "dense", "route none\n", "attend all=exact\n", "", NULL},
};

static const char code[] = ".version 8.6\n.target sm_90a\n"; /* and no kernel */

/* The lines of a variant that name its code. */
static int print_code(char *out, size_t capacity, int dense) {
  char digest[PISA_SHA256_HEX + 1];
  pisa_sha256_hex(code, sizeof code - 1, digest);
  int at = snprintf(out, capacity, "part ptx 0 0 %zu %s\n", sizeof code - 1, digest);
  if (!dense)
    at += snprintf(
        out + at, capacity - (size_t)at,
        "kernel statistics entry=pisa_statistics threads=384 smem=197888 registers=168 spill=0\n"
        "kernel route entry=pisa_route threads=512 smem=dynamic registers=64 spill=0\n");
  at += snprintf(
      out + at, capacity - (size_t)at,
      "kernel attend entry=pisa_attend threads=384 smem=196704 registers=168 spill=24\n"
      "kernel attend_edge entry=pisa_attend_edge threads=384 smem=196704 registers=0 spill=0\n");
  return at;
}

static int write_pack(const char *path, const char *manifest) {
  char digest[PISA_SHA256_HEX + 1];
  FILE *file = fopen(path, "wb");
  if (!file)
    return 1;
  pisa_sha256_hex(manifest, strlen(manifest), digest);
  fprintf(file, "PISA-PACK 1 %zu %s\n%s%s", strlen(manifest), digest, manifest, code);
  return fclose(file) != 0;
}

int main(int argc, char **argv) {
  char text[4096], lines[1024];
  for (size_t m = 0; argc == 3 && m < sizeof methods / sizeof *methods; m++) {
    if (strcmp(argv[1], methods[m].name) != 0)
      continue;
    print_code(lines, sizeof lines, strcmp(argv[1], "dense") == 0);
    snprintf(
        text, sizeof text,
        "name %s\ncompiler pisac 0.1.0, made by a test, no ptxas\ntarget sm_90a\nptx_version 86\n"
        "spec_sha256 %064d\nmethod piecewise\nshape heads=4 kv_heads=%d head_dim=64 type=bf16 "
        "mask=none\n"
        "blocks query=128 key=64\n%s%svalidated no\nvariants %d\nvariant 0%s\n%s%s%send\n",
        methods[m].name, 0, methods[m].kv_heads, methods[m].route, methods[m].attend,
        methods[m].second ? 2 : 1, methods[m].choices, lines,
        methods[m].second ? methods[m].second : "", methods[m].second ? lines : "");
    return write_pack(argv[2], text);
  }
  fprintf(stderr, "usage: make_pack hybrid|drop|device|dense FILE\n");
  return 2;
}
