/* attend_blocks.c: a softmax over the tokens of listed blocks: their largest score first, then
   weights e^(score - largest). */
#include "runtime/cpu/attend_blocks.h"

#include <math.h>
#include <stddef.h>

struct tokens { /* [begin, end) */
  int64_t begin, end;
};

/* What the query at |t| reads of block |j|; maybe nothing. */
static struct tokens readable(const struct blocks_head *head, int64_t t, int64_t j) {
  struct tokens x = {j * head->leaf, (j + 1) * head->leaf};
  if (j < 0 || x.begin >= head->n)
    return (struct tokens){0, 0};
  if (x.end > head->n)
    x.end = head->n;
  if (head->causal && x.end > t + 1)
    x.end = t + 1;
  return x;
}

static double score(const struct blocks_head *head, const double *q, int64_t token) {
  double sum = 0;
  for (int d = 0; d < head->head_dim; d++)
    sum += q[d] * head->k[token * head->head_dim + d];
  return head->scale * sum;
}

static double larger(double a, double b) {
  return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

struct softmax {
  double max, sum;
  double *o; /* [D] weighted values */
};

static void find_max(const struct blocks_head *head, const double *q, struct tokens x,
                     struct softmax *softmax) {
  for (int64_t token = x.begin; token < x.end; token++)
    softmax->max = larger(softmax->max, score(head, q, token));
}

static void add_values(const struct blocks_head *head, const double *q, struct tokens x,
                       struct softmax *softmax) {
  for (int64_t token = x.begin; token < x.end; token++) {
    double weight = exp(score(head, q, token) - softmax->max);
    softmax->sum += weight;
    for (int d = 0; d < head->head_dim; d++)
      softmax->o[d] += weight * head->v[token * head->head_dim + d];
  }
}

void attend_blocks(const struct blocks_head *head, const double *q, int64_t t, const int32_t *list,
                   int64_t n_list, double *o, double *lse) {
  int64_t n = list ? n_list : (head->n + head->leaf - 1) / head->leaf;
  struct softmax softmax = {.max = -INFINITY, .o = o};
  for (int d = 0; d < head->head_dim; d++)
    o[d] = 0;
  for (int64_t e = 0; e < n; e++)
    find_max(head, q, readable(head, t, list ? list[e] : e), &softmax);
  *lse = softmax.max;
  if (softmax.max == -INFINITY)
    return;
  for (int64_t e = 0; e < n; e++)
    add_values(head, q, readable(head, t, list ? list[e] : e), &softmax);
  *lse += log(softmax.sum);
  for (int d = 0; d < head->head_dim; d++)
    o[d] /= softmax.sum;
}

void attend_blocks_sequence(const struct blocks_head *head, const double *q, int64_t n_q,
                            const int32_t *list, int64_t room, double *o, double *lse) {
  for (int64_t r = 0; r < n_q; r++)
    attend_blocks(head, q + r * head->head_dim, head->n - n_q + r, list ? list + r * room : NULL,
                  room, o + r * head->head_dim, lse + r);
}
