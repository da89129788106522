/* hand_test.c: cases small enough for paper, for both executors. One case per argument; the table
   at the end names them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/cpu/sample.h"

/* What float arithmetic may add; the oracle must do far better. */
static double tolerance(enum executor executor) {
  return executor == ORACLE ? 1e-12 : 1e-5;
}

/* A case small enough for paper. Block 0: k = 0, v = e2. Block 1: k = +-e0, v = +-e1 alternating,
   so kbar = vbar = 0 and H_1 = 64 e0^T e1. Scale 1, q = e0, block 0 listed, Nk = 128: exact
   columns: 64 of weight 1; mean column: weight 64 = g; l = 128; h_sum = 64 / 128 at [0][1] o = (64
   e2 + 64 * 0.5 e1) / 128 = 0.25 e1 + 0.5 e2, lse = ln 128. */
static void by_hand(enum executor executor) {
  struct sample sample = sample_new(shape_of(128, 1), 0);
  struct cpu_problem *p = &sample.problem;
  const int32_t lists[] = {0};
  p->scale = 1;
  memset(sample.k, 0, 128 * 64 * sizeof *sample.k);
  memset(sample.v, 0, 128 * 64 * sizeof *sample.v);
  for (int64_t n = 0; n < 64; n++) {
    set(&sample, &p->v, 0, 0, n, 2, 1);
    set(&sample, &p->k, 0, 0, 64 + n, 0, n % 2 ? 1 : -1);
    set(&sample, &p->v, 0, 0, 64 + n, 1, n % 2 ? 1 : -1);
  }
  for (int64_t n = 0; n < 128; n++)
    set(&sample, &p->q, 0, 0, n, 0, 1);
  struct output out = run_head(&sample, executor, 0, 0, lists);
  for (int64_t n = 0; n < 128; n++) {
    for (int d = 0; d < 64; d++)
      CHECK_AT_MOST(fabs(out.o[n * 64 + d] - (d == 1   ? 0.25
                                              : d == 2 ? 0.5
                                                       : 0)),
                    tolerance(executor));
    CHECK_AT_MOST(fabs(out.lse[n] - log(128)), tolerance(executor));
  }
  output_free(&out);
  sample_free(&sample);
}

/* As by_hand, with k = +-a e0 and v = e1 in block 1, so that H_1 = 0, a = 105/128 and q = 129/128
   e0. The variance of column 0 is a^2; half of it is stored as 172/512, q^2 becomes 130/128, so the
   mean column weighs w = 64 e^(172/512 130/128) and
   o = (64 e2 + w e1) / (64 + w), lse = ln(64 + w). */
static void second_order_by_hand(enum executor executor) {
  const double w = 64 * exp(172.0 / 512 * 130 / 128), l = 64 + w;
  for (int tail = TAYLOR_0; tail <= HYBRID; tail++) {
    struct shape shape = shape_of(128, 1);
    shape.tail = (enum tail)tail;
    shape.second_order = true;
    struct sample sample = sample_new(shape, 0);
    struct cpu_problem *p = &sample.problem;
    const int32_t lists[] = {0};
    p->scale = 1;
    memset(sample.k, 0, 128 * 64 * sizeof *sample.k);
    memset(sample.v, 0, 128 * 64 * sizeof *sample.v);
    for (int64_t n = 0; n < 64; n++) {
      set(&sample, &p->v, 0, 0, n, 2, 1);
      set(&sample, &p->k, 0, 0, 64 + n, 0, (n % 2 ? 105 : -105) / 128.0);
      set(&sample, &p->v, 0, 0, 64 + n, 1, 1);
    }
    for (int64_t n = 0; n < 128; n++)
      set(&sample, &p->q, 0, 0, n, 0, 129 / 128.0);
    struct output out = run_head(&sample, executor, 0, 0, lists);
    for (int64_t n = 0; n < 128; n++) {
      CHECK_AT_MOST(fabs(out.o[n * 64 + 1] - w / l), tolerance(executor));
      CHECK_AT_MOST(fabs(out.o[n * 64 + 2] - 64 / l), tolerance(executor));
      CHECK_AT_MOST(fabs(out.lse[n] - log(l)), tolerance(executor));
    }
    output_free(&out);
    sample_free(&sample);
  }
}

/* Block 0 as by_hand; the |n| - 64 tokens of block 1 have k = (b +- a) e0 and v = e3 +- e1
   alternating. With q = e0 they weigh w (1 +- a), w = e^b or, to second order, e^(b + a^2 / 2), so
   l = 64 + (n - 64) w,  o = (64 e2 + (n - 64) w (e3 + a e1)) / l. */
