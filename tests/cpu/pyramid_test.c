/* pyramid_test.c: the means, by hand, against their definition, and grown token by token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "tests/cpu/selection_sample.h"

/* Keys 0, 1, ... 39 in leaves of 16, pairs above: leaf means 7.5, 23.5, 35.5 (of 8 tokens), then
   15.5 and 35.5, then 19.5, the mean of 40 tokens and not that of two means. */
static void by_hand(void) {
  struct pyramid p = pyramid_of(PISA_FP16, 1, 16, 2);
  double k[40];
  for (int t = 0; t < 40; t++)
    k[t] = t;
  CHECK(pyramid_build(&p, k, 40));
  CHECK(pyramid_root(&p) == 3 && pyramid_nodes(&p, 1) == 3 && pyramid_nodes(&p, 2) == 2);
  const double wanted[4][3] = {{0}, {7.5, 23.5, 35.5}, {15.5, 35.5}, {19.5}};
  for (int level = 1; level <= 3; level++)
    for (int64_t node = 0; node < pyramid_nodes(&p, level); node++)
      CHECK(pyramid_mean(&p, level, node)[0] == wanted[level][node]);
  CHECK(pyramid_count(&p, 1, 2) == 8 && pyramid_count(&p, 2, 1) == 8);
  CHECK(pyramid_count(&p, 3, 0) == 40 && pyramid_size(&p, 3) == 64);
  pyramid_free(&p);
}

/* bf16 numbers from 1 on are 2^-7 apart. Unrounded sums go up the levels, not rounded means. */
static void rounding(void) {
  struct pyramid p = pyramid_of(PISA_BF16, 1, 16, 2);
  double k[32];
  for (int t = 0; t < 32; t++)
    k[t] = t < 16 ? 1 + 0x1p-7 * (t < 4) : 1 + 0x1p-7 * (t < 24);
  CHECK(pyramid_build(&p, k, 32));
  CHECK(pyramid_mean(&p, 1, 0)[0] == 1); /* 1 + 2^-9 */
  CHECK(pyramid_mean(&p, 1, 1)[0] == 1); /* 1 + 2^-8: a tie, to even */
  CHECK(pyramid_mean(&p, 2, 0)[0] == 1);
  for (int t = 16; t < 32; t++)
    k[t] = 1 + 0x1p-7;
  CHECK(pyramid_build(&p, k, 32));
  CHECK(pyramid_mean(&p, 1, 1)[0] == 1 + 0x1p-7);
  CHECK(pyramid_mean(&p, 2, 0)[0] == 1 + 0x1p-7); /* 1 + 5 * 2^-10; of 1 and 1 + 2^-7: 1 */
  pyramid_free(&p);
}

/* Every size: a node is the rounded mean of the keys under it. */
static void definition(void) {
  struct selection_sample x = selection_sample_new(0, 575, 1, 8);
  for (int leaf = 16; leaf <= 128; leaf *= 2)
    for (int group = 2; group <= 8; group *= 2) {
      pyramid_free(&x.pyramid);
      x.pyramid = pyramid_of(leaf == 32 ? PISA_FP16 : PISA_BF16, SELECTION_D, leaf, group);
      selection_sample_build(&x);
      int level = 1;
      int64_t size = leaf;
      for (;; level++, size *= group) {
        for (int64_t begin = 0; begin < x.n; begin += size) {
          int64_t end = begin + size < x.n ? begin + size : x.n;
          for (int d = 0; d < SELECTION_D; d++) {
            double sum = 0;
            for (int64_t t = begin; t < end; t++)
              sum += x.k[t * SELECTION_D + d];
            double mean = cpu_round(x.pyramid.type, sum / (double)(end - begin));
            CHECK(pyramid_mean(&x.pyramid, level, begin / size)[d] == mean);
          }
        }
        if (size >= x.n)
          break;
      }
      CHECK(pyramid_root(&x.pyramid) == level);
    }
  selection_sample_free(&x);
}

/* Whether all nodes that |p| stores are those of |q|. */
static bool same_means(const struct pyramid *p, const struct pyramid *q) {
  for (int level = 0; level < PYRAMID_MAX_LEVELS; level++)
    for (int64_t e = 0; e < p->level[level].nodes * p->head_dim; e++)
      if (p->level[level].mean[e] != q->level[level].mean[e])
        return false;
  return p->tokens == q->tokens;
}

static void append_of(int leaf, int group) {
  struct selection_sample x = selection_sample_new(0, 575, 1, 8);
  struct pyramid grown = pyramid_of(PISA_BF16, SELECTION_D, leaf, group);
  struct pyramid completed = grown, built = grown;
  for (int64_t n = 1; n <= x.n; n++) {
    CHECK(pyramid_append(&grown, x.k + (n - 1) * SELECTION_D));
    CHECK(pyramid_append_completed(&completed, x.k + (n - 1) * SELECTION_D));
    if (n % leaf > 1 && n % leaf < leaf - 1)
      continue;
    CHECK(pyramid_build(&built, x.k, n));
    CHECK(same_means(&grown, &built) && same_means(&completed, &built));
    for (int level = 1; level <= pyramid_root(&built); level++) {
      CHECK(grown.level[level].nodes == pyramid_nodes(&built, level));
      CHECK(completed.level[level].nodes == n / pyramid_size(&built, level));
    }
  }
  pyramid_free(&grown);
  pyramid_free(&completed);
  pyramid_free(&built);
  selection_sample_free(&x);
}

/* Around every boundary of every level. */
static void append(void) {
  append_of(16, 2);
  append_of(16, 4);
  append_of(32, 8);
  append_of(64, 2);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"by_hand", by_hand}, {"rounding", rounding}, {"definition", definition}, {"append", append}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: pyramid_test CASE\n");
  return 2;
}
