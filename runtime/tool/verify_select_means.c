/* verify_select_means.c: keys of a head and the means that the device stored in, their errors out;
   the device's means then take the place of the oracle's. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/verify_select.h"

static double ulp(pisa_type type, double x) {
  int digits = type == PISA_BF16 ? 8 : 11, lowest = type == PISA_BF16 ? -133 : -24, exponent;
  if (x == 0)
    return ldexp(1, lowest);
  frexp(x, &exponent);
  return ldexp(1, exponent - digits > lowest ? exponent - digits : lowest);
}

/* In ulp; the sum was made in float: where its terms cancel, 2^-20 of |size|, the mean |k|, is
   granted. */
static double mean_error(pisa_type type, double expected, double stored, double size) {
  if (isnan(stored))
    return INFINITY;
  double error = fabs(stored - expected) - 0x1p-20 * size;
  return error > 0 ? error / ulp(type, expected) : 0;
}

/* Compares the mean of a node, then takes the device's. */
static double take_mean(const struct select_comparison *c, struct select_head *head, int level,
                        int64_t node, double size) {
  struct pyramid *p = &head->pyramid;
  const uint16_t *stored = c->outputs->means + select_node(c->call, head->b, head->hk, level, node);
  double *mean = pyramid_mean(p, level, node), worst = 0;
  const double *sum = p->level[level].sum + node * p->head_dim;
  for (int d = 0; d < p->head_dim; d++) {
    double got = (double)cpu_widen(p->type, stored[d]);
    double expected = sum[d] / (double)pyramid_count(p, level, node);
    double error = mean_error(p->type, expected, got, size);
    if (error > VERIFY_MEAN_ULP && worst <= VERIFY_MEAN_ULP)
      verify_fail(c->result,
                  "means[%lld, %lld] level %d node %lld column %d = %g, expected %g: %.3g ulp off",
                  (long long)head->b, (long long)head->hk, level, (long long)node, d, got, expected,
                  error);
    worst = fmax(worst, error);
    mean[d] = got;
  }
  return worst;
}

/* With |append_completed| nodes that are not full have no mean; nothing reads them. */
static bool is_stored(const struct select_comparison *c, const struct pyramid *p, int level,
                      int64_t node) {
  return !c->call->request.append_completed ||
         pyramid_count(p, level, node) == pyramid_size(p, level);
}

void select_compare_means(const struct select_comparison *c, struct select_head *head) {
  struct pyramid *p = &head->pyramid;
  double worst = 0, size = 0;
  for (int64_t e = 0; e < p->tokens * p->head_dim; e++)
    size += fabs(p->level[0].mean[e]) / (double)(p->tokens * p->head_dim);
  for (int level = 1; p->tokens && level <= pyramid_root(p); level++)
    for (int64_t node = 0; node < pyramid_nodes(p, level); node++)
      if (is_stored(c, p, level, node))
        worst = fmax(worst, take_mean(c, head, level, node, size));
  verify_note(c->result, &c->result->mean_ulp, worst);
}

bool select_read_head(const struct select_comparison *c, struct select_head *head) {
  const struct select_arrays *a = &c->call->arrays;
  int D = head->pyramid.head_dim;
  int64_t keys = a->sequence[head->b].keys;
  double *k = malloc((size_t)(keys * D + 1) * sizeof *k);
  head->v = malloc((size_t)(keys * D + 1) * sizeof *head->v);
  for (int64_t n = 0; k && head->v && n < keys; n++) {
    const uint16_t *in = select_key(a, &a->k, head->b, head->hk, n);
    const uint16_t *value = select_key(a, &a->v, head->b, head->hk, n);
    double square = 0;
    for (int d = 0; d < D; d++) {
      k[n * D + d] = (double)cpu_widen(head->pyramid.type, in[d]);
      head->v[n * D + d] = (double)cpu_widen(head->pyramid.type, value[d]);
      square += k[n * D + d] * k[n * D + d];
    }
    head->longest = fmax(head->longest, sqrt(square));
  }
  bool ok = k && head->v && pyramid_build(&head->pyramid, k, keys);
  free(k);
  return ok;
}
