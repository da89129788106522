/* budget.h: which key blocks are always read exactly, and how many are read exactly in all. Shared
   by launches, the CPU executor and `pisa verify`. Nothing here applies to lists that a call gives.

   |n_k| is the length of one sequence, 0 to 2^30, NT = ceil(n_k / key) its blocks. */
#ifndef PISA_RUNTIME_BUDGET_H
#define PISA_RUNTIME_BUDGET_H

#include <stdint.h>

#include "runtime/method.h"

struct pisa_range { /* key blocks [begin, end); empty when begin == end */
  int64_t begin, end;
};

/* Blocks forced alike for all queries, one range per `always` entry, the others {0, 0}. They may
   overlap. */
void pisa_always_blocks(const struct pisa_method *method, int64_t n_k,
                        struct pisa_range out[PISA_MAX_ALWAYS]);

/* Blocks forced for query block |i| alone: those that touch its rows [i * query, (i + 1) * query),
   and the window's to each side. {0, 0} when there are none, or no window. */
struct pisa_range pisa_window_blocks(const struct pisa_method *method, int64_t n_k, int64_t i);

/* The number of blocks in the union of |n| ranges. */
int64_t pisa_union_count(const struct pisa_range *ranges, int n);

/* Blocks forced for query block |i|, always-set and window together; and the most of any of the
   query blocks of |n_q| rows. */
int64_t pisa_forced_blocks(const struct pisa_method *method, int64_t n_k, int64_t i);
int64_t pisa_most_forced(const struct pisa_method *method, int64_t n_q, int64_t n_k);

/* How many blocks to read, forced ones included. With a threshold num and keep are 0. */
struct pisa_quota {
  int64_t num, den; /* density; num is 0 where |keep| says it. den: a power of ten up to 10^9 */
  int64_t keep;     /* blocks */
};

/* |keep| if positive, else |density| if positive, else the method's. |density| counts as a decimal
   of 9 places, so 0.29 of 100 blocks is 29. */
struct pisa_quota pisa_quota(const struct pisa_method *method, double density, int64_t keep);

/* k of a sequence of |blocks| key blocks: max(1, floor(num / den * blocks)) or keep, at most
   |blocks|. */
int64_t pisa_quota_blocks(const struct pisa_quota *quota, int64_t blocks);

/* Blocks listed for query block |i|: min(NT, max(k, forced)). Not for a threshold, where scores
   decide. */
int64_t pisa_list_count(const struct pisa_method *method, const struct pisa_quota *quota,
                        int64_t n_k, int64_t i);

/* "kept", what the longest list may hold: the largest pisa_list_count of any query block; with
   |any_length| a bound on it for all sequences of 0 to n_k keys. NT for a threshold and when dense.
 */
int64_t pisa_kept(const struct pisa_method *method, const struct pisa_quota *quota, int64_t n_q,
                  int64_t n_k, bool any_length);

#endif
