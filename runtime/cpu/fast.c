/* fast.c: one head of q, k, v in; summaries, then attention outputs, out. Float tiles of 64 keys;
   all arithmetic of weight is tile_multiply and tile_softmax. */
#include "runtime/cpu/fast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/tile.h"

enum {
  SLAB = 8
}; /* rows of H that one task owns, so that its sums have one order whatever the threads */

static float *floats(int64_t n) {
  return calloc((size_t)n, sizeof(float));
}

static int64_t tiles(int64_t n) {
  return (n + TILE_KEYS - 1) / TILE_KEYS;
}

bool fast_head_init(struct fast_head *head, const struct cpu_problem *problem) {
  int64_t D = problem->head_dim, NT = problem->k_blocks;
  *head = (struct fast_head){.problem = problem, .b = -1, .h = -1, .kv_head = -1};
  head->key_tiles = tiles(problem->n_k);
  head->mean_tiles = tiles(NT);
  int64_t keys = head->key_tiles * TILE_KEYS, means = head->mean_tiles * TILE_KEYS;
  head->k = floats(keys * D);
  head->v = floats(keys * D);
  head->k_mean = floats(means * D);
  head->v_mean = floats(means * D);
  head->k_variance = problem->second_order ? floats(means * D) : NULL;
  head->log2_length = floats(means);
  head->h_sum = floats(D * D);
  head->key_center = floats(NT * D);
  head->h_square = calloc((size_t)(D / SLAB * NT), sizeof(double));
  return oracle_summary_init(&head->summary, problem) && head->k && head->v && head->k_mean &&
         head->v_mean && (head->k_variance || !problem->second_order) && head->log2_length &&
         head->h_sum && head->key_center && head->h_square;
}

void fast_head_free(struct fast_head *head) {
  oracle_summary_free(&head->summary);
  free(head->k);
  free(head->v);
  free(head->k_mean);
  free(head->v_mean);
  free(head->k_variance);
  free(head->log2_length);
  free(head->h_sum);
  free(head->key_center);
  free(head->h_square);
}

bool fast_scratch_init(struct fast_scratch *scratch, const struct cpu_problem *problem) {
  int64_t rows = problem->query, D = problem->head_dim;
  scratch->q = floats(rows * D);
  scratch->q_square = problem->second_order ? floats(rows * D) : NULL;
  scratch->s = floats(rows * TILE_KEYS);
  scratch->o = floats(rows * D);
  scratch->slope = floats(rows * D);
  scratch->row = floats(rows * 5);
  scratch->listed = calloc((size_t)problem->k_blocks, sizeof(bool));
  return scratch->q && (scratch->q_square || !problem->second_order) && scratch->s && scratch->o &&
         scratch->slope && scratch->row && scratch->listed;
}

void fast_scratch_free(struct fast_scratch *scratch) {
  free(scratch->q);
  free(scratch->q_square);
  free(scratch->s);
  free(scratch->o);
  free(scratch->slope);
  free(scratch->row);
  free(scratch->listed);
}

/* ---- stage 1: widening and statistics ---- */

/* The place of column |d| of block |j| in tiles of 64 blocks, transposed. */
static float *mean_place(const struct fast_head *head, float *tiled, int64_t j, int d) {
  return tiled + (j / TILE_KEYS * head->problem->head_dim + d) * TILE_KEYS + j % TILE_KEYS;
}

/* The variances of block |j|'s key columns from the sums of their |length| elements and squares,
   and tr C_j. */
static void store_variance(struct fast_head *head, int64_t j, const double *sum,
                           const double *square_sum, double length) {
  const struct cpu_problem *p = head->problem;
  double trace = 0;
  for (int d = 0; d < p->head_dim; d++) {
    double mean = sum[d] / length, variance = square_sum[d] / length - mean * mean;
    if (variance < 0)
      variance = 0;
    trace += variance;
    double stored = cpu_round_variance(p, variance);
    head->summary.k_variance[j * p->head_dim + d] = stored;
    if (p->second_order)
      *mean_place(head, head->k_variance, j, d) = (float)stored;
  }
  if (p->key_variance)
    head->summary.block_norm[j] = trace;
}

