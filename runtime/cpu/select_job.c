/* select_job.c: a call in; lists, worth, o, lse and the pyramid out. */
#include "runtime/cpu/select_job.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/attend_blocks.h"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/select_method.h"
#include "runtime/size.h"

struct lane { /* what one thread works in */
  double *q;  /* [G, D] */
  double *o;  /* [D] */
  int32_t *list;
  double *worth; /* [keep] both */
};

struct run {
  const struct select_job *job;
  struct selection selection;
  struct select_sequence sequence; /* the current one */
  int64_t kv_head;
  double *k, *v; /* [keys, D] */
  struct pyramid pyramid;
  int32_t *ids;       /* the call's blocks, or lists to be turned around, or NULL */
  struct lane *lanes; /* [threads] */
  int threads;
  pthread_mutex_t lock; /* of the three below */
  int64_t done, total;
  bool failed;
};

/* ---- the call ---- */

struct select_sequence select_sequence_at(const struct select_job *job, int64_t b) {
  const pisa_attention *call = job->call;
  const struct pisa_shape *s = job->shape;
  if (s->is_packed)
    return (struct select_sequence){.index = b,
                                    .queries = call->q_starts[b + 1] - call->q_starts[b],
                                    .q_begin = call->q_starts[b],
                                    .k_begin = call->k_starts[b],
                                    .room = call->k_starts[b + 1] - call->k_starts[b],
                                    .keys = call->k_starts[b + 1] - call->k_starts[b]};
  int64_t keys = call->k_lengths ? call->k_lengths[b] : s->n_k;
  return (struct select_sequence){.index = b,
                                  .queries = s->n_q,
                                  .q_begin = b * s->n_q,
                                  .k_begin = b * s->n_k,
                                  .room = s->n_k,
                                  .keys = pisa_max(0, pisa_min(keys, s->n_k))};
}

static pisa_status check_starts(const char *name, const int32_t *starts, int64_t batch,
                                int64_t rows, pisa_error *error) {
  bool ok = starts[0] == 0 && starts[batch] == rows;
  for (int64_t b = 0; b < batch; b++)
    ok = ok && starts[b] <= starts[b + 1];
  if (ok)
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "%s must ascend from 0 to the number of rows, %" PRId64, name, rows);
}

pisa_status select_check_pages(const struct pisa_method *method, const struct pisa_shape *s,
                               const pisa_attention *call, pisa_error *error) {
  for (int64_t b = 0; b < s->batch; b++) {
    int64_t keys = call->k_lengths ? pisa_min(call->k_lengths[b], s->n_k) : s->n_k;
    for (int64_t i = 0; i * method->page < keys; i++)
      if (call->pages[b * call->page_columns + i] < 0)
        return pisa_fail(error, PISA_INVALID_ARGUMENT,
                         "pages[%" PRId64 ", %" PRId64 "] is %d, must not be negative", b, i,
                         (int)call->pages[b * call->page_columns + i]);
  }
  return PISA_OK;
}

/* What can be checked only where memory can be read. */
static pisa_status check_tables(const struct select_job *job, pisa_error *error) {
  const pisa_attention *call = job->call;
  pisa_status status = PISA_OK;
  if (job->shape->is_packed)
    status = check_starts("q_starts", call->q_starts, call->batch, call->n_q, error);
  if (!status && job->shape->is_packed)
    status = check_starts("k_starts", call->k_starts, call->batch, call->n_k, error);
  if (!status && job->method->page)
    status = select_check_pages(job->method, job->shape, call, error);
  return status;
}

/* ---- arrays ---- */

static void widen_row(const struct run *run, const uint16_t *in, double *out) {
  const struct pisa_method *m = run->job->method;
  for (int d = 0; d < m->head_dim; d++)
    out[d] = (double)cpu_widen(m->type, in[d]);
}

/* Key (or value) |j| of the current sequence and key head. */
static const uint16_t *key_row(const struct run *run, const pisa_tensor *tensor, int64_t j) {
  const struct select_job *job = run->job;
  const int page = job->method->page;
  int64_t b = run->sequence.index;
  if (page)
    return cpu_row(tensor, job->call->pages[b * job->call->page_columns + j / page], run->kv_head,
                   j % page);
  if (job->shape->is_packed)
    return cpu_row(tensor, 0, run->kv_head, run->sequence.k_begin + j);
  return cpu_row(tensor, b, run->kv_head, j);
}

