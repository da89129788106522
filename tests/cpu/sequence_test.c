/* sequence_test.c: what lengths, given lists and taylor 1 must agree with, for both executors:
   shorter calls, routed lists, dense attention, the hybrid tail. One case per argument. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/attend_blocks.h"
#include "tests/cpu/sample.h"

enum { D = 64 };

/* Copies the rows that |to| has of head (b, h) of |from| to head (0, h). */
static void copy_head(const struct sample *from, const struct sample *to, int64_t b, int64_t h) {
  const struct cpu_problem *x = &from->problem, *y = &to->problem;
  int64_t hk = h / (x->heads / x->kv_heads);
  for (int64_t n = 0; n < y->n_q; n++)
    memcpy(element(&y->q, 0, h, n, 0), element(&x->q, b, h, n, 0), D * sizeof(uint16_t));
  for (int64_t n = 0; n < y->n_k; n++) {
    memcpy(element(&y->k, 0, hk, n, 0), element(&x->k, b, hk, n, 0), D * sizeof(uint16_t));
    memcpy(element(&y->v, 0, hk, n, 0), element(&x->v, b, hk, n, 0), D * sizeof(uint16_t));
  }
}

/* Sequence |b| of |sample| gives bit for bit what a call with its number of keys does. */
static void compare_shorter(const struct sample *sample, struct shape shape, enum executor executor,
                            int64_t b) {
  const struct cpu_problem *p = &sample->problem;
  int64_t h = shape.heads - 1;
  shape.lengths = NULL;
  shape.batch = 1;
  shape.n_k = cpu_keys(p, b);
  struct sample shorter = sample_new(shape, 1);
  shorter.problem.kept = p->kept;
  copy_head(sample, &shorter, b, h);
  struct output x = run_head(sample, executor, b, h, NULL),
                y = run_head(&shorter, executor, 0, h, NULL);
  CHECK(memcmp(x.o, y.o, (size_t)(p->n_q * D) * sizeof *x.o) == 0);
  CHECK(memcmp(x.lse, y.lse, (size_t)p->n_q * sizeof *x.lse) == 0);
  CHECK(memcmp(x.lists, y.lists, (size_t)(p->q_blocks * p->kept) * sizeof *x.lists) == 0);
  output_free(&x);
  output_free(&y);
  sample_free(&shorter);
}

static void shorter_calls(enum executor executor) {
  const int32_t n[] = {333, 64, 1, 200, 129};
  for (int i = 0; i < 2 * N_TAILS; i++) {
    struct shape shape = shape_of(333, 2);
    shape.tail = (enum tail)(i / 2);
    shape.second_order = i % 2;
    shape.log_covariance = i % 3 == 0;
    shape.log_residual = i % 3 == 1;
    shape.batch = 5;
    shape.heads = 2;
    shape.n_q = 150;
    shape.type = i % 2 ? PISA_FP16 : PISA_BF16;
    shape.lengths = n;
    struct sample sample = sample_new(shape, 1);
    for (int64_t b = 0; b < 5; b++)
      compare_shorter(&sample, shape, executor, b);
    sample_free(&sample);
  }
}

/* No keys: o = 0 and lse = -inf, whatever the tail. */
static void no_keys(enum executor executor) {
  const int32_t n[] = {0};
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(200, 2);
    shape.tail = (enum tail)tail;
    shape.log_residual = tail % 2;
    shape.log_covariance = !shape.log_residual;
    shape.lengths = n;
    struct sample sample = sample_new(shape, 1);
    struct output out = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t e = 0; e < 200 * D; e++)
      CHECK(out.o[e] == 0);
    for (int64_t r = 0; r < 200; r++)
      CHECK(out.lse[r] == -INFINITY);
    output_free(&out);
    sample_free(&sample);
  }
}