static void linear_case(enum executor executor, int64_t n, bool second_order) {
  const double a = 0.5, b = 0.25, w = exp(second_order ? b + a * a / 2 : b);
  const double tail = (double)(n - 64) * w, l = 64 + tail;
  struct shape shape = shape_of(n, 1);
  shape.tail = TAYLOR_1;
  shape.second_order = second_order;
  struct sample sample = sample_new(shape, 0);
  struct cpu_problem *p = &sample.problem;
  const int32_t lists[] = {0};
  p->scale = 1;
  memset(sample.k, 0, (size_t)sample.k_size * sizeof *sample.k);
  memset(sample.v, 0, (size_t)sample.k_size * sizeof *sample.v);
  for (int64_t t = 0; t < n; t++) {
    set(&sample, &p->v, 0, 0, t, t < 64 ? 2 : 3, 1);
    if (t >= 64)
      set(&sample, &p->v, 0, 0, t, 1, t % 2 ? 1 : -1);
    set(&sample, &p->k, 0, 0, t, 0, t < 64 ? 0 : t % 2 ? b + a : b - a);
    set(&sample, &p->q, 0, 0, t, 0, 1);
  }
  struct output out = run_head(&sample, executor, 0, 0, lists);
  const double wanted[] = {0, a * tail / l, 64 / l, tail / l};
  for (int64_t t = 0; t < n; t++) {
    for (int d = 0; d < 64; d++)
      CHECK_AT_MOST(fabs(out.o[t * 64 + d] - (d < 4 ? wanted[d] : 0)), tolerance(executor));
    CHECK_AT_MOST(fabs(out.lse[t] - log(l)), tolerance(executor));
  }
  output_free(&out);
  sample_free(&sample);
}

static void linear(enum executor executor) {
  for (int second = 0; second < 2; second++) {
    linear_case(executor, 128, second);
    linear_case(executor, 100, second);
  }
}

/* In fp16 h_sum is stored 64-fold. As by_hand, with q = e0, k = +-a e0, v = +-b e1 in block 1 and 0
   in block 0: h_sum = a b / 2 = (1 + 2^-10) 2^-16 at [0][1], whose last bit no plain fp16 number of
   this size has, and o = h_sum / 2 e1. */
static void small_h_sum(enum executor executor) {
  struct shape shape = shape_of(128, 1);
  shape.type = PISA_FP16;
  struct sample sample = sample_new(shape, 0);
  struct cpu_problem *p = &sample.problem;
  const int32_t lists[] = {0};
  const double a = (1 + 0x1p-10) * 0x1p-8, b = 0x1p-7, expected = a * b / 4;
  p->scale = 1;
  memset(sample.k, 0, 128 * 64 * sizeof *sample.k);
  memset(sample.v, 0, 128 * 64 * sizeof *sample.v);
  for (int64_t n = 0; n < 64; n++) {
    set(&sample, &p->k, 0, 0, 64 + n, 0, n % 2 ? a : -a);
    set(&sample, &p->v, 0, 0, 64 + n, 1, n % 2 ? b : -b);
  }
  for (int64_t n = 0; n < 128; n++)
    set(&sample, &p->q, 0, 0, n, 0, 1);
  struct output out = run_head(&sample, executor, 0, 0, lists);
  for (int64_t n = 0; n < 128; n++)
    CHECK_AT_MOST(fabs(out.o[n * 64 + 1] / expected - 1), tolerance(executor));
  output_free(&out);
  sample_free(&sample);
}

/* With zero queries the blocks whose keys spread most are listed: here 9, 8 and 7 behind the forced
   one; block 3, which alone has a large mean, is not. */
static void key_variance(enum executor executor) {
  struct shape shape = shape_of(64 * 10, 4);
  shape.log_covariance = false;
  shape.key_variance = true;
  struct sample sample = sample_new(shape, 0);
  struct cpu_problem *p = &sample.problem;
  p->always[0] = (struct cpu_range){0, 1};
  p->n_always = 1;
  for (int64_t n = 0; n < p->n_k; n++)
    for (int d = 0; d < 64; d++)
      set(&sample, &p->k, 0, 0, n, d,
          (n / 64 == 3 ? 8 : 0) + (n % 2 ? 1 : -1) * (double)(n / 64) / 16);
  struct output out = run_head(&sample, executor, 0, 0, NULL);
  const int32_t wanted[] = {0, 7, 8, 9};
  for (int64_t i = 0; i < p->q_blocks; i++)
    CHECK(memcmp(out.lists + 4 * i, wanted, sizeof wanted) == 0);
  output_free(&out);
  sample_free(&sample);
}

/* One token: its value is the output, its logit the lse. */
static void one_token(enum executor executor) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(1, 1);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    double logit = 0;
    for (int d = 0; d < 64; d++) {
      CHECK(out.o[d] == get(&sample, &sample.problem.v, 0, 0, 0, d));
      logit +=
          get(&sample, &sample.problem.q, 0, 0, 0, d) * get(&sample, &sample.problem.k, 0, 0, 0, d);
    }
    CHECK_AT_MOST(fabs(out.lse[0] - logit * sample.problem.scale), 1e-6);
    output_free(&out);
    sample_free(&sample);
  }
}

static const struct {
  const char *name;
  void (*run)(enum executor executor);
} cases[] = {
    {"by_hand", by_hand},         {"second_order_by_hand", second_order_by_hand},
    {"small_h_sum", small_h_sum}, {"key_variance", key_variance},
    {"one_token", one_token},     {"linear", linear},
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run(ORACLE);
      cases[i].run(FAST);
      return 0;
    }
  fprintf(stderr, "usage: hand_test CASE\n");
  return 2;
}
