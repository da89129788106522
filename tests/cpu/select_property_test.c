/* select_property_test.c: what any right selection must satisfy. One case per argument. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/selection_sample.h"

enum { D = SELECTION_D };

typedef void property(struct selection_sample *x);

static void every_method(struct selection_sample *x, property *holds) {
  for (int flat = 0; flat < 2; flat++)
    for (int score = SELECT_MEAN; score <= SELECT_LSE; score++)
      for (int reduce = SELECT_SUM; reduce <= SELECT_MAX_MASS; reduce++) {
        x->selection.flat = flat;
        x->selection.score = (enum select_score)score;
        x->selection.reduce = (enum select_reduce)reduce;
        holds(x);
      }
}

static void with_sample(int64_t n_q, int64_t n, int heads, int keep, property *holds) {
  struct selection_sample x = selection_sample_new(n_q, n, heads, keep);
  every_method(&x, holds);
  selection_sample_free(&x);
}

/* As many places as leaves: every leaf that starts by t. */
static void reads_all(struct selection_sample *x) {
  int keep = x->selection.keep;
  int32_t *list = selection_sample_run(x);
  for (int64_t r = 0; r < x->n_q; r++)
    for (int32_t e = 0; e < keep; e++)
      CHECK(list[r * keep + e] == (16 * e <= x->n - x->n_q + r ? e : -1));
  free(list);
}

static void all_kept(void) {
  with_sample(200, 200, 2, 13, reads_all);
  with_sample(7, 200, 2, 64, reads_all);
}

/* With a place for every second leaf the walk loses none above the leaves. */
static void equals_flat(struct selection_sample *x) {
  size_t size = (size_t)(x->n_q * x->selection.keep) * sizeof(int32_t);
  x->selection.flat = false;
  int32_t *walked = selection_sample_run(x);
  x->selection.flat = true;
  int32_t *scanned = selection_sample_run(x);
  CHECK(memcmp(walked, scanned, size) == 0);
  free(walked);
  free(scanned);
}

static void flat(void) {
  with_sample(40, 575, 3, 18, equals_flat);
  struct selection_sample x = selection_sample_new(40, 575, 3, 6);
  x.selection.start_nodes = 36; /* all leaves at once */
  every_method(&x, equals_flat);
  selection_sample_free(&x);
}

/* Of equal keys the first leaves are read beside the previous and the current one. */
static void reads_first(struct selection_sample *x) {
  int keep = x->selection.keep;
  int32_t *list = selection_sample_run(x);
  for (int64_t r = 0; r < x->n_q; r++) {
    int64_t own = (x->n - x->n_q + r) / 16;
    for (int32_t e = 0; e < keep; e++)
      CHECK(list[r * keep + e] == (e < keep - 2 ? e : own - (keep - 1 - e)));
  }
  free(list);
}

static void constant_keys(void) {
  struct selection_sample x = selection_sample_new(300, 575, 2, 5);
  for (int64_t e = D; e < x.n * D; e++)
    x.k[e] = x.k[e % D];
  selection_sample_build(&x);
  every_method(&x, reads_first);
  selection_sample_free(&x);
}

/* Without a mask the last leaf and all above it are ranked with fewer keys: that is no difference,
   or with sums of e^x one to their disadvantage. */
static void reads_first_of_all(struct selection_sample *x) {
  int keep = x->selection.keep;
  int32_t *list = selection_sample_run(x);
  for (int64_t e = 0; e < x->n_q * keep; e++)
    CHECK(list[e] == e % keep);
  free(list);
}

static void constant_ragged(void) {
  for (int64_t n = 560; n < 576; n++) {
    struct selection_sample x = selection_sample_new(20, n, 1, 1);
    x.selection.causal = x.selection.previous = x.selection.current = false;
    x.selection.n_always = 0;
    x.selection.scale = 0.3; /* logits with all their bits */
    for (int64_t e = D; e < n * D; e++)
      x.k[e] = x.k[e % D];
    selection_sample_build(&x);
    every_method(&x, reads_first_of_all);
    selection_sample_free(&x);
  }
}

/* Leaves 2 i and 2 i + 1 are equal: the second of a pair is not read without the first, unless
   forced. */
static void first_of_pair(struct selection_sample *x) {
  int keep = x->selection.keep;
  int32_t *list = selection_sample_run(x);
  for (int64_t r = 0; r < x->n_q; r++) {
    const int32_t *ids = list + r * keep;
    int64_t own = (x->n - x->n_q + r) / 16;
    for (int e = 0; e < keep; e++)
      CHECK(ids[e] % 2 == 0 || ids[e] >= own - 1 || ids[e - 1] == ids[e] - 1);
  }
  free(list);
}

static void duplicates(void) {
  struct selection_sample x = selection_sample_new(100, 575, 2, 6);
  for (int64_t t = 0; t < x.n; t++)
    if (t / 16 % 2)
      memcpy(x.k + t * D, x.k + (t - 16) * D, D * sizeof *x.k);
  selection_sample_build(&x);
  every_method(&x, first_of_pair);
  selection_sample_free(&x);
}

/* Logits of up to 200 in size: ranked leaves have finite worths. */
static void stays_finite(struct selection_sample *x) {
  int64_t n;
  int32_t list[6];
  double worth[6];
  for (int64_t t = 200; t < x->n; t += 31) {
    CHECK(select_leaves(&x->selection, &x->pyramid, x->q, t, 6, list, worth, &n));
    CHECK(n == 6);
    for (int e = 0; e < 6; e++) {
      bool forced = list[e] == 0 || list[e] >= t / 16 - 1;
      CHECK(forced ? worth[e] == INFINITY : isfinite(worth[e]));
    }
  }
}

