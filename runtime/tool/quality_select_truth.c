/* quality_select_truth.c: q and k in; for every query looked at, the softmax over all keys that it
   may read, averaged over the heads of a group and summed over granules of 16 keys, out. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/size.h"
#include "runtime/tool/quality_select.h"

struct work {
  const struct quality_scene *scene;
  struct select_truth *truth;
  const float *columns; /* [Hk, D, Nk]: keys, so that the logits of many are one pass */
  float *logits;        /* [threads, Nk] */
};

/* logits [n] of query |q| [D] and the first n keys. */
static void multiply(const struct quality_scene *s, const uint16_t *q, const float *columns,
                     int64_t n, float *logits) {
  for (int64_t j = 0; j < n; j++)
    logits[j] = 0;
  for (int d = 0; d < s->head_dim; d++) {
    float x = s->scale * cpu_widen(s->type, q[d]);
    const float *column = columns + d * s->n_k;
    for (int64_t j = 0; j < n; j++)
      logits[j] += x * column[j];
  }
}

/* mass [granules] gains 1/G of the softmax of |logits| [n]. */
static void add_softmax(const float *logits, int64_t n, double group, float *mass) {
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++)
    max = fmax(max, (double)logits[j]);
  for (int64_t j = 0; j < n; j++)
    sum += exp((double)logits[j] - max);
  for (int64_t j = 0; j < n; j += SELECT_GRANULE) {
    double part = 0;
    for (int64_t e = j; e < pisa_min(j + SELECT_GRANULE, n); e++)
      part += exp((double)logits[e] - max);
    mass[j / SELECT_GRANULE] += (float)(part / sum / group);
  }
}

static void row(void *context, int thread, int64_t task) {
  struct work *w = context;
  const struct quality_scene *s = w->scene;
  struct select_truth *t = w->truth;
  int64_t kv = task / t->rows, i = task % t->rows * t->every, group = s->heads / s->kv_heads;
  int64_t seen = t->causal ? s->n_k - s->n_q + i + 1 : s->n_k;
  float *logits = w->logits + thread * s->n_k, *mass = t->mass + task * t->granules;
  for (int64_t h = kv * group; seen > 0 && h < (kv + 1) * group; h++) {
    multiply(s, s->q + (h * s->n_q + i) * s->head_dim, w->columns + kv * s->head_dim * s->n_k, seen,
             logits);
    add_softmax(logits, seen, (double)group, mass);
  }
}

static void transpose(const struct quality_scene *s, float *columns) {
  for (int64_t h = 0; h < s->kv_heads; h++)
    for (int64_t j = 0; j < s->n_k; j++)
      for (int64_t d = 0; d < s->head_dim; d++)
        columns[(h * s->head_dim + d) * s->n_k + j] =
            cpu_widen(s->type, s->k[(h * s->n_k + j) * s->head_dim + d]);
}

static bool is_finite(const struct select_truth *t, int64_t n) {
  bool finite = true;
  for (int64_t e = 0; e < n; e++)
    finite = finite && isfinite(t->mass[e]);
  return finite;
}

pisa_status select_truth_make(const struct quality_scene *s, bool causal, int64_t every,
                              int threads, struct select_truth *out, pisa_error *error) {
  threads = cpu_threads(threads);
  *out = (struct select_truth){.every = every,
                               .rows = pisa_ceil_div(s->n_q, every),
                               .granules = pisa_ceil_div(s->n_k, SELECT_GRANULE),
                               .causal = causal};
  int64_t cells = s->kv_heads * out->rows * out->granules;
  float *columns = malloc((size_t)(s->kv_heads * s->head_dim * s->n_k) * sizeof *columns);
  float *logits = malloc((size_t)(threads * s->n_k) * sizeof *logits);
  out->mass = calloc((size_t)cells, sizeof *out->mass);
  bool ok = columns && logits && out->mass;
  if (ok) {
    struct work work = {.scene = s, .truth = out, .columns = columns, .logits = logits};
    transpose(s, columns);
    cpu_parallel(threads, s->kv_heads * out->rows, row, &work);
  }
  free(columns);
  free(logits);
  if (!ok)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the softmax");
  return is_finite(out, cells)
             ? PISA_OK
             : pisa_fail(error, PISA_INVALID_ARGUMENT, "q or k holds values that are not finite");
}

void select_truth_free(struct select_truth *truth) {
  free(truth->mass);
  truth->mass = NULL;
}
