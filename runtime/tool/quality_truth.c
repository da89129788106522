/* quality_truth.c: the heads of a scene in; dense attention in float, the softmax mass of every
   cell of 64 rows x 64 keys, and how far logits spread, out.

   One pass over the keys: the sums of every tile are kept with the running maximum they were
   formed at, and become shares of the softmax once the row's last maximum and sum are known. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/tile.h"
#include "runtime/tool/quality.h"

enum { ROWS = QUALITY_GRANULE };
static_assert((int)TILE_KEYS == QUALITY_GRANULE, "a cell of mass is a tile");

struct lane {       /* what one thread works in */
  float *q, *s, *o; /* [64, D], [64, 64], [64, D] */
  float m[ROWS], l[ROWS], f[ROWS], sum[ROWS];
  float *sums, *maxima;      /* [k_cells, 64] of every tile */
  double *means, *variances; /* [k_cells] of one row's logits */
};

struct pass {
  const struct quality_scene *scene;
  struct quality_truth *truth;
  float *k,
      *v; /* one key head: [k_cells, D, 64] transposed by tile, [k_cells, 64, D]; zero past Nk */
  struct lane *lanes;
  int threads;
  int64_t head;         /* query head */
  double *row_variance; /* [2, Nq] inside, between, of the current head */
  quality_progress progress;
  void *user;
  pthread_mutex_t lock; /* of |done| */
  int64_t done;
};

static bool lane_init(struct lane *lane, const struct quality_truth *t, int64_t d) {
  lane->q = calloc((size_t)(ROWS * d), sizeof *lane->q);
  lane->s = calloc(ROWS * TILE_KEYS, sizeof *lane->s);
  lane->o = calloc((size_t)(ROWS * d), sizeof *lane->o);
  lane->sums = calloc((size_t)(t->k_cells * ROWS), sizeof *lane->sums);
  lane->maxima = calloc((size_t)(t->k_cells * ROWS), sizeof *lane->maxima);
  lane->means = calloc((size_t)(t->k_cells * ROWS), sizeof *lane->means);
  lane->variances = calloc((size_t)(t->k_cells * ROWS), sizeof *lane->variances);
  return lane->q && lane->s && lane->o && lane->sums && lane->maxima && lane->means &&
         lane->variances;
}

static void lane_free(struct lane *lane) {
  free(lane->q);
  free(lane->s);
  free(lane->o);
  free(lane->sums);
  free(lane->maxima);
  free(lane->means);
  free(lane->variances);
}

/* Keys in tile |t|. */
static int64_t keys_in(const struct quality_scene *s, int64_t t) {
  int64_t rest = s->n_k - t * TILE_KEYS;
  return rest < TILE_KEYS ? rest : TILE_KEYS;
}

static int64_t rows_in(const struct quality_scene *s, int64_t i) {
  int64_t rest = s->n_q - i * ROWS;
  return rest < ROWS ? rest : ROWS;
}

/* Tile |t| of the key head that |pass->head| reads. */
static void load_tile(void *context, int thread, int64_t t) {
  struct pass *pass = context;
  const struct quality_scene *s = pass->scene;
  int64_t d = s->head_dim, head = pass->head / (s->heads / s->kv_heads);
  float *k = pass->k + t * d * TILE_KEYS, *v = pass->v + t * d * TILE_KEYS;
  (void)thread;
  memset(k, 0, (size_t)(d * TILE_KEYS) * sizeof *k);
  memset(v, 0, (size_t)(d * TILE_KEYS) * sizeof *v);
  for (int64_t n = 0; n < keys_in(s, t); n++) {
    int64_t row = (head * s->n_k + t * TILE_KEYS + n) * d;
    cpu_widen_row(s->type, (size_t)d, s->v + row, v + n * d);
    for (int64_t i = 0; i < d; i++)
      k[i * TILE_KEYS + n] = cpu_widen(s->type, s->k[row + i]);
  }
}

/* Mean and variance of each row's logits in tile |t|, from the products q.k. */
static void add_moments(const struct quality_scene *s, struct lane *lane, int64_t t) {
  int64_t n = keys_in(s, t);
  for (int r = 0; r < ROWS; r++) {
    const float *x = lane->s + r * TILE_KEYS;
    float sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
      sum += x[i];
    float mean = sum / (float)n;
    for (int64_t i = 0; i < n; i++)
      square += (x[i] - mean) * (x[i] - mean);
    lane->means[t * ROWS + r] = (double)s->scale * (double)mean;
    lane->variances[t * ROWS + r] =
        (double)s->scale * (double)s->scale * (double)square / (double)n;
  }
}

