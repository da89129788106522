/* sample.c: shapes in, arrays and outputs out. */
#include "tests/cpu/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/oracle.h"

void check(bool condition, const char *text, const char *file, int line) {
  if (condition)
    return;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
  exit(1);
}

void check_at_most(double got, double limit, const char *text, const char *file, int line) {
  if (got <= limit)
    return;
  fprintf(stderr, "%s:%d: failed: %s is %g, allowed %g\n", file, line, text, got, limit);
  exit(1);
}

struct shape shape_of(int64_t n, int64_t kept) {
  return (struct shape){.tail = HYBRID,
                        .type = PISA_BF16,
                        .head_dim = 64,
                        .query = 128,
                        .key = 64,
                        .batch = 1,
                        .heads = 1,
                        .kv_heads = 1,
                        .n_q = n,
                        .n_k = n,
                        .kept = kept,
                        .log_covariance = true};
}

static pisa_tensor tensor_of(uint16_t *data, int64_t heads, int64_t n, int64_t d, bool bnhd) {
  pisa_tensor tensor = {.data = data, .stride = {heads * n * d, n * d, d, 1}};
  if (bnhd) {
    tensor.stride[1] = d;
    tensor.stride[2] = heads * d;
  }
  return tensor;
}

static uint16_t *elements(int64_t n) {
  uint16_t *data = calloc((size_t)n, sizeof *data);
  CHECK(data);
  return data;
}

struct sample sample_new(struct shape s, double spread) {
  struct sample sample = {0};
  struct cpu_problem *p = &sample.problem;
  *p = (struct cpu_problem){.dense = s.tail == DENSE,
                            .means = s.tail == TAYLOR_0 || s.tail == HYBRID,
                            .first_order = s.tail == HYBRID,
                            .linear = s.tail == TAYLOR_1,
                            .second_order = s.second_order && s.tail != DROP && s.tail != DENSE,
                            .log_covariance = s.log_covariance && s.tail != DENSE,
                            .log_residual = s.log_residual && s.tail != DENSE,
                            .key_variance = s.key_variance && s.tail != DENSE,
                            .threshold = s.threshold,
                            .full_variance = s.full_variance,
                            .tau = s.tau,
                            .keep = s.kept,
                            .query = s.query,
                            .key = s.key,
                            .head_dim = s.head_dim,
                            .type = s.type,
                            .batch = s.batch,
                            .heads = s.heads,
                            .kv_heads = s.kv_heads,
                            .n_q = s.n_q,
                            .n_k = s.n_k,
                            .lengths = s.lengths,
                            .kept = s.kept,
                            .window = s.windowed && s.tail != DENSE ? s.window : -1,
                            .scale = (double)(float)(1 / sqrt(s.head_dim))};
  cpu_problem_derive(p);
  if (p->dense)
    p->kept = p->k_blocks;
  sample.q_size = s.batch * s.heads * s.n_q * s.head_dim;
  sample.k_size = s.batch * s.kv_heads * s.n_k * s.head_dim;
  sample.q = elements(sample.q_size);
  sample.o = elements(sample.q_size);
  sample.k = elements(sample.k_size);
  sample.v = elements(sample.k_size);
  p->q = tensor_of(sample.q, s.heads, s.n_q, s.head_dim, s.bnhd);
  p->o = tensor_of(sample.o, s.heads, s.n_q, s.head_dim, s.bnhd);
  p->k = tensor_of(sample.k, s.kv_heads, s.n_k, s.head_dim, s.bnhd);
  p->v = tensor_of(sample.v, s.kv_heads, s.n_k, s.head_dim, s.bnhd);
  fill_normal(&sample, sample.q, sample.q_size, spread, 1);
  fill_normal(&sample, sample.k, sample.k_size, 1, 2);
  fill_normal(&sample, sample.v, sample.k_size, 1, 3);
  return sample;
}

void sample_free(struct sample *sample) {
  free(sample->q);
  free(sample->k);
  free(sample->v);
  free(sample->o);
}

static double uniform(uint64_t *seed) { /* in (0, 1) */
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return ((double)(*seed >> 11) + 0.5) * 0x1p-53;
}

double normal(uint64_t *seed) {
  double radius = sqrt(-2 * log(uniform(seed)));
  return radius * cos(6.283185307179586 * uniform(seed));
}

