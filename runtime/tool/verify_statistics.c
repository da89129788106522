/* verify_statistics.c: block means and variances, ||H_j|| or tr C_j, and h_sum of one head, device
   against double. Fills head->stored with the device's values, widened: the later stages are
   checked with those. What belongs to a key/value head is read for every query head, and compared
   for the first of a group. */
#include <math.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/verify.h"

enum { H_PARTS = 8 };

static void widen(pisa_type type, const uint16_t *in, int64_t n, double *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] = (double)cpu_widen(type, in[i]);
}

/* Distance between neighbours of the type at |x|. */
static double ulp(pisa_type type, double x) {
  int digits = type == PISA_BF16 ? 8 : 11, lowest = type == PISA_BF16 ? -133 : -24, exponent;
  if (x == 0)
    return ldexp(1, lowest);
  frexp(x, &exponent);
  return ldexp(1, exponent - digits > lowest ? exponent - digits : lowest);
}

static bool same_kind(double a, double b) {
  return isnan(a) ? isnan(b) : isinf(a) ? a == b : isfinite(b);
}

/* Error in ulp of one stored mean of |rows| values x[row * D]. The sum was made in float: where its
   terms cancel, |absolute error| <= 2^-20 mean |x| is granted on top. */
static double mean_error(pisa_type type, const double *x, int64_t rows, int D, double stored) {
  double sum = 0, size = 0;
  for (int64_t row = 0; row < rows; row++) {
    sum += x[row * D];
    size += fabs(x[row * D]);
  }
  double mean = sum / (double)rows, granted = 0x1p-20 * size / (double)rows;
  if (!same_kind(mean, stored))
    return NAN;
  if (!isfinite(mean))
    return 0;
  double error = fabs(stored - mean) - granted;
  return error > 0 ? error / ulp(type, mean) : 0;
}

bool verify_leads_group(const struct verify_head *head) {
  return head->h % cpu_group(head->problem) == 0;
}

static int64_t kv_head(const struct verify_head *head) {
  return cpu_kv_head(head->problem, head->h);
}

/* Rows of D that belong to no block of the sequence must be zero. */
static void compare_absent(const struct verify_head *head, enum pisa_workspace_id id) {
  const struct cpu_problem *p = head->problem;
  const uint16_t *part = verify_part(head->outputs, id);
  int64_t first = (head->b * p->kv_heads + kv_head(head)) * head->key_blocks;
  for (int64_t e = p->k_blocks * p->head_dim; e < head->key_blocks * p->head_dim; e++)
    if (part[first * p->head_dim + e] & 0x7fff) {
      verify_fail(head->result, "%s[%lld, %lld, %lld] is not zero, but its block is absent",
                  pisa_workspace_names[id], (long long)head->b, (long long)kv_head(head),
                  (long long)(e / p->head_dim));
      return;
    }
}

struct means { /* stored [ceil(n / block), D] of x [n, D] */
  const char *name;
  int64_t head; /* of the array's heads */
  const double *x;
  int64_t n, block;
  const double *stored;
};

static void compare_means(const struct verify_head *head, const struct means *m) {
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  double largest = 0;
  for (int64_t begin = 0; begin < m->n; begin += m->block)
    for (int d = 0; d < D; d++) {
      int64_t rows = m->n - begin < m->block ? m->n - begin : m->block;
      double value = m->stored[begin / m->block * D + d];
      double error = mean_error(p->type, m->x + begin * D + d, rows, D, value);
      if (!(error <= VERIFY_MEAN_ULP))
        verify_fail(head->result, "%s[%lld, %lld, %lld, %d] = %g is %.3g ulp off", m->name,
                    (long long)head->b, (long long)m->head, (long long)(begin / m->block), d, value,
                    error);
      if (error > largest || isnan(error))
        largest = error;
    }
  verify_note(head->result, &head->result->mean_ulp, largest);
}

/* Error in ulp of one stored variance of |rows| values x[row * D]. In float it is a difference of
   the mean square and the squared mean: 2^-19 of the former are granted on top. */
static double variance_error(const struct cpu_problem *p, const double *x, int64_t rows,
                             double stored) {
  double sum = 0, squares = 0, spread = 0;
  for (int64_t row = 0; row < rows; row++) {
    sum += x[row * p->head_dim];
    squares += x[row * p->head_dim] * x[row * p->head_dim];
  }
  for (int64_t row = 0; row < rows; row++)
    spread += pow(x[row * p->head_dim] - sum / (double)rows, 2);
  double factor = p->scale / 2 / (double)rows, expected = spread * factor;
  if (!same_kind(expected, stored))
    return NAN;
  if (!isfinite(expected))
    return 0;
  double error = fabs(stored - expected) - 0x1p-19 * squares * factor;
  return error > 0 ? error / ulp(p->type, expected) : 0;
}

