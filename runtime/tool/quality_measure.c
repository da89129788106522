/* quality_measure.c: a scene, its dense attention, a pack and a density in; the pack's errors, the
   recall of its lists and its cost out. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/size.h"
#include "runtime/tool/quality.h"
#include "runtime/tool/run.h"

struct sums {                     /* over elements, rows and lists */
  double off, square, largest, n; /* squared difference, squared dense value, largest, elements */
  double mass, best_mass, rows;
  double hits, listed;
  double keys, lists; /* tokens that are read; query blocks */
};

struct block {
  double mass; /* of the softmax, summed over rows */
  int64_t index;
};

struct measure {
  const struct quality_scene *scene;
  const struct quality_truth *truth;
  const struct pisa_method *method;
  int64_t q_blocks, k_blocks, kept;
  const uint16_t *o;     /* [heads, Nq, D] */
  const int32_t *blocks; /* [heads, NTq, kept]; NULL: every block is read */
  struct block *weights; /* [NT] of one query block, heaviest first, ties to the lower index */
  bool *listed;          /* [NT] */
};

/* ---- one query block ---- */

static void add_errors(const struct measure *m, int64_t h, int64_t i, struct sums *sums) {
  const struct quality_scene *s = m->scene;
  int64_t begin = i * m->method->query, end = pisa_min(begin + m->method->query, s->n_q);
  for (int64_t e = (h * s->n_q + begin) * s->head_dim; e < (h * s->n_q + end) * s->head_dim; e++) {
    double dense = (double)m->truth->o[e], off = (double)cpu_widen(s->type, m->o[e]) - dense;
    sums->off += off * off;
    sums->square += dense * dense;
    sums->largest = fmax(sums->largest, fabs(dense));
  }
  sums->n += (double)((end - begin) * s->head_dim);
}

