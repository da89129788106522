/* make_pack.c: writes the sample pack of tests/runtime with a method of choice; its code is for the
   model driver alone. usage: make_pack hybrid|taylor0|drop|mean|dense FILE */
#include <stdio.h>
#include <string.h>

#include "tests/runtime/sample_pack.h"

#define MEAN "top_k score=mean term=none budget=density density=125/1000 keep=0"

static const struct {
  const char *name;
  struct sample_spec spec;
} specs[] = {{"hybrid", {.always = "always range=60..70\nalways last=1\n"}},
             {"taylor0", {.attend = "selected=exact rest=taylor_0"}},
             {"drop", {.attend = "selected=exact rest=drop", .route = MEAN}},
             {"mean", {.route = MEAN}},
             {"dense", {.dense = true}}};

int main(int argc, char **argv) {
  struct sample pack;
  for (size_t i = 0; argc == 3 && i < sizeof specs / sizeof *specs; i++) {
    if (strcmp(argv[1], specs[i].name) != 0)
      continue;
    FILE *file = fopen(argv[2], "wb");
    if (!file)
      return 2;
    sample_make(&specs[i].spec, &pack);
    size_t written = fwrite(pack.bytes, 1, pack.size, file);
    int ok = fclose(file) == 0 && written == pack.size;
    sample_free(&pack);
    return ok ? 0 : 2;
  }
  fprintf(stderr, "usage: make_pack hybrid|taylor0|drop|mean|dense FILE\n");
  return 1;
}
