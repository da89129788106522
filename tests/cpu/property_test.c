/* property_test.c: what must hold of any right implementation of the method, for both executors.
   One case per argument; the table at the end names them. Outputs are compared before they are
   rounded to bf16. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/sample.h"

/* What float arithmetic may add; the oracle must do far better. */
static double tolerance(enum executor executor) {
  return executor == ORACLE ? 1e-12 : 1e-5;
}

/* Two runs of one sample, before and after a change of its arrays, with the lists of the first. */
struct pair {
  struct output before, after;
};

static void pair_free(struct pair *pair) {
  output_free(&pair->before);
  output_free(&pair->after);
}

/* With every block listed each tail is dense attention, to either order in its mass. */
static void all_listed(enum executor executor) {
  for (int i = 0; i < 2 * DENSE; i++) {
    struct shape shape = shape_of(333, 6);
    shape.tail = (enum tail)(i / 2);
    shape.second_order = i % 2;
    struct sample sparse = sample_new(shape, 1);
    shape.tail = DENSE;
    struct sample dense = sample_new(shape, 1);
    struct output a = run_head(&sparse, executor, 0, 0, NULL),
                  b = run_head(&dense, executor, 0, 0, NULL);
    CHECK_AT_MOST(largest_difference(a.o, b.o, 333 * 64), tolerance(executor));
    CHECK_AT_MOST(largest_difference(a.lse, b.lse, 333), tolerance(executor));
    output_free(&a);
    output_free(&b);
    sample_free(&sparse);
    sample_free(&dense);
  }
}

/* Weights sum to one and centred keys sum to zero. h_sum, being rounded float noise around 0,
 * allows 1e-5. */
static void constant_v(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(500, 2);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    for (int64_t n = 0; n < 500; n++)
      for (int d = 0; d < 64; d++)
        set(&sample, &sample.problem.v, 0, 0, n, d, d - 31);
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t n = 0; n < 500; n++)
      for (int d = 0; d < 64; d++)
        CHECK_AT_MOST(fabs(out.o[n * 64 + d] - (d - 31)), 3 * tolerance(executor));
    output_free(&out);
    sample_free(&sample);
  }
}

/* Values of +-1 and keys of a block centre plus antisymmetric deviations: all block means are exact
 * in bf16. */
static void exact_means(const struct sample *sample, double deviation) {
  const struct cpu_problem *p = &sample->problem;
  uint64_t seed = 7;
  for (int64_t n = 0; n < p->n_k; n++)
    for (int d = 0; d < p->head_dim; d++) {
      double center = (double)((n / 64 * 5 + d * 3) % 9 - 4) / 4;
      double step = (double)((n * 7 + d * 11) % 5 - 2) / 8 * deviation;
      if (n % 64 >= 32)
        step = center - get(sample, &p->k, 0, 0, n - 32, d);
      set(sample, &p->k, 0, 0, n, d, center + step);
      set(sample, &p->v, 0, 0, n, d, normal(&seed) > 0 ? 1 : -1);
    }
}

/* Order 0 is exact where the keys of a block are equal; so is the hybrid, whose h_sum is 0 then,
   order 1, whose scores are their mean, and a mass to second order, whose variances are 0. */
static void equal_keys(enum executor executor) {
  for (int i = 0; i < 6; i++) {
    struct shape shape = shape_of(512, 2);
    shape.tail = (enum tail)(TAYLOR_0 + i / 2);
    shape.second_order = i % 2;
    struct sample sample = sample_new(shape, 1);
    exact_means(&sample, 0);
    shape.tail = DENSE;
    struct sample dense = sample_new(shape, 1);
    exact_means(&dense, 0);
    struct output a = run_head(&sample, executor, 0, 0, NULL),
                  b = run_head(&dense, executor, 0, 0, NULL);
    CHECK_AT_MOST(relative_error(a.o, b.o, 512 * 64), tolerance(executor));
    CHECK_AT_MOST(largest_difference(a.lse, b.lse, 512), tolerance(executor));
    output_free(&a);
    output_free(&b);
    sample_free(&sample);
    sample_free(&dense);
  }
}

/* Adds a constant vector to every row of |tensor| between two runs. */
static struct pair shifted(struct sample *sample, enum executor executor, const pisa_tensor *tensor,
                           double step) {
  const struct cpu_problem *p = &sample->problem;
  struct pair pair;
  exact_means(sample, 1);
  pair.before = run_head(sample, executor, 0, 0, NULL);
  for (int64_t n = 0; n < p->n_k; n++)
    for (int d = 0; d < p->head_dim; d++)
      set(sample, tensor, 0, 0, n, d, get(sample, tensor, 0, 0, n, d) + step * (d % 3));
  pair.after = run_head(sample, executor, 0, 0, pair.before.lists);
  return pair;
}

