/* verify_select_walk.c: the list a device chose and the oracle's walk in, whether the one explains
   the other out. The walk goes down as the oracle does, but where the leaves of the list need a
   node that the oracle would not keep, or its own choice leads nowhere, near ties are exchanged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/verify_select.h"

enum { MAX_STEPS = 4000 };
#define UNDERFLOW 1e-30 /* shares of a softmax below this are one to float */

struct level { /* candidates of a level; all arrays [n] */
  int level;
  int64_t n, n_kept;
  int32_t *candidate, *kept;
  double *worth;
  bool *keep, *need; /* an ancestor of the list */
  bool scored;
};

static bool open_level(struct level *l, int level, int64_t room) {
  size_t n = (size_t)room + 1;
  *l = (struct level){.level = level,
                      .candidate = malloc(n * sizeof *l->candidate),
                      .kept = malloc(n * sizeof *l->kept),
                      .worth = malloc(n * sizeof *l->worth),
                      .keep = calloc(n, sizeof *l->keep),
                      .need = calloc(n, sizeof *l->need)};
  return l->candidate && l->kept && l->worth && l->keep && l->need;
}

static void close_level(struct level *l) {
  free(l->candidate);
  free(l->kept);
  free(l->worth);
  free(l->keep);
  free(l->need);
}

/* What two scores may differ by and still be exchanged. */
static double granted(const struct select_walk *w, double a, double b) {
  return w->relative ? 4 * w->error * fmax(fabs(a), fabs(b)) + UNDERFLOW : 2 * w->error;
}

/* Whether a device may have taken |low| for |high|: not where they are equal. */
static bool near(const struct select_walk *w, double high, double low) {
  return high != INFINITY && high > low && high - low <= granted(w, high, low);
}

static void blame(struct select_walk *w, int level, int64_t node, int64_t other, double lost) {
  if (w->level)
    return; /* the straight way comes first */
  w->level = level;
  w->node = node;
  w->other = other;
  w->lost = lost;
}

/* Whether a device may keep another node than the oracle does. */
static bool has_near_tie(const struct select_walk *w, const struct level *l) {
  double lowest = INFINITY, highest = -INFINITY;
  for (int64_t e = 0; e < l->n; e++)
    if (l->keep[e])
      lowest = fmin(lowest, l->worth[e]);
    else
      highest = fmax(highest, l->worth[e]);
  return near(w, lowest, highest);
}

/* Scores, and what the oracle keeps. False: no memory. */
static bool choose(struct select_walk *w, struct level *l) {
  const struct selection *s = w->selection;
  l->scored = l->n > s->keep;
  if (!l->scored) {
    for (int64_t e = 0; e < l->n; e++) {
      l->worth[e] = INFINITY;
      l->keep[e] = true;
    }
    return true;
  }
  double *score = malloc((size_t)(l->n * s->heads) * sizeof *score);
  if (!score)
    return false;
  select_scores(s, w->pyramid, w->q, w->t, l->level, l->candidate, l->n, score);
  select_reduce(s, score, l->n, l->worth);
  int64_t n = select_best(s, w->pyramid, w->t, l->level, l->candidate, l->worth, l->n, l->kept);
  for (int64_t e = 0, k = 0; e < l->n; e++) {
    l->keep[e] = k < n && l->kept[k] == l->candidate[e];
    k += l->keep[e];
  }
  w->unsure = w->unsure || (l->level > 1 && has_near_tie(w, l));
  free(score);
  return true;
}

/* Marks the ancestors of the list; false where one is no candidate. */
static bool mark_needed(struct select_walk *w, struct level *l) {
  int64_t below = pyramid_size(w->pyramid, l->level) / w->pyramid->leaf, e = 0;
  for (int64_t i = 0; i < w->n; i++) {
    int64_t node = w->list[i] / below;
    while (e < l->n && l->candidate[e] < node)
      e++;
    if (e == l->n || l->candidate[e] != node) {
      blame(w, l->level, node, -1, INFINITY);
      return false;
    }
    l->need[e] = true;
  }
  return true;
}

/* The worst that is kept, but not needed; -1: none. */
static int64_t weakest(const struct level *l) {
  int64_t worst = -1;
  for (int64_t e = 0; e < l->n; e++)
    if (l->keep[e] && !l->need[e] && (worst < 0 || l->worth[e] <= l->worth[worst]))
      worst = e;
  return worst;
}

static void exchange(struct select_walk *w, struct level *l, int64_t out, int64_t in) {
  double gap = l->worth[out] - l->worth[in];
  l->keep[out] = false;
  l->keep[in] = true;
  w->swaps++;
  w->gap = fmax(w->gap, w->relative ? gap / l->worth[out] : gap);
}

