/* pack_seeds.c FOLDER: writes packs and bare manifests for pack_fuzz to start from. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/runtime/sample_pack.h"

static void write_file(const char *folder, const char *name, int i, const char *bytes,
                       size_t size) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s%d", folder, name, i);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
    fprintf(stderr, "cannot write %s\n", path);
    exit(2);
  }
}

int main(int argc, char **argv) {
  static const struct sample_spec specs[] = {
      {.no_cubin = false},
      {.dense = true, .no_cubin = true},
      {.always = "always first=256\nalways last=64\nalways range=100..200\n"},
      {.route = "top_k score=mean term=none budget=keep density=0/1 keep=8 threshold=0/1 "
                "variance=diagonal",
       .attend = "selected=exact rest=drop",
       .shape = "heads=32 kv_heads=8 head_dim=64 type=fp16 mask=none"},
      {.dense = true, .shape = "heads=8 kv_heads=8 head_dim=96 type=bf16 mask=causal"},
      {.blocks = "query=128 key=128 lists=separate",
       .route = "top_k score=mean term=log_key_variance budget=density density=1/10 keep=0 "
                "threshold=0/1 variance=diagonal",
       .always = "always window=2\n",
       .attend = "selected=exact rest=taylor_0 mass=second_order"},
      {.blocks = "query=64 key=64 lists=union",
       .route = "top_k score=mean term=log_residual budget=threshold density=0/1 keep=0 "
                "threshold=25/10 variance=full",
       .attend = "selected=exact rest=taylor_1 mass=zeroth_order",
       .below = "below tokens=2048 use=dense\n"},
      {.dense = true,
       .shape = "heads=8 kv_heads=2 head_dim=64 type=bf16 mask=causal",
       .phases = "prefill decode"},
      {.dense = true,
       .shape = "heads=8 kv_heads=2 head_dim=128 type=fp16 mask=causal",
       .phases = "decode",
       .pages = "pages size=64\n"},
      {.pyramid = "leaf=64 group=2 page=0", .below = "below tokens=2048 use=dense\n"},
      {.pyramid = "leaf=64 group=2 page=16", .below = "below tokens=9000 use=flat\n"},
      {.pyramid = "leaf=128 group=8 page=0",
       .select = "flat score=half_variance reduce=max_mass keep=64 start=0 leaf_stage=fused "
                 "query_tile=1 decode_start=128",
       .always = "always last=64\nalways current\n",
       .phases = "decode"},
  };
  if (argc != 2)
    return 2;
  for (int i = 0; i < (int)(sizeof specs / sizeof *specs); i++) {
    struct sample sample;
    sample_make(&specs[i], &sample);
    write_file(argv[1], "pack", i, sample.bytes, sample.size);
    write_file(argv[1], "manifest", i, sample.bytes + sample.manifest_at,
               sample.size - sample.manifest_at);
    sample_free(&sample);
  }
  return 0;
}