/* A constant added to all keys shifts every logit of a row alike: o stays, lse moves by scale q.c.
 */
static void shift_k(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(512, 2);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    struct pair pair = shifted(&sample, executor, &sample.problem.k, 0.5);
    CHECK_AT_MOST(relative_error(pair.after.o, pair.before.o, 512 * 64), tolerance(executor));
    for (int64_t n = 0; n < 512; n++) {
      double shift = 0;
      for (int d = 0; d < 64; d++)
        shift += get(&sample, &sample.problem.q, 0, 0, n, d) * 0.5 * (d % 3) * sample.problem.scale;
      CHECK_AT_MOST(fabs(pair.after.lse[n] - pair.before.lse[n] - shift), tolerance(executor));
    }
    pair_free(&pair);
    sample_free(&sample);
  }
}

/* A constant added to all values is added to o. Values are small integers here, so bf16 holds them
 * exactly. */
static void shift_v(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(512, 2);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    struct pair pair = shifted(&sample, executor, &sample.problem.v, 1);
    for (int64_t e = 0; e < 512 * 64; e++)
      pair.before.o[e] += (double)(e % 64 % 3);
    CHECK_AT_MOST(relative_error(pair.after.o, pair.before.o, 512 * 64), tolerance(executor));
    pair_free(&pair);
    sample_free(&sample);
  }
}

static void swap_rows(const pisa_tensor *tensor, int64_t a, int64_t b) {
  for (int64_t d = 0; d < 64; d++) {
    uint16_t *x = element(tensor, 0, 0, a, d), *y = element(tensor, 0, 0, b, d), keep = *x;
    *x = *y;
    *y = keep;
  }
}

/* Blocks 0 and 2 are listed; the tokens of block 3 trade places. */
static void permuted(enum executor executor) {
  const int32_t lists[] = {0, 2, 0, 2, 0, 2};
  for (int tail = DROP; tail < DENSE; tail++) {
    struct shape shape = shape_of(300, 2);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    struct pair pair;
    pair.before = run_head(&sample, executor, 0, 0, lists);
    for (int64_t n = 0; n < 31; n++) {
      swap_rows(&sample.problem.k, 192 + n, 255 - n);
      swap_rows(&sample.problem.v, 192 + n, 255 - n);
    }
    pair.after = run_head(&sample, executor, 0, 0, lists);
    CHECK_AT_MOST(relative_error(pair.after.o, pair.before.o, 300 * 64), tolerance(executor));
    CHECK_AT_MOST(largest_difference(pair.after.lse, pair.before.lse, 300), tolerance(executor));
    pair_free(&pair);
    sample_free(&sample);
  }
}

/* With zero queries all scores tie: the lowest blocks are read. */
static void ties(enum executor executor) {
  struct shape shape = shape_of(700, 4);
  shape.log_covariance = false;
  struct sample sample = sample_new(shape, 0);
  struct output out = run_head(&sample, executor, 0, 0, NULL);
  for (int64_t e = 0; e < sample.problem.q_blocks * 4; e++)
    CHECK(out.lists[e] == e % 4);
  output_free(&out);
  sample_free(&sample);
}

/* The always-set is listed whatever its score, a NaN block never while others remain. */
static void forced(enum executor executor) {
  struct shape shape = shape_of(700, 3);
  shape.tail = DROP;
  struct sample sample = sample_new(shape, 1);
  sample.problem.always[0] = (struct cpu_range){640, 650};
  sample.problem.n_always = 1;
  set(&sample, &sample.problem.k, 0, 0, 130, 5, NAN);
  struct output out = run_head(&sample, executor, 0, 0, NULL);
  for (int64_t i = 0; i < sample.problem.q_blocks; i++) {
    const int32_t *list = out.lists + 3 * i;
    CHECK(list[2] == 10 && list[0] < list[1] && list[1] < 10 && list[0] != 2 && list[1] != 2);
  }
  for (int64_t e = 0; e < 700 * 64; e++)
    CHECK(isfinite(out.o[e]));
  output_free(&out);
  sample_free(&sample);
}