static void large_logits(void) {
  for (int sign = -1; sign <= 2; sign++) {
    struct selection_sample x = selection_sample_new(1, 575, 2, 6);
    for (int64_t e = 0; e < x.n * D; e++) {
      int64_t t = e / D;
      x.k[e] = e % D ? 0 : sign == 2 ? (t / 5 % 2 ? 50 : -50) : 50 * sign;
    }
    x.q[0] = 8;
    x.q[D] = -8;
    selection_sample_build(&x);
    every_method(&x, stays_finite);
    selection_sample_free(&x);
  }
}

/* One key of leaf 13 at 30, the others of it below the mean: found by what sees single keys. */
static void needle(void) {
  struct selection_sample x = selection_sample_new(1, 575, 1, 5);
  for (int64_t t = 0; t < x.n; t++)
    x.k[t * D] = t == 13 * 16 + 7 ? 30 : t / 16 == 13 ? -3 : 0.25 * (double)(t % 3);
  for (int d = 0; d < D; d++)
    x.q[d] = d == 0;
  x.selection.scale = 1;
  x.selection.start_nodes = 64;
  selection_sample_build(&x);
  for (int flat_scan = 0; flat_scan < 2; flat_scan++)
    for (int score = SELECT_MEAN; score <= SELECT_LSE; score++) {
      x.selection.flat = flat_scan;
      x.selection.score = (enum select_score)score;
      int32_t *list = selection_sample_run(&x);
      bool found = false;
      for (int e = 0; e < 5; e++)
        found = found || list[e] == 13;
      CHECK(found == (score != SELECT_MEAN));
      free(list);
    }
  selection_sample_free(&x);
}

static void same_list(const struct selection_sample *x, const struct pyramid *p,
                      const struct pyramid *other, int64_t t) {
  int32_t a[6], b[6];
  double a_worth[6], b_worth[6];
  int64_t n;
  CHECK(select_leaves(&x->selection, p, x->q, t, 6, a, a_worth, &n));
  CHECK(select_leaves(&x->selection, other, x->q, t, 6, b, b_worth, &n));
  CHECK(memcmp(a, b, sizeof a) == 0);
  for (int e = 0; e < 6; e++)
    CHECK(a_worth[e] == b_worth[e]);
}

/* A query sees the same whatever comes after it: nothing yet, in pyramids grown by tokens or by
   full nodes, or other keys; also where its own leaf has to win a place. */
static void future_case(int leaf, int group, int64_t start_nodes, bool own) {
  struct selection_sample x = selection_sample_new(1, 575, 2, 6);
  struct pyramid grown = pyramid_of(PISA_BF16, D, leaf, group), completed = grown, changed = grown;
  x.selection.start_nodes = start_nodes;
  x.selection.previous = x.selection.current = own;
  pyramid_free(&x.pyramid);
  x.pyramid = grown;
  selection_sample_build(&x);
  for (int64_t t = 0; t < x.n; t++) {
    CHECK(pyramid_append(&grown, x.k + t * D));
    CHECK(pyramid_append_completed(&completed, x.k + t * D));
    if ((t + 2) % leaf > 2 && t % 53)
      continue;
    double *k = malloc((size_t)(x.n * D) * sizeof *k);
    CHECK(k != NULL);
    for (int64_t e = 0; e < x.n * D; e++)
      k[e] = e < (t + 1) * D ? x.k[e] : 100;
    CHECK(pyramid_build(&changed, k, x.n));
    free(k);
    for (int m = 0; m < 30; m++) {
      x.selection.flat = m % 2;
      x.selection.score = (enum select_score)(m / 2 % 3);
      x.selection.reduce = (enum select_reduce)(m / 6);
      same_list(&x, &x.pyramid, &grown, t);
      same_list(&x, &x.pyramid, &completed, t);
      same_list(&x, &x.pyramid, &changed, t);
    }
  }
  pyramid_free(&grown);
  pyramid_free(&completed);
  pyramid_free(&changed);
  selection_sample_free(&x);
}

static void future(void) {
  future_case(16, 2, 0, true);
  future_case(16, 2, 8, true);
  future_case(16, 4, 0, false);
  future_case(32, 8, 0, true);
}

/* The last queries of many are few queries of the same keys. */
static void aligned(void) {
  struct selection_sample many = selection_sample_new(575, 575, 1, 6);
  struct selection_sample few = selection_sample_new(10, 575, 1, 6);
  memcpy(few.q, many.q + 565 * D, 10 * D * sizeof *few.q);
  int32_t *all = selection_sample_run(&many), *last = selection_sample_run(&few);
  CHECK(memcmp(all + 565 * 6, last, 60 * sizeof *last) == 0);
  free(all);
  free(last);
  selection_sample_free(&many);
  selection_sample_free(&few);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"all_kept", all_kept},
             {"flat", flat},
             {"constant_keys", constant_keys},
             {"constant_ragged", constant_ragged},
             {"duplicates", duplicates},
             {"large_logits", large_logits},
             {"needle", needle},
             {"future", future},
             {"aligned", aligned}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: select_property_test CASE\n");
  return 2;
}