/* What stands behind a length does not count. */
static void behind(enum executor executor) {
  const int32_t n[] = {150};
  for (int tail = DROP; tail < N_TAILS; tail++) {
    struct shape shape = shape_of(400, 2);
    shape.tail = (enum tail)tail;
    shape.second_order = true;
    shape.lengths = n;
    struct sample sample = sample_new(shape, 1);
    struct output x = run_head(&sample, executor, 0, 0, NULL);
    for (int64_t t = 150; t < 400; t++)
      for (int d = 0; d < D; d++) {
        set(&sample, &sample.problem.k, 0, 0, t, d, 1000);
        set(&sample, &sample.problem.v, 0, 0, t, d, -1000);
      }
    struct output y = run_head(&sample, executor, 0, 0, NULL);
    CHECK(memcmp(x.o, y.o, 400 * D * sizeof *x.o) == 0);
    CHECK(memcmp(x.lse, y.lse, 400 * sizeof *x.lse) == 0);
    output_free(&x);
    output_free(&y);
    sample_free(&sample);
  }
}

/* Without exact blocks a tail stands alone; without a tail there is nothing. */
static void nothing_listed(enum executor executor) {
  const int32_t none[] = {-1, -1, -1};
  for (int tail = DROP; tail < DENSE; tail++) {
    struct shape shape = shape_of(64 * 5, 1);
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, 1);
    for (int64_t t = 0; t < 64 * 5; t++)
      for (int d = 0; d < D; d++)
        set(&sample, &sample.problem.v, 0, 0, t, d, d - 31);
    struct output out = run_head(&sample, executor, 0, 0, none);
    for (int64_t e = 0; e < 64 * 5 * D; e++)
      CHECK_AT_MOST(fabs(out.o[e] - (tail == DROP ? 0 : (double)(e % D - 31))),
                    executor == ORACLE ? 1e-12 : 3e-5);
    for (int64_t r = 0; r < 64 * 5; r++)
      CHECK(tail == DROP ? out.lse[r] == -INFINITY : fabs(out.lse[r] - log(320)) < 20);
    output_free(&out);
    sample_free(&sample);
  }
}

/* Blocks with centres in columns 0 to 7 and a spread of |size| in the others: logits spread in
   proportion to it. */
static struct sample spread(enum tail tail, bool second_order, double size) {
  struct shape shape = shape_of(64 * 6, 1);
  shape.tail = tail;
  shape.second_order = second_order;
  struct sample sample = sample_new(shape, 2);
  uint64_t seed = 11;
  for (int64_t n = 0; n < 64 * 6; n++)
    for (int d = 0; d < D; d++) {
      double x = get(&sample, &sample.problem.k, 0, 0, n, d); /* scaled by a power of two: exact */
      set(&sample, &sample.problem.k, 0, 0, n, d,
          d < 8 ? (double)((n / 64 * 5 + d * 3) % 9 - 4) / 4 : x * size);
      set(&sample, &sample.problem.v, 0, 0, n, d, normal(&seed));
    }
  return sample;
}

/* Relative error of o, and largest of lse, against dense attention. */
static void linear_errors(bool second_order, double size, double *o, double *lse) {
  struct sample sparse = spread(TAYLOR_1, second_order, size), dense = spread(DENSE, false, size);
  struct output x = run_head(&sparse, ORACLE, 0, 0, NULL), y = run_head(&dense, ORACLE, 0, 0, NULL);
  *o = relative_error(x.o, y.o, 64 * 6 * D);
  *lse = largest_difference(x.lse, y.lse, 64 * 6);
  output_free(&x);
  output_free(&y);
  sample_free(&sparse);
  sample_free(&dense);
}

/* Half the spread, a quarter of the error; the second order in the mass takes lse one order
   further. */
static void slope(enum executor executor) {
  double o[2], lse[2];
  if (executor != ORACLE) /* fast_test compares the two */
    return;
  for (int second = 0; second < 2; second++) {
    linear_errors(second, 0x1p-4, &o[0], &lse[0]);
    linear_errors(second, 0x1p-5, &o[1], &lse[1]);
    CHECK_AT_MOST(fabs(o[0] / o[1] - 4), 0.3);
    CHECK_AT_MOST(fabs(lse[0] / lse[1] - (second ? 8 : 4)), second ? 2 : 0.3);
    CHECK_AT_MOST(o[1], 0.01);
  }
}

/* Where all H_j are equal their mean is each of them: hybrid is taylor 1. Deviations and values are
   the same in every block, and all means and h_sum exact in bf16. */
