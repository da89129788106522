/* sweep_front.c: points in; which of them no other beats in both time and loss, and the fastest
   that holds the bound, out. */
#include <math.h>

#include "runtime/tool/sweep.h"

double sweep_effort(const struct sweep *s, const struct sweep_point *point) {
  return s->timed ? point->ms : point->cost;
}

/* What it loses: its error, or 1 - recall of packs that select blocks. */
static double loss_of(const struct sweep *s, const struct sweep_point *point) {
  return s->selects ? 1 - point->recall : point->error;
}

static bool beats(const struct sweep *s, const struct sweep_point *a, const struct sweep_point *b) {
  double effort = sweep_effort(s, a) - sweep_effort(s, b), loss = loss_of(s, a) - loss_of(s, b);
  return effort <= 0 && loss <= 0 && (effort < 0 || loss < 0);
}

void sweep_find_front(struct sweep *s) {
  for (int i = 0; i < s->n; i++) {
    s->points[i].front = isfinite(loss_of(s, &s->points[i]));
    for (int j = 0; j < s->n; j++)
      if (beats(s, &s->points[j], &s->points[i]))
        s->points[i].front = false;
  }
}

/* Figures that are no numbers hold no bound. */
static bool holds(const struct sweep *s, const struct sweep_point *point) {
  const struct quality_options *o = &s->options;
  return o->max_error > 0    ? point->error <= o->max_error
         : o->min_recall > 0 ? point->recall >= o->min_recall
                             : false;
}

int sweep_pick(const struct sweep *s) {
  int best = -1;
  for (int i = 0; i < s->n; i++) {
    const struct sweep_point *point = &s->points[i];
    if (holds(s, point) &&
        (best < 0 || sweep_effort(s, point) < sweep_effort(s, &s->points[best]) ||
         beats(s, point, &s->points[best])))
      best = i;
  }
  return best;
}
