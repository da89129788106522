/* verify_select_compare.c: what one call left behind against the oracle, on all cores: the means of
   each key head, then query by query its list, on those means, and o and lse over that list. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/select_method.h"
#include "runtime/tool/random.h"
#include "runtime/tool/verify_select.h"

enum { STREAM_SAMPLES = 1001 };

struct select_sample { /* query |n| of head |head| */
  int64_t head, n;
};

struct comparison_job {
  struct select_comparison all;
  struct select_head *heads; /* [B Hk] */
  struct select_sample *samples;
  struct select_squares *squares; /* of each sample */
  int64_t n_samples;
};

static void out_of_memory(const struct select_comparison *c) {
  verify_fail(c->result, "not enough host memory for the oracle");
}

/* The method of |c| as the oracle takes it. */
static struct selection select_of(const struct select_call *c) {
  const struct pisa_method *m = &c->module->method;
  bool flat = c->shape.is_decode ? m->flat : c->shape.is_flat;
  return selection_of_method(m, flat, c->shape.is_decode, (double)c->shape.scale);
}

static void compare_head(void *context, int thread, int64_t index) {
  struct comparison_job *job = context;
  const struct select_comparison *c = &job->all;
  struct select_head *head = &job->heads[index];
  (void)thread;
  head->ready = select_read_head(c, head);
  if (head->ready)
    select_compare_means(c, head);
  else
    out_of_memory(c);
}

static bool compare_row(const struct select_comparison *c, struct select_row *row,
                        struct select_squares *squares) {
  const struct select_call *call = c->call;
  int D = call->module->method.head_dim, G = c->selection.heads;
  int64_t at = select_row(call, row->head->b, row->head->hk, row->n) * call->shape.kept;
  row->list = call->shape.dense ? NULL : c->outputs->blocks + at;
  row->worth = c->outputs->worth + at;
  for (int g = 0; g < G; g++) {
    const uint16_t *in = select_query(&call->arrays, row->head->b, row->head->hk * G + g, row->n);
    for (int d = 0; d < D; d++)
      row->q[g * D + d] = (double)cpu_widen(call->module->method.type, in[d]);
  }
  if (row->list && !select_list_is_sound(c, row))
    return true;
  bool ok = !row->list || select_compare_list(c, row);
  if (ok)
    select_compare_attention(c, row, row->q + G * D, squares);
  return ok;
}

static void compare_sample(void *context, int thread, int64_t index) {
  struct comparison_job *job = context;
  const struct select_comparison *c = &job->all;
  const struct select_head *head = &job->heads[job->samples[index].head];
  const struct verify_sequence *s = &c->call->arrays.sequence[head->b];
  int64_t n = job->samples[index].n;
  size_t D = (size_t)c->call->module->method.head_dim;
  (void)thread;
  if (!head->ready)
    return;
  struct select_row row = {.head = head,
                           .n = n,
                           .t = s->keys - s->n_q + n,
                           .q = malloc((size_t)(c->selection.heads + 1) * D * sizeof *row.q)};
  if (!row.q || !compare_row(c, &row, &job->squares[index]))
    out_of_memory(c);
  free(row.q);
}

/* Multiplications of one row in the oracle, about. */
static double row_work(const struct select_comparison *c) {
  const struct pisa_method *m = &c->call->module->method;
  double leaf = m->key, per_product = (double)m->head_dim * c->selection.heads;
  double candidates =
      c->selection.flat ? (double)c->call->request.n_k / leaf : (double)(m->keep * m->group);
  double scored =
      c->selection.flat && m->score == PISA_SCORE_MEAN ? candidates : candidates * 2 * (leaf + 20);
  return per_product * (scored + 3 * (double)m->keep * leaf);
}

static int64_t sample_count(const struct select_comparison *c, int64_t all) {
  double most = (c->call->brief ? SELECT_WORK / 10 : SELECT_WORK) / row_work(c);
  int64_t n = most > SELECT_FEWEST ? (int64_t)most : SELECT_FEWEST;
  if (c->call->request.n_k > SELECT_WHOLE)
    n = SELECT_FEWEST;
  return n < all ? n : all;
}

/* All rows, or a seeded sample with the first and the last one. */
static bool choose_samples(struct comparison_job *job) {
  const struct select_comparison *c = &job->all;
  const struct select_arrays *a = &c->call->arrays;
  int64_t all = select_rows(c->call), kept = 0, kv_heads = c->call->request.kv_heads;
  struct random random = random_at(c->call->seed, STREAM_SAMPLES, 0);
  int64_t wanted = sample_count(c, all);
  job->samples = malloc((size_t)(all + 1) * sizeof *job->samples);
  for (int64_t head = 0; job->samples && head < a->batch * kv_heads; head++)
    for (int64_t n = 0; n < a->sequence[head / kv_heads].n_q; n++)
      job->samples[kept++] = (struct select_sample){head, n};
  all = kept;
  for (int64_t i = 1; job->samples && wanted < all && i < wanted; i++) { /* the first one stays */
    int64_t j = i == 1 ? all - 1 : i + random_below(&random, all - i);
    struct select_sample other = job->samples[j];
    job->samples[j] = job->samples[i];
    job->samples[i] = other;
  }
  job->n_samples = wanted < all ? wanted : all;
  c->result->blocks += all;
  c->result->blocks_compared += job->n_samples;
  job->squares = calloc((size_t)(job->n_samples + 1), sizeof *job->squares);
  return job->samples && job->squares;
}

static bool make_heads(struct comparison_job *job) {
  const struct select_comparison *c = &job->all;
  const struct pisa_method *m = &c->call->module->method;
  int64_t n = c->call->arrays.batch * c->call->request.kv_heads;
  job->heads = calloc((size_t)n, sizeof *job->heads);
  for (int64_t i = 0; job->heads && i < n; i++)
    job->heads[i] =
        (struct select_head){.b = i / c->call->request.kv_heads,
                             .hk = i % c->call->request.kv_heads,
                             .pyramid = pyramid_of(m->type, m->head_dim, m->key, m->group)};
  return job->heads != NULL;
}

static void close_job(struct comparison_job *job) {
  const struct select_call *call = job->all.call;
  for (int64_t i = 0; job->heads && i < call->arrays.batch * call->request.kv_heads; i++) {
    pyramid_free(&job->heads[i].pyramid);
    free(job->heads[i].v);
  }
  free(job->heads);
  free(job->samples);
  free(job->squares);
}

bool select_compare(const struct select_call *call, const struct select_outputs *outputs,
                    struct verify_result *result) {
  struct comparison_job job = {
      .all = {.call = call, .outputs = outputs, .selection = select_of(call), .result = result}};
  bool ok = make_heads(&job) && choose_samples(&job);
  if (ok) {
    cpu_parallel(cpu_threads(0), call->arrays.batch * call->request.kv_heads, compare_head, &job);
    cpu_parallel(cpu_threads(0), job.n_samples, compare_sample, &job);
    select_judge_attention(&job.all, job.squares, job.n_samples);
  }
  close_job(&job);
  return ok;
}