static void equal_h(enum executor executor) {
  struct output out[2];
  for (int i = 0; i < 2; i++) {
    struct shape shape = shape_of(64 * 7, 2);
    shape.tail = i ? TAYLOR_1 : HYBRID;
    struct sample sample = sample_new(shape, 0.25);
    sample.problem.scale = 1;
    for (int64_t n = 0; n < 64 * 7; n++)
      for (int d = 0; d < D; d++) {
        int64_t t = n % 64, sign = t < 32 ? 1 : -1, at = t % 32 * 7 + d * 11;
        set(&sample, &sample.problem.k, 0, 0, n, d,
            (double)((n / 64 * 5 + d * 3) % 9 - 4) / 4 + (double)(sign * (at % 3 - 1)) / 4);
        set(&sample, &sample.problem.v, 0, 0, n, d, (t * 13 + d * 5 + t * d) % 4 < 2 ? 1 : -1);
      }
    out[i] = run_head(&sample, executor, 0, 0, i ? out[0].lists : NULL);
    sample_free(&sample);
  }
  CHECK_AT_MOST(relative_error(out[0].o, out[1].o, 64 * 7 * D), executor == ORACLE ? 1e-12 : 1e-5);
  CHECK_AT_MOST(largest_difference(out[0].lse, out[1].lse, 64 * 7),
                executor == ORACLE ? 1e-12 : 1e-5);
  output_free(&out[0]);
  output_free(&out[1]);
}

/* Causal dense attention against the statement of attend_blocks.h, all leaves read.
 */
static void causal_of(enum executor executor, int64_t n_q, int64_t n_k, int query) {
  struct shape shape = shape_of(n_k, 1);
  shape.tail = DENSE;
  shape.n_q = n_q;
  shape.query = query;
  struct sample sample = sample_new(shape, 2);
  struct cpu_problem *p = &sample.problem;
  p->causal = true;
  int64_t q_size = n_q * p->head_dim, k_size = n_k * p->head_dim;
  double *q = malloc((size_t)q_size * 8), *k = malloc((size_t)k_size * 8),
         *v = malloc((size_t)k_size * 8), *o = malloc((size_t)q_size * 8),
         *lse = malloc((size_t)n_q * 8);
  for (int64_t e = 0; e < q_size; e++)
    q[e] = get(&sample, &p->q, 0, 0, e / p->head_dim, e % p->head_dim);
  for (int64_t e = 0; e < k_size; e++) {
    k[e] = get(&sample, &p->k, 0, 0, e / p->head_dim, e % p->head_dim);
    v[e] = get(&sample, &p->v, 0, 0, e / p->head_dim, e % p->head_dim);
  }
  const struct blocks_head head = {.k = k,
                                   .v = v,
                                   .n = n_k,
                                   .head_dim = p->head_dim,
                                   .leaf = 64,
                                   .causal = true,
                                   .scale = p->scale};
  attend_blocks_sequence(&head, q, n_q, NULL, 0, o, lse);
  struct output got = run_head(&sample, executor, 0, 0, NULL);
  double limit = executor == ORACLE ? 1e-12 : 1e-5;
  CHECK_AT_MOST(relative_error(got.o, o, q_size), limit);
  for (int64_t i = 0; i < n_q; i++) {
    CHECK(isinf(lse[i]) == isinf(got.lse[i]));
    if (!isinf(lse[i]))
      CHECK_AT_MOST(fabs(got.lse[i] - lse[i]), limit);
  }
  output_free(&got);
  free(q);
  free(k);
  free(v);
  free(o);
  free(lse);
  sample_free(&sample);
}

static void causal(enum executor executor) {
  causal_of(executor, 200, 200, 128);
  causal_of(executor, 65, 333, 64);
  causal_of(executor, 300, 130, 128); /* the first 170 queries see nothing */
  causal_of(executor, 1, 129, 128);
}

static const struct {
  const char *name;
  void (*run)(enum executor executor);
} cases[] = {{"shorter_calls", shorter_calls},
             {"no_keys", no_keys},
             {"behind", behind},
             {"nothing_listed", nothing_listed},
             {"slope", slope},
             {"equal_h", equal_h},
             {"causal", causal}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run(ORACLE);
      cases[i].run(FAST);
      return 0;
    }
  fprintf(stderr, "usage: sequence_test CASE\n");
  return 2;
}
