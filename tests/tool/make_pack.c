/* make_pack.c: writes a pack whose manifest is sound and whose code is empty: enough for everything
   that runs no kernel. usage: make_pack METHOD FILE, METHOD one of the names below. */
#include <stdio.h>
#include <string.h>

#include "tests/runtime/sample_pack.h"

#define GROUPED "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none"
#define PLAIN "heads=4 kv_heads=4 head_dim=64 type=bf16 mask=none"

static const struct {
  const char *name;
  struct sample_spec spec;
} methods[] = {
    {"hybrid", {.shape = GROUPED, .always = "always last=1\n", .no_cubin = true}},
    {"drop", {.shape = GROUPED, .attend = "selected=exact rest=drop"}},
    {"dense", {.shape = GROUPED, .dense = true}},
    {"plain", {.shape = PLAIN}},
};

static int write_pack(const struct sample *pack, const char *path) {
  FILE *file = fopen(path, "wb");
  if (!file)
    return 1;
  size_t written = fwrite(pack->bytes, 1, pack->size, file);
  return fclose(file) != 0 || written != pack->size;
}

int main(int argc, char **argv) {
  struct sample pack;
  for (size_t m = 0; argc == 3 && m < sizeof methods / sizeof *methods; m++) {
    if (strcmp(argv[1], methods[m].name) != 0)
      continue;
    sample_make(&methods[m].spec, &pack);
    int failed = write_pack(&pack, argv[2]);
    sample_free(&pack);
    return failed;
  }
  fprintf(stderr, "usage: make_pack hybrid|drop|dense|plain FILE\n");
  return 2;
}
