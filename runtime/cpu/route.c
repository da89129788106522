/* route.c: block means in, scores and block lists out. Both executors share it: a list is discrete,
   so what computes it must not differ by rounding; it is checked against hand-made cases instead.
       score_ij = scale * qbar_i . kbar_j [+ ln(||H_j||_F + 1e-5) or + ln(max(tr C_j, 1e-8))],
   largest first, the lower index among equals. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/oracle.h"

/* q [D]: the mean query of block |i|: the means of its sub-blocks weighted by their rows, rounded
   again; of one sub-block that is its mean. */
static void query_mean(const struct cpu_problem *p, const double *q_mean, int64_t i, double *q) {
  int64_t begin = i * p->query, end = begin + cpu_query_length(p, i);
  for (int d = 0; d < p->head_dim; d++) {
    double sum = 0;
    for (int64_t row = begin; row < end; row += p->key) {
      int64_t rows = end - row < p->key ? end - row : p->key;
      sum += (double)rows * q_mean[row / p->key * p->head_dim + d];
    }
    q[d] = cpu_round(p->type, sum / (double)(end - begin));
  }
}

static void force(struct cpu_range blocks, double *score) {
  for (int64_t j = blocks.begin; j < blocks.end; j++)
    score[j] = INFINITY;
}

void oracle_scores(const struct cpu_problem *p, const struct oracle_summary *summary, int64_t i,
                   double *score) {
  double q[CPU_MAX_HEAD_DIM];
  query_mean(p, summary->q_mean, i, q);
  for (int64_t j = 0; j < p->k_blocks; j++) {
    const double *k = summary->k_mean + j * p->head_dim;
    double dot = 0;
    for (int d = 0; d < p->head_dim; d++)
      dot += q[d] * k[d];
    score[j] = p->scale * dot;
    if (p->log_covariance)
      score[j] += log(summary->block_norm[j] + 1e-5);
    if (p->key_variance)
      score[j] += log(fmax(summary->block_norm[j], 1e-8));
    if (isnan(score[j]))
      score[j] = -INFINITY;
  }
  for (int a = 0; a < p->n_always; a++)
    force(p->always[a], score);
  force(cpu_window(p, i), score);
}

struct candidate {
  double score;
  int32_t block;
};

static int by_score(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->score != y->score)
    return x->score > y->score ? -1 : 1;
  return x->block < y->block ? -1 : 1;
}

static int by_block(const void *a, const void *b) {
  const int32_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

bool oracle_select(const double *score, int64_t n, int64_t kept, int32_t *list) {
  struct candidate *order = malloc((size_t)n * sizeof *order); /* [n] */
  if (!order)
    return false;
  for (int64_t j = 0; j < n; j++)
    order[j] = (struct candidate){score[j], (int32_t)j};
  qsort(order, (size_t)n, sizeof *order, by_score);
  for (int64_t e = 0; e < kept; e++)
    list[e] = order[e].block;
  qsort(list, (size_t)kept, sizeof *list, by_block);
  free(order);
  return true;
}
