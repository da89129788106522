/* choice_test.c: which blocks are read exactly, on cases small enough for paper: counts,
   always-sets, thresholds, residuals, given lists. For both executors; one case per argument. Key
   blocks and query blocks have 64 tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/cpu/sample.h"

enum { NT = 8, ROOM = 8 };

/* NT blocks, zero queries, keys and values; scale 1; lists have room for every block. */
static struct sample blank(struct shape shape, int64_t keep) {
  struct sample sample = sample_new(shape, 0);
  memset(sample.k, 0, (size_t)sample.k_size * sizeof *sample.k);
  memset(sample.v, 0, (size_t)sample.k_size * sizeof *sample.v);
  sample.problem.scale = 1;
  sample.problem.keep = keep;
  return sample;
}

static struct shape plain(void) {
  struct shape shape = shape_of(64 * NT, ROOM);
  shape.query = 64;
  shape.log_covariance = false;
  return shape;
}

/* All keys of block |j| get |value| in column |d|, with the sign of their parity if |alternating|.
 */
static void set_block(const struct sample *sample, const pisa_tensor *tensor, int64_t j, int64_t d,
                      double value, bool alternating) {
  for (int64_t n = 64 * j; n < 64 * (j + 1); n++)
    set(sample, tensor, 0, 0, n, d, alternating && n % 2 ? -value : value);
}

static void set_queries(const struct sample *sample, int64_t d, double value) {
  for (int64_t n = 0; n < sample->problem.n_q; n++)
    set(sample, &sample->problem.q, 0, 0, n, d, value);
}

/* Query block |i| of sequence |b| lists the blocks whose digits stand in |wanted|, ascending. */
static void expect(const struct sample *sample, enum executor executor, int64_t b, int64_t i,
                   const int32_t *given, const char *wanted) {
  struct output out = run_head(sample, executor, b, 0, given);
  const int32_t *list = out.lists + i * sample->problem.kept;
  char got[ROOM + 1] = "";
  int n = 0;
  for (; n < ROOM && list[n] >= 0; n++)
    got[n] = (char)('0' + list[n]);
  if (strcmp(got, wanted) != 0)
    fprintf(stderr, "query block %d lists %s, not %s\n", (int)i, got, wanted);
  CHECK(strcmp(got, wanted) == 0);
  for (; n < ROOM; n++)
    CHECK(list[n] == -1);
  output_free(&out);
}

/* With zero queries k blocks are the first k; a query block with more forced ones reads just those.
   Tokens 0 to 129 are in blocks 0, 1, 2. */
static void counts(enum executor executor) {
  struct shape shape = plain();
  shape.windowed = true;
  struct sample sample = blank(shape, 2);
  expect(&sample, executor, 0, 0, NULL, "01");
  expect(&sample, executor, 0, 5, NULL, "05");
  sample.problem.always[0] = (struct cpu_range){0, 130};
  sample.problem.n_always = 1;
  expect(&sample, executor, 0, 1, NULL, "012");
  expect(&sample, executor, 0, 3, NULL, "0123");
  expect(&sample, executor, 0, 7, NULL, "0127");
  sample.problem.keep = 6;
  expect(&sample, executor, 0, 7, NULL, "012347");
  sample.problem.keep = 100;
  expect(&sample, executor, 0, 7, NULL, "01234567");
  sample_free(&sample);
}

/* k, the last tokens and the window follow a sequence's own length: 200 tokens are 4 blocks. */
static void lengths(enum executor executor) {
  const int32_t n[] = {200, 0, -5, 4000};
  struct shape shape = plain();
  shape.batch = 4;
  shape.lengths = n;
  struct sample sample = blank(shape, 0);
  sample.problem.density_num = 49; /* 1 of 4, 3 of 8 */
  sample.problem.density_den = 100;
  expect(&sample, executor, 0, 0, NULL, "0");
  expect(&sample, executor, 1, 0, NULL, "");
  expect(&sample, executor, 2, 0, NULL, "");
  expect(&sample, executor, 3, 0, NULL, "012");
  sample.problem.always[0] = (struct cpu_range){-1, 0};
  sample.problem.always[1] = (struct cpu_range){190, 260};
  sample.problem.n_always = 2;
  expect(&sample, executor, 0, 0, NULL, "23");
  expect(&sample, executor, 1, 0, NULL, "");
  expect(&sample, executor, 3, 0, NULL, "2347");
  sample.problem.always[0] = (struct cpu_range){-9, 0}; /* tokens 191 to 199 */
  sample.problem.n_always = 1;
  expect(&sample, executor, 0, 0, NULL, "23");
  sample.problem.n_always = 0;
  sample.problem.window = 1;
  expect(&sample, executor, 0, 0, NULL, "01");
  expect(&sample, executor, 0, 3, NULL, "23");
  expect(&sample, executor, 0, 6, NULL, "0"); /* its window lies behind the keys */
  sample_free(&sample);
}

static struct sample with_threshold(double tau, bool full) {
  struct shape shape = plain();
  shape.threshold = true;
  shape.full_variance = full;
  shape.tau = tau;
  return blank(shape, 0);
}

