/* fast.c: one head of q, k, v in; float tiles of 64 keys and summaries out. */
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
  int64_t keys = tiles(problem->n_k) * TILE_KEYS, means = tiles(NT) * TILE_KEYS;
  *head = (struct fast_head){.call = problem, .b = -1, .h = -1, .kv_head = -1};
  head->k = floats(keys * D);
  head->v = floats(keys * D);
  head->k_mean = floats(means * D);
  head->v_mean = floats(means * D);
  head->k_variance = problem->means && problem->second_order ? floats(means * D) : NULL;
  head->log2_length = floats(means);
  head->h_sum = floats(D * D);
  head->key_center = floats(NT * D);
  head->h_square = calloc((size_t)(D / SLAB * NT), sizeof(double));
  return oracle_summary_init(&head->summary, problem) && head->k && head->v && head->k_mean &&
         head->v_mean && (head->k_variance || !problem->means || !problem->second_order) &&
         head->log2_length && head->h_sum && head->key_center && head->h_square;
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
  scratch->q_square = floats(rows * D);
  scratch->s = floats(rows * (problem->key > TILE_KEYS ? problem->key : TILE_KEYS));
  scratch->o = floats(rows * D);
  scratch->slope = floats(rows * D);
  scratch->row = floats(rows * 5);
  scratch->listed = calloc((size_t)problem->k_blocks, sizeof(bool));
  return scratch->q && scratch->q_square && scratch->s && scratch->o && scratch->slope &&
         scratch->row && scratch->listed;
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
  return tiled + (j / TILE_KEYS * head->problem.head_dim + d) * TILE_KEYS + j % TILE_KEYS;
}

/* The variances of block |j|'s key columns from the sums of their |length| elements and squares,
   and tr C_j. */
static void store_variance(struct fast_head *head, int64_t j, const double *sum,
                           const double *square_sum, double length) {
  const struct cpu_problem *p = &head->problem;
  double trace = 0;
  for (int d = 0; d < p->head_dim; d++) {
    double mean = sum[d] / length, variance = square_sum[d] / length - mean * mean;
    if (variance < 0)
      variance = 0;
    trace += variance;
    double stored = cpu_round_variance(p, variance);
    head->summary.k_variance[j * p->head_dim + d] = stored;
    if (head->k_variance)
      *mean_place(head, head->k_variance, j, d) = (float)stored;
  }
  if (p->key_variance)
    head->summary.block_norm[j] = trace;
}

