/* quality_select_measure.c: a scene, its softmax and a pack in; how much of it the pack's lists
   hold, by head and by position, out. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/select_method.h"
#include "runtime/size.h"
#include "runtime/tool/quality_select.h"
#include "runtime/tool/run.h"

struct sums {                      /* of one thread */
  struct selection_quality *heads; /* [Hk] */
  struct selection_quality bins[SELECT_BINS], flat;
};

struct measure {
  const struct quality_scene *scene;
  const struct select_truth *truth;
  struct selection pack, flat;    /* the pack's, and a flat scan with exact log-sum-exps */
  const struct pyramid *pyramids; /* [Hk] */
  const int32_t *lists;           /* [Hk, Nq, kept] */
  int64_t kept;
  struct sums *sums; /* [threads] */
  bool *failed;      /* [threads] no memory */
};

/* mass [leaves] from granules. */
static void sum_leaves(const struct select_truth *t, const float *granules, int64_t leaf,
                       int64_t leaves, double *mass) {
  int64_t per_leaf = leaf / SELECT_GRANULE;
  for (int64_t b = 0; b < leaves; b++) {
    mass[b] = 0;
    for (int64_t e = b * per_leaf; e < pisa_min((b + 1) * per_leaf, t->granules); e++)
      mass[b] += (double)granules[e];
  }
}

static void widen_query(const struct quality_scene *s, int64_t kv, int64_t i, double *q) {
  int64_t group = s->heads / s->kv_heads, d = s->head_dim;
  for (int64_t h = 0; h < group; h++)
    for (int64_t e = 0; e < d; e++)
      q[h * d + e] = (double)cpu_widen(s->type, s->q[((kv * group + h) * s->n_q + i) * d + e]);
}

struct room { /* of one query; all NULL where memory ran out */
  double *mass, *q;
  int32_t *best, *flat;
};

/* What the pack lists for query |i| against the best set and the flat one. */
static bool compare(const struct measure *m, struct sums *sums, int64_t kv, int64_t i,
                    const float *granules, const struct room *room) {
  const struct quality_scene *s = m->scene;
  const struct pyramid *p = &m->pyramids[kv];
  int64_t t = s->n_k - s->n_q + i, n_best, n_flat;
  const int32_t *list = m->lists + (kv * s->n_q + i) * m->kept;
  sum_leaves(m->truth, granules, p->leaf, pyramid_nodes(p, 1), room->mass);
  widen_query(s, kv, i, room->q);
  if (!quality_best(&m->pack, p, t, room->mass, m->kept, room->best, &n_best) ||
      !select_leaves(&m->flat, p, room->q, t, m->kept, room->flat, NULL, &n_flat))
    return false;
  struct selection_quality one = {0};
  quality_add(&one, room->mass, list, m->kept, room->best, m->kept);
  quality_join(&sums->heads[kv], &one);
  quality_join(&sums->bins[i * SELECT_BINS / s->n_q], &one);
  quality_add(&sums->flat, room->mass, list, m->kept, room->flat, m->kept);
  return true;
}

static void row(void *context, int thread, int64_t task) {
  struct measure *m = context;
  const struct select_truth *t = m->truth;
  const struct quality_scene *s = m->scene;
  int64_t kv = task / t->rows, i = task % t->rows * t->every;
  const struct pyramid *p = &m->pyramids[kv];
  if (select_visible(&m->pack, p, s->n_k - s->n_q + i, 1) <= m->kept)
    return;
  struct room room = {
      .mass = malloc((size_t)pyramid_nodes(p, 1) * sizeof *room.mass),
      .q = malloc((size_t)(s->heads / s->kv_heads * s->head_dim) * sizeof *room.q),
      .best = malloc((size_t)m->kept * sizeof *room.best),
      .flat = malloc((size_t)m->kept * sizeof *room.flat),
  };
  if (!room.mass || !room.q || !room.best || !room.flat ||
      !compare(m, &m->sums[thread], kv, i, t->mass + task * t->granules, &room))
    m->failed[thread] = true;
  free(room.mass);
  free(room.q);
  free(room.best);
  free(room.flat);
}

