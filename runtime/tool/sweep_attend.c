/* sweep_attend.c: a pack that routes for blocks of queries and a scene in; error, recall and cost
   of each variant at each density out. */
#include <math.h>

#include "runtime/tool/sweep.h"

static pisa_status measure(struct sweep *s, const struct quality_truth *truth,
                           const struct quality_pack *pack, double density, sweep_add add,
                           pisa_error *error) {
  const struct quality_run run = {.ordinal = s->options.ordinal,
                                  .threads = (int)s->options.threads};
  struct quality_result result = {.pack = pack};
  pisa_status status = quality_measure(&s->scene, truth, pack, density, &run, &result, error);
  if (!status)
    status = add(s,
                 (struct sweep_point){.pack = pack,
                                      .density = result.density,
                                      .error = result.all.error,
                                      .recall = result.all.recall,
                                      .mass = result.all.mass,
                                      .cost = result.cost},
                 error);
  quality_result_free(&result);
  return status;
}

pisa_status sweep_attend(struct sweep *s, sweep_add add, pisa_error *error) {
  struct quality_truth truth = {0};
  pisa_status status =
      quality_truth_make(&s->scene, (int)s->options.threads, NULL, NULL, &truth, error);
  for (int p = 0; !status && p < s->packs.n; p++) {
    const struct quality_pack *pack = &s->packs.items[p];
    int n = quality_takes_density(pack) ? s->options.n_densities : 1;
    for (int i = 0; !status && i < n; i++)
      status = measure(s, &truth, pack, s->options.densities[i], add, error);
  }
  quality_truth_free(&truth);
  return status;
}