/* Row |i| of the current sequence in [B, H, n_q, D]. */
static uint16_t *query_row(const struct run *run, const pisa_tensor *tensor, int64_t h, int64_t i) {
  if (run->job->shape->is_packed)
    return cpu_row(tensor, 0, h, run->sequence.q_begin + i);
  return cpu_row(tensor, run->sequence.index, h, i);
}

/* Row of query |i| in the caller's arrays with |heads| heads. */
static int64_t output_row(const struct run *run, int64_t heads, int64_t h, int64_t i) {
  const struct pisa_shape *s = run->job->shape;
  if (s->is_packed)
    return h * s->queries + run->sequence.q_begin + i;
  return (run->sequence.index * heads + h) * s->n_q + i;
}

static double *widen_keys(const struct run *run, const pisa_tensor *tensor) {
  const int64_t n = run->sequence.keys, d = run->job->method->head_dim;
  double *out = malloc((size_t)(n * d + 1) * sizeof *out);
  for (int64_t j = 0; out && j < n; j++)
    widen_row(run, key_row(run, tensor, j), out + j * d);
  return out;
}

/* ---- one query ---- */

static void attend(const struct run *run, const struct lane *lane, int64_t i, int64_t g) {
  const struct select_job *job = run->job;
  const struct pisa_method *m = job->method;
  const struct blocks_head head = {.k = run->k,
                                   .v = run->v,
                                   .n = run->sequence.keys,
                                   .head_dim = m->head_dim,
                                   .leaf = m->key,
                                   .causal = run->selection.causal,
                                   .scale = run->selection.scale};
  const int64_t h = run->kv_head * run->selection.heads + g;
  double lse;
  const int32_t *list = job->shape->dense ? NULL : lane->list;
  attend_blocks(&head, lane->q + g * m->head_dim, head.n - run->sequence.queries + i, list, m->keep,
                lane->o, &lse);
  uint16_t *o = query_row(run, &job->call->o, h, i);
  for (int d = 0; d < m->head_dim; d++)
    o[d] = cpu_narrow(m->type, (float)lane->o[d]);
  if (job->call->lse)
    job->call->lse[output_row(run, job->shape->heads, h, i)] = (float)lse;
}

static void store(const struct run *run, const struct lane *lane, int64_t i) {
  const pisa_attention *call = run->job->call;
  const int64_t keep = run->selection.keep;
  const int64_t at = output_row(run, run->job->shape->kv_heads, run->kv_head, i) * keep;
  for (int64_t e = 0; e < keep; e++) {
    if (run->ids)
      run->ids[at + e] = lane->list[e];
    if (call->worth)
      call->worth[at + e] = (float)lane->worth[e];
  }
}

static void report(struct run *run, bool ok) {
  pthread_mutex_lock(&run->lock);
  run->failed = run->failed || !ok;
  run->done++;
  if (run->job->progress)
    run->job->progress(run->job->user, run->done, run->total);
  pthread_mutex_unlock(&run->lock);
}

static void run_query(void *context, int thread, int64_t i) {
  struct run *run = context;
  struct lane *lane = &run->lanes[thread];
  const int heads = run->selection.heads, d = run->job->method->head_dim;
  int64_t n;
  for (int g = 0; g < heads; g++)
    widen_row(run, query_row(run, &run->job->call->q, run->kv_head * heads + g, i),
              lane->q + (int64_t)g * d);
  const bool dense = run->job->shape->dense; /* a short call */
  bool ok = dense || select_leaves(&run->selection, &run->pyramid, lane->q,
                                   run->sequence.keys - run->sequence.queries + i,
                                   run->selection.keep, lane->list, lane->worth, &n);
  for (int g = 0; ok && run->job->shape->attends && g < heads; g++)
    attend(run, lane, i, g);
  if (ok && !dense)
    store(run, lane, i);
  report(run, ok);
}

/* ---- all of them ---- */

