/* make_pack.c: writes the sample pack of tests/runtime with a method and a shape of choice; its
   code is for the model driver alone, which reads from it what a compiler would compile in. usage:
   make_pack METHOD FILE, METHOD one of the names below */
#include <stdio.h>
#include <string.h>

#include "tests/runtime/sample_pack.h"

#define MEAN "top_k score=mean term=none budget=density density=125/1000 keep=0"

#define KEY_VARIANCE "top_k score=mean term=log_key_variance budget=density density=125/1000 keep=0"
#define SECOND_ORDER(tail) "selected=exact rest=" tail " mass=second_order"

#define SHAPED(text) .shape = text " mask=none", .code = text "\n"
#define GROUPED SHAPED("heads=4 kv_heads=2 head_dim=96 type=bf16")
#define HALF SHAPED("heads=3 kv_heads=3 head_dim=128 type=fp16")
#define SMALL_SHAPE "heads=4 kv_heads=1 head_dim=64 type=fp16"
#define SMALL SHAPED(SMALL_SHAPE)

#define BLOCKED(text, more) .blocks = text, .code = text more "\n"
#define COARSE BLOCKED("query=128 key=128", " term=log_key_variance")
#define SMALL_BLOCKED                                                                              \
  .shape = SMALL_SHAPE " mask=none", .blocks = "query=64 key=64",                                  \
  .code = SMALL_SHAPE " query=64 key=64 term=log_key_variance\n"

static const struct {
  const char *name;
  struct sample_spec spec;
} specs[] = {{"hybrid", {.always = "always range=60..70\nalways last=1\n"}},
             {"taylor0", {.attend = "selected=exact rest=taylor_0 mass=zeroth_order"}},
             {"drop", {.attend = "selected=exact rest=drop", .route = MEAN}},
             {"mean", {.route = MEAN}},
             {"dense", {.dense = true}},
             {"grouped", {GROUPED}},
             {"half", {HALF}},
             {"small", {SMALL}},
             {"small_drop", {SMALL, .attend = "selected=exact rest=drop", .route = MEAN}},
             {"narrow", {BLOCKED("query=64 key=64", "")}},
             {"coarse",
              {COARSE, .route = KEY_VARIANCE, .always = "always first=9\nalways window=1\n",
               .attend = SECOND_ORDER("taylor_0")}},
             {"spread", {.always = "always window=0\n", .attend = SECOND_ORDER("taylor_hybrid")}},
             {"small_spread",
              {SMALL_BLOCKED, .route = KEY_VARIANCE, .attend = SECOND_ORDER("taylor_hybrid")}},
             {"small_dense", {SMALL, .dense = true}}};

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
  fprintf(stderr, "usage: make_pack METHOD FILE\n");
  return 1;
}