/* ---- from sums to figures ---- */

static void finish(const struct measure *m, int threads, struct select_result *out) {
  struct selection_quality all = {0}, flat = {0}, bins[SELECT_BINS] = {0};
  for (int64_t kv = 0; kv < m->scene->kv_heads; kv++) {
    struct selection_quality head = {0};
    for (int thread = 0; thread < threads; thread++)
      quality_join(&head, &m->sums[thread].heads[kv]);
    quality_join(&all, &head);
    out->heads[kv] = quality_means(&head);
  }
  for (int thread = 0; thread < threads; thread++) {
    quality_join(&flat, &m->sums[thread].flat);
    for (int b = 0; b < SELECT_BINS; b++)
      quality_join(&bins[b], &m->sums[thread].bins[b]);
  }
  for (int b = 0; b < SELECT_BINS; b++)
    out->bins[b] = quality_means(&bins[b]);
  out->all = quality_means(&all);
  out->flat_recall = quality_means(&flat).recall;
}

static bool sums_init(struct measure *m, int threads) {
  m->sums = calloc((size_t)threads, sizeof *m->sums);
  m->failed = calloc((size_t)threads, sizeof *m->failed);
  bool ok = m->sums && m->failed;
  for (int thread = 0; ok && thread < threads; thread++) {
    struct sums *sums = &m->sums[thread];
    sums->heads = calloc((size_t)m->scene->kv_heads, sizeof *sums->heads);
    ok = sums->heads != NULL;
  }
  return ok;
}

static void sums_free(struct measure *m, int threads) {
  for (int thread = 0; m->sums && thread < threads; thread++)
    free(m->sums[thread].heads);
  free(m->sums);
  free(m->failed);
}

static pisa_status sum_all(struct measure *m, int threads, struct select_result *out,
                           pisa_error *error) {
  out->heads = calloc((size_t)m->scene->kv_heads, sizeof *out->heads);
  bool ok = sums_init(m, threads) && out->heads;
  if (ok) {
    cpu_parallel(threads, m->scene->kv_heads * m->truth->rows, row, m);
    for (int thread = 0; thread < threads; thread++)
      ok = ok && !m->failed[thread];
  }
  if (ok)
    finish(m, threads, out);
  sums_free(m, threads);
  return ok ? PISA_OK : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory to compare");
}

/* ---- pyramids ---- */

static bool build(const struct quality_scene *s, const struct pisa_method *method, int64_t kv,
                  struct pyramid *out) {
  int64_t n = s->n_k * s->head_dim;
  double *k = malloc((size_t)n * sizeof *k);
  for (int64_t e = 0; k && e < n; e++)
    k[e] = (double)cpu_widen(s->type, s->k[kv * n + e]);
  *out = pyramid_of(s->type, s->head_dim, method->key, method->group);
  bool ok = k && pyramid_build(out, k, s->n_k);
  free(k);
  return ok;
}

static pisa_status with_pyramids(struct measure *m, const struct pisa_method *method, int threads,
                                 struct select_result *out, pisa_error *error) {
  const struct quality_scene *s = m->scene;
  struct pyramid *pyramids = calloc((size_t)s->kv_heads, sizeof *pyramids);
  bool ok = pyramids != NULL;
  int64_t n = 0;
  while (ok && n < s->kv_heads)
    ok = build(s, method, n, &pyramids[n]), n++;
  m->pyramids = pyramids;
  pisa_status status =
      ok ? sum_all(m, threads, out, error)
         : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the means");
  for (int64_t kv = 0; kv < n; kv++)
    pyramid_free(&pyramids[kv]);
  free(pyramids);
  return status;
}

/* ---- the pack's lists ---- */