void fill_normal(const struct sample *sample, uint16_t *data, int64_t n, double deviation,
                 uint64_t seed) {
  for (int64_t i = 0; i < n; i++)
    data[i] = cpu_narrow(sample->problem.type, (float)(deviation * normal(&seed)));
}

uint16_t *element(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n, int64_t d) {
  return cpu_row(tensor, b, h, n) + d;
}

void set(const struct sample *sample, const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n,
         int64_t d, double value) {
  *element(tensor, b, h, n, d) = cpu_narrow(sample->problem.type, (float)value);
}

double get(const struct sample *sample, const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n,
           int64_t d) {
  return (double)cpu_widen(sample->problem.type, *element(tensor, b, h, n, d));
}

/* ---- running one head ---- */

/* list [kept] of query block |i|, and its entries. */
static int64_t choose(const struct cpu_problem *p, const struct oracle_summary *summary, int64_t i,
                      const int32_t *given, int32_t *list) {
  double *score = calloc((size_t)p->k_blocks + 1, sizeof *score);
  int64_t n = 0;
  CHECK(score);
  for (int64_t e = 0; e < p->kept; e++)
    list[e] = -1;
  if (p->dense)
    for (; n < p->k_blocks; n++)
      list[n] = (int32_t)n;
  else if (given)
    n = cpu_given_list(p, given + i * p->kept, p->kept, list);
  else
    CHECK(oracle_choose(p, summary, i, score, list, &n));
  for (int64_t e = n; e < p->kept; e++)
    list[e] = -1;
  free(score);
  return n;
}

static void run_oracle(const struct cpu_problem *call, int64_t b, int64_t h, const int32_t *given,
                       struct output *out) {
  struct cpu_problem problem = cpu_sequence(call, b), *p = &problem;
  struct oracle_head head;
  struct oracle_summary summary;
  CHECK(oracle_head_init(&head, p, b, h) && oracle_summary_init(&summary, p));
  CHECK(oracle_statistics(&head, &summary));
  for (int64_t i = 0; i < p->q_blocks; i++) {
    int32_t *list = out->lists + i * p->kept;
    int64_t n = choose(p, &summary, i, given, list);
    CHECK(oracle_attend(&head, &summary, i, list, n, out->o + i * p->query * p->head_dim,
                        out->lse + i * p->query));
  }
  oracle_summary_free(&summary);
  oracle_head_free(&head);
}

static void run_fast(const struct cpu_problem *call, int64_t b, int64_t h, const int32_t *given,
                     struct output *out) {
  struct fast_head head;
  struct fast_scratch scratch;
  float lse[128];
  CHECK(fast_head_init(&head, call) && fast_scratch_init(&scratch, call));
  fast_load(&head, b, h, 2);
  const struct cpu_problem *p = &head.problem;
  for (int64_t i = 0; i < p->q_blocks; i++) {
    int32_t *list = out->lists + i * p->kept;
    int64_t n = choose(p, &head.summary, i, given, list);
    fast_attend(&head, &scratch, i, list, n, lse);
    for (int64_t e = 0; e < cpu_query_length(p, i) * p->head_dim; e++)
      out->o[i * p->query * p->head_dim + e] = (double)scratch.o[e];
    for (int64_t r = 0; r < cpu_query_length(p, i); r++)
      out->lse[i * p->query + r] = (double)lse[r];
  }
  fast_scratch_free(&scratch);
  fast_head_free(&head);
}

struct output run_head(const struct sample *sample, enum executor executor, int64_t b, int64_t h,
                       const int32_t *lists) {
  const struct cpu_problem *p = &sample->problem;
  struct output out = {.o = calloc((size_t)(p->n_q * p->head_dim), sizeof *out.o),
                       .lse = calloc((size_t)p->n_q, sizeof *out.lse),
                       .lists = calloc((size_t)(p->q_blocks * p->kept), sizeof *out.lists)};
  CHECK(out.o && out.lse && out.lists);
  (executor == ORACLE ? run_oracle : run_fast)(p, b, h, lists, &out);
  return out;
}

void output_free(struct output *output) {
  free(output->o);
  free(output->lse);
  free(output->lists);
}

double relative_error(const double *x, const double *y, int64_t n) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return error == 0 ? 0 : sqrt(error / size);
}

double largest_difference(const double *x, const double *y, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (x[i] != y[i] && !(fabs(x[i] - y[i]) <= largest))
      largest = fabs(x[i] - y[i]);
  return largest;
}
