/* select_score.c: what nodes are worth to each head of one query. The formulas are in select.h. */
#include <math.h>

#include "runtime/cpu/select.h"

struct logits { /* of the children of a node that count, weighted by their share of a full child */
  double max, sum, mean, variance; /* sum: of n_r e^(x_r - max) */
  double weight;                   /* sum of n_r */
};

static double logit(const struct selection *s, const struct pyramid *p, const double *q, int level,
                    int64_t node) {
  const double *mean = pyramid_mean(p, level, node);
  double sum = 0;
  for (int d = 0; d < p->head_dim; d++)
    sum += q[d] * mean[d];
  return s->scale * sum;
}

/* Children of |node| that lie wholly in what the query may read: these from the first. */
static int64_t readable(const struct selection *s, const struct pyramid *p, int64_t t, int level,
                        int64_t node) {
  int64_t children = pyramid_children(p, level), first = node * children;
  int64_t end = s->causal ? (t + 1) / pyramid_size(p, level - 1) : pyramid_nodes(p, level - 1);
  int64_t rest = end - first;
  return rest < 0 ? 0 : rest < children ? rest : children;
}

static double share(const struct pyramid *p, int level, int64_t node) {
  return (double)pyramid_count(p, level, node) / (double)pyramid_size(p, level);
}

static struct logits children_logits(const struct selection *s, const struct pyramid *p,
                                     const double *q, int64_t t, int level, int64_t node) {
  struct logits l = {.max = -INFINITY};
  int64_t first = node * pyramid_children(p, level), end = first + readable(s, p, t, level, node);
  double base = first < end ? logit(s, p, q, level - 1, first) : 0, shift = 0;
  for (int64_t r = first; r < end; r++) {
    double x = logit(s, p, q, level - 1, r), n = share(p, level - 1, r);
    l.max = fmax(l.max, x);
    shift += n * (x - base);
    l.weight += n;
  }
  l.mean = base + shift / l.weight; /* of equal logits their bits: equal nodes tie */
  for (int64_t r = first; r < end; r++) {
    double x = logit(s, p, q, level - 1, r), n = share(p, level - 1, r);
    l.sum += n * exp(x - l.max);
    l.variance += n * (x - l.mean) * (x - l.mean) / l.weight;
  }
  return l;
}

static bool by_mass(const struct selection *s) {
  return s->reduce == SELECT_MASS || s->reduce == SELECT_MAX_MASS;
}

/* Whether the mean of a node is one of what the query may read. */
static bool whole(const struct selection *s, const struct pyramid *p, int64_t t, int level,
                  int64_t node) {
  return !s->causal || (node + 1) * pyramid_size(p, level) <= t + 1;
}

/* The score by which a node is judged. */
static enum select_score kind(const struct selection *s, const struct pyramid *p, int64_t t,
                              int level, int64_t node, bool forced) {
  if (!forced || level > 1)
    return s->score;
  int64_t own = t >= 0 ? t / p->leaf : -1;
  return own >= 0 && (node == own || node == own - 1) ? SELECT_LSE : SELECT_MEAN;
}

static double node_score(const struct selection *s, const struct pyramid *p, const double *q,
                         int64_t t, int level, int64_t node) {
  bool forced = select_forced(s, p, t, level, node);
  if (forced && !by_mass(s))
    return 0;
  enum select_score score = kind(s, p, t, level, node, forced);
  if (score == SELECT_MEAN && whole(s, p, t, level, node)) {
    double n = (double)pyramid_count(p, level, node) / (double)pyramid_size(p, level - 1);
    return logit(s, p, q, level, node) + (by_mass(s) ? log(n) : 0);
  }
  struct logits l = children_logits(s, p, q, t, level, node);
  if (l.weight == 0)
    return -INFINITY;
  if (score == SELECT_LSE)
    return l.max + log(l.sum);
  return l.mean + (score == SELECT_HALF_VARIANCE ? l.variance / 2 : 0) +
         (by_mass(s) ? log(l.weight) : 0);
}

void select_scores(const struct selection *s, const struct pyramid *p, const double *q, int64_t t,
                   int level, const int32_t *candidate, int64_t n, double *score) {
  for (int h = 0; h < s->heads; h++)
    for (int64_t e = 0; e < n; e++) {
      double x = node_score(s, p, q + h * p->head_dim, t, level, candidate[e]);
      score[h * n + e] = isnan(x) ? -INFINITY : x;
    }
}
