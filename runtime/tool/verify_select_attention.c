/* verify_select_attention.c: o and lse of one query against double, over the list that the device
   chose. */
#include <math.h>

#include "runtime/cpu/convert.h"
#include "runtime/size.h"
#include "runtime/tool/verify_select.h"

static bool same_kind(double a, double b) {
  return isnan(a) ? isnan(b) : isinf(a) ? a == b : isfinite(b);
}

static void compare_lse(const struct select_comparison *c, const struct select_row *row, int64_t h,
                        double expected) {
  double got = (double)c->outputs->lse[select_o_row(c->call, row->head->b, h, row->n)];
  double error =
      same_kind(expected, got) ? isfinite(expected) ? fabs(got - expected) : 0 : INFINITY;
  if (!(error <= VERIFY_LSE_ABS))
    verify_fail(c->result, "lse[%lld, %lld, %lld] = %.7g, expected %.7g", (long long)row->head->b,
                (long long)h, (long long)row->n, got, expected);
  verify_note(c->result, &c->result->lse_abs, error);
}

static void compare_o(const struct select_comparison *c, const struct select_row *row, int64_t h,
                      const double *o, struct select_squares *sum) {
  pisa_type type = row->head->pyramid.type;
  int D = row->head->pyramid.head_dim, unlike = 0;
  const uint16_t *got = c->outputs->o + select_o_row(c->call, row->head->b, h, row->n) * D;
  for (int d = 0; d < D; d++) {
    double x = (double)cpu_widen(type, got[d]);
    unlike += !same_kind(o[d], x);
    if (!same_kind(o[d], x) || !isfinite(o[d]))
      continue;
    sum->error += (x - o[d]) * (x - o[d]);
    sum->size += o[d] * o[d];
  }
  if (unlike)
    verify_fail(c->result, "o[%lld, %lld, %lld]: %d elements finite or not unlike the oracle's",
                (long long)row->head->b, (long long)h, (long long)row->n, unlike);
}

void select_compare_attention(const struct select_comparison *c, const struct select_row *row,
                              double *o, struct select_squares *squares) {
  const struct pyramid *p = &row->head->pyramid;
  struct blocks_head head = {.k = p->level[0].mean,
                             .v = row->head->v,
                             .n = p->tokens,
                             .head_dim = p->head_dim,
                             .leaf = p->leaf,
                             .causal = c->selection.causal,
                             .scale = c->selection.scale};
  for (int g = 0; g < c->selection.heads; g++) {
    double lse;
    int64_t h = row->head->hk * c->selection.heads + g;
    attend_blocks(&head, row->q + g * p->head_dim, row->t, row->list, row->listed, o, &lse);
    compare_o(c, row, h, o, squares);
    compare_lse(c, row, h, lse);
  }
}

void select_judge_attention(const struct select_comparison *c, const struct select_squares *squares,
                            int64_t n) {
  enum { UNIT = 1024 };
  struct verify_result *r = c->result;
  const struct pisa_method *m = &c->call->module->method;
  int64_t elements = c->selection.heads * m->head_dim, rows = pisa_ceil_div(UNIT, elements);
  for (int64_t first = 0; first < n; first += rows) {
    struct select_squares sum = {0};
    for (int64_t i = first; i < pisa_min(first + rows, n); i++) {
      sum.error += squares[i].error;
      sum.size += squares[i].size;
    }
    double relative = sum.error == 0 ? 0 : sqrt(sum.error / sum.size);
    if (!(relative <= verify_limits_of(m->type).o_rel))
      verify_fail(r, "o of rows %lld and on of those compared: relative L2 error %.3g",
                  (long long)first, relative);
    r->o_square_error += sum.error;
    r->o_square += sum.size;
    r->block_rel = fmax(r->block_rel, relative);
  }
}
