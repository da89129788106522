/* budget.c: the budget of exact blocks. In: a method, n_k, and what the call asks for. Out: forced
   block ranges and k = max(1, floor(density * NT)), computed in whole numbers so that decimals are
   exact. */
#include "runtime/budget.h"

#include <math.h>

#include "runtime/size.h"

static const int64_t billion = 1000000000; /* a call's density is read to 9 decimal places */

static struct pisa_range always_range(const struct pisa_always *always, int64_t n_k, int64_t key) {
  int64_t begin = pisa_min(always->begin, n_k), end = pisa_min(always->end, n_k);
  if (always->kind == PISA_ALWAYS_LAST) {
    begin = n_k - end;
    end = n_k;
  }
  if (begin == end)
    return (struct pisa_range){0, 0};
  return (struct pisa_range){begin / key, pisa_ceil_div(end, key)};
}

void pisa_always_blocks(const struct pisa_method *method, int64_t n_k,
                        struct pisa_range out[PISA_MAX_ALWAYS]) {
  for (int i = 0; i < PISA_MAX_ALWAYS; i++)
    out[i] = i < method->n_always ? always_range(&method->always[i], n_k, method->key)
                                  : (struct pisa_range){0, 0};
}

/* Repeatedly takes the range that begins first among those that reach beyond what is counted. */
int64_t pisa_always_count(const struct pisa_range ranges[PISA_MAX_ALWAYS]) {
  int64_t count = 0, done = 0; /* every forced block below |done| is counted */
  for (;;) {
    const struct pisa_range *next = 0;
    for (int i = 0; i < PISA_MAX_ALWAYS; i++)
      if (ranges[i].end > done && (!next || ranges[i].begin < next->begin))
        next = &ranges[i];
    if (!next)
      return count;
    count += next->end - pisa_max(done, next->begin);
    done = next->end;
  }
}

/* num / den of |blocks|, rounded down; num <= den <= 10^9 and blocks < 2^33, so nothing overflows.
 */
static int64_t share(int64_t num, int64_t den, int64_t blocks) {
  return pisa_max(1, num * blocks / den);
}

int64_t pisa_kept(const struct pisa_method *method, int64_t n_k, double density, int64_t keep) {
  int64_t blocks = pisa_ceil_div(n_k, method->key), kept;
  if (method->dense)
    return blocks;
  if (keep > 0)
    kept = keep;
  else if (density > 0)
    kept = share((int64_t)llround(density * (double)billion), billion, blocks);
  else if (method->budget == PISA_BUDGET_KEEP)
    kept = method->keep;
  else
    kept = share(method->density_num, method->density_den, blocks);
  struct pisa_range always[PISA_MAX_ALWAYS];
  pisa_always_blocks(method, n_k, always);
  return pisa_min(blocks, pisa_max(kept, pisa_always_count(always)));
}
