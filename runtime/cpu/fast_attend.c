/* fast_attend.c: one query block and a list in, attention outputs out. All arithmetic of weight is
   in tile.h. */
#include <math.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/tile.h"

struct step { /* what a tile is read with */
  struct fast_scratch *scratch;
  int64_t rows; /* of q, padded to 4 */
  int64_t D;
  float c; /* scale log2 e */
  float *m, *l, *g, *f, *sum;
};

/* g and o of every row shrink by f. */
static void rescale(const struct step *step) {
  float *o = step->scratch->o;
  for (int64_t r = 0; r < step->rows; r++) {
    step->g[r] *= step->f[r];
    for (int64_t d = 0; step->f[r] != 1 && d < step->D; d++)
      o[r * step->D + d] *= step->f[r];
  }
}

/* s [rows, 64] = q . k [D, 64] + q^2 . variance [D, 64], which may be NULL. */
static void multiply(const struct step *step, const float *k, const float *variance) {
  float *s = step->scratch->s;
  memset(s, 0, (size_t)(step->rows * TILE_KEYS) * sizeof *s);
  tile_multiply(step->rows, TILE_KEYS, step->D, step->scratch->q, step->D, k, TILE_KEYS, s,
                TILE_KEYS);
  if (variance)
    tile_multiply(step->rows, TILE_KEYS, step->D, step->scratch->q_square, step->D, variance,
                  TILE_KEYS, s, TILE_KEYS);
}

/* The tile that was multiplied, values v [64, D] and bias [64], joins m, l and o. */
static void join(const struct step *step, const float *v, const float *bias) {
  float *s = step->scratch->s, *o = step->scratch->o;
  tile_softmax(step->rows, step->c, bias, s, step->m, step->l, step->f, step->sum);
  rescale(step);
  tile_multiply(step->rows, step->D, TILE_KEYS, s, TILE_KEYS, v, step->D, o, step->D);
}

static void attend_tile(const struct step *step, const float *k, const float *variance,
                        const float *v, const float *bias) {
  multiply(step, k, variance);
  join(step, v, bias);
}

/* Columns of a tile from token |t| on that rows of query block |i| must not read. */
static void hide(const struct step *step, const struct cpu_problem *p, int64_t i, int64_t t) {
  for (int64_t r = 0; r < step->rows; r++) {
    int64_t seen = cpu_seen(p, i * p->query + r) - t;
    for (int64_t n = seen < 0 ? 0 : seen; n < TILE_KEYS; n++)
      step->scratch->s[r * TILE_KEYS + n] = -INFINITY;
  }
}

static void attend_block(const struct step *step, const struct fast_head *head, int64_t i,
                         int64_t j) {
  const struct cpu_problem *p = &head->problem;
  int64_t end = j * p->key + cpu_key_length(p, j);
  for (int64_t t = j * p->key; t < end; t += TILE_KEYS) {
    float bias[TILE_KEYS];
    for (int n = 0; n < TILE_KEYS; n++)
      bias[n] = t + n < end ? 0 : -INFINITY;
    multiply(step, head->k + t * step->D, NULL);
    if (p->causal)
      hide(step, p, i, t);
    join(step, head->v + t * step->D, bias);
  }
}