/* Dense calls need means for their pyramid alone. */
static bool build_pyramid(struct run *run) {
  if (run->job->shape->dense && !run->job->call->pyramid)
    return true;
  return pyramid_build(&run->pyramid, run->k, run->sequence.keys);
}

/* Prefill writes all there is; decode with nothing new leaves it as it is. */
static void write_pyramid(const struct run *run) {
  const pisa_attention *call = run->job->call;
  if (call->pyramid && (call->phase == PISA_PREFILL || call->n_new > 0))
    select_pyramid_write(run->job, &run->sequence, run->kv_head, &run->pyramid,
                         call->append_completed != 0);
}

static bool run_head(struct run *run) {
  const struct select_job *job = run->job;
  run->k = widen_keys(run, &job->call->k);
  run->v = job->shape->attends ? widen_keys(run, &job->call->v) : NULL;
  bool ok = run->k && (run->v || !job->shape->attends) && build_pyramid(run);
  if (ok) {
    write_pyramid(run);
    cpu_parallel(run->threads, run->sequence.queries, run_query, run);
  }
  free(run->k);
  free(run->v);
  return ok && !run->failed;
}

static bool run_heads(struct run *run) {
  const struct pisa_shape *s = run->job->shape;
  for (int64_t b = 0; b < s->batch; b++)
    for (run->kv_head = 0; run->kv_head < s->kv_heads; run->kv_head++) {
      run->sequence = select_sequence_at(run->job, b);
      if (!run_head(run))
        return false;
    }
  return true;
}

static bool run_lists(struct run *run) {
  const struct pisa_shape *s = run->job->shape;
  const int64_t entries = s->kv_heads * s->queries * run->selection.keep;
  int32_t *own = s->has_csr && !run->ids ? malloc((size_t)entries * sizeof *own) : NULL;
  if (own)
    run->ids = own;
  bool ok = (!s->has_csr || run->ids) && run_heads(run) &&
            (!s->has_csr || select_csr_write(run->job, run->ids));
  free(own);
  return ok;
}

static bool lane_init(struct lane *lane, const struct run *run) {
  const size_t d = (size_t)run->job->method->head_dim, keep = (size_t)run->selection.keep;
  lane->q = malloc((size_t)run->selection.heads * d * sizeof *lane->q);
  lane->o = malloc(d * sizeof *lane->o);
  lane->list = malloc(keep * sizeof *lane->list);
  lane->worth = malloc(keep * sizeof *lane->worth);
  return lane->q && lane->o && lane->list && lane->worth;
}

static void lane_free(struct lane *lane) {
  free(lane->q);
  free(lane->o);
  free(lane->list);
  free(lane->worth);
}

static bool run_call(struct run *run) {
  run->lanes = calloc((size_t)run->threads, sizeof *run->lanes);
  bool ok = run->lanes != NULL;
  for (int t = 0; ok && t < run->threads; t++)
    ok = lane_init(&run->lanes[t], run);
  ok = ok && run_lists(run);
  for (int t = 0; run->lanes && t < run->threads; t++)
    lane_free(&run->lanes[t]);
  free(run->lanes);
  pyramid_free(&run->pyramid);
  return ok;
}

pisa_status select_job_run(const struct select_job *job, pisa_error *error) {
  const struct pisa_method *m = job->method;
  const bool flat = job->shape->is_decode ? m->flat : job->shape->is_flat;
  struct run run = {
      .job = job,
      .selection = selection_of_method(m, flat, job->shape->is_decode, (double)job->shape->scale),
      .pyramid = pyramid_of(m->type, m->head_dim, m->key, m->group),
      .ids = job->call->blocks,
      .threads = cpu_threads(job->threads),
      .total = job->shape->kv_heads * job->shape->queries};
  pisa_status status = check_tables(job, error);
  if (status)
    return status;
  bool ok = pthread_mutex_init(&run.lock, NULL) == 0;
  if (ok) {
    ok = run_call(&run);
    pthread_mutex_destroy(&run.lock);
  }
  return ok ? PISA_OK
            : pisa_fail(error, PISA_OUT_OF_MEMORY,
                        "not enough memory for the CPU executor at this shape");
}
