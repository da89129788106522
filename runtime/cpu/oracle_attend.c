/* oracle_attend.c: the query rows of one block and a list in, attention outputs and their
   log-sum-exp out. Every row attends to columns: tokens and block means. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/oracle.h"

/* What a query row attends to: exact tokens, then block means, then tokens to first order. */
struct column {
  const double *key, *value; /* [D] */
  const double *variance;    /* [D] of a mean to second order, else NULL */
  double bias;               /* ln of the tokens the column stands for */
  bool mean;                 /* its weight counts in g */
  int64_t linear;            /* of the first token of a block to first order, its tokens; else 0 */
  double score, factor;      /* of one row: the column weighs factor e^score */
};

struct columns {
  struct column *list;
  int64_t n;
};

static struct column *add(struct columns *columns, const double *key, const double *value) {
  struct column *column = &columns->list[columns->n++];
  *column = (struct column){.key = key, .value = value, .factor = 1};
  return column;
}

static bool listed(const int32_t *list, int64_t n, int64_t j) {
  for (int64_t e = 0; e < n; e++)
    if (list[e] == j)
      return true;
  return false;
}

/* The tokens of block |j|; the first of them. */
static struct column *add_tokens(struct columns *columns, const struct oracle_head *head,
                                 int64_t j) {
  const struct cpu_problem *p = head->problem;
  struct column *first = &columns->list[columns->n];
  for (int64_t t = j * p->key; t < j * p->key + cpu_key_length(p, j); t++)
    add(columns, head->k + t * p->head_dim, head->v + t * p->head_dim);
  return first;
}

static void add_columns(struct columns *columns, const struct oracle_head *head,
                        const struct oracle_summary *summary, const int32_t *list, int64_t n) {
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim;
  for (int64_t j = 0; j < p->k_blocks; j++)
    if (p->dense || listed(list, n, j))
      add_tokens(columns, head, j);
  for (int64_t j = 0; j < p->k_blocks; j++) {
    if (p->dense || listed(list, n, j))
      continue;
    if (p->means) {
      struct column *mean = add(columns, summary->k_mean + j * D, summary->v_mean + j * D);
      mean->variance = p->second_order ? summary->k_variance + j * D : NULL;
      mean->bias = log((double)cpu_key_length(p, j));
      mean->mean = true;
    }
    if (p->linear)
      add_tokens(columns, head, j)->linear = cpu_key_length(p, j);
  }
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
    out[d] = cpu_round_square(p, x[d]);
}

/* The tokens of one block, scored exactly, to first order around their mean score: all score
   mean [+ variance / 2], and weigh 1 + s_n - mean of that. */
static void linearise(const struct cpu_problem *p, struct column *tokens, int64_t n) {
  double sum = 0, squares = 0;
  for (int64_t t = 0; t < n; t++)
    sum += tokens[t].score;
  double mean = sum / (double)n;
  for (int64_t t = 0; t < n; t++) {
    tokens[t].factor = 1 + tokens[t].score - mean;
    squares += (tokens[t].score - mean) * (tokens[t].score - mean);
  }
  for (int64_t t = 0; t < n; t++)
    tokens[t].score = p->second_order ? mean + squares / (double)n / 2 : mean;
}

/* score = scale (q.k [+ round(q^2).variance]) + bias; then blocks to first order. */
static void score_columns(const struct cpu_problem *p, struct columns *columns, const double *q) {
  double q_square[CPU_MAX_HEAD_DIM];
  square_row(p, q, q_square);
  for (int64_t n = 0; n < columns->n; n++) {
    struct column *column = &columns->list[n];
    double product = dot(q, column->key, p->head_dim);
    if (column->variance)
      product += dot(q_square, column->variance, p->head_dim);
    column->score = p->scale * product + column->bias;
  }
  for (int64_t n = 0; n < columns->n; n++)
    if (columns->list[n].linear)
      linearise(p, &columns->list[n], columns->list[n].linear);
}

/* o [D] and lse of the row q [D]:
       w_n = factor_n exp(score_n - max score),
       l = sum w_n,  g = sum of the mean columns' w_n,
       o = (sum w_n v_n + g (q . h_sum)) / l,  lse = max score + ln l.
   A row without a finite score has no weight: o = 0, lse = -inf; a NaN score makes both NaN. */
static void attend_row(const struct cpu_problem *p, struct columns *columns, const double *q,
                       const double *h_sum, double *o, double *lse) {
  int D = p->head_dim;
  double max = -INFINITY, l = 0, g = 0;
  score_columns(p, columns, q);
  for (int64_t n = 0; n < columns->n; n++)
    if (columns->list[n].score > max)
      max = columns->list[n].score;
  for (int c = 0; c < D; c++)
    o[c] = 0;
  for (int64_t n = 0; n < columns->n; n++) {
    const struct column *column = &columns->list[n];
    double w = column->score == -INFINITY ? 0 : column->factor * exp(column->score - max);
    l += w;
    g += column->mean ? w : 0;
    for (int c = 0; c < D; c++)
      o[c] += w * column->value[c];
  }
  for (int c = 0; c < D; c++) {
    double slope = 0;
    for (int d = 0; p->first_order && d < D; d++)
      slope += q[d] * h_sum[d * D + c];
    o[c] = l == 0 ? 0 : (o[c] + g * slope) / l;
  }
  *lse = l == 0 ? -INFINITY : max + log(l);
}

bool oracle_attend(const struct oracle_head *head, const struct oracle_summary *summary, int64_t i,
                   const int32_t *list, int64_t n, double *o, double *lse) {
  const struct cpu_problem *p = head->problem;
  struct columns columns = {.list = calloc((size_t)(p->n_k + 1), sizeof *columns.list)};
  if (!columns.list)
    return false;
  add_columns(&columns, head, summary, list, n);
  const int64_t all = columns.n;
  for (int64_t row = 0; row < cpu_query_length(p, i); row++) {
    columns.n = p->causal ? cpu_seen(p, i * p->query + row) : all; /* dense: columns are tokens */
    attend_row(p, &columns, head->q + (i * p->query + row) * p->head_dim, summary->h_sum,
               o + row * p->head_dim, lse + row);
  }
  free(columns.list);
  return true;
}