static void attend_tile(const struct pass *pass, struct lane *lane, int64_t t) {
  const struct quality_scene *s = pass->scene;
  int64_t d = s->head_dim;
  float *o = lane->o;
  float bias[TILE_KEYS];
  for (int n = 0; n < TILE_KEYS; n++)
    bias[n] = n < keys_in(s, t) ? 0 : -INFINITY;
  memset(lane->s, 0, ROWS * TILE_KEYS * sizeof *lane->s);
  tile_multiply(ROWS, TILE_KEYS, d, lane->q, d, pass->k + t * d * TILE_KEYS, TILE_KEYS, lane->s,
                TILE_KEYS);
  add_moments(s, lane, t);
  tile_softmax(ROWS, s->scale * 1.44269504F, bias, lane->s, lane->m, lane->l, lane->f, lane->sum);
  for (int r = 0; r < ROWS; r++)
    for (int64_t i = 0; lane->f[r] != 1 && i < d; i++)
      o[r * d + i] *= lane->f[r];
  tile_multiply(ROWS, d, TILE_KEYS, lane->s, TILE_KEYS, pass->v + t * d * TILE_KEYS, d, o, d);
  memcpy(lane->sums + t * ROWS, lane->sum, sizeof lane->sum);
  memcpy(lane->maxima + t * ROWS, lane->m, sizeof lane->m);
}

/* mass [k_cells]: what falls on each tile, summed over the rows. */
static void add_mass(const struct pass *pass, const struct lane *lane, int64_t rows, float *mass) {
  for (int64_t t = 0; t < pass->truth->k_cells; t++) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
      float shrink = exp2f(lane->maxima[t * ROWS + r] - lane->m[r]);
      sum += (double)(lane->sums[t * ROWS + r] * shrink / lane->l[r]);
    }
    mass[t] = (float)sum;
  }
}

/* The law of total variance: blocks count by their keys. */
static void add_spread(struct pass *pass, const struct lane *lane, int64_t first, int64_t rows) {
  const struct quality_scene *s = pass->scene;
  for (int64_t r = 0; r < rows; r++) {
    double inside = 0, mean = 0, between = 0;
    for (int64_t t = 0; t < pass->truth->k_cells; t++) {
      double share = (double)keys_in(s, t) / (double)s->n_k;
      inside += share * lane->variances[t * ROWS + r];
      mean += share * lane->means[t * ROWS + r];
    }
    for (int64_t t = 0; t < pass->truth->k_cells; t++) {
      double share = (double)keys_in(s, t) / (double)s->n_k, off = lane->means[t * ROWS + r] - mean;
      between += share * off * off;
    }
    pass->row_variance[first + r] = inside;
    pass->row_variance[s->n_q + first + r] = between;
  }
}

static void report(struct pass *pass) {
  if (!pass->progress)
    return;
  pthread_mutex_lock(&pass->lock);
  pass->progress(pass->user, ++pass->done, pass->scene->heads * pass->truth->q_cells);
  pthread_mutex_unlock(&pass->lock);
}

/* 64 rows of the current head. */
static void attend_rows(void *context, int thread, int64_t i) {
  struct pass *pass = context;
  const struct quality_scene *s = pass->scene;
  struct quality_truth *t = pass->truth;
  struct lane *lane = &pass->lanes[thread];
  int64_t d = s->head_dim, rows = rows_in(s, i), at = (pass->head * s->n_q + i * ROWS) * d;
  memset(lane->q, 0, (size_t)(ROWS * d) * sizeof *lane->q);
  memset(lane->o, 0, (size_t)(ROWS * d) * sizeof *lane->o);
  memset(lane->l, 0, sizeof lane->l);
  for (int r = 0; r < ROWS; r++)
    lane->m[r] = -INFINITY;
  cpu_widen_row(s->type, (size_t)(rows * d), s->q + at, lane->q);
  for (int64_t tile = 0; tile < t->k_cells; tile++)
    attend_tile(pass, lane, tile);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t e = 0; e < d; e++)
      t->o[at + r * d + e] = lane->o[r * d + e] / lane->l[r];
  add_mass(pass, lane, rows, t->mass + (pass->head * t->q_cells + i) * t->k_cells);
  add_spread(pass, lane, i * ROWS, rows);
  report(pass);
}