/* A NaN that is read makes its rows NaN and no others. */
static void nan_spreads(enum executor executor) {
  struct sample sample = sample_new(shape_of(256, 1), 1);
  set(&sample, &sample.problem.q, 0, 0, 70, 3, NAN);
  struct output out = run_head(&sample, executor, 0, 0, NULL);
  for (int64_t n = 0; n < 256; n++) {
    CHECK(isnan(out.lse[n]) == (n == 70));
    for (int d = 0; d < 64; d++)
      CHECK(isnan(out.o[n * 64 + d]) == (n == 70));
  }
  output_free(&out);
  sample_free(&sample);
}

/* Logits of some thousand: the softmax is one-hot, everything stays finite. */
static void large_queries(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(400, 2);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1000);
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t e = 0; e < 400 * 64; e++)
      CHECK(isfinite(out.o[e]));
    for (int64_t n = 0; n < 400; n++)
      CHECK(isfinite(out.lse[n]));
    output_free(&out);
    sample_free(&sample);
  }
}

/* Largest error of lse against dense attention of normal keys, two blocks of twenty read. */
static double lse_error(enum executor executor, bool second_order) {
  struct shape shape = shape_of(64 * 20, 2);
  shape.tail = TAYLOR_0;
  shape.second_order = second_order;
  struct sample sparse = sample_new(shape, 1);
  shape.tail = DENSE;
  struct sample dense = sample_new(shape, 1);
  struct output a = run_head(&sparse, executor, 0, 0, NULL),
                b = run_head(&dense, executor, 0, 0, NULL);
  double error = largest_difference(a.lse, b.lse, 64 * 20);
  output_free(&a);
  output_free(&b);
  sample_free(&sparse);
  sample_free(&dense);
  return error;
}

/* The mean of e^(scale q k) over normal keys is what the second order says. */
static void gaussian_keys(enum executor executor) {
  CHECK_AT_MOST(lse_error(executor, true), lse_error(executor, false) / 3);
}

/* Every list holds the blocks beside the diagonal; where these are fewer than |kept|, others too.
 */
static void window(enum executor executor) {
  static const int blocks[][2] = {{128, 64}, {64, 64}, {128, 128}};
  for (int i = 0; i < 3; i++) {
    struct shape shape = shape_of(800, 5);
    shape.query = blocks[i][0];
    shape.key = blocks[i][1];
    shape.n_q = 1200; /* the last query blocks lie behind the keys */
    shape.windowed = true;
    shape.window = 1;
    struct sample sample = sample_new(shape, 1);
    const struct cpu_problem *p = &sample.problem;
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t b = 0; b < p->q_blocks; b++)
      for (int64_t j = 0; j < p->k_blocks; j++) {
        bool forced = (j + 2) * p->key > b * p->query && (j - 1) * p->key < (b + 1) * p->query;
        bool listed = false;
        for (int e = 0; e < 5; e++)
          listed = listed || out.lists[5 * b + e] == j;
        CHECK(listed || !forced);
      }
    output_free(&out);
    sample_free(&sample);
  }
}

/* fp16, large values and g near its largest: nothing overflows, and o is what block means alone
   say where all keys are equal. */
static void large_values(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(64 * 40, 1);
    shape.type = PISA_FP16;
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1000);
    const struct cpu_problem *p = &sample.problem;
    memset(sample.k, 0, (size_t)sample.k_size * sizeof *sample.k);
    for (int64_t n = 0; n < p->n_k; n++)
      for (int d = 0; d < 64; d++)
        set(&sample, &p->v, 0, 0, n, d, d < 32 ? 1000 : -1000);
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t e = 0; e < p->n_q * 64; e++)
      CHECK_AT_MOST(fabs(out.o[e] / (e % 64 < 32 ? 1000 : -1000) - 1), tolerance(executor));
    output_free(&out);
    sample_free(&sample);
  }
}

static const struct {
  const char *name;
  void (*run)(enum executor executor);
} cases[] = {
    {"all_listed", all_listed},
    {"constant_v", constant_v},
    {"equal_keys", equal_keys},
    {"shift_k", shift_k},
    {"shift_v", shift_v},
    {"permuted", permuted},
    {"ties", ties},
    {"forced", forced},
    {"nan_spreads", nan_spreads},
    {"gaussian_keys", gaussian_keys},
    {"window", window},
    {"large_values", large_values},
    {"large_queries", large_queries},
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run(ORACLE);
      cases[i].run(FAST);
      return 0;
    }
  fprintf(stderr, "usage: property_test CASE\n");
  return 2;
}