/* Key block |j|: tiles of k and v, the means of both, the variances of k. */
static void load_block(void *context, int thread, int64_t j) {
  struct fast_head *head = context;
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim;
  int64_t length = cpu_key_length(p, j);
  double k_sum[CPU_MAX_HEAD_DIM] = {0}, v_sum[CPU_MAX_HEAD_DIM] = {0};
  double k_square[CPU_MAX_HEAD_DIM] = {0};
  float row[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t t = j * p->key; t < j * p->key + length; t++) {
    float *k = head->k + t / TILE_KEYS * D * TILE_KEYS + t % TILE_KEYS, *v = head->v + t * D;
    cpu_widen_row(p->type, (size_t)D, cpu_row(&p->k, head->b, head->kv_head, t), row);
    cpu_widen_row(p->type, (size_t)D, cpu_row(&p->v, head->b, head->kv_head, t), v);
    for (int d = 0; d < D; d++) {
      k[d * TILE_KEYS] = row[d];
      k_sum[d] += (double)row[d];
      k_square[d] += (double)row[d] * (double)row[d];
      v_sum[d] += (double)v[d];
    }
  }
  for (int d = 0; d < D; d++) {
    double k = k_sum[d] / (double)length, v = v_sum[d] / (double)length;
    head->key_center[j * D + d] = (float)k;
    head->summary.k_mean[j * D + d] = cpu_round(p->type, k);
    head->summary.v_mean[j * D + d] = cpu_round(p->type, v);
    *mean_place(head, head->k_mean, j, d) = (float)head->summary.k_mean[j * D + d];
    head->v_mean[j * D + d] = (float)head->summary.v_mean[j * D + d];
  }
  head->log2_length[j] = log2f((float)length);
  if (p->second_order || p->key_variance)
    store_variance(head, j, k_sum, k_square, (double)length);
}

/* H [SLAB, D] += the 8 rows from |row| of sum_n (k_n - kbar)^T v_n over one tile of block |j|. */
static void covariance(const struct fast_head *head, int64_t j, int64_t tile, int row, float *H) {
  int64_t D = head->problem->head_dim;
  float centered[SLAB *
                 TILE_KEYS]; /* [SLAB, 64]; past Nk v is zero, so what stands there adds nothing */
  const float *k = head->k + (tile * D + row) * TILE_KEYS, *center = head->key_center + j * D + row;
  for (int r = 0; r < SLAB; r++)
    for (int n = 0; n < TILE_KEYS; n++)
      centered[r * TILE_KEYS + n] = k[r * TILE_KEYS + n] - center[r];
  tile_multiply(SLAB, D, TILE_KEYS, centered, TILE_KEYS, head->v + tile * TILE_KEYS * D, D, H, D);
}

/* Rows [8 slab, 8 slab + 8) of every H_j: their squares by block, their sum over all blocks. */
static void load_slab(void *context, int thread, int64_t slab) {
  struct fast_head *head = context;
  const struct cpu_problem *p = head->problem;
  int D = p->head_dim, row = (int)slab * SLAB, per_block = p->key / TILE_KEYS;
  double sum[SLAB * CPU_MAX_HEAD_DIM] = {0};
  float H[SLAB * CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double square = 0;
    memset(H, 0, sizeof H);
    for (int64_t t = j * per_block; t < (j + 1) * per_block && t < head->key_tiles; t++)
      covariance(head, j, t, row, H);
    for (int e = 0; e < SLAB * D; e++) {
      square += (double)H[e] * (double)H[e];
      sum[e] += (double)H[e];
    }
    head->h_square[slab * p->k_blocks + j] = square;
  }
  for (int e = 0; e < SLAB * D; e++) {
    double stored = cpu_round_h_sum(p, sum[e] * p->scale / (double)p->n_k);
    head->summary.h_sum[row * D + e] = stored;
    head->h_sum[row * D + e] = (float)stored;
  }
}

static void add_norms(struct fast_head *head) {
  const struct cpu_problem *p = head->problem;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double square = 0;
    for (int slab = 0; slab < p->head_dim / SLAB; slab++)
      square += head->h_square[slab * p->k_blocks + j];
    if (p->log_covariance)
      head->summary.block_norm[j] = sqrt(square);
  }
}

/* Sub-block |i| of q: its rounded mean. */
static void load_queries(void *context, int thread, int64_t i) {
  struct fast_head *head = context;
  const struct cpu_problem *p = head->problem;
  int64_t begin = i * p->key, end = begin + p->key < p->n_q ? begin + p->key : p->n_q;
  double sum[CPU_MAX_HEAD_DIM] = {0};
  (void)thread;
  for (int64_t n = begin; n < end; n++) {
    const uint16_t *q = cpu_row(&p->q, head->b, head->h, n);
    for (int d = 0; d < p->head_dim; d++)
      sum[d] += (double)cpu_widen(p->type, q[d]);
  }
  for (int d = 0; d < p->head_dim; d++)
    head->summary.q_mean[i * p->head_dim + d] = cpu_round(p->type, sum[d] / (double)(end - begin));
}