/* Block |j| token by token, to first order around its mean score. */
static void attend_linear(const struct step *step, const struct fast_head *head, int64_t j) {
  const struct cpu_problem *p = &head->problem;
  int64_t length = cpu_key_length(p, j), first = j * p->key;
  int64_t columns = (length + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS;
  float *s = step->scratch->s;
  memset(s, 0, (size_t)(step->rows * columns) * sizeof *s);
  for (int64_t t = 0; t < columns; t += TILE_KEYS)
    tile_multiply(step->rows, TILE_KEYS, step->D, step->scratch->q, step->D,
                  head->k + (first + t) * step->D, TILE_KEYS, s + t, columns);
  tile_linear(step->rows, columns, length, step->c, p->second_order, s, step->m, step->l, step->f);
  rescale(step);
  tile_multiply(step->rows, step->D, columns, s, columns, head->v + first * step->D, step->D,
                step->scratch->o, step->D);
}

/* Tile |t| of block means; listed and absent blocks have no column. */
static void attend_means(const struct step *step, const struct fast_head *head, int64_t t) {
  int64_t first = t * TILE_KEYS;
  float bias[TILE_KEYS];
  for (int n = 0; n < TILE_KEYS; n++) {
    bool absent = first + n >= head->problem.k_blocks || step->scratch->listed[first + n];
    bias[n] = absent ? -INFINITY : head->log2_length[first + n];
  }
  const float *variance = head->k_variance ? head->k_variance + first * step->D : NULL;
  attend_tile(step, head->k_mean + first * step->D, variance, head->v_mean + first * step->D, bias);
  for (int64_t r = 0; r < step->rows; r++)
    step->g[r] += step->sum[r];
}

/* o += g (q . h_sum) */
static void attend_first_order(const struct step *step, const struct fast_head *head) {
  float *slope = step->scratch->slope, *o = step->scratch->o;
  memset(slope, 0, (size_t)(step->rows * step->D) * sizeof *slope);
  tile_multiply(step->rows, step->D, step->D, step->scratch->q, step->D, head->h_sum, step->D,
                slope, step->D);
  for (int64_t r = 0; r < step->rows; r++)
    for (int64_t d = 0; d < step->D; d++)
      o[r * step->D + d] += step->g[r] * slope[r * step->D + d];
}

static struct step begin_step(const struct fast_head *head, struct fast_scratch *scratch,
                              int64_t i) {
  const struct cpu_problem *p = &head->problem;
  int64_t D = p->head_dim, rows = cpu_query_length(p, i), padded = (rows + 3) / 4 * 4, n = p->query;
  for (int64_t r = 0; r < rows; r++)
    cpu_widen_row(p->type, (size_t)D, cpu_row(&p->q, head->b, head->h, i * p->query + r),
                  scratch->q + r * D);
  memset(scratch->q + rows * D, 0, (size_t)((padded - rows) * D) * sizeof(float));
  for (int64_t e = 0; p->second_order && e < padded * D; e++)
    scratch->q_square[e] = (float)cpu_round_square(p, (double)scratch->q[e]);
  memset(scratch->o, 0, (size_t)(padded * D) * sizeof(float));
  memset(scratch->row, 0, (size_t)(5 * n) * sizeof(float));
  for (int64_t r = 0; r < padded; r++)
    scratch->row[r] = -INFINITY;
  float *row = scratch->row;
  return (struct step){.scratch = scratch,
                       .rows = padded,
                       .D = D,
                       .c = (float)(p->scale * 1.4426950408889634),
                       .m = row,
                       .l = row + n,
                       .g = row + 2 * n,
                       .f = row + 3 * n,
                       .sum = row + 4 * n};
}

void fast_attend(const struct fast_head *head, struct fast_scratch *scratch, int64_t i,
                 const int32_t *list, int64_t n, float *lse) {
  const struct cpu_problem *p = &head->problem;
  struct step step = begin_step(head, scratch, i);
  memset(scratch->listed, 0, (size_t)p->k_blocks * sizeof(bool));
  for (int64_t e = 0; e < n; e++) {
    scratch->listed[list[e]] = true;
    attend_block(&step, head, i, list[e]);
  }
  for (int64_t j = 0; p->linear && j < p->k_blocks; j++)
    if (!scratch->listed[j])
      attend_linear(&step, head, j);
  for (int64_t t = 0; p->means && t * TILE_KEYS < p->k_blocks; t++)
    attend_means(&step, head, t);
  if (p->first_order)
    attend_first_order(&step, head);
  for (int64_t r = 0; r < cpu_query_length(p, i); r++) {
    float l = step.l[r];
    for (int64_t d = 0; d < step.D; d++)
      scratch->o[r * step.D + d] = l == 0 ? 0 : scratch->o[r * step.D + d] / l;
    lse[r] = l == 0 ? -INFINITY : (float)((double)step.m[r] * 0.6931471805599453 + log((double)l));
  }
}