/* Keys where the pack looks for them. */
static pisa_status add_pages(struct run_call *c, pisa_error *error) {
  const struct run_wish none = {.bnhd = false};
  pisa_status status = c->method->page ? run_lay_pages(c, error) : PISA_OK;
  return status ? status : run_add_lengths(c, &none, error);
}

static void free_call(const struct quality_scene *s, struct run_call *c) {
  if (c->k != s->k)
    free(c->k);
  free(c->pages);
  free(c->lengths);
  free(c->blocks);
}

static pisa_status select_with(const struct quality_scene *s, const struct quality_pack *pack,
                               const struct quality_run *run, struct run_call *c,
                               pisa_error *error) {
  *c = (struct run_call){.pack = pack->pack,
                         .variant = pack->variant,
                         .method = &pack->chosen->method,
                         .q = s->q,
                         .k = s->k,
                         .q_size = s->heads * s->n_q * s->head_dim,
                         .k_size = s->kv_heads * s->n_k * s->head_dim,
                         .keys = s->n_k,
                         .list_heads = s->kv_heads,
                         .q_blocks = s->n_q};
  c->call = (pisa_attention){.struct_size = sizeof c->call,
                             .batch = 1,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .n_q = s->n_q,
                             .n_k = s->n_k,
                             .q = quality_tensor(s->q, s->n_q, s->head_dim),
                             .k = quality_tensor(s->k, s->n_k, s->head_dim),
                             .scale = s->scale,
                             .phase = c->method->prefill ? PISA_PREFILL : PISA_DECODE};
  pisa_status status = add_pages(c, error);
  if (!status)
    status = pisa_kept_blocks(pack->pack, pack->variant, &c->call, &c->kept, error);
  if (status)
    return status;
  c->blocks = malloc((size_t)(s->kv_heads * s->n_q * c->kept) * sizeof *c->blocks);
  c->call.blocks = c->blocks;
  if (!c->blocks)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the lists");
  const pisa_cpu_options cpu = {.struct_size = sizeof cpu,
                                .threads = run->threads,
                                .progress = run->progress,
                                .user = run->user};
  return run->ordinal < 0 ? pisa_cpu_run(c->pack, c->variant, &c->call, &cpu, error)
                          : run_on_device(c, run->ordinal, error);
}

/* What a device wrote indexes our arrays. */
static pisa_status check_lists(const struct run_call *c, int64_t lists, int64_t leaves,
                               pisa_error *error) {
  for (int64_t e = 0; e < lists * c->kept; e++)
    if (c->blocks[e] >= leaves)
      return pisa_fail(error, PISA_DRIVER,
                       "list %lld names leaf %d of %lld: `pisa verify` tells what is wrong",
                       (long long)(e / c->kept), (int)c->blocks[e], (long long)leaves);
  return PISA_OK;
}

pisa_status select_measure(const struct quality_scene *s, const struct select_truth *truth,
                           const struct quality_pack *pack, const struct quality_run *run,
                           struct select_result *out, pisa_error *error) {
  const struct pisa_method *method = &pack->chosen->method;
  struct run_call c = {0};
  *out = (struct select_result){.pack = pack, .leaf = method->key, .keep = method->keep};
  pisa_status status = select_with(s, pack, run, &c, error);
  if (!status)
    status = check_lists(&c, s->kv_heads * s->n_q, pisa_ceil_div(s->n_k, method->key), error);
  struct measure m = {
      .scene = s,
      .truth = truth,
      .pack = selection_of_method(method, method->flat, !method->prefill, (double)s->scale),
      .lists = c.blocks,
      .kept = c.kept};
  m.flat = m.pack;
  m.flat.flat = true;
  m.flat.score = SELECT_LSE;
  if (!status)
    status = with_pyramids(&m, method, cpu_threads(run->threads), out, error);
  free_call(s, &c);
  return status ? pisa_add_context(error, status, "%s", pack->label) : PISA_OK;
}

void select_result_free(struct select_result *result) {
  free(result->heads);
}
