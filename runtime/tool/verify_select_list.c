/* verify_select_list.c: the list of one query in, what is wrong with it out. */
#include <math.h>

#include "runtime/tool/verify_select.h"

#define WHERE(row) (long long)(row)->head->b, (long long)(row)->head->hk, (long long)(row)->n

/* Ascending, visible, then -1 and no worth. */
bool select_list_is_sound(const struct select_comparison *c, struct select_row *row) {
  int64_t kept = c->call->shape.kept;
  int64_t visible = select_visible(&c->selection, &row->head->pyramid, row->t, 1);
  for (row->listed = 0; row->listed < kept && row->list[row->listed] >= 0; row->listed++)
    if (row->list[row->listed] >= visible ||
        (row->listed && row->list[row->listed] <= row->list[row->listed - 1])) {
      verify_fail(c->result,
                  "blocks[%lld, %lld, %lld]: entry %lld is %d of %lld visible leaves, "
                  "behind %d: not ascending, or out of range",
                  WHERE(row), (long long)row->listed, row->list[row->listed], (long long)visible,
                  row->listed ? row->list[row->listed - 1] : -1);
      return false;
    }
  for (int64_t e = row->listed; e < kept; e++)
    if (row->list[e] != -1 || row->worth[e] != -INFINITY) {
      verify_fail(c->result, "blocks[%lld, %lld, %lld]: padding entry %lld is %d, worth %g",
                  WHERE(row), (long long)e, row->list[e], (double)row->worth[e]);
      return false;
    }
  return true;
}

static double length(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

/* e of verify_select.h. */
static double score_error(const struct select_comparison *c, const struct select_row *row) {
  const struct selection *s = &c->selection;
  double most = 0, D = row->head->pyramid.head_dim;
  for (int h = 0; h < s->heads; h++)
    most = fmax(most, length(row->q + h * (int64_t)D, (int64_t)D));
  most *= s->scale * row->head->longest;
  double error = 1e-4 + 2e-6 * most + (s->score == SELECT_HALF_VARIANCE ? 5e-7 * most * most : 0);
  return s->reduce == SELECT_SUM ? s->heads * error : error;
}

static void blame(const struct select_comparison *c, const struct select_row *row,
                  const struct select_walk *w) {
  if (w->node >= 0 && w->other >= 0)
    verify_fail(
        c->result,
        "blocks[%lld, %lld, %lld]: on level %d node %lld is taken, but node %lld beats it by "
        "%.3g (granted: %.2g)%s",
        WHERE(row), w->level, (long long)w->node, (long long)w->other, w->lost,
        w->relative ? 4 * w->error : 2 * w->error,
        w->lost == 0 ? ": of equal scores the smaller number counts" : "");
  else if (w->node >= 0)
    verify_fail(c->result,
                "blocks[%lld, %lld, %lld]: on level %d node %lld is taken, which is no "
                "candidate, or there is no room",
                WHERE(row), w->level, (long long)w->node);
  else
    verify_fail(c->result, "blocks[%lld, %lld, %lld]: leaf %lld is missing, there are %lld",
                WHERE(row), (long long)w->other, (long long)row->listed);
}

bool select_compare_list(const struct select_comparison *c, const struct select_row *row) {
  struct verify_result *r = c->result;
  struct select_walk w = {.selection = &c->selection,
                          .pyramid = &row->head->pyramid,
                          .q = row->q,
                          .t = row->t,
                          .error = score_error(c, row),
                          .relative = c->selection.reduce >= SELECT_MASS,
                          .list = row->list,
                          .n = row->listed,
                          .worth = row->worth};
  bool explained = select_walk_explains(&w);
  if (w.memory)
    return false;
  if (!explained)
    blame(c, row, &w);
  else if (!(w.worth_error <= 1) && !(w.relative && w.unsure))
    verify_fail(r, "worth[%lld, %lld, %lld] is off by %.3g of what is granted", WHERE(row),
                w.worth_error);
  pthread_mutex_lock(&r->lock);
  r->swaps += explained ? w.swaps : 0;
  r->score_gap = fmax(r->score_gap, explained ? w.gap : 0);
  pthread_mutex_unlock(&r->lock);
  return true;
}
