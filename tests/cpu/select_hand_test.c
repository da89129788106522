/* select_hand_test.c: selections small enough for paper. One case per argument. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/selection_sample.h"

enum { D = SELECTION_D };

/* All queries e0, all keys of leaf j value[j] e0; nothing forced, no mask, scale 1. */
static struct selection_sample steps(const double *value, int64_t leaves, int keep) {
  struct selection_sample x = selection_sample_new(2, 16 * leaves, 1, keep);
  x.selection.causal = x.selection.previous = x.selection.current = false;
  x.selection.n_always = 0;
  x.selection.scale = 1;
  for (int64_t e = 0; e < x.n_q * D; e++)
    x.q[e] = e % D == 0;
  for (int64_t e = 0; e < x.n * D; e++)
    x.k[e] = e % D == 0 ? value[e / D / 16] : 0;
  selection_sample_build(&x);
  return x;
}

static void check_list(const struct selection_sample *x, int64_t t, int64_t room,
                       const int32_t *wanted) {
  int32_t list[8];
  int64_t n;
  CHECK(room <= 8);
  CHECK(select_leaves(&x->selection, &x->pyramid, x->q, t, room, list, NULL, &n));
  for (int64_t e = 0; e < room; e++)
    CHECK(list[e] == wanted[e] && (e < n) == (list[e] >= 0));
}

/* The parents of 8 leaves have means 0, 1, 0, 1: by their mean leaf 4 is lost. Its parent's
   children at 3 and -3 stand out by variance (0 + 9 / 2) and by lse (ln(e^3 + e^-3)). */
static void walk(void) {
  const double value[] = {0, 0, 1, 1, 3, -3, 2, 0};
  const int32_t lost[] = {2, 6}, found[] = {4, 6};
  struct selection_sample x = steps(value, 8, 2);
  x.selection.score = SELECT_MEAN;
  check_list(&x, 127, 2, lost);
  x.selection.score = SELECT_HALF_VARIANCE;
  check_list(&x, 127, 2, found);
  x.selection.score = SELECT_LSE;
  check_list(&x, 127, 2, found);
  x.selection.score = SELECT_MEAN;
  x.selection.start_nodes = 7; /* the level of 4 */
  check_list(&x, 127, 2, lost);
  x.selection.start_nodes = 8; /* the leaves */
  check_list(&x, 127, 2, found);
  x.selection.start_nodes = 0;
  x.selection.flat = true;
  check_list(&x, 127, 2, found);
  selection_sample_free(&x);
}

/* Scores ln of {4, 2, 2} and {1, 1, 6}; parts of a half, a quarter, a quarter and 1/8, 1/8, 3/4. */
static void reductions(void) {
  const double score[] = {log(4), log(2), log(2), log(1), log(1), log(6)};
  const double wanted[][3] = {{log(4), log(2), log(12)},
                              {log(4), log(2), log(6)},
                              {log(5), log(3), log(8)},
                              {0.625, 0.375, 1},
                              {0.5, 0.25, 0.75}};
  for (int reduce = SELECT_SUM; reduce <= SELECT_MAX_MASS; reduce++) {
    struct selection s = {.reduce = (enum select_reduce)reduce, .heads = 2};
    double worth[3];
    select_reduce(&s, score, 3, worth);
    for (int e = 0; e < 3; e++)
      CHECK_AT_MOST(fabs(worth[e] - wanted[reduce][e]), 1e-14);
  }
}

