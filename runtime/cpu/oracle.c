/* oracle.c: q, k, v of one head in, summaries out. Naive on purpose, like oracle_attend.c: one loop
   nest per formula, double throughout, nothing shared with the fast executor but the routing of
   route.c. Kept readable beside docs/DESIGN.md rather than quick. */
#include "runtime/cpu/oracle.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"

/* A sequence may have no keys: no array has no elements. */
static double *doubles(int64_t n) {
  return calloc((size_t)n + 1, sizeof(double));
}

static void widen_row(const struct cpu_problem *p, const uint16_t *in, double *out) {
  for (int d = 0; d < p->head_dim; d++)
    out[d] = (double)cpu_widen(p->type, in[d]);
}

/* [Nq, D] */
static double *widen_queries(const struct cpu_problem *p, int64_t b, int64_t h) {
  double *out = doubles(p->n_q * p->head_dim);
  for (int64_t row = 0; out && row < p->n_q; row++)
    widen_row(p, cpu_row(&p->q, b, h, row), out + row * p->head_dim);
  return out;
}

/* [Nk, D] of k or v */
static double *widen_keys(const struct cpu_problem *p, const pisa_tensor *tensor, int64_t b,
                          int64_t hk) {
  double *out = doubles(p->n_k * p->head_dim);
  for (int64_t row = 0; out && row < p->n_k; row++)
    widen_row(p, cpu_key_row(p, tensor, b, hk, row), out + row * p->head_dim);
  return out;
}

bool oracle_head_init(struct oracle_head *head, const struct cpu_problem *problem, int64_t b,
                      int64_t h) {
  int64_t hk = cpu_kv_head(problem, h);
  assert(!problem->lengths); /* a sequence: cpu_sequence */
  head->problem = problem;
  head->q = widen_queries(problem, b, h);
  head->k = widen_keys(problem, &problem->k, b, hk);
  head->v = widen_keys(problem, &problem->v, b, hk);
  return head->q && head->k && head->v;
}

void oracle_head_free(struct oracle_head *head) {
  free(head->q);
  free(head->k);
  free(head->v);
}

bool oracle_summary_init(struct oracle_summary *summary, const struct cpu_problem *problem) {
  int64_t D = problem->head_dim;
  summary->q_mean = doubles(problem->q_sub_blocks * D);
  summary->k_mean = doubles(problem->k_blocks * D);
  summary->v_mean = doubles(problem->k_blocks * D);
  summary->k_variance = doubles(problem->k_blocks * D);
  summary->block_norm = doubles(problem->k_blocks);
  summary->h_sum = doubles(D * D);
  return summary->q_mean && summary->k_mean && summary->v_mean && summary->k_variance &&
         summary->block_norm && summary->h_sum;
}

void oracle_summary_free(struct oracle_summary *summary) {
  free(summary->q_mean);
  free(summary->k_mean);
  free(summary->v_mean);
  free(summary->k_variance);
  free(summary->block_norm);
  free(summary->h_sum);
}

/* mean [D] of |n| rows of x [n, D], not rounded. */
static void mean_rows(const double *x, int64_t n, int D, double *mean) {
  for (int d = 0; d < D; d++) {
    double sum = 0;
    for (int64_t row = 0; row < n; row++)
      sum += x[row * D + d];
    mean[d] = sum / (double)n;
  }
}

/* out [blocks, D]: the rounded mean of every |block| rows of x [n, D]. */
static void block_means(const struct cpu_problem *p, const double *x, int64_t n, int64_t block,
                        double *out) {
  for (int64_t begin = 0; begin < n; begin += block, out += p->head_dim) {
    int64_t rows = n - begin < block ? n - begin : block;
    mean_rows(x + begin * p->head_dim, rows, p->head_dim, out);
    for (int d = 0; d < p->head_dim; d++)
      out[d] = cpu_round(p->type, out[d]);
  }
}

/* H [D, D] = sum_n (k_n - mean)^T v_n over the tokens of block j; mean [D] is scratch. */
static void covariance(const struct oracle_head *head, int64_t j, double *mean, double *H) {
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  int64_t rows = cpu_key_length(p, j);
  const double *k = head->k + j * p->key * D, *v = head->v + j * p->key * D; /* [rows, D] */
  mean_rows(k, rows, D, mean);
  for (int r = 0; r < D; r++)
    for (int c = 0; c < D; c++)
      H[r * D + c] = 0;
  for (int64_t n = 0; n < rows; n++)
    for (int r = 0; r < D; r++)
      for (int c = 0; c < D; c++)
        H[r * D + c] += (k[n * D + r] - mean[r]) * v[n * D + c];
}

static double length(const double *x, int n) {
  double squares = 0;
  for (int e = 0; e < n; e++)
    squares += x[e] * x[e];
  return sqrt(squares);
}

/* The stored sum of all H_j, and ||H_j||_F or ||H_j - Hbar||_F, Hbar = sum_j H_j / NT. */
static bool first_order(const struct oracle_head *head, struct oracle_summary *summary) {
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  double *mean = doubles(D), *H = doubles((int64_t)D * D), *sum = doubles((int64_t)D * D);
  bool ok = mean && H && sum;
  for (int64_t j = 0; ok && j < p->k_blocks; j++) {
    covariance(head, j, mean, H);
    for (int e = 0; e < D * D; e++)
      sum[e] += H[e];
    if (p->log_covariance)
      summary->block_norm[j] = length(H, D * D);
  }
  for (int64_t j = 0; ok && p->log_residual && j < p->k_blocks; j++) {
    covariance(head, j, mean, H);
    for (int e = 0; e < D * D; e++)
      H[e] -= sum[e] / (double)p->k_blocks;
    summary->block_norm[j] = length(H, D * D);
  }
  for (int e = 0; ok && p->n_k > 0 && e < D * D; e++)
    summary->h_sum[e] = cpu_round_h_sum(p, sum[e] * p->scale / (double)p->n_k);
  free(mean);
  free(H);
  free(sum);
  return ok;
}

/* k_variance [NT, D] and, where it counts, tr C_j. */
static bool variances(const struct oracle_head *head, struct oracle_summary *summary) {
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  double *mean = doubles(D);
  if (!mean)
    return false;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    int64_t rows = cpu_key_length(p, j);
    const double *k = head->k + j * p->key * D; /* [rows, D] */
    double trace = 0;
    mean_rows(k, rows, D, mean);
    for (int d = 0; d < D; d++) {
      double squares = 0;
      for (int64_t n = 0; n < rows; n++)
        squares += (k[n * D + d] - mean[d]) * (k[n * D + d] - mean[d]);
      summary->k_variance[j * D + d] = cpu_round_variance(p, squares / (double)rows);
      trace += squares / (double)rows;
    }
    if (p->key_variance)
      summary->block_norm[j] = trace;
  }
  free(mean);
  return true;
}

bool oracle_statistics(const struct oracle_head *head, struct oracle_summary *summary) {
  const struct cpu_problem *p = head->problem;
  if (p->dense)
    return true;
  block_means(p, head->q, p->n_q, p->key, summary->q_mean);
  block_means(p, head->k, p->n_k, p->key, summary->k_mean);
  if (p->means)
    block_means(p, head->v, p->n_k, p->key, summary->v_mean);
  if (((p->means && p->second_order) || p->key_variance) && !variances(head, summary))
    return false;
  return !cpu_wants_h(p) || first_order(head, summary);
}