static void compare_variances(const struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  double largest = 0;
  for (int64_t j = 0; j < p->k_blocks; j++)
    for (int d = 0; d < p->head_dim; d++) {
      double stored = head->stored.k_variance[j * p->head_dim + d];
      double error = variance_error(p, head->inputs.k + j * p->key * p->head_dim + d,
                                    cpu_key_length(p, j), stored);
      if (!(error <= VERIFY_MEAN_ULP))
        verify_fail(head->result, "k_variance[%lld, %lld, %lld, %d] = %g is %.3g ulp off",
                    (long long)head->b, (long long)kv_head(head), (long long)j, d, stored, error);
      if (error > largest || isnan(error))
        largest = error;
    }
  verify_note(head->result, &head->result->mean_ulp, largest);
}

/* Square root of the sum of squares of x [n]. */
static double length(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

/* H_j is a difference of float sums of this size: where it vanishes only that accuracy is left. */
static double norm_scale(const struct verify_head *head, int64_t j) {
  const struct cpu_problem *p = head->problem;
  int64_t first = j * p->key * p->head_dim, n = cpu_key_length(p, j) * p->head_dim;
  return length(head->inputs.k + first, n) * length(head->inputs.v + first, n);
}

/* ... and of the other H_j, of whose sum a part is taken away. */
static double residual_scale(const struct verify_head *head) {
  double sum = 0;
  for (int64_t j = 0; j < head->problem->k_blocks; j++)
    sum += norm_scale(head, j);
  return sum / (double)head->problem->k_blocks;
}

/* The same for tr C_j. */
static double trace_scale(const struct verify_head *head, int64_t j) {
  const struct cpu_problem *p = head->problem;
  int64_t n = cpu_key_length(p, j);
  return pow(length(head->inputs.k + j * p->key * p->head_dim, n * p->head_dim), 2) / (double)n;
}

static void compare_norms(const struct verify_head *head) {
  bool trace = head->problem->key_variance, residual = head->problem->log_residual;
  const char *name = trace ? "tr C_j" : residual ? "||H_j - Hbar||" : "||H_j||";
  double largest = 0, others = residual ? residual_scale(head) : 0;
  for (int64_t j = 0; j < head->problem->k_blocks; j++) {
    double expected = head->expected.block_norm[j], stored = head->stored.block_norm[j];
    double granted =
        trace ? 0x1p-19 * trace_scale(head, j) : 0x1p-20 * (norm_scale(head, j) + others);
    double error = fabs(stored - expected) - granted;
    double relative = error <= 0 ? 0 : error / expected;
    if (!same_kind(expected, stored))
      relative = NAN;
    if (!isfinite(expected) && same_kind(expected, stored))
      continue;
    if (!(relative <= VERIFY_NORM_REL))
      verify_fail(head->result, "%s[%lld, %lld, %lld] = %g, expected %g", name, (long long)head->b,
                  (long long)kv_head(head), (long long)j, stored, expected);
    if (relative > largest || isnan(relative))
      largest = relative;
  }
  verify_note(head->result, &head->result->norm_rel, largest);
}

/* The norms of absent blocks. */
static void compare_absent_norms(const struct verify_head *head, const float *parts) {
  for (int64_t e = head->problem->k_blocks * H_PARTS; e < head->key_blocks * H_PARTS; e++)
    if (!(fabsf(parts[e]) <= 0)) {
      verify_fail(head->result, "h_norm2[%lld, %lld, %lld] = %g, but its block is absent",
                  (long long)head->b, (long long)kv_head(head), (long long)(e / H_PARTS),
                  (double)parts[e]);
      return;
    }
}

/* What float accumulation leaves where all H_j vanish, per entry of h_sum. */
static double h_sum_floor(const struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  double sum = 0;
  for (int64_t j = 0; j < p->k_blocks; j++)
    sum += norm_scale(head, j);
  return p->n_k ? 0x1p-20 * sum * p->scale / (double)p->n_k : 0;
}

static void compare_h_sum(const struct verify_head *head) {
  int64_t n = (int64_t)head->problem->head_dim * head->problem->head_dim;
  double difference = 0, size = 0;
  for (int64_t e = 0; e < n; e++) {
    double expected = head->expected.h_sum[e], stored = head->stored.h_sum[e];
    if (!same_kind(expected, stored))
      difference = NAN;
    else if (isfinite(expected)) {
      difference += (stored - expected) * (stored - expected);
      size += expected * expected;
    }
  }
  double error = sqrt(difference) - h_sum_floor(head);
  double relative = error <= 0 ? 0 : error / sqrt(size);
  if (!(relative <= verify_limits_of(head->problem->type).h_sum_rel))
    verify_fail(head->result, "h_sum[%lld, %lld]: relative L2 error %.3g", (long long)head->b,
                (long long)kv_head(head), relative);
  verify_note(head->result, &head->result->h_sum_rel, relative);
}

static void widen_norms(const struct verify_head *head, const float *parts) {
  for (int64_t j = 0; j < head->problem->k_blocks; j++) {
    double sum = 0;
    for (int part = 0; part < H_PARTS; part++)
      sum += (double)parts[j * H_PARTS + part];
    head->stored.block_norm[j] = head->problem->key_variance ? sum : sqrt(sum);
  }
}

/* Widens |rows| rows of D of a key/value head, which has |room| of them in the part; false where
   the method has no such part. */
static bool widen_shared(const struct verify_head *head, enum pisa_workspace_id id, int64_t room,
                         int64_t rows, double *out) {
  const struct cpu_problem *p = head->problem;
  const uint16_t *part = verify_part(head->outputs, id);
  int64_t first = (head->b * p->kv_heads + kv_head(head)) * room;
  if (part)
    widen(p->type, part + first * p->head_dim, rows * p->head_dim, out);
  return part != NULL;
}

static void compare_q_means(struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  const struct means means = {"q_mean", head->h, head->inputs.q,
                              p->n_q,   p->key,  head->stored.q_mean};
  const uint16_t *part = verify_part(head->outputs, PISA_WORKSPACE_Q_MEAN);
  int64_t n = p->q_sub_blocks * p->head_dim;
  if (!part)
    return;
  widen(p->type, part + (head->b * p->heads + head->h) * n, n, head->stored.q_mean);
  compare_means(head, &means);
}

/* k_mean or v_mean. */
static void compare_shared_means(struct verify_head *head, enum pisa_workspace_id id,
                                 const double *x, double *stored) {
  const struct cpu_problem *p = head->problem;
  const struct means means = {pisa_workspace_names[id], kv_head(head), x, p->n_k, p->key, stored};
  if (!widen_shared(head, id, head->key_blocks, p->k_blocks, stored) || !verify_leads_group(head))
    return;
  compare_means(head, &means);
  compare_absent(head, id);
}

static void compare_h(struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  const float *norms = verify_part(head->outputs, PISA_WORKSPACE_H_NORM2);
  int64_t bh = head->b * p->kv_heads + kv_head(head), elements = (int64_t)p->head_dim * p->head_dim;
  bool has_sum =
      widen_shared(head, PISA_WORKSPACE_H_SUM, p->head_dim, p->head_dim, head->stored.h_sum);
  for (int64_t e = 0; has_sum && e < elements; e++)
    head->stored.h_sum[e] /= pisa_h_gain(p->type);
  if (norms)
    widen_norms(head, norms + bh * head->key_blocks * H_PARTS);
  if (norms && verify_leads_group(head)) {
    compare_norms(head);
    compare_absent_norms(head, norms + bh * head->key_blocks * H_PARTS);
  }
  if (has_sum && verify_leads_group(head))
    compare_h_sum(head);
}

static void compare_k_variance(struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  bool has_variance = widen_shared(head, PISA_WORKSPACE_K_VARIANCE, head->key_blocks, p->k_blocks,
                                   head->stored.k_variance);
  for (int64_t e = 0; has_variance && e < p->k_blocks * p->head_dim; e++)
    head->stored.k_variance[e] /= pisa_variance_gain(p->type);
  if (!has_variance || !verify_leads_group(head))
    return;
  compare_variances(head);
  compare_absent(head, PISA_WORKSPACE_K_VARIANCE);
}

void verify_statistics(struct verify_head *head) {
  compare_q_means(head);
  compare_shared_means(head, PISA_WORKSPACE_K_MEAN, head->inputs.k, head->stored.k_mean);
  compare_shared_means(head, PISA_WORKSPACE_V_MEAN, head->inputs.v, head->stored.v_mean);
  compare_k_variance(head);
  compare_h(head);
}
