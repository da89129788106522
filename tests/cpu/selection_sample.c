/* selection_sample.c: sizes in, keys, queries and lists out. */
#include "tests/cpu/selection_sample.h"

#include <stdlib.h>

#include "runtime/cpu/convert.h"

static double *normals(int64_t n, uint64_t seed) {
  double *x = calloc((size_t)n + 1, sizeof *x);
  CHECK(x != NULL);
  for (int64_t i = 0; i < n; i++)
    x[i] = cpu_round(PISA_BF16, normal(&seed));
  return x;
}

struct selection_sample selection_sample_new(int64_t n_q, int64_t n, int heads, int keep) {
  struct selection_sample sample = {.n_q = n_q, .n = n};
  sample.selection = (struct selection){.causal = true,
                                        .keep = keep,
                                        .score = SELECT_LSE,
                                        .reduce = SELECT_SUM,
                                        .previous = true,
                                        .current = true,
                                        .always = {{0, 1}},
                                        .n_always = 1,
                                        .scale = 0.5,
                                        .heads = heads};
  sample.pyramid = pyramid_of(PISA_BF16, SELECTION_D, 16, 2);
  sample.q = normals(heads * n_q * SELECTION_D, 1);
  sample.k = normals(n * SELECTION_D, 2);
  selection_sample_build(&sample);
  return sample;
}

void selection_sample_free(struct selection_sample *sample) {
  pyramid_free(&sample->pyramid);
  free(sample->q);
  free(sample->k);
}

void selection_sample_build(struct selection_sample *sample) {
  CHECK(pyramid_build(&sample->pyramid, sample->k, sample->n));
}

int32_t *selection_sample_run(const struct selection_sample *sample) {
  int64_t keep = sample->selection.keep;
  int32_t *list = malloc((size_t)(sample->n_q * keep + 1) * sizeof *list);
  CHECK(list != NULL);
  CHECK(select_sequence(&sample->selection, &sample->pyramid, sample->q, sample->n_q, keep, list,
                        NULL));
  return list;
}