/* t = 0, ..., 0, 8: mu = 1, sigma^2 = 7, whichever way, as only one column counts. */
static void threshold(enum executor executor) {
  for (int full = 0; full < 2; full++) {
    struct sample sample = with_threshold(2, full);
    set_queries(&sample, 0, 1);
    set_block(&sample, &sample.problem.k, 7, 0, 8, false);
    expect(&sample, executor, 0, 3, NULL, "7"); /* limit 6.3 */
    sample.problem.tau = 2.7;
    expect(&sample, executor, 0, 3, NULL, "7"); /* limit 8.1: the best one */
    sample.problem.always[0] = (struct cpu_range){64, 65};
    sample.problem.n_always = 1;
    expect(&sample, executor, 0, 3, NULL, "1"); /* the forced one is enough */
    sample.problem.tau = 2.6;
    expect(&sample, executor, 0, 3, NULL, "17"); /* limit 7.9 */
    sample.problem.n_always = 0;
    set_queries(&sample, 0, 0);
    expect(&sample, executor, 0, 3, NULL, "0"); /* all equal: the first */
    sample_free(&sample);
  }
}

/* Columns 0 and 1 of the keys are j and -j, but for one more half in block 3: t = 0, 0, 0, 0.5, 0,
   ... has sigma 0.17, the columns have 2.3 each. */
static void variances(enum executor executor) {
  for (int full = 0; full < 2; full++) {
    struct sample sample = with_threshold(1, full);
    set_queries(&sample, 0, 1);
    set_queries(&sample, 1, 1);
    for (int64_t j = 0; j < NT; j++) {
      set_block(&sample, &sample.problem.k, j, 0, (double)j + (j == 3 ? 0.5 : 0), false);
      set_block(&sample, &sample.problem.k, j, 1, -(double)j, false);
    }
    sample.problem.always[0] = (struct cpu_range){0, 1};
    sample.problem.n_always = 1;
    expect(&sample, executor, 0, 5, NULL, full ? "03" : "0");
    sample_free(&sample);
  }
}

/* A term moves a score against the limit, not the limit: ln 4 > 1e-3 tau, ln 1 is not. */
static void term_and_threshold(enum executor executor) {
  struct sample sample = with_threshold(1, true);
  sample.problem.key_variance = true;
  set_block(&sample, &sample.problem.k, 3, 0, 2, true);
  set_block(&sample, &sample.problem.k, 5, 0, 1, true);
  expect(&sample, executor, 0, 0, NULL, "3");
  sample.problem.tau = 0.5;
  set_block(&sample, &sample.problem.k, 6, 0, 1.0625, true);
  expect(&sample, executor, 0, 0, NULL, "36");
  sample_free(&sample);
}

/* H_j = 64 a_j e0^T e1 with a = 1 but for a_6 = 0: the one that differs from the mean scores best;
   by its own norm it scores worst. */
static void residual(enum executor executor) {
  for (int residual = 0; residual < 2; residual++) {
    struct shape shape = plain();
    shape.log_residual = residual;
    shape.log_covariance = !residual;
    struct sample sample = blank(shape, 1);
    for (int64_t j = 0; j < NT; j++) {
      set_block(&sample, &sample.problem.k, j, 0, j == 6 ? 0 : 1, true);
      set_block(&sample, &sample.problem.v, j, 1, 1, true);
    }
    expect(&sample, executor, 0, 0, NULL, residual ? "6" : "0");
    sample.problem.keep = 7;
    expect(&sample, executor, 0, 0, NULL, residual ? "0123456" : "0123457");
    sample_free(&sample);
  }
}

/* Any order, repetitions, ids that are no block, nothing at all. */
static void given(enum executor executor) {
  const int32_t n[] = {512, 100};
  const int32_t lists[NT * ROOM] = {7, 0, 7, -1, 8, 3, -100, 2000000000, -1, -1, -1, -1,
                                    9, 9, 9, 9,  1, 1, 1,    1,          1,  1,  1,  1};
  struct shape shape = plain();
  shape.batch = 2;
  shape.lengths = n;
  struct sample sample = blank(shape, 3);
  sample.problem.always[0] = (struct cpu_range){320, 384};
  sample.problem.n_always = 1;
  expect(&sample, executor, 0, 0, lists, "037");
  expect(&sample, executor, 0, 1, lists, "");
  expect(&sample, executor, 0, 2, lists, "1");
  expect(&sample, executor, 0, 3, lists, "0");
  expect(&sample, executor, 1, 0, lists, "0");
  sample_free(&sample);
}

static const struct {
  const char *name;
  void (*run)(enum executor executor);
} cases[] = {{"counts", counts},       {"lengths", lengths},
             {"threshold", threshold}, {"variances", variances},
             {"residual", residual},   {"term_and_threshold", term_and_threshold},
             {"given", given}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run(ORACLE);
      cases[i].run(FAST);
      return 0;
    }
  fprintf(stderr, "usage: choice_test CASE\n");
  return 2;
}
