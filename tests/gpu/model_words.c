/* model_words.c: the text that the sample packs have for code in; what a compiler would have
   compiled in out. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model_kernels.h"

/* The words of block selection. */
static void read_selection(const char *image, struct model_build *build) {
  static const char *const scores[] = {"score=mean", "score=half_variance", "score=lse"};
  static const char *const reductions[] = {"reduce=sum", "reduce=max ", "reduce=lse", "reduce=mass",
                                           "reduce=max_mass"};
  const char *leaf = strstr(image, "leaf="), *keep = strstr(image, "keep=");
  if (!leaf || !keep)
    return;
  sscanf(leaf, "leaf=%d group=%d page=%d", &build->leaf, &build->children, &build->page);
  sscanf(keep, "keep=%d start=%d", &build->keep, &build->start);
  for (int i = 0; i < 3; i++)
    if (strstr(image, scores[i]))
      build->score = (enum model_score)i;
  for (int i = 0; i < 5; i++)
    if (strstr(image, reductions[i]))
      build->reduce = (enum model_reduce)i;
  build->flat = strstr(image, "flat score") != NULL;
  build->first = build->previous = build->current = !strstr(image, "always none");
}

/* "... heads=4 kv_heads=2 head_dim=96 type=fp16", "query=64 key=64" and words of a manifest in the
   text of the code; the runtime ends it with a NUL. */
struct model_build model_read_build(const char *image) {
  struct model_build build = {.head_dim = 128, .group = 1, .query = 128, .key = 64};
  int heads, kv_heads;
  char type[8];
  const char *shape = strstr(image, "heads=");
  if (shape && sscanf(shape, "heads=%d kv_heads=%d head_dim=%d type=%7s", &heads, &kv_heads,
                      &build.head_dim, type) == 4) {
    build.group = heads / kv_heads;
    build.type = strcmp(type, "fp16") == 0 ? PISA_FP16 : PISA_BF16;
  }
  const char *blocks = strstr(image, "query=");
  if (blocks)
    sscanf(blocks, "query=%d key=%d", &build.query, &build.key);
  build.key_variance = strstr(image, "term=log_key_variance") != NULL;
  build.residual = strstr(image, "term=log_residual") != NULL;
  build.threshold = strstr(image, "budget=threshold") != NULL;
  build.full_variance = strstr(image, "variance=full") != NULL;
  build.linear = strstr(image, "rest=taylor_1") != NULL;
  build.second_order = strstr(image, "mass=second_order") != NULL;
  build.pairs = strstr(image, "lists=union") != NULL;
  build.causal = strstr(image, "mask=causal") != NULL;
  const char *pages = strstr(image, "pages size=");
  if (pages)
    sscanf(pages, "pages size=%d", &build.page);
  read_selection(image, &build);
  return build;
}
