/* route.c: block means in, scores and block lists out. Both executors share it: a list is discrete,
   so what computes it must not differ by rounding; it is checked against hand-made cases instead.
       t_ij = scale * qbar_i . kbar_j,
       score_ij = t_ij [+ ln(||H_j [- Hbar]||_F + 1e-5) or + ln(max(tr C_j, 1e-8))],
   largest first, the lower index among equals; or all above mean(t_i) + tau sigma_i. */
#include <assert.h>
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

static double dot(const double *a, const double *b, int n) {
  double sum = 0;
  for (int d = 0; d < n; d++)
    sum += a[d] * b[d];
  return sum;
}

void oracle_scores(const struct cpu_problem *p, const struct oracle_summary *summary, int64_t i,
                   double *score) {
  double q[CPU_MAX_HEAD_DIM];
  query_mean(p, summary->q_mean, i, q);
  for (int64_t j = 0; j < p->k_blocks; j++) {
    score[j] = p->scale * dot(q, summary->k_mean + j * p->head_dim, p->head_dim);
    if (p->log_covariance || p->log_residual)
      score[j] += log(summary->block_norm[j] + 1e-5);
    if (p->key_variance)
      score[j] += log(fmax(summary->block_norm[j], 1e-8));
    if (isnan(score[j]))
      score[j] = -INFINITY;
    if (cpu_forced(p, i, j))
      score[j] = INFINITY;
  }
}

/* The variance of the n numbers x[j * stride]. */
static double variance(const double *x, int64_t n, int64_t stride) {
  double sum = 0, squares = 0;
  for (int64_t j = 0; j < n; j++)
    sum += x[j * stride];
  for (int64_t j = 0; j < n; j++)
    squares += pow(x[j * stride] - sum / (double)n, 2);
  return squares / (double)n;
}

double oracle_limit(const struct cpu_problem *p, const struct oracle_summary *summary, int64_t i) {
  int D = p->head_dim;
  double q[CPU_MAX_HEAD_DIM], mean = 0, spread = 0;
  query_mean(p, summary->q_mean, i, q);
  for (int64_t j = 0; j < p->k_blocks; j++)
    mean += p->scale * dot(q, summary->k_mean + j * D, D) / (double)p->k_blocks;
  for (int64_t j = 0; p->full_variance && j < p->k_blocks; j++)
    spread += pow(p->scale * dot(q, summary->k_mean + j * D, D) - mean, 2) / (double)p->k_blocks;
  for (int d = 0; !p->full_variance && d < D; d++)
    spread += pow(p->scale * q[d], 2) * variance(summary->k_mean + d, p->k_blocks, D);
  return mean + p->tau * sqrt(spread + 1e-6);
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

/* list [kept] = the blocks of the |kept| largest of score [n], ties to the lower index; ascending.
   No score is NaN. */
static bool largest(const double *score, int64_t n, int64_t kept, int32_t *list) {
  struct candidate *order = malloc((size_t)(n + 1) * sizeof *order); /* [n] */
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

/* list = the blocks that score above |limit|, or else the best one. */
static int64_t above(const double *score, int64_t n, double limit, int32_t *list) {
  int64_t count = 0, best = 0;
  for (int64_t j = 0; j < n; j++) {
    if (score[j] > limit || score[j] == INFINITY)
      list[count++] = (int32_t)j;
    if (score[j] > score[best])
      best = j;
  }
  if (count == 0 && n > 0)
    list[count++] = (int32_t)best;
  return count;
}

bool oracle_choose(const struct cpu_problem *p, const struct oracle_summary *summary, int64_t i,
                   double *score, int32_t *list, int64_t *n) {
  oracle_scores(p, summary, i, score);
  if (p->threshold)
    *n = above(score, p->k_blocks, oracle_limit(p, summary, i), list);
  else
    *n = cpu_count(p, i);
  assert(*n <= p->kept);
  return p->threshold || largest(score, p->k_blocks, *n, list);
}
