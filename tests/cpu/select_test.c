/* select_test.c: lists against a statement of the method written for this test alone: sets of
   nodes, means taken from keys, ranks by counting; with first, previous and own leaf forced. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "tests/cpu/selection_sample.h"

enum { D = SELECTION_D, MAX_NODES = 64, MAX_HEADS = 32 };

struct query {
  const struct selection_sample *x;
  const double *q[MAX_HEADS]; /* [D] */
  int64_t t, own;
};

/* scale q . round(mean of the tokens [begin, end)). */
static double mean_logit(const struct query *u, int h, int64_t begin, int64_t end) {
  double product = 0;
  for (int d = 0; d < D; d++) {
    double sum = 0;
    for (int64_t t = begin; t < end; t++)
      sum += u->x->k[t * D + d];
    product += u->q[h][d] * cpu_round(u->x->pyramid.type, sum / (double)(end - begin));
  }
  return u->x->selection.scale * product;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The score of a node of |size| tokens whose children have |part|. */
static double score(const struct query *u, int h, int64_t node, int64_t size, int64_t part) {
  const struct selection *s = &u->x->selection;
  bool mass = s->reduce >= SELECT_MASS, leaf = part == 1;
  int64_t begin = node * size, end = smaller(begin + size, u->x->n);
  bool whole = !s->causal || begin + size <= u->t + 1;
  enum select_score kind = s->score;
  if (leaf && (node == u->own || node + 1 == u->own))
    kind = SELECT_LSE;
  else if (leaf && node == 0)
    kind = SELECT_MEAN;
  double x[128], weight[128], all = 0, sum = 0, mean = 0, variance = 0;
  int n = 0;
  for (int64_t c = begin; c < end && (!s->causal || c + part <= u->t + 1); c += part) {
    int64_t child_end = smaller(c + part, u->x->n);
    weight[n] = (double)(child_end - c) / (double)part;
    all += weight[n];
    x[n++] = mean_logit(u, h, c, child_end);
  }
  for (int i = 0; i < n; i++) {
    sum += weight[i] * exp(x[i]);
    mean += weight[i] / all * x[i];
  }
  for (int i = 0; i < n; i++)
    variance += weight[i] / all * (x[i] - mean) * (x[i] - mean);
  if (n == 0 || kind == SELECT_LSE)
    return log(sum);
  if (kind == SELECT_HALF_VARIANCE)
    mean += variance / 2;
  else if (whole)
    mean = mean_logit(u, h, begin, end);
  return mean + (mass ? log(all) : 0);
}

/* What a node is worth beside the |candidate|s of its level. */
static double worth(const struct query *u, const bool *candidate, int64_t node, int64_t size,
                    int64_t part) {
  const struct selection *s = &u->x->selection;
  double sum = 0, max = -INFINITY, exps = 0;
  for (int h = 0; h < s->heads; h++) {
    double v = score(u, h, node, size, part), all = 0;
    for (int64_t c = 0; s->reduce >= SELECT_MASS && c < MAX_NODES; c++)
      all += candidate[c] ? exp(score(u, h, c, size, part)) : 0;
    if (s->reduce >= SELECT_MASS)
      v = exp(v) / all;
    sum += v;
    exps += exp(v);
    max = fmax(max, v);
  }
  return s->reduce == SELECT_LOG_SUM                           ? log(exps)
         : s->reduce == SELECT_SUM || s->reduce == SELECT_MASS ? sum
                                                               : max;
}

static bool is_forced(const struct query *u, int64_t node, int64_t size) {
  int64_t leaves = size / u->x->pyramid.leaf;
  return node == 0 || node == u->own / leaves || node == (u->own > 0 ? u->own - 1 : 0) / leaves;
}

/* Keeps of |candidate| the forced and the keep - forced that fewest others beat. */
static void keep_best(const struct query *u, bool *candidate, int64_t size, int64_t part) {
  bool kept[MAX_NODES] = {false};
  double value[MAX_NODES] = {0};
  int n = 0, slots = u->x->selection.keep;
  for (int64_t c = 0; c < MAX_NODES; c++) {
    n += candidate[c];
    slots -= candidate[c] && is_forced(u, c, size);
  }
  if (n <= u->x->selection.keep)
    return;
  for (int64_t c = 0; c < MAX_NODES; c++)
    if (candidate[c] && !is_forced(u, c, size))
      value[c] = worth(u, candidate, c, size, part);
  for (int64_t c = 0; c < MAX_NODES; c++) {
    int better = 0;
    for (int64_t o = 0; o < MAX_NODES; o++)
      better += candidate[o] && !is_forced(u, o, size) &&
                (value[o] > value[c] || (value[o] == value[c] && o < c));
    kept[c] = candidate[c] && (is_forced(u, c, size) || better < slots);
  }
  memcpy(candidate, kept, sizeof kept);
}

/* leaf [MAX_NODES]: the ones that query |r| reads. */
static void state(const struct selection_sample *x, int64_t r, bool *leaf) {
  const struct pyramid *p = &x->pyramid;
  struct query u = {.x = x, .t = x->n - x->n_q + r};
  bool above[MAX_NODES] = {true};
  int64_t size = p->leaf;
  u.own = u.t / p->leaf;
  for (int h = 0; h < x->selection.heads; h++)
    u.q[h] = x->q + (h * x->n_q + r) * D;
  while (size < x->n && !x->selection.flat)
    size *= p->group;
  memset(leaf, 0, MAX_NODES * sizeof *leaf);
  for (;; size /= p->group) {
    int64_t up = x->selection.flat ? MAX_NODES : p->group;
    for (int64_t c = 0; c < MAX_NODES; c++)
      leaf[c] = above[c / up] && c * size < (x->selection.causal ? u.t + 1 : x->n);
    keep_best(&u, leaf, size, size == p->leaf ? 1 : size / p->group);
    memcpy(above, leaf, sizeof above);
    if (size == p->leaf)
      return;
  }
}

static void compare(const struct selection_sample *x, int64_t step) {
  int keep = x->selection.keep;
  int32_t *lists = selection_sample_run(x);
  for (int64_t r = x->n_q - 1; r >= 0; r -= step) {
    bool leaf[MAX_NODES];
    int32_t wanted[MAX_NODES];
    int n = 0;
    state(x, r, leaf);
    for (int32_t c = 0; c < MAX_NODES; c++)
      if (leaf[c])
        wanted[n++] = c;
    CHECK(n <= keep);
    while (n < keep)
      wanted[n++] = -1;
    CHECK(memcmp(lists + r * keep, wanted, (size_t)keep * sizeof *wanted) == 0);
  }
  free(lists);
}

static void every_method(struct selection_sample *x, int64_t step) {
  for (int m = 0; m < 60; m++) {
    x->selection.causal = m % 2;
    x->selection.flat = m / 2 % 2;
    x->selection.score = (enum select_score)(m / 4 % 3);
    x->selection.reduce = (enum select_reduce)(m / 12);
    compare(x, step);
  }
}

static void statement(void) {
  static const int64_t lengths[] = {1, 63, 64, 65, 511, 512, 513, 575};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    struct selection_sample x = selection_sample_new(lengths[i], lengths[i], 2, 8);
    every_method(&x, 61);
    selection_sample_free(&x);
  }
}

static void sizes(void) {
  for (int leaf = 16; leaf <= 32; leaf *= 2)
    for (int group = 2; group <= 8; group *= 2) {
      struct selection_sample x = selection_sample_new(200, 575, 2, 5);
      pyramid_free(&x.pyramid);
      x.pyramid = pyramid_of(PISA_FP16, D, leaf, group);
      selection_sample_build(&x);
      every_method(&x, 97);
      selection_sample_free(&x);
    }
}

static void heads(void) {
  static const int groups[] = {1, 2, 3, 4, 8, 12, 16, 32};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    struct selection_sample x = selection_sample_new(20, 300, groups[i], 8);
    every_method(&x, 19);
    selection_sample_free(&x);
  }
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"statement", statement}, {"sizes", sizes}, {"heads", heads}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: select_test CASE\n");
  return 2;
}
