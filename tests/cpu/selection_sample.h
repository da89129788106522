/* selection_sample.h: small problems of block selection for the tests of runtime/cpu. */
#ifndef PISA_TESTS_CPU_SELECTION_SAMPLE_H
#define PISA_TESTS_CPU_SELECTION_SAMPLE_H

#include "runtime/cpu/select.h"
#include "tests/cpu/sample.h" /* CHECK */

enum { SELECTION_D = 8 };

struct selection_sample {
  struct selection selection;
  struct pyramid pyramid;
  int64_t n_q, n;
  double *q; /* [G, Nq, D] */
  double *k; /* [N, D] values of bf16 */
};

/* Causal walk of lse, summed, forced first, previous and current. q and k seeded, normal; leaves of
   16 tokens in pairs. */
struct selection_sample selection_sample_new(int64_t n_q, int64_t n, int heads, int keep);
void selection_sample_free(struct selection_sample *sample);
/* After a change of |k| or of the sizes in the pyramid. */
void selection_sample_build(struct selection_sample *sample);
/* Lists of all queries, [Nq, keep], to be freed. */
int32_t *selection_sample_run(const struct selection_sample *sample);

#endif
