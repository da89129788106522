/* quality_synthetic.c: two standard deviations in; q, k and v whose logits have them, out.

   Key n of block j is kbar_j + dk_n, both normal, and every query has norm 1 / scale: its logits
   then spread by |spread| inside a block and by |between| between blocks. Queries of 128 rows share
   a centre. Values are partly linear in dk, by a matrix that blocks partly share: what a
   first-order term can catch, and what a term common to all blocks misses. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/tool/quality.h"
#include "runtime/tool/random.h"

enum { KEYS = 64, ROWS = 128, MAX_DIM = 256 };
enum stream { Q_CENTRE, Q_ROW, K_CENTRE, K_ROW, V_MEAN, V_CENTRE, V_ROW, V_COMMON, V_OWN };

/* Chosen so that at 4096 tokens and density 1/8 the tail's mass and the errors of drop, order 0 and
   hybrid come out as in the table of docs/results/quality. */
static const float COHERENCE = 0.87F; /* cosine between a query and its block's centre */
static const float MEAN = 0.42F;   /* of the value mean that all blocks share; the blocks' own: 1 */
static const float LINEAR = 0.18F; /* of an element of the matrix from dk to v */
static const float OWN = 0.7F;     /* a block's own part of that matrix, the common part being 1 */
static const float NOISE = 0.1F;   /* of a value by itself */

struct maker {
  const struct quality_scene *scene;
  uint64_t seed;
  double spread, between;
  int64_t at, head;    /* key head: its place in the scene, its number, which seeds it */
  const float *common; /* [D, D] */
  float *own;          /* [threads, D, D] */
};

/* out [n] normal numbers that only (seed, stream, head, index) decide. */
static void draw(const struct maker *m, enum stream stream, int64_t head, int64_t index, int64_t n,
                 float *out) {
  uint64_t row = (uint64_t)head << 40 | (uint64_t)index;
  struct random random = random_at(m->seed, (uint64_t)stream, row);
  random_normals(&random, n, out);
}

static void normalize(float *x, int d) {
  float square = 0;
  for (int i = 0; i < d; i++)
    square += x[i] * x[i];
  for (int i = 0; i < d; i++)
    x[i] /= sqrtf(square);
}

/* Row |n| of query head |at| of the scene. */
static void make_query(const struct maker *m, int64_t at, int64_t n) {
  const struct quality_scene *s = m->scene;
  int d = s->head_dim;
  float centre[MAX_DIM], row[MAX_DIM];
  draw(m, Q_CENTRE, s->where[at].h, n / ROWS, d, centre);
  draw(m, Q_ROW, s->where[at].h, n, d, row);
  normalize(centre, d);
  normalize(row, d);
  for (int i = 0; i < d; i++)
    row[i] = COHERENCE * centre[i] + sqrtf(1 - COHERENCE * COHERENCE) * row[i];
  normalize(row, d);
  for (int i = 0; i < d; i++)
    s->q[(at * s->n_q + n) * d + i] = cpu_narrow(s->type, row[i] / s->scale);
}

static void make_queries(void *context, int thread, int64_t block) {
  const struct maker *m = context;
  const struct quality_scene *s = m->scene;
  int64_t group = s->heads / s->kv_heads, end = (block + 1) * ROWS;
  (void)thread;
  for (int64_t n = block * ROWS; n < end && n < s->n_q; n++)
    for (int64_t i = 0; i < group; i++)
      make_query(m, m->at * group + i, n);
}

/* v [D] += LINEAR * dk (common + OWN own) */
static void add_linear(const struct maker *m, const float *dk, const float *own, float *v) {
  int d = m->scene->head_dim;
  for (int r = 0; r < d; r++)
    for (int c = 0; c < d; c++)
      v[c] += LINEAR * dk[r] * (m->common[r * d + c] + OWN * own[r * d + c]);
}

