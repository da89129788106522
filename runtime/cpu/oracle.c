/* oracle.c: q, k, v of one head in, summaries, attention outputs and their log-sum-exp out.
   Naive on purpose: one loop nest per formula, double throughout, nothing shared with the fast
   executor but the routing of route.c. Kept readable beside docs/DESIGN.md rather than quick. */
#include "runtime/cpu/oracle.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"

static double *doubles(int64_t n) {
  return calloc((size_t)n, sizeof(double));
}

static double *widen_head(const struct cpu_problem *p, const pisa_tensor *tensor, int64_t b,
                          int64_t h, int64_t n) {
  double *out = doubles(n * p->head_dim); /* [n, D] */
  if (!out)
    return NULL;
  for (int64_t row = 0; row < n; row++) {
    const uint16_t *in = cpu_row(tensor, b, h, row);
    for (int d = 0; d < p->head_dim; d++)
      out[row * p->head_dim + d] = (double)cpu_widen(p->type, in[d]);
  }
  return out;
}

bool oracle_head_init(struct oracle_head *head, const struct cpu_problem *problem, int64_t b,
                      int64_t h) {
  int64_t hk = cpu_kv_head(problem, h);
  head->problem = problem;
  head->q = widen_head(problem, &problem->q, b, h, problem->n_q);
  head->k = widen_head(problem, &problem->k, b, hk, problem->n_k);
  head->v = widen_head(problem, &problem->v, b, hk, problem->n_k);
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

/* Norms and the stored sum of all H_j. */
static bool first_order(const struct oracle_head *head, struct oracle_summary *summary) {
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  double *mean = doubles(D), *H = doubles((int64_t)D * D), *sum = doubles((int64_t)D * D);
  bool ok = mean && H && sum;
  for (int64_t j = 0; ok && j < p->k_blocks; j++) {
    double squares = 0;
    covariance(head, j, mean, H);
    for (int e = 0; e < D * D; e++) {
      squares += H[e] * H[e];
      sum[e] += H[e];
    }
    if (p->log_covariance)
      summary->block_norm[j] = sqrt(squares);
  }
  for (int e = 0; ok && e < D * D; e++)
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
  if ((p->second_order || p->key_variance) && !variances(head, summary))
    return false;
  return !cpu_wants_h(p) || first_order(head, summary);
}

/* ---- attention of one query row ---- */

struct columns { /* what one query row attends to, exact tokens first, then block means */
  int64_t n, n_exact;
  const double **value;    /* [n] -> [D] */
  const double **key;      /* [n] -> [D] */
  const double **variance; /* [n] -> [D], NULL for what is not to second order */
  double *bias;            /* [n] ln of the tokens the column stands for */
  double *weight;          /* [n] scores, then exp(score - max) */
};

static bool columns_init(struct columns *columns, int64_t capacity) {
  columns->n = 0;
  columns->value = calloc((size_t)capacity, sizeof *columns->value);
  columns->key = calloc((size_t)capacity, sizeof *columns->key);
  columns->variance = calloc((size_t)capacity, sizeof *columns->variance);
  columns->bias = doubles(capacity);
  columns->weight = doubles(capacity);
  return columns->value && columns->key && columns->variance && columns->bias && columns->weight;
}

static void columns_free(struct columns *columns) {
  free(columns->value);
  free(columns->key);
  free(columns->variance);
  free(columns->bias);
  free(columns->weight);
}

static void add_column(struct columns *columns, const double *key, const double *variance,
                       const double *value, double bias) {
  columns->key[columns->n] = key;
  columns->variance[columns->n] = variance;
  columns->value[columns->n] = value;
  columns->bias[columns->n++] = bias;
}

static bool listed(const int32_t *list, int64_t n, int64_t j) {
  for (int64_t e = 0; e < n; e++)
    if (list[e] == j)
      return true;
  return false;
}

static void add_columns(struct columns *columns, const struct oracle_head *head,
                        const struct oracle_summary *summary, const int32_t *list, int64_t n) {
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim;
  for (int64_t j = 0; j < p->k_blocks; j++)
    if (p->dense || listed(list, n, j))
      for (int64_t t = j * p->key; t < j * p->key + cpu_key_length(p, j); t++)
        add_column(columns, head->k + t * D, NULL, head->v + t * D, 0);
  columns->n_exact = columns->n;
  for (int64_t j = 0; p->means && j < p->k_blocks; j++)
    if (!listed(list, n, j))
      add_column(columns, summary->k_mean + j * D,
                 p->second_order ? summary->k_variance + j * D : NULL, summary->v_mean + j * D,
                 log((double)cpu_key_length(p, j)));
}

static double dot(const double *a, const double *b, int D) {
  double sum = 0;
  for (int d = 0; d < D; d++)
    sum += a[d] * b[d];
  return sum;
}

/* x^2, rounded. */
static void square_row(const struct cpu_problem *p, const double *x, double *out) {
  for (int d = 0; d < p->head_dim; d++)
    out[d] = cpu_round(p->type, x[d] * x[d]);
}

/* o [D] and lse of the row q [D]:
       s_n = scale (q.k_n [+ round(q^2).variance_n]) + bias_n,  w_n = exp(s_n - max s),
       l = sum w_n,  g = sum of the mean columns' w_n,
       o = (sum w_n v_n + g (q . h_sum)) / l,  lse = max s + ln l.
   A row without a finite score has no weight: o = 0, lse = -inf; a NaN score makes both NaN. */
static void attend_row(const struct cpu_problem *p, const struct columns *columns, const double *q,
                       const double *h_sum, double *o, double *lse) {
  int D = p->head_dim;
  double max = -INFINITY, l = 0, g = 0, q_square[CPU_MAX_HEAD_DIM];
  square_row(p, q, q_square);
  for (int64_t n = 0; n < columns->n; n++) {
    double product = dot(q, columns->key[n], D);
    if (columns->variance[n])
      product += dot(q_square, columns->variance[n], D);
    columns->weight[n] = p->scale * product + columns->bias[n];
    if (columns->weight[n] > max)
      max = columns->weight[n];
  }
  for (int64_t n = 0; n < columns->n; n++) {
    double *w = &columns->weight[n];
    *w = *w == -INFINITY ? 0 : exp(*w - max);
    l += *w;
    if (n >= columns->n_exact)
      g += *w;
  }
  for (int c = 0; c < D; c++) {
    double numerator = 0, slope = 0;
    for (int64_t n = 0; n < columns->n; n++)
      numerator += columns->weight[n] * columns->value[n][c];
    for (int d = 0; p->first_order && d < D; d++)
      slope += q[d] * h_sum[d * D + c];
    if (p->first_order)
      numerator += g * slope;
    o[c] = l == 0 ? 0 : numerator / l;
  }
  *lse = l == 0 ? -INFINITY : max + log(l);
}

bool oracle_attend(const struct oracle_head *head, const struct oracle_summary *summary, int64_t i,
                   const int32_t *list, int64_t n, double *o, double *lse) {
  const struct cpu_problem *p = head->problem;
  struct columns columns;
  bool ok = columns_init(&columns, p->n_k + p->k_blocks);
  if (ok)
    add_columns(&columns, head, summary, list, n);
  for (int64_t row = 0; ok && row < cpu_query_length(p, i); row++)
    attend_row(p, &columns, head->q + (i * p->query + row) * p->head_dim, summary->h_sum,
               o + row * p->head_dim, lse + row);
  columns_free(&columns);
  return ok;
}