/* Takes in what the list needs for the weakest others. */
static bool take_needed(struct select_walk *w, struct level *l) {
  for (int64_t e = 0; e < l->n; e++) {
    if (!l->need[e] || l->keep[e])
      continue;
    int64_t out = weakest(l);
    if (out < 0 || !near(w, l->worth[out], l->worth[e])) {
      double lost = out < 0 ? INFINITY : l->worth[out] - l->worth[e];
      blame(w, l->level, l->candidate[e], out < 0 ? -1 : l->candidate[out], lost);
      return false;
    }
    exchange(w, l, out, e);
  }
  return true;
}

static double worth_error(const struct select_walk *w, double expected, float got) {
  if (!isfinite(expected) || isnan(got))
    return (double)got == expected ? 0 : INFINITY;
  if (isinf(got)) /* beyond float, or no finite score at all */
    return fabs(expected) > 3e38 && (got > 0) == (expected > 0) ? 0 : INFINITY;
  return 2 * fabs((double)got - expected) / granted(w, expected, expected);
}

/* Leaves: what is kept is the list, and nothing else. */
static bool finish(struct select_walk *w, const struct level *l) {
  for (int64_t e = 0; e < l->n; e++)
    if (l->keep[e] && !l->need[e]) {
      blame(w, 1, -1, l->candidate[e], INFINITY);
      return false;
    }
  for (int64_t i = 0, e = 0; w->worth && i < w->n; i++, e++) {
    while (l->candidate[e] != w->list[i])
      e++;
    w->worth_error = fmax(w->worth_error, worth_error(w, l->worth[e], w->worth[i]));
  }
  return true;
}

static bool descend(struct select_walk *w, const int32_t *candidate, int64_t n, int level);

static bool go_down(struct select_walk *w, struct level *l) {
  if (l->level == 1)
    return finish(w, l);
  int64_t children = pyramid_children(w->pyramid, l->level);
  int32_t *child = malloc((size_t)(l->n * children + 1) * sizeof *child);
  l->n_kept = 0;
  for (int64_t e = 0; e < l->n; e++)
    if (l->keep[e])
      l->kept[l->n_kept++] = l->candidate[e];
  bool found = false;
  if (child) {
    int64_t n =
        select_children(w->selection, w->pyramid, w->t, l->level, l->kept, l->n_kept, child);
    found = descend(w, child, n, l->level - 1);
  } else {
    w->memory = true;
  }
  free(child);
  return found;
}

/* Exchanges one near tie after the other; the list may be below any of them. */
static bool try_others(struct select_walk *w, struct level *l) {
  for (int64_t out = 0; out < l->n; out++)
    for (int64_t in = 0; in < l->n && w->steps < MAX_STEPS && !w->memory; in++) {
      if (!l->keep[out] || l->need[out] || l->keep[in] || !near(w, l->worth[out], l->worth[in]))
        continue;
      int64_t swaps = w->swaps;
      double gap = w->gap;
      exchange(w, l, out, in);
      if (go_down(w, l))
        return true;
      w->swaps = swaps;
      w->gap = gap;
      l->keep[out] = true;
      l->keep[in] = false;
    }
  return false;
}

static bool descend(struct select_walk *w, const int32_t *candidate, int64_t n, int level) {
  struct level l;
  int64_t swaps = w->swaps;
  double gap = w->gap;
  bool opened = open_level(&l, level, n);
  l.n = n;
  if (opened)
    memcpy(l.candidate, candidate, (size_t)n * sizeof *candidate);
  w->steps++;
  w->memory = w->memory || !opened || !choose(w, &l);
  bool found = !w->memory && mark_needed(w, &l) && take_needed(w, &l) &&
               (go_down(w, &l) || (l.scored && level > 1 && try_others(w, &l)));
  if (!found) {
    w->swaps = swaps;
    w->gap = gap;
  }
  close_level(&l);
  return found;
}

bool select_walk_explains(struct select_walk *w) {
  int level = select_start(w->selection, w->pyramid, w->t);
  int64_t n = select_visible(w->selection, w->pyramid, w->t, level);
  int32_t *candidate = malloc((size_t)(n + 1) * sizeof *candidate);
  w->memory = !candidate;
  for (int64_t e = 0; candidate && e < n; e++)
    candidate[e] = (int32_t)e;
  bool found = candidate && descend(w, candidate, n, level);
  free(candidate);
  return found;
}
