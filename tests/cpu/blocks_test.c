/* blocks_test.c: attention over the leaves of single queries, and what a selection is measured by.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/attend_blocks.h"
#include "runtime/cpu/selection_quality.h"
#include "tests/cpu/selection_sample.h"

enum { D = SELECTION_D };

static double dot(const double *a, const double *b) {
  double sum = 0;
  for (int d = 0; d < D; d++)
    sum += a[d] * b[d];
  return sum;
}

static struct blocks_head head_of(const struct selection_sample *x, bool causal) {
  return (struct blocks_head){.k = x->k,
                              .v = x->k, /* any rows will do */
                              .n = x->n,
                              .head_dim = D,
                              .leaf = 16,
                              .causal = causal,
                              .scale = 0.5};
}

/* Against sums of e^s over all tokens that are read, token by token. */
static void check_row(const struct blocks_head *head, const double *q, int64_t t, const bool *read,
                      const double *o, double lse) {
  double sum = 0, wanted[D] = {0};
  for (int64_t n = 0; n < head->n; n++) {
    if (!read[n / 16] || (head->causal && n > t))
      continue;
    double weight = exp(head->scale * dot(q, head->k + n * D));
    sum += weight;
    for (int d = 0; d < D; d++)
      wanted[d] += weight * head->v[n * D + d];
  }
  CHECK(sum > 0 ? fabs(lse - log(sum)) < 1e-12 : lse == -INFINITY);
  for (int d = 0; d < D; d++)
    CHECK_AT_MOST(fabs(o[d] - (sum > 0 ? wanted[d] / sum : 0)), 1e-12);
}

static void attend_case(int64_t n_q, int64_t n, bool causal, bool listed) {
  struct selection_sample x = selection_sample_new(n_q, n, 1, 5);
  struct blocks_head head = head_of(&x, causal);
  double *o = malloc((size_t)(n_q * D) * sizeof *o), *lse = malloc((size_t)n_q * sizeof *lse);
  int32_t *list = selection_sample_run(&x);
  CHECK(o && lse);
  attend_blocks_sequence(&head, x.q, n_q, listed ? list : NULL, 5, o, lse);
  for (int64_t r = 0; r < n_q; r++) {
    bool read[64];
    for (int b = 0; b < 64; b++)
      read[b] = !listed;
    for (int e = 0; listed && e < 5; e++)
      if (list[r * 5 + e] >= 0)
        read[list[r * 5 + e]] = true;
    check_row(&head, x.q + r * D, n - n_q + r, read, o + r * D, lse[r]);
  }
  free(o);
  free(lse);
  free(list);
  selection_sample_free(&x);
}

static void attend(void) {
  static const int64_t lengths[] = {0, 1, 63, 64, 65, 511, 512, 513, 575};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int causal = 0; causal < 2; causal++)
      for (int listed = 0; listed < 2; listed++) {
        attend_case(70, lengths[i], causal, listed);
        attend_case(3, lengths[i], causal, listed);
      }
}

/* One key a thousand above the others in score, and all a thousand below 0. */
static void large(void) {
  struct selection_sample x = selection_sample_new(1, 64, 1, 4);
  struct blocks_head head = head_of(&x, true);
  double o[D], lse;
  for (int64_t t = 0; t < 64; t++)
    for (int d = 0; d < D; d++)
      x.k[t * D + d] = d ? (double)t : t == 20 ? 1000 : -1000;
  for (int d = 0; d < D; d++)
    x.q[d] = d ? 0 : 2;
  const int32_t with[] = {3, -1, 1, 9}, without[] = {0, 3};
  attend_blocks(&head, x.q, 63, with, 4, o, &lse);
  CHECK(lse == 1000 && o[1] == 20);
  attend_blocks(&head, x.q, 63, without, 2, o, &lse);
  CHECK_AT_MOST(fabs(lse + 1000 - log(32)), 1e-12);
  CHECK_AT_MOST(fabs(o[1] - (7.5 + 55.5) / 2), 1e-12);
  selection_sample_free(&x);
}

/* A NaN in a key that is read shows; in one that is not, or lies ahead, it does not. */
static void nan_shows(void) {
  struct selection_sample x = selection_sample_new(1, 64, 1, 4);
  struct blocks_head head = head_of(&x, true);
  double o[D], lse;
  const int32_t list[] = {0, 1};
  x.k[20 * D] = NAN;
  attend_blocks(&head, x.q, 63, list, 2, o, &lse);
  CHECK(isnan(lse) && isnan(o[1]));
  attend_blocks(&head, x.q, 19, list, 2, o, &lse);
  CHECK(isfinite(lse) && isfinite(o[1]));
  attend_blocks(&head, x.q, 63, list, 1, o, &lse);
  CHECK(isfinite(lse) && isfinite(o[1]));
  selection_sample_free(&x);
}

