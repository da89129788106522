/* make_pack.c: writes a pack whose manifest is sound and whose code is empty: enough for everything
   that runs no kernel. usage: make_pack METHOD FILE, METHOD one of the names below. */
#include <stdio.h>
#include <string.h>

#include "tests/runtime/sample_pack.h"

#define GROUPED "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none"
#define PLAIN "heads=4 kv_heads=4 head_dim=64 type=bf16 mask=none"

#define CAUSAL "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=causal"
#define SELECT "pyramid score=lse reduce=sum keep=5 start=0 leaf_stage=clustered query_tile=32"

#define THRESHOLD(tau)                                                                             \
  "top_k score=mean term=none budget=threshold density=0/1 keep=0 threshold=" tau                  \
  " variance=diagonal"

static const struct {
  const char *name;
  struct sample_spec spec;
} methods[] = {
    {"hybrid", {.shape = GROUPED, .always = "always last=1\n", .no_cubin = true}},
    {"drop", {.shape = GROUPED, .attend = "selected=exact rest=drop"}},
    {"dense", {.shape = GROUPED, .dense = true}},
    {"slow_dense", {.shape = GROUPED, .dense = true, .no_cubin = true, .code = "// per_cta=1\n"}},
    {"plain", {.shape = PLAIN}},
    {"select", {.shape = CAUSAL, .pyramid = "leaf=16 group=2 page=0", .select = SELECT}},
    {"paged", {.shape = CAUSAL, .pyramid = "leaf=16 group=2 page=16", .select = SELECT}},
    {"decode",
     {.shape = CAUSAL, .pyramid = "leaf=16 group=2 page=0", .select = SELECT, .phases = "decode"}},
    {"dense_paged",
     {.shape = CAUSAL, .dense = true, .phases = "decode", .pages = "pages size=16\n"}},
    {"threshold",
     {.shape = GROUPED, .route = THRESHOLD("1/1"), .attend = "selected=exact rest=drop"}},
};

/* The two variants as thresholds of 1 and 0.2. */
static void rename_variants(struct sample *pack) {
  static const char *const edits[][2] = {
      {"variant 0 density=0.125", "variant 0 variance=diagonal threshold=1.0"},
      {"variant 1 density=0.25\nroute top_k score=mean term=log_covariance budget=density "
       "density=25/100 keep=0 threshold=0/1 variance=diagonal",
       "variant 1 variance=diagonal threshold=0.2\nroute " THRESHOLD("2/10")}};
  for (int i = 0; i < 2; i++) {
    struct sample edited;
    sample_edit(pack, edits[i][0], edits[i][1], &edited);
    sample_free(pack);
    *pack = edited;
  }
}

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
    if (strcmp(argv[1], "threshold") == 0)
      rename_variants(&pack);
    int failed = write_pack(&pack, argv[2]);
    sample_free(&pack);
    return failed;
  }
  fprintf(stderr, "usage: make_pack METHOD FILE, METHOD one of");
  for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
    fprintf(stderr, " %s", methods[m].name);
  fputc('\n', stderr);
  return 2;
}