/* 200 tokens in 13 leaves, the last of 8 tokens. */
static void forced(void) {
  struct selection_sample x = selection_sample_new(1, 200, 1, 3);
  const int32_t at_5[] = {0, -1, -1}, at_20[] = {0, 1, -1}, at_40[] = {0, 1, 2},
                at_60[] = {0, 2, 3};
  check_list(&x, 5, 3, at_5);
  check_list(&x, 20, 3, at_20);
  check_list(&x, 40, 3, at_40);
  check_list(&x, 60, 3, at_60);
  x.selection.causal = x.selection.previous = x.selection.current = false;
  const int32_t last_1[] = {1, 2, 12}, last_20[] = {1, 2, 11, 12};
  x.selection.always[0] = (struct cpu_range){20, 40};
  x.selection.always[1] = (struct cpu_range){-1, 0};
  x.selection.n_always = 2;
  check_list(&x, 5, 3, last_1);
  x.selection.always[1].begin = -20;
  check_list(&x, 5, 4, last_20); /* more than |keep| */
  x.selection.keep = 1;
  check_list(&x, 5, 4, last_20);
  x.selection.causal = x.selection.current = true;
  const int32_t none_ahead[] = {0, -1, -1, -1}, some_ahead[] = {1, -1, -1, -1};
  check_list(&x, 5, 4, none_ahead);
  check_list(&x, 25, 4, some_ahead);
  x.selection.current = false;
  x.selection.n_always = 1;
  x.selection.always[0] = (struct cpu_range){100, 101};
  CHECK(!select_forced(&x.selection, &x.pyramid, 70, 3, 1)); /* tokens 64 .. 127 */
  CHECK(select_forced(&x.selection, &x.pyramid, 96, 3, 1));
  selection_sample_free(&x);
}

/* Six leaves, the query at the first token of the last; 1, 2 and 3 compete for one place. Head 0
   scores 3 in leaf 1 and 20 at its own token, head 1 scores 1 in leaf 2: by sum leaf 1 wins, by
   mass leaf 2, for of head 0 leaf 1 has but e^-17. */
static void mass(void) {
  for (int flat = 0; flat < 2; flat++)
    for (int future = 0; future < 2; future++) {
      struct selection_sample x = selection_sample_new(1, 96, 2, 4);
      x.selection.flat = flat;
      x.selection.scale = 1;
      memset(x.k, 0, (size_t)(x.n * D) * sizeof *x.k);
      memset(x.q, 0, 2 * D * sizeof *x.q);
      x.q[0] = x.q[D + 1] = 1;
      for (int64_t t = 0; t < 16; t++) {
        x.k[(16 + t) * D] = 3;
        x.k[(32 + t) * D + 1] = 1;
        x.k[(80 + t) * D] = t == 0 ? 20 : future ? 40 : -40;
      }
      selection_sample_build(&x);
      const int32_t by_sum[] = {0, 1, 4, 5}, by_mass[] = {0, 2, 4, 5};
      check_list(&x, 80, 4, by_sum);
      x.selection.reduce = SELECT_MASS;
      check_list(&x, 80, 4, by_mass);
      x.selection.score = SELECT_MEAN;
      check_list(&x, 80, 4, by_mass);
      selection_sample_free(&x);
    }
}

/* No key, one key, and queries before the first key. */
static void few_keys(void) {
  struct selection_sample none = selection_sample_new(3, 0, 2, 2);
  struct selection_sample one = selection_sample_new(3, 1, 2, 2);
  int32_t *lists = selection_sample_run(&none);
  for (int e = 0; e < 6; e++)
    CHECK(lists[e] == -1);
  free(lists);
  lists = selection_sample_run(&one);
  for (int e = 0; e < 6; e++)
    CHECK(lists[e] == (e == 4 ? 0 : -1));
  free(lists);
  one.selection.causal = false;
  lists = selection_sample_run(&one);
  for (int e = 0; e < 6; e++)
    CHECK(lists[e] == (e % 2 == 0 ? 0 : -1));
  free(lists);
  selection_sample_free(&none);
  selection_sample_free(&one);
}

/* What comes with a list: +inf for forced leaves, the score of ranked ones, -inf behind. */
static void worths(void) {
  const double value[] = {0, 3, 2, 1, 0, 0};
  struct selection_sample x = steps(value, 6, 3);
  x.selection.always[0] = (struct cpu_range){0, 1};
  x.selection.n_always = 1;
  x.selection.flat = true;
  int32_t list[4];
  double worth[4];
  int64_t n;
  CHECK(select_leaves(&x.selection, &x.pyramid, x.q, 95, 4, list, worth, &n));
  CHECK(n == 3 && list[0] == 0 && list[1] == 1 && list[2] == 2 && list[3] == -1);
  CHECK(worth[0] == INFINITY && worth[3] == -INFINITY);
  CHECK_AT_MOST(fabs(worth[1] - (3 + log(16))), 1e-14);
  CHECK_AT_MOST(fabs(worth[2] - (2 + log(16))), 1e-14);
  x.selection.keep = 6; /* all, unranked */
  double all[6];
  int32_t six[6];
  CHECK(select_leaves(&x.selection, &x.pyramid, x.q, 95, 6, six, all, &n) && n == 6);
  for (int e = 0; e < 6; e++)
    CHECK(six[e] == e && all[e] == INFINITY);
  selection_sample_free(&x);
}

