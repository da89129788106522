/* budget.c: the budget of exact blocks. In: a method, n_k, and what the call asks for. Out: forced
   block ranges and k = max(1, floor(density * NT)), computed in whole numbers so that decimals are
   exact. k is the same for all query blocks: never less than the largest forced set of any. */
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
int64_t pisa_union_count(const struct pisa_range *ranges, int n) {
  int64_t count = 0, done = 0; /* every forced block below |done| is counted */
  for (;;) {
    const struct pisa_range *next = 0;
    for (int i = 0; i < n; i++)
      if (ranges[i].end > done && (!next || ranges[i].begin < next->begin))
        next = &ranges[i];
    if (!next)
      return count;
    count += next->end - pisa_max(done, next->begin);
    done = next->end;
  }
}

struct pisa_range pisa_window_blocks(const struct pisa_method *method, int64_t n_k, int64_t i) {
  int64_t blocks = pisa_ceil_div(n_k, method->key), per_query = method->query / method->key;
  struct pisa_range window = {pisa_max(0, i * per_query - method->window),
                              pisa_min(blocks, (i + 1) * per_query + method->window)};
  return method->has_window && window.begin < window.end ? window : (struct pisa_range){0, 0};
}

/* |forced| holds the ranges of the always-set, the last place is for the window. */
struct forced {
  const struct pisa_method *method;
  int64_t n_q, n_k;
  struct pisa_range ranges[PISA_MAX_ALWAYS + 1];
};

/* Forced blocks of query block |i|, or of the nearest one there is. */
static int64_t forced_count(struct forced *forced, int64_t i) {
  int64_t last = pisa_ceil_div(forced->n_q, forced->method->query) - 1;
  i = pisa_min(last, pisa_max(0, i));
  forced->ranges[PISA_MAX_ALWAYS] = pisa_window_blocks(forced->method, forced->n_k, i);
  return pisa_union_count(forced->ranges, PISA_MAX_ALWAYS + 1);
}

/* The largest count among the query blocks whose window begins or ends nearest to block |edge|. */
static int64_t forced_near(struct forced *forced, int64_t edge) {
  const struct pisa_method *method = forced->method;
  int64_t per_query = method->query / method->key, most = 0;
  int64_t begins = (edge + method->window) / per_query;
  int64_t ends = (edge - method->window) / per_query - 1;
  for (int64_t step = -1; step <= 1; step++) {
    most = pisa_max(most, forced_count(forced, begins + step));
    most = pisa_max(most, forced_count(forced, ends + step));
  }
  return most;
}

/* As a window moves down the diagonal, the count changes evenly but where an end of the window
   passes an end of another range or of the keys: the maximum is next to such a place. */
static int64_t most_forced(const struct pisa_method *method, int64_t n_q, int64_t n_k) {
  struct forced forced = {method, n_q, n_k, {{0, 0}}};
  pisa_always_blocks(method, n_k, forced.ranges);
  int64_t most = forced_count(&forced, 0);
  if (!method->has_window)
    return most;
  most = pisa_max(most, forced_count(&forced, INT64_MAX));
  most = pisa_max(most, forced_near(&forced, 0));
  most = pisa_max(most, forced_near(&forced, pisa_ceil_div(n_k, method->key)));
  for (int a = 0; a < method->n_always; a++) {
    most = pisa_max(most, forced_near(&forced, forced.ranges[a].begin));
    most = pisa_max(most, forced_near(&forced, forced.ranges[a].end));
  }
  return most;
}

/* num / den of |blocks|, rounded down; num <= den <= 10^9 and blocks < 2^33, so nothing overflows.
 */
static int64_t share(int64_t num, int64_t den, int64_t blocks) {
  return pisa_max(1, num * blocks / den);
}

int64_t pisa_kept(const struct pisa_method *method, int64_t n_q, int64_t n_k, double density,
                  int64_t keep) {
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
  return pisa_min(blocks, pisa_max(kept, most_forced(method, n_q, n_k)));
}