/* Two queries of masses {.5, .3, .2} and {.2, .2, .6}: 1 of 2 and 2 of 2 recalled, .7 and .8
   captured of .8 and .8. */
static void means_by_hand(void) {
  const double first[] = {0.5, 0.3, 0.2}, second[] = {0.2, 0.2, 0.6};
  const int32_t list[] = {0, 2, -1}, best[] = {0, 1, -1}, same[] = {2, 0};
  struct selection_quality sum = {0}, mean = quality_means(&sum);
  CHECK(mean.queries == 0 && isnan(mean.recall) && isnan(mean.captured) && isnan(mean.ratio));
  quality_add(&sum, first, list, 3, best, 3);
  quality_add(&sum, second, list, 3, same, 2);
  mean = quality_means(&sum);
  CHECK(mean.queries == 2);
  CHECK_AT_MOST(fabs(mean.recall - 0.75), 1e-15);
  CHECK_AT_MOST(fabs(mean.captured - 0.75), 1e-15);
  CHECK_AT_MOST(fabs(mean.ratio - (0.7 / 0.8 + 1) / 2), 1e-15);
}

/* The mass of each leaf by definition; the reference set has the forced leaves, and no other
   selection with them captures more. */
static void masses(void) {
  struct selection_sample x = selection_sample_new(1, 300, 3, 6);
  for (int64_t t = 0; t < x.n; t += 7) {
    double mass[19], total = 0;
    int32_t best[6], list[6];
    int64_t n, n_best;
    quality_mass(&x.selection, &x.pyramid, x.q, t, mass);
    for (int64_t b = 0; b < 19; b++) {
      double wanted = 0;
      for (int h = 0; h < 3; h++) {
        double in = 0, all = 0;
        for (int64_t k = 0; k <= t; k++) {
          double e = exp(0.5 * dot(x.q + h * D, x.k + k * D));
          in += k / 16 == b ? e : 0;
          all += e;
        }
        wanted += in / all / 3;
      }
      CHECK_AT_MOST(fabs(mass[b] - wanted), 1e-13);
      total += mass[b];
    }
    CHECK_AT_MOST(fabs(total - 1), 1e-13);
    CHECK(quality_best(&x.selection, &x.pyramid, t, mass, 6, best, &n_best));
    CHECK(select_leaves(&x.selection, &x.pyramid, x.q, t, 6, list, NULL, &n));
    struct selection_quality own = {0}, walked = {0};
    quality_add(&own, mass, best, n_best, best, n_best);
    quality_add(&walked, mass, list, n, best, n_best);
    CHECK(n == n_best && own.recall == 1 && own.ratio == 1);
    CHECK(best[0] == 0 && best[n - 1] == t / 16 && (n < 2 || best[n - 2] == t / 16 - 1));
    CHECK(walked.recall * (double)n >= (n < 3 ? (double)n : 3) - 1e-12);
    CHECK_AT_MOST(walked.captured, own.captured + 1e-13);
    if (n < 6)
      CHECK(walked.recall == 1);
  }
  selection_sample_free(&x);
}

/* A flat scan by mass finds the reference set, but for near ties: of the normaliser only the part
   of the first leaf is not exact. */
static void flat_mass(void) {
  struct selection_sample x = selection_sample_new(1, 575, 4, 8);
  struct selection_quality sum = {0};
  x.selection.flat = true;
  x.selection.reduce = SELECT_MASS;
  x.selection.scale = 1;
  for (int64_t t = 200; t < x.n; t += 5) {
    double mass[36];
    int32_t best[8], list[8];
    int64_t n;
    quality_mass(&x.selection, &x.pyramid, x.q, t, mass);
    CHECK(quality_best(&x.selection, &x.pyramid, t, mass, 8, best, &n));
    CHECK(select_leaves(&x.selection, &x.pyramid, x.q, t, 8, list, NULL, &n));
    quality_add(&sum, mass, list, 8, best, 8);
  }
  struct selection_quality mean = quality_means(&sum);
  CHECK_AT_MOST(0.98, mean.recall);
  CHECK_AT_MOST(0.999, mean.ratio);
  selection_sample_free(&x);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"attend", attend},       {"large", large},
             {"nan_shows", nan_shows}, {"means_by_hand", means_by_hand},
             {"masses", masses},       {"flat_mass", flat_mass}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: blocks_test CASE\n");
  return 2;
}