/* Keys 1 but for 4 of a leaf at 1 + 2^-7: their mean is stored as 1 and read once the leaf is full;
   before, the mean of what is there is not rounded. */
static void growing(void) {
  const double value[] = {1, 1};
  const int32_t node = 1;
  struct selection_sample x = steps(value, 2, 1);
  for (int64_t t = 16; t < 20; t++)
    x.k[t * D] = 1 + 0x1p-7;
  selection_sample_build(&x);
  x.selection.causal = true;
  x.selection.score = SELECT_MEAN;
  for (int64_t t = 16; t < 32; t++) {
    double score, wanted = 1 + 0x1p-7 * (t < 20 ? 1 : 4.0 / (double)(t - 15));
    select_scores(&x.selection, &x.pyramid, x.q, t, 1, &node, 1, &score);
    CHECK_AT_MOST(fabs(score - (t == 31 ? 1 : wanted)), 1e-15);
  }
  selection_sample_free(&x);
}

/* A leaf with a NaN is the last to be read, one with an infinite score the first, yet not forced.
 */
static void not_finite(void) {
  const double value[] = {3, 2, 1, 1};
  const int32_t without[] = {1, 2}, with[] = {1, 3};
  for (int score = SELECT_MEAN; score <= SELECT_LSE; score += SELECT_LSE)
    for (int reduce = SELECT_SUM; reduce <= SELECT_MAX_MASS; reduce++) {
      struct selection_sample x = steps(value, 4, 2);
      x.selection.flat = true;
      x.selection.score = (enum select_score)score;
      x.selection.reduce = (enum select_reduce)reduce;
      x.k[3 * D] = NAN;
      selection_sample_build(&x);
      check_list(&x, 63, 2, without);
      for (int64_t t = 48; score == SELECT_MEAN && reduce < SELECT_MASS && t < 64; t++)
        x.k[t * D] = INFINITY;
      selection_sample_build(&x);
      check_list(&x, 63, 2, isinf(x.k[48 * D]) ? with : without);
      selection_sample_free(&x);
    }
  struct selection s = {.keep = 2};
  struct selection_sample x = steps(value, 4, 2);
  const int32_t candidate[] = {1, 2, 3};
  double worth[] = {INFINITY, INFINITY, INFINITY};
  int32_t kept[3];
  CHECK(select_best(&s, &x.pyramid, 63, 1, candidate, worth, 3, kept) == 2);
  CHECK(kept[0] == 1 && kept[1] == 2);
  selection_sample_free(&x);
}

/* The last of 3 leaves has 4 tokens, at 2; its parent has no other child. lse: 2 + ln 4 of the leaf
   and 2 + ln 1/4 of the parent; mean: 2, with mass 2 + ln 4 and 2 + ln 1/4 as well. */
static void short_node(void) {
  const double value[] = {0, 0, 2};
  const int32_t node[] = {2, 1};
  struct selection_sample x = steps(value, 3, 1);
  CHECK(pyramid_build(&x.pyramid, x.k, 36));
  for (int level = 1; level <= 2; level++)
    for (int score_kind = SELECT_MEAN; score_kind <= SELECT_LSE; score_kind++)
      for (int reduce = SELECT_SUM; reduce <= SELECT_MASS; reduce += SELECT_MASS) {
        bool plain = score_kind != SELECT_LSE && reduce == SELECT_SUM;
        double score;
        x.selection.score = (enum select_score)score_kind;
        x.selection.reduce = (enum select_reduce)reduce;
        select_scores(&x.selection, &x.pyramid, x.q, 35, level, node + level - 1, 1, &score);
        CHECK_AT_MOST(fabs(score - 2 - (plain ? 0 : log(level == 1 ? 4 : 0.25))), 1e-14);
      }
  selection_sample_free(&x);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"walk", walk},       {"reductions", reductions}, {"forced", forced},
             {"mass", mass},       {"few_keys", few_keys},     {"worths", worths},
             {"growing", growing}, {"not_finite", not_finite}, {"short_node", short_node}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: select_hand_test CASE\n");
  return 2;
}
