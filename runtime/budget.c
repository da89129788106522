/* budget.c: the budget of exact blocks. In: a method, a sequence's length, and what the call asks
   for. Out: forced blocks, k = max(1, floor(density * NT)) and list counts, in whole numbers so
   that decimals are exact. */
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

int64_t pisa_forced_blocks(const struct pisa_method *method, int64_t n_k, int64_t i) {
  struct pisa_range ranges[PISA_MAX_ALWAYS + 1];
  pisa_always_blocks(method, n_k, ranges);
  ranges[PISA_MAX_ALWAYS] = pisa_window_blocks(method, n_k, i);
  return pisa_union_count(ranges, PISA_MAX_ALWAYS + 1);
}

/* Forced blocks of query block |i| of |n_q| rows, or of the nearest one there is. */
static int64_t forced_at(const struct pisa_method *method, int64_t n_q, int64_t n_k, int64_t i) {
  int64_t last = pisa_ceil_div(n_q, method->query) - 1;
  return pisa_forced_blocks(method, n_k, pisa_min(last, pisa_max(0, i)));
}

/* The largest count among the query blocks whose window begins or ends nearest to block |edge|. */
static int64_t forced_near(const struct pisa_method *method, int64_t n_q, int64_t n_k,
                           int64_t edge) {
  int64_t per_query = method->query / method->key, most = 0;
  int64_t begins = (edge + method->window) / per_query;
  int64_t ends = (edge - method->window) / per_query - 1;
  for (int64_t step = -1; step <= 1; step++) {
    most = pisa_max(most, forced_at(method, n_q, n_k, begins + step));
    most = pisa_max(most, forced_at(method, n_q, n_k, ends + step));
  }
  return most;
}

/* As a window moves down the diagonal, the count changes evenly but where an end of the window
   passes an end of another range or of the keys: the maximum is next to such a place. */
int64_t pisa_most_forced(const struct pisa_method *method, int64_t n_q, int64_t n_k) {
  struct pisa_range always[PISA_MAX_ALWAYS];
  int64_t most = forced_at(method, n_q, n_k, 0);
  if (!method->has_window)
    return most;
  pisa_always_blocks(method, n_k, always);
  most = pisa_max(most, forced_at(method, n_q, n_k, INT64_MAX));
  most = pisa_max(most, forced_near(method, n_q, n_k, 0));
  most = pisa_max(most, forced_near(method, n_q, n_k, pisa_ceil_div(n_k, method->key)));
  for (int a = 0; a < method->n_always; a++) {
    most = pisa_max(most, forced_near(method, n_q, n_k, always[a].begin));
    most = pisa_max(most, forced_near(method, n_q, n_k, always[a].end));
  }
  return most;
}

/* At least as many as are forced for any query block of any sequence of 0 to n_k keys: the last n
   tokens may begin and end within blocks, so they touch one more than they fill. */
static int64_t forced_bound(const struct pisa_method *method, int64_t n_k) {
  struct pisa_range always[PISA_MAX_ALWAYS];
  int64_t bound = method->has_window ? method->query / method->key + 2 * method->window : 0;
  pisa_always_blocks(method, n_k, always);
  for (int a = 0; a < method->n_always; a++) {
    bool last = method->always[a].kind == PISA_ALWAYS_LAST;
    bound += last ? pisa_ceil_div(pisa_min(n_k, method->always[a].end), method->key) + 1
                  : always[a].end - always[a].begin;
  }
  return bound;
}

struct pisa_quota pisa_quota(const struct pisa_method *method, double density, int64_t keep) {
  if (keep > 0)
    return (struct pisa_quota){0, 1, keep};
  if (density > 0) { /* less than the last decimal is one block */
    int64_t num = llround(density * (double)billion);
    return num > 0 ? (struct pisa_quota){num, billion, 0} : (struct pisa_quota){0, 1, 1};
  }
  if (method->budget == PISA_BUDGET_DENSITY)
    return (struct pisa_quota){method->density_num, method->density_den, 0};
  return (struct pisa_quota){0, 1, method->budget == PISA_BUDGET_KEEP ? method->keep : 0};
}

/* num <= den <= 10^9 and NT < 2^33, so nothing overflows. */
int64_t pisa_quota_blocks(const struct pisa_quota *quota, int64_t blocks) {
  int64_t k = quota->num ? pisa_max(1, quota->num * blocks / quota->den) : quota->keep;
  return pisa_min(blocks, k);
}

int64_t pisa_list_count(const struct pisa_method *method, const struct pisa_quota *quota,
                        int64_t n_k, int64_t i) {
  int64_t blocks = pisa_ceil_div(n_k, method->key);
  return pisa_min(blocks,
                  pisa_max(pisa_quota_blocks(quota, blocks), pisa_forced_blocks(method, n_k, i)));
}

int64_t pisa_kept(const struct pisa_method *method, const struct pisa_quota *quota, int64_t n_q,
                  int64_t n_k, bool any_length) {
  int64_t blocks = pisa_ceil_div(n_k, method->key);
  if (method->dense || method->budget == PISA_BUDGET_THRESHOLD)
    return blocks;
  int64_t forced = any_length ? forced_bound(method, n_k) : pisa_most_forced(method, n_q, n_k);
  return pisa_min(blocks, pisa_max(pisa_quota_blocks(quota, blocks), forced));
}