void fast_load(struct fast_head *head, int64_t b, int64_t h, int threads) {
  const struct cpu_problem *p = head->problem;
  int64_t kv_head = cpu_kv_head(p, h);
  bool loaded = head->b == b && head->kv_head == kv_head;
  head->b = b;
  head->h = h;
  head->kv_head = kv_head;
  if (!loaded)
    cpu_parallel(threads, p->k_blocks, load_block, head);
  if (!loaded && cpu_wants_h(p)) {
    cpu_parallel(threads, p->head_dim / SLAB, load_slab, head);
    add_norms(head);
  }
  if (!p->dense)
    cpu_parallel(threads, p->q_sub_blocks, load_queries, head);
}

/* ---- stage 4: attention of one query block ---- */

struct step { /* what a tile is read with */
  struct fast_scratch *scratch;
  int64_t rows; /* of q, padded to 4 */
  int64_t D;
  float c; /* scale log2 e */
  float *m, *l, *g, *f, *sum;
};

/* One tile of 64 columns with keys k [D, 64], variances [D, 64] or NULL, values v [64, D] and bias
   [64] joins m, l and o. */
static void attend_tile(const struct step *step, const float *k, const float *variance,
                        const float *v, const float *bias) {
  float *s = step->scratch->s, *o = step->scratch->o;
  memset(s, 0, (size_t)(step->rows * TILE_KEYS) * sizeof *s);
  tile_multiply(step->rows, TILE_KEYS, step->D, step->scratch->q, step->D, k, TILE_KEYS, s,
                TILE_KEYS);
  if (variance)
    tile_multiply(step->rows, TILE_KEYS, step->D, step->scratch->q_square, step->D, variance,
                  TILE_KEYS, s, TILE_KEYS);
  tile_softmax(step->rows, step->c, bias, s, step->m, step->l, step->f, step->sum);
  for (int64_t r = 0; r < step->rows; r++) {
    step->g[r] *= step->f[r];
    for (int64_t d = 0; step->f[r] != 1 && d < step->D; d++)
      o[r * step->D + d] *= step->f[r];
  }
  tile_multiply(step->rows, step->D, TILE_KEYS, s, TILE_KEYS, v, step->D, o, step->D);
}

static void attend_block(const struct step *step, const struct fast_head *head, int64_t j) {
  const struct cpu_problem *p = head->problem;
  int64_t end = j * p->key + cpu_key_length(p, j);
  for (int64_t t = j * p->key; t < end; t += TILE_KEYS) {
    float bias[TILE_KEYS];
    for (int n = 0; n < TILE_KEYS; n++)
      bias[n] = t + n < end ? 0 : -INFINITY;
    attend_tile(step, head->k + t * step->D, NULL, head->v + t * step->D, bias);
  }
}

/* Tile |t| of block means; listed and absent blocks have no column. */
static void attend_means(const struct step *step, const struct fast_head *head, int64_t t) {
  int64_t first = t * TILE_KEYS;
  float bias[TILE_KEYS];
  for (int n = 0; n < TILE_KEYS; n++) {
    bool absent = first + n >= head->problem->k_blocks || step->scratch->listed[first + n];
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
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim, rows = cpu_query_length(p, i), padded = (rows + 3) / 4 * 4, n = p->query;
  for (int64_t r = 0; r < rows; r++)
    cpu_widen_row(p->type, (size_t)D, cpu_row(&p->q, head->b, head->h, i * p->query + r),
                  scratch->q + r * D);
  memset(scratch->q + rows * D, 0, (size_t)((padded - rows) * D) * sizeof(float));
  for (int64_t e = 0; p->second_order && e < padded * D; e++)
    scratch->q_square[e] = (float)cpu_round(p->type, (double)scratch->q[e] * (double)scratch->q[e]);
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
  const struct cpu_problem *p = head->problem;
  struct step step = begin_step(head, scratch, i);
  memset(scratch->listed, 0, (size_t)p->k_blocks * sizeof(bool));
  for (int64_t e = 0; e < n; e++) {
    scratch->listed[list[e]] = true;
    attend_block(&step, head, list[e]);
  }
  for (int64_t t = 0; p->means && t < head->mean_tiles; t++)
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
