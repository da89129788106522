/* select_reduce.c: scores of G heads in, one worth of each candidate out; and the best of them. */
#include <float.h>
#include <math.h>

#include "runtime/cpu/select.h"

/* ln sum of e^x over the n numbers x[i * stride]; -inf of none, +inf if one of them is. */
static double log_sum(const double *x, int64_t n, int64_t stride) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++)
    max = fmax(max, x[i * stride]);
  if (isinf(max))
    return max;
  for (int64_t i = 0; i < n; i++)
    sum += exp(x[i * stride] - max);
  return max + log(sum);
}

static bool by_mass(const struct selection *s) {
  return s->reduce == SELECT_MASS || s->reduce == SELECT_MAX_MASS;
}

static bool adds(const struct selection *s) {
  return s->reduce == SELECT_SUM || s->reduce == SELECT_MASS;
}

/* worth [n] gains the score [n] of one head, or with mass its softmax. */
static void join_head(const struct selection *s, const double *score, int64_t n, double *worth) {
  double all = by_mass(s) ? log_sum(score, n, 1) : 0;
  for (int64_t e = 0; e < n; e++) {
    double x = score[e];
    if (by_mass(s))
      x = x == -INFINITY ? 0 : exp(x - all);
    worth[e] = adds(s) ? worth[e] + x : fmax(worth[e], x);
  }
}

void select_reduce(const struct selection *s, const double *score, int64_t n, double *worth) {
  for (int64_t e = 0; e < n; e++)
    worth[e] = s->reduce == SELECT_LOG_SUM ? log_sum(score + e, s->heads, n)
               : adds(s)                   ? 0
                                           : -INFINITY;
  for (int h = 0; s->reduce != SELECT_LOG_SUM && h < s->heads; h++)
    join_head(s, score + h * n, n, worth);
  for (int64_t e = 0; e < n; e++)
    if (isnan(worth[e]))
      worth[e] = -INFINITY;
}

/* Whether candidate |a| is taken before |b|. */
static bool before(const double *worth, int64_t a, int64_t b) {
  return worth[a] > worth[b] || (worth[a] == worth[b] && a < b);
}

/* The best unforced candidate behind |last| (-1: of all); -1 if there is none. */
static int64_t next_best(const double *worth, int64_t n, int64_t last) {
  int64_t best = -1;
  for (int64_t e = 0; e < n; e++)
    if (worth[e] != INFINITY && (last < 0 || before(worth, last, e)) &&
        (best < 0 || before(worth, e, best)))
      best = e;
  return best;
}

int64_t select_best(const struct selection *s, const struct pyramid *p, int64_t t, int level,
                    const int32_t *candidate, double *worth, int64_t n, int32_t *kept) {
  int64_t forced = 0, last = -1, count = 0;
  for (int64_t e = 0; e < n; e++) {
    bool is_forced = select_forced(s, p, t, level, candidate[e]);
    worth[e] = is_forced ? INFINITY : fmin(worth[e], DBL_MAX);
    forced += is_forced;
  }
  for (int64_t slot = forced; slot < s->keep && slot < n; slot++)
    last = next_best(worth, n, last);
  for (int64_t e = 0; e < n; e++)
    if (worth[e] == INFINITY || (last >= 0 && !before(worth, last, e)))
      kept[count++] = candidate[e];
  return count;
}