/* Key block |j|: tiles of k and v, the means of both, the variances of k. */
static void load_block(void *context, int thread, int64_t j) {
  struct fast_head *head = context;
  const struct cpu_problem *p = &head->problem;
  int D = p->head_dim;
  int64_t length = cpu_key_length(p, j);
  double k_sum[CPU_MAX_HEAD_DIM] = {0}, v_sum[CPU_MAX_HEAD_DIM] = {0};
  double k_square[CPU_MAX_HEAD_DIM] = {0};
  float row[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t t = j * p->key; t < j * p->key + length; t++) {
    float *k = head->k + t / TILE_KEYS * D * TILE_KEYS + t % TILE_KEYS, *v = head->v + t * D;
    cpu_widen_row(p->type, (size_t)D, cpu_key_row(p, &p->k, head->b, head->kv_head, t), row);
    cpu_widen_row(p->type, (size_t)D, cpu_key_row(p, &p->v, head->b, head->kv_head, t), v);
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
  if (head->k_variance || p->key_variance)
    store_variance(head, j, k_sum, k_square, (double)length);
}

/* H [SLAB, D] += the 8 rows from |row| of sum_n (k_n - kbar)^T v_n over one tile of block |j|. */
static void covariance(const struct fast_head *head, int64_t j, int64_t tile, int row, float *H) {
  int64_t D = head->problem.head_dim;
  float centered[SLAB *
                 TILE_KEYS]; /* [SLAB, 64]; past Nk v is zero, so what stands there adds nothing */
  const float *k = head->k + (tile * D + row) * TILE_KEYS, *center = head->key_center + j * D + row;
  for (int r = 0; r < SLAB; r++)
    for (int n = 0; n < TILE_KEYS; n++)
      centered[r * TILE_KEYS + n] = k[r * TILE_KEYS + n] - center[r];
  tile_multiply(SLAB, D, TILE_KEYS, centered, TILE_KEYS, head->v + tile * TILE_KEYS * D, D, H, D);
}

/* H [SLAB, D] = rows [8 slab, 8 slab + 8) of H_j. */
static void covariance_slab(const struct fast_head *head, int64_t j, int64_t slab, float *H) {
  const struct cpu_problem *p = &head->problem;
  int64_t per_block = p->key / TILE_KEYS, last = tiles(p->n_k);
  memset(H, 0, (size_t)(SLAB * p->head_dim) * sizeof *H);
  for (int64_t t = j * per_block; t < (j + 1) * per_block && t < last; t++)
    covariance(head, j, t, (int)slab * SLAB, H);
}

/* The sum of squares of H [n], or of H - sum / NT. */
static double squares(const struct cpu_problem *p, const float *H, const double *sum, int n) {
  double total = 0, share = p->log_residual ? 1 / (double)p->k_blocks : 0;
  for (int e = 0; e < n; e++) {
    double x = share > 0 ? (double)H[e] - share * sum[e] : (double)H[e];
    total += x * x;
  }
  return total;
}

/* Rows [8 slab, 8 slab + 8) of every H_j: their sum over all blocks, their squares by block. */
static void load_slab(void *context, int thread, int64_t slab) {
  struct fast_head *head = context;
  const struct cpu_problem *p = &head->problem;
  int n = SLAB * p->head_dim;
  double sum[SLAB * CPU_MAX_HEAD_DIM] = {0};
  float H[SLAB * CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    covariance_slab(head, j, slab, H);
    for (int e = 0; e < n; e++)
      sum[e] += (double)H[e];
    if (!p->log_residual)
      head->h_square[slab * p->k_blocks + j] = squares(p, H, sum, n);
  }
  for (int64_t j = 0; p->log_residual && j < p->k_blocks; j++) {
    covariance_slab(head, j, slab, H);
    head->h_square[slab * p->k_blocks + j] = squares(p, H, sum, n);
  }
  for (int e = 0; e < n; e++) {
    double stored = p->n_k ? cpu_round_h_sum(p, sum[e] * p->scale / (double)p->n_k) : 0;
    head->summary.h_sum[slab * n + e] = stored;
    head->h_sum[slab * n + e] = (float)stored;
  }
}

static void add_norms(struct fast_head *head) {
  const struct cpu_problem *p = &head->problem;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double square = 0;
    for (int slab = 0; slab < p->head_dim / SLAB; slab++)
      square += head->h_square[slab * p->k_blocks + j];
    if (p->log_covariance || p->log_residual)
      head->summary.block_norm[j] = sqrt(square);
  }
}

/* Sub-block |i| of q: its rounded mean. */
static void load_queries(void *context, int thread, int64_t i) {
  struct fast_head *head = context;
  const struct cpu_problem *p = &head->problem;
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

/* Behind a sequence that is shorter than the one before it everything is 0 again. */
static void clear(struct fast_head *head) {
  size_t D = (size_t)head->call->head_dim, keys = (size_t)(tiles(head->call->n_k) * TILE_KEYS);
  size_t means = (size_t)(tiles(head->call->k_blocks) * TILE_KEYS);
  memset(head->k, 0, keys * D * sizeof *head->k);
  memset(head->v, 0, keys * D * sizeof *head->v);
  memset(head->k_mean, 0, means * D * sizeof *head->k_mean);
  memset(head->v_mean, 0, means * D * sizeof *head->v_mean);
  if (head->k_variance)
    memset(head->k_variance, 0, means * D * sizeof *head->k_variance);
}

void fast_load(struct fast_head *head, int64_t b, int64_t h, int threads) {
  const struct cpu_problem *p = &head->problem;
  int64_t kv_head = cpu_kv_head(head->call, h);
  bool loaded = head->b == b && head->kv_head == kv_head;
  head->problem = cpu_sequence(head->call, b);
  head->b = b;
  head->h = h;
  head->kv_head = kv_head;
  if (!loaded && head->call->lengths)
    clear(head);
  if (!loaded)
    cpu_parallel(threads, p->k_blocks, load_block, head);
  if (!loaded && cpu_wants_h(p)) {
    cpu_parallel(threads, p->head_dim / SLAB, load_slab, head);
    add_norms(head);
  }
  if (!p->dense)
    cpu_parallel(threads, p->q_sub_blocks, load_queries, head);
}
