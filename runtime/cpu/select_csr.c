/* select_csr.c: in go the leaves that each query lists; out come the queries that list each leaf
   (runtime/pisa.h). */
#include <stdlib.h>

#include "runtime/cpu/select_job.h"

struct csr { /* of a key head */
  const struct select_job *job;
  const int32_t *lists;
  int64_t kv_head;
  int64_t leaves; /* NL */
  int32_t *offsets, *queries;
  int64_t *next; /* [NL]: where the next query of each leaf goes */
};

/* Does |body| to the leaf and query number of every pair, in the order of queries. */
static void each_pair(struct csr *csr, void (*body)(struct csr *csr, int64_t leaf, int64_t query)) {
  const struct pisa_shape *s = csr->job->shape;
  const int64_t keep = csr->job->method->keep;
  for (int64_t b = 0; b < s->batch; b++) {
    const struct select_sequence q = select_sequence_at(csr->job, b);
    const int64_t first = q.k_begin / csr->job->method->key + b;
    const int64_t row = s->is_packed ? csr->kv_head * s->queries + q.q_begin
                                     : (b * s->kv_heads + csr->kv_head) * s->n_q;
    for (int64_t e = 0; e < q.queries * keep; e++)
      if (csr->lists[row * keep + e] >= 0)
        body(csr, first + csr->lists[row * keep + e], q.q_begin + e / keep);
  }
}

static void count(struct csr *csr, int64_t leaf, int64_t query) {
  (void)query;
  csr->next[leaf]++;
}

static void place(struct csr *csr, int64_t leaf, int64_t query) {
  csr->queries[csr->next[leaf]++] = (int32_t)query;
}

/* Counts to first places. */
static void sum(struct csr *csr) {
  int64_t end = 0;
  for (int64_t leaf = 0; leaf < csr->leaves; leaf++) {
    const int64_t n = csr->next[leaf];
    csr->offsets[leaf] = (int32_t)end;
    csr->next[leaf] = end;
    end += n;
  }
  csr->offsets[csr->leaves] = (int32_t)end;
}

bool select_csr_write(const struct select_job *job, const int32_t *lists) {
  const struct pisa_shape *s = job->shape;
  const int64_t leaves = s->keys / job->method->key + s->batch;
  bool ok = true;
  for (int64_t kv_head = 0; ok && kv_head < s->kv_heads; kv_head++) {
    struct csr csr = {.job = job,
                      .lists = lists,
                      .kv_head = kv_head,
                      .leaves = leaves,
                      .offsets = job->call->csr_offsets + kv_head * (leaves + 1),
                      .queries = job->call->csr_queries + kv_head * s->queries * s->kept,
                      .next = calloc((size_t)leaves, sizeof *csr.next)};
    ok = csr.next != NULL;
    if (ok) {
      each_pair(&csr, count);
      sum(&csr);
      each_pair(&csr, place);
    }
    free(csr.next);
  }
  return ok;
}
