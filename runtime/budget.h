/* budget.h: which key blocks are always read exactly, and how many blocks are read exactly in all.
 */
#ifndef PISA_RUNTIME_BUDGET_H
#define PISA_RUNTIME_BUDGET_H

#include <stdint.h>

#include "runtime/method.h"

struct pisa_range { /* key blocks [begin, end); empty when begin == end */
  int64_t begin, end;
};

/* Blocks of |n_k| tokens forced alike for all queries, one range per `always` entry, the others {0,
   0}. They may overlap. */
void pisa_always_blocks(const struct pisa_method *method, int64_t n_k,
                        struct pisa_range out[PISA_MAX_ALWAYS]);

/* Blocks forced for query block |i| alone: those that touch its rows [i * query, (i + 1) * query),
   and the window's to each side. {0, 0} when there are none, or no window. */
struct pisa_range pisa_window_blocks(const struct pisa_method *method, int64_t n_k, int64_t i);

/* The number of blocks in the union of |n| ranges. */
int64_t pisa_union_count(const struct pisa_range *ranges, int n);

/* Blocks per list ("kept"): |keep| if positive, else max(1, floor(density * NT)) for |density| if
   positive, else the spec's budget; never fewer than any query block has forced ones; capped at
   NT. NT when dense.
   |density| counts as a decimal of 9 places, so 0.29 of 100 blocks is 29. */
int64_t pisa_kept(const struct pisa_method *method, int64_t n_q, int64_t n_k, double density,
                  int64_t keep);

#endif
