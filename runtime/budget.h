/* budget.h: which key blocks are always read exactly, and how many blocks are read exactly in all.
 */
#ifndef PISA_RUNTIME_BUDGET_H
#define PISA_RUNTIME_BUDGET_H

#include <stdint.h>

#include "runtime/method.h"

struct pisa_range { /* key blocks [begin, end); empty when begin == end */
  int64_t begin, end;
};

/* Forced blocks of |n_k| tokens, one range per `always` entry, the others {0, 0}. They may overlap.
 */
void pisa_always_blocks(const struct pisa_method *method, int64_t n_k,
                        struct pisa_range out[PISA_MAX_ALWAYS]);

/* The number of blocks in the union of the ranges. */
int64_t pisa_always_count(const struct pisa_range ranges[PISA_MAX_ALWAYS]);

/* Blocks per list ("kept"): |keep| if positive, else max(1, floor(density * NT)) for |density| if
   positive, else the spec's budget; capped at NT; never fewer than the always-set. NT when dense.
   |density| counts as a decimal of 9 places, so 0.29 of 100 blocks is 29. */
int64_t pisa_kept(const struct pisa_method *method, int64_t n_k, double density, int64_t keep);

#endif