static double mean_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i];
  return sum / (double)n;
}

static void run_heads(struct pass *pass) {
  const struct quality_scene *s = pass->scene;
  int64_t group = s->heads / s->kv_heads;
  struct quality_truth *t = pass->truth;
  double inside = 0, between = 0;
  for (pass->head = 0; pass->head < s->heads; pass->head++) {
    if (pass->head % group == 0)
      cpu_parallel(pass->threads, t->k_cells, load_tile, pass);
    cpu_parallel(pass->threads, t->q_cells, attend_rows, pass);
    double in = mean_of(pass->row_variance, s->n_q);
    double out = mean_of(pass->row_variance + s->n_q, s->n_q);
    t->spreads[pass->head] = (struct quality_spread){sqrt(in), sqrt(out)};
    inside += s->where[pass->head].wanted ? in : 0;
    between += s->where[pass->head].wanted ? out : 0;
  }
  t->spread.inside = sqrt(inside / (double)s->n_wanted);
  t->spread.between = sqrt(between / (double)s->n_wanted);
}

/* Also finds values that are not finite. */
static pisa_status check(const struct quality_scene *s, struct quality_truth *t,
                         pisa_error *error) {
  double off = 0, square = 0;
  int64_t size = s->n_q * s->head_dim;
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t e = h * size; s->where[h].wanted && e < (h + 1) * size; e++) {
      double x = (double)t->o[e], rounded = cpu_round(s->type, x);
      if (!isfinite(x))
        return pisa_fail(error, PISA_INVALID_ARGUMENT,
                         "dense attention of head %lld is not finite in row %lld: nothing can be "
                         "compared with it",
                         (long long)s->where[h].h, (long long)((e - h * size) / s->head_dim));
      off += (rounded - x) * (rounded - x);
      square += x * x;
    }
  t->rounding = square > 0 ? sqrt(off / square) : 0;
  return PISA_OK;
}

static bool pass_init(struct pass *pass) {
  const struct quality_scene *s = pass->scene;
  struct quality_truth *t = pass->truth;
  int64_t tile = (int64_t)TILE_KEYS * s->head_dim;
  pass->k = malloc((size_t)(t->k_cells * tile) * sizeof *pass->k);
  pass->v = malloc((size_t)(t->k_cells * tile) * sizeof *pass->v);
  pass->row_variance = calloc((size_t)(2 * s->n_q), sizeof *pass->row_variance);
  pass->lanes = calloc((size_t)pass->threads, sizeof *pass->lanes);
  bool ok = pass->k && pass->v && pass->row_variance && pass->lanes;
  for (int i = 0; ok && i < pass->threads; i++)
    ok = lane_init(&pass->lanes[i], t, s->head_dim);
  return ok;
}

static void pass_free(struct pass *pass) {
  for (int i = 0; pass->lanes && i < pass->threads; i++)
    lane_free(&pass->lanes[i]);
  free(pass->lanes);
  free(pass->row_variance);
  free(pass->k);
  free(pass->v);
}

pisa_status quality_truth_make(const struct quality_scene *s, int threads,
                               quality_progress progress, void *user, struct quality_truth *out,
                               pisa_error *error) {
  struct pass pass = {.scene = s,
                      .truth = out,
                      .threads = cpu_threads(threads),
                      .progress = progress,
                      .user = user,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
  *out = (struct quality_truth){.q_cells = (s->n_q + ROWS - 1) / ROWS,
                                .k_cells = (s->n_k + TILE_KEYS - 1) / TILE_KEYS};
  int64_t size = s->heads * s->n_q * s->head_dim;
  out->o = malloc((size_t)size * sizeof *out->o);
  out->mass = malloc((size_t)(s->heads * out->q_cells * out->k_cells) * sizeof *out->mass);
  out->spreads = calloc((size_t)s->heads, sizeof *out->spreads);
  bool ok = out->o && out->mass && out->spreads && pass_init(&pass);
  if (ok)
    run_heads(&pass);
  pass_free(&pass);
  return ok ? check(s, out, error)
            : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for dense attention");
}

void quality_truth_free(struct quality_truth *truth) {
  free(truth->o);
  free(truth->mass);
  free(truth->spreads);
}
