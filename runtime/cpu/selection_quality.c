/* selection_quality.c: keys, queries and lists in; recall and masses out. */
#include "runtime/cpu/selection_quality.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static double logit(const struct selection *s, const struct pyramid *p, const double *q,
                    int64_t token) {
  const double *key = pyramid_mean(p, 0, token);
  double sum = 0;
  for (int d = 0; d < p->head_dim; d++)
    sum += q[d] * key[d];
  return s->scale * sum;
}

/* mass [leaves] gains what one head, of which there are G, gives to tokens 0 .. n - 1. */
static void add_head(const struct selection *s, const struct pyramid *p, const double *q, int64_t n,
                     double *mass) {
  double max = -INFINITY, sum = 0;
  for (int64_t token = 0; token < n; token++)
    max = fmax(max, logit(s, p, q, token));
  for (int64_t token = 0; token < n; token++)
    sum += exp(logit(s, p, q, token) - max);
  for (int64_t token = 0; token < n; token++)
    mass[token / p->leaf] += exp(logit(s, p, q, token) - max) / sum / s->heads;
}

void quality_mass(const struct selection *s, const struct pyramid *p, const double *q, int64_t t,
                  double *mass) {
  for (int64_t b = 0; b < pyramid_nodes(p, 1); b++)
    mass[b] = 0;
  for (int h = 0; h < s->heads; h++)
    add_head(s, p, q + h * p->head_dim, select_visible(s, p, t, 0), mass);
}

bool quality_best(const struct selection *s, const struct pyramid *p, int64_t t, const double *mass,
                  int64_t room, int32_t *list, int64_t *n) {
  int64_t leaves = select_visible(s, p, t, 1);
  int32_t *leaf = malloc((size_t)(leaves + 1) * sizeof *leaf); /* [leaves], then those kept */
  double *worth = malloc((size_t)(leaves + 1) * sizeof *worth);
  bool ok = leaf && worth;
  *n = 0;
  for (int64_t b = 0; ok && b < leaves; b++) {
    leaf[b] = (int32_t)b;
    worth[b] = mass[b];
  }
  if (ok)
    *n = select_best(s, p, t, 1, leaf, worth, leaves, leaf);
  assert(*n <= room);
  for (int64_t e = 0; ok && e < room; e++)
    list[e] = e < *n ? leaf[e] : -1;
  free(leaf);
  free(worth);
  return ok;
}

static bool holds(const int32_t *list, int64_t n, int32_t id) {
  for (int64_t e = 0; e < n; e++)
    if (list[e] == id)
      return true;
  return false;
}

static double mass_of(const double *mass, const int32_t *list, int64_t n) {
  double sum = 0;
  for (int64_t e = 0; e < n; e++)
    sum += list[e] >= 0 ? mass[list[e]] : 0;
  return sum;
}

void quality_add(struct selection_quality *quality, const double *mass, const int32_t *list,
                 int64_t n, const int32_t *other, int64_t n_other) {
  int64_t size = 0, common = 0;
  for (int64_t e = 0; e < n_other; e++) {
    size += other[e] >= 0;
    common += other[e] >= 0 && holds(list, n, other[e]);
  }
  double captured = mass_of(mass, list, n), wanted = mass_of(mass, other, n_other);
  quality->queries++;
  quality->recall += size > 0 ? (double)common / (double)size : 1;
  quality->captured += captured;
  quality->ratio += wanted > 0 ? captured / wanted : 1;
}

void quality_join(struct selection_quality *to, const struct selection_quality *from) {
  to->queries += from->queries;
  to->recall += from->recall;
  to->captured += from->captured;
  to->ratio += from->ratio;
}

struct selection_quality quality_means(const struct selection_quality *quality) {
  const double n = (double)quality->queries;
  if (quality->queries == 0)
    return (struct selection_quality){0, NAN, NAN, NAN};
  return (struct selection_quality){quality->queries, quality->recall / n, quality->captured / n,
                                    quality->ratio / n};
}