static void make_keys(void *context, int thread, int64_t block) {
  const struct maker *m = context;
  const struct quality_scene *s = m->scene;
  int d = s->head_dim;
  float mean[MAX_DIM], k_centre[MAX_DIM], v_centre[MAX_DIM], dk[MAX_DIM], v[MAX_DIM];
  float *own = m->own + (int64_t)thread * d * d;
  draw(m, V_OWN, m->head, block, d * d, own);
  draw(m, V_MEAN, m->head, 0, d, mean);
  draw(m, V_CENTRE, m->head, block, d, v_centre);
  draw(m, K_CENTRE, m->head, block, d, k_centre);
  for (int64_t n = block * KEYS; n < (block + 1) * KEYS && n < s->n_k; n++) {
    int64_t row = (m->at * s->n_k + n) * d;
    draw(m, K_ROW, m->head, n, d, dk);
    draw(m, V_ROW, m->head, n, d, v);
    for (int i = 0; i < d; i++) {
      v[i] = MEAN * mean[i] + v_centre[i] + NOISE * v[i];
      float k = (float)m->between * k_centre[i] + (float)m->spread * dk[i];
      s->k[row + i] = cpu_narrow(s->type, k);
    }
    add_linear(m, dk, own, v);
    for (int i = 0; i < d; i++)
      s->v[row + i] = cpu_narrow(s->type, v[i]);
  }
}

/* Query heads in groups, as --heads names them; the rest of a group comes with it. */
static void place_heads(struct quality_scene *s, const struct quality_options *o, int64_t group) {
  int64_t at = -1;
  for (int i = 0; i < o->n_heads; i++) {
    int64_t first = o->heads[i] / group * group;
    if (at < 0 || s->where[at * group].h != first)
      at++;
    for (int64_t g = 0; g < group; g++)
      s->where[at * group + g].h = first + g;
    s->where[at * group + o->heads[i] - first].wanted = true;
  }
  s->n_wanted = o->n_heads;
}

static int64_t count_groups(const struct quality_options *o, int64_t group) {
  int64_t n = 0;
  for (int i = 0; i < o->n_heads; i++)
    n += i == 0 || o->heads[i] / group != o->heads[i - 1] / group;
  return n;
}

static void make_heads(struct maker *m, float *common, int threads) {
  const struct quality_scene *s = m->scene;
  int64_t group = s->heads / s->kv_heads;
  for (m->at = 0; m->at < s->kv_heads; m->at++) {
    m->head = s->where[m->at * group].h / group;
    draw(m, V_COMMON, m->head, 0, (int64_t)s->head_dim * s->head_dim, common);
    cpu_parallel(threads, (s->n_q + ROWS - 1) / ROWS, make_queries, m);
    cpu_parallel(threads, (s->n_k + KEYS - 1) / KEYS, make_keys, m);
  }
}

pisa_status quality_scene_make(const struct quality_options *o, const struct quality_packs *packs,
                               double spread, double between, struct quality_scene *out,
                               pisa_error *error) {
  int64_t kv_heads = count_groups(o, packs->group), d = packs->head_dim;
  int threads = cpu_threads((int)o->threads);
  double scale = o->scale > 0 ? o->scale : 1 / sqrt((double)d);
  *out = (struct quality_scene){.synthetic = true,
                                .spread = spread,
                                .between = between,
                                .type = packs->type,
                                .head_dim = packs->head_dim,
                                .heads = kv_heads * packs->group,
                                .kv_heads = kv_heads,
                                .n_q = o->tokens,
                                .n_k = o->tokens,
                                .scale = (float)scale};
  snprintf(out->name, sizeof out->name, "synthetic std=%g between=%g", spread, between);
  pisa_status status = quality_scene_alloc(out, error);
  if (status)
    return status;
  place_heads(out, o, packs->group);
  float *matrices = malloc((size_t)((threads + 1) * d * d) * sizeof *matrices);
  if (!matrices)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for synthetic tensors");
  struct maker maker = {.scene = out,
                        .seed = (uint64_t)o->seed,
                        .spread = spread,
                        .between = between,
                        .common = matrices,
                        .own = matrices + d * d};
  make_heads(&maker, matrices, threads);
  free(matrices);
  return PISA_OK;
}