static int by_mass(const void *a, const void *b) {
  const struct block *x = a, *y = b;
  if (x->mass != y->mass)
    return x->mass > y->mass ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* m->weights of query block |i|, from cells of 64 x 64. */
static void weigh(const struct measure *m, int64_t h, int64_t i) {
  const struct quality_truth *t = m->truth;
  int64_t q_cells = m->method->query / QUALITY_GRANULE, k_cells = m->method->key / QUALITY_GRANULE;
  for (int64_t j = 0; j < m->k_blocks; j++)
    m->weights[j] = (struct block){.index = j};
  for (int64_t a = i * q_cells; a < pisa_min((i + 1) * q_cells, t->q_cells); a++)
    for (int64_t b = 0; b < t->k_cells; b++)
      m->weights[b / k_cells].mass += (double)t->mass[(h * t->q_cells + a) * t->k_cells + b];
  qsort(m->weights, (size_t)m->k_blocks, sizeof *m->weights, by_mass);
}

static int64_t mark_list(const struct measure *m, int64_t h, int64_t i) {
  int64_t n = m->blocks ? 0 : m->k_blocks;
  for (int64_t j = 0; j < m->k_blocks; j++)
    m->listed[j] = !m->blocks;
  const int32_t *list = m->blocks ? m->blocks + (h * m->q_blocks + i) * m->kept : NULL;
  for (int64_t e = 0; list && e < m->kept && list[e] >= 0; e++, n++)
    m->listed[list[e]] = true;
  return n;
}

static void add_routing(const struct measure *m, int64_t h, int64_t i, struct sums *sums) {
  const struct quality_scene *s = m->scene;
  int64_t n = mark_list(m, h, i);
  weigh(m, h, i);
  for (int64_t rank = 0; rank < m->k_blocks; rank++) {
    const struct block *block = &m->weights[rank];
    bool heavy = rank < n, listed = m->listed[block->index];
    int64_t rest = s->n_k - block->index * m->method->key;
    sums->mass += listed ? block->mass : 0;
    sums->best_mass += heavy ? block->mass : 0;
    sums->hits += heavy && listed;
    sums->keys += listed ? (double)pisa_min(rest, m->method->key) : 0;
  }
  sums->rows += (double)pisa_min(m->method->query, s->n_q - i * m->method->query);
  sums->listed += (double)n;
  sums->lists++;
}

/* ---- from sums to figures ---- */

static void join(struct sums *to, const struct sums *from) {
  to->off += from->off;
  to->square += from->square;
  to->largest = fmax(to->largest, from->largest);
  to->n += from->n;
  to->mass += from->mass;
  to->best_mass += from->best_mass;
  to->rows += from->rows;
  to->hits += from->hits;
  to->listed += from->listed;
  to->keys += from->keys;
  to->lists += from->lists;
}

/* Where dense attention is all zero, any difference is infinitely large. */
static double relative(const struct sums *s) {
  return s->off == 0 ? 0 : sqrt(s->off / s->square);
}

static double psnr(const struct sums *s) { /* dB */
  return s->off == 0 ? INFINITY : 20 * log10(s->largest / sqrt(s->off / s->n));
}

static struct quality_figures figures_of(const struct sums *s) {
  return (struct quality_figures){.error = relative(s),
                                  .psnr = psnr(s),
                                  .recall = s->hits / s->listed,
                                  .mass = s->mass / s->rows,
                                  .best_mass = s->best_mass / s->rows};
}

static void figure(const struct measure *m, struct sums *blocks, struct quality_result *out) {
  const struct quality_scene *s = m->scene;
  struct sums all = {0};
  for (int64_t h = 0; h < s->heads; h++) {
    struct sums head = {0};
    for (int64_t i = 0; s->where[h].wanted && i < m->q_blocks; i++) {
      struct sums block = {0};
      add_errors(m, h, i, &block);
      add_routing(m, h, i, &block);
      join(&blocks[i], &block);
      join(&head, &block);
    }
    if (s->where[h].wanted)
      out->heads[h] = figures_of(&head);
    join(&all, &head);
  }
  for (int64_t i = 0; i < m->q_blocks; i++) {
    out->blocks[i] = relative(&blocks[i]);
    out->recalls[i] = blocks[i].hits / blocks[i].listed;
  }
  out->all = figures_of(&all);
  out->listed = all.listed / all.lists;
  out->read = all.keys / (all.lists * (double)s->n_k);
  out->cost = quality_cost(m->method, s->n_q, s->n_k, out->read);
}

static pisa_status compare(struct measure *m, struct quality_result *out, pisa_error *error) {
  struct sums *blocks = calloc((size_t)m->q_blocks, sizeof *blocks);
  m->weights = malloc((size_t)m->k_blocks * sizeof *m->weights);
  m->listed = malloc((size_t)m->k_blocks * sizeof *m->listed);
  out->heads = calloc((size_t)m->scene->heads, sizeof *out->heads);
  out->blocks = calloc((size_t)m->q_blocks, sizeof *out->blocks);
  out->recalls = calloc((size_t)m->q_blocks, sizeof *out->recalls);
  bool ok = blocks && m->weights && m->listed && out->heads && out->blocks && out->recalls;
  if (ok)
    figure(m, blocks, out);
  free(blocks);
  free(m->weights);
  free(m->listed);
  return ok ? PISA_OK : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory to compare");
}

/* ---- the pack's output ---- */

static pisa_status call_init(const struct quality_scene *s, const struct quality_pack *pack,
                             double density, struct run_call *c, pisa_error *error) {
  int64_t d = s->head_dim;
  const struct pisa_method *method = &pack->chosen->method;
  bool dense = method->dense || s->n_k < method->dense_below;
  *c = (struct run_call){.pack = pack->pack,
                         .variant = pack->variant,
                         .method = method,
                         .q = s->q,
                         .k = s->k,
                         .v = s->v,
                         .q_size = s->heads * s->n_q * d,
                         .k_size = s->kv_heads * s->n_k * d,
                         .list_heads = s->heads,
                         .q_blocks = pisa_ceil_div(s->n_q, method->query)};
  c->o = malloc((size_t)c->q_size * sizeof *c->o);
  c->call = (pisa_attention){.struct_size = sizeof c->call,
                             .batch = 1,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .n_q = s->n_q,
                             .n_k = s->n_k,
                             .q = quality_tensor(s->q, s->n_q, d),
                             .k = quality_tensor(s->k, s->n_k, d),
                             .v = quality_tensor(s->v, s->n_k, d),
                             .o = quality_tensor(c->o, s->n_q, d),
                             .density = density,
                             .scale = s->scale};
  pisa_status status = pisa_kept_blocks(pack->pack, pack->variant, &c->call, &c->kept, error);
  if (status)
    return status;
  if (!dense)
    c->blocks = malloc((size_t)(s->heads * c->q_blocks * c->kept) * sizeof *c->blocks);
  c->call.blocks = c->blocks;
  return c->o && (dense || c->blocks)
             ? PISA_OK
             : pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the output");
}

static pisa_status execute(const struct run_call *c, const struct quality_run *run,
                           pisa_error *error) {
  const pisa_cpu_options cpu = {.struct_size = sizeof cpu,
                                .threads = run->threads,
                                .progress = run->progress,
                                .user = run->user};
  return run->ordinal < 0 ? pisa_cpu_run(c->pack, c->variant, &c->call, &cpu, error)
                          : run_on_device(c, run->ordinal, error);
}

/* What a device wrote indexes our arrays. */
static pisa_status check_lists(const struct run_call *c, const struct quality_scene *s,
                               int64_t k_blocks, pisa_error *error) {
  int64_t n = c->blocks ? s->heads * c->q_blocks * c->kept : 0;
  for (int64_t e = 0; e < n; e++)
    if (c->blocks[e] >= k_blocks || (e % c->kept == 0 && c->blocks[e] < 0))
      return pisa_fail(error, PISA_DRIVER,
                       "list %lld names block %d of %lld: `pisa verify` tells what is wrong",
                       (long long)(e / c->kept), (int)c->blocks[e], (long long)k_blocks);
  return PISA_OK;
}

pisa_status quality_measure(const struct quality_scene *s, const struct quality_truth *truth,
                            const struct quality_pack *pack, double density,
                            const struct quality_run *run, struct quality_result *out,
                            pisa_error *error) {
  struct run_call c;
  if (!quality_takes_density(pack))
    density = 0;
  *out = (struct quality_result){.pack = pack, .density = density};
  pisa_status status = call_init(s, pack, density, &c, error);
  if (!status)
    status = execute(&c, run, error);
  out->k_blocks = pisa_ceil_div(s->n_k, pack->chosen->method.key);
  if (!status)
    status = check_lists(&c, s, out->k_blocks, error);
  if (!status) {
    out->q_blocks = c.q_blocks;
    struct measure m = {.scene = s,
                        .truth = truth,
                        .method = c.method,
                        .q_blocks = out->q_blocks,
                        .k_blocks = out->k_blocks,
                        .kept = c.kept,
                        .o = c.o,
                        .blocks = c.blocks};
    status = compare(&m, out, error);
  }
  free(c.o);
  free(c.blocks);
  return status ? pisa_add_context(error, status, "%s", pack->label) : PISA_OK;
}

void quality_result_free(struct quality_result *result) {
  free(result->heads);
  free(result->blocks);
  free(result->recalls);
}
