/* job.c: a call in; o, lse and the lists out. Heads one after the other, the query blocks of a head
   in parallel, so that memory holds one widened head at a time. */
#include "runtime/cpu/job.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/oracle.h"
#include "runtime/cpu/parallel.h"

struct lane {               /* what one thread works in */
  int32_t *list;            /* [max(kept, n_listed)] */
  double *score;            /* [NT] */
  double *o;                /* [query, D] of the oracle */
  double *lse_oracle;       /* [query] */
  float *lse;               /* [query] */
  struct fast_scratch fast; /* its o [query, D] is where either executor leaves the result */
};

struct run {
  const struct cpu_job *job;
  int threads;
  struct lane *lanes; /* [threads] */
  struct fast_head fast;
  struct cpu_problem problem;    /* oracle only: the current sequence */
  struct oracle_head head;       /* oracle only */
  struct oracle_summary summary; /* oracle only */
  int64_t b, h;
  pthread_mutex_t lock; /* of the three below */
  int64_t done, total;
  bool failed;
};

static bool lane_init(struct lane *lane, const struct cpu_job *job) {
  const struct cpu_problem *p = job->problem;
  int64_t room = p->kept > job->n_listed ? p->kept : job->n_listed;
  lane->list = calloc((size_t)room, sizeof *lane->list);
  lane->score = calloc((size_t)p->k_blocks, sizeof *lane->score);
  lane->o = calloc((size_t)(p->query * p->head_dim), sizeof *lane->o);
  lane->lse_oracle = calloc((size_t)p->query, sizeof *lane->lse_oracle);
  lane->lse = calloc((size_t)p->query, sizeof *lane->lse);
  return fast_scratch_init(&lane->fast, p) && lane->list && lane->score && lane->o &&
         lane->lse_oracle && lane->lse;
}

static void lane_free(struct lane *lane) {
  free(lane->list);
  free(lane->score);
  free(lane->o);
  free(lane->lse_oracle);
  free(lane->lse);
  fast_scratch_free(&lane->fast);
}

/* Index of the list of query block |i| of the current head in [B, H, NTq]. */
static int64_t list_index(const struct run *run, int64_t i) {
  const struct cpu_problem *p = run->job->problem;
  return (run->b * p->heads + run->h) * p->q_blocks + i;
}

/* The current sequence. */
static const struct cpu_problem *sequence(const struct run *run) {
  return run->job->oracle ? &run->problem : &run->fast.problem;
}

/* lane->list of query block |i|; |n| gets its length. */
static bool choose(const struct run *run, struct lane *lane, int64_t i, int64_t *n) {
  const struct cpu_job *job = run->job;
  const struct cpu_problem *p = sequence(run);
  if (p->dense) {
    for (*n = 0; *n < p->k_blocks; ++*n)
      lane->list[*n] = (int32_t)*n;
    return true;
  }
  if (job->lists) {
    const int32_t *given = job->lists + list_index(run, i) * job->n_listed;
    *n = cpu_given_list(p, given, job->n_listed, lane->list);
    return true;
  }
  return oracle_choose(p, job->oracle ? &run->summary : &run->fast.summary, i, lane->score,
                       lane->list, n);
}

static bool attend(const struct run *run, struct lane *lane, int64_t i, int64_t n) {
  const struct cpu_problem *p = run->job->problem;
  if (!run->job->oracle) {
    fast_attend(&run->fast, &lane->fast, i, lane->list, n, lane->lse);
    return true;
  }
  if (!oracle_attend(&run->head, &run->summary, i, lane->list, n, lane->o, lane->lse_oracle))
    return false;
  for (int64_t e = 0; e < p->query * p->head_dim; e++)
    lane->fast.o[e] = (float)lane->o[e];
  for (int64_t r = 0; r < p->query; r++)
    lane->lse[r] = (float)lane->lse_oracle[r];
  return true;
}

static void store(const struct run *run, const struct lane *lane, int64_t i, int64_t n) {
  const struct cpu_job *job = run->job;
  const struct cpu_problem *p = job->problem;
  for (int64_t r = 0; r < cpu_query_length(p, i); r++) {
    int64_t row = i * p->query + r;
    uint16_t *o = cpu_row(&p->o, run->b, run->h, row);
    for (int64_t d = 0; d < p->head_dim; d++)
      o[d] = cpu_narrow(p->type, lane->fast.o[r * p->head_dim + d]);
    if (job->lse)
      job->lse[(run->b * p->heads + run->h) * p->n_q + row] = lane->lse[r];
  }
  for (int64_t e = 0; job->blocks && e < p->kept; e++)
    job->blocks[list_index(run, i) * p->kept + e] = e < n ? lane->list[e] : -1;
}

static void report(struct run *run, bool ok) {
  pthread_mutex_lock(&run->lock);
  run->failed = run->failed || !ok;
  run->done++;
  if (run->job->progress)
    run->job->progress(run->job->user, run->done, run->total);
  pthread_mutex_unlock(&run->lock);
}

static void run_block(void *context, int thread, int64_t i) {
  struct run *run = context;
  struct lane *lane = &run->lanes[thread];
  int64_t n = 0;
  bool ok = choose(run, lane, i, &n) && attend(run, lane, i, n);
  if (ok)
    store(run, lane, i, n);
  report(run, ok);
}

/* Stage 1 of head (b, h). */
static bool load(struct run *run) {
  const struct cpu_problem *p = run->job->problem;
  if (!run->job->oracle) {
    fast_load(&run->fast, run->b, run->h, run->threads);
    return true;
  }
  run->problem = cpu_sequence(p, run->b);
  return oracle_head_init(&run->head, &run->problem, run->b, run->h) &&
         oracle_summary_init(&run->summary, &run->problem) &&
         oracle_statistics(&run->head, &run->summary);
}

static void unload(struct run *run) {
  oracle_head_free(&run->head);
  oracle_summary_free(&run->summary);
  run->head = (struct oracle_head){0};
  run->summary = (struct oracle_summary){0};
}

static bool run_heads(struct run *run) {
  const struct cpu_problem *p = run->job->problem;
  for (run->b = 0; run->b < p->batch; run->b++)
    for (run->h = 0; run->h < p->heads; run->h++) {
      bool ok = load(run);
      if (ok)
        cpu_parallel(run->threads, p->q_blocks, run_block, run);
      unload(run);
      if (!ok || run->failed)
        return false;
    }
  return true;
}

bool cpu_job_run(const struct cpu_job *job) {
  const struct cpu_problem *p = job->problem;
  struct run run = {.job = job, .threads = cpu_threads(job->threads)};
  run.total = p->batch * p->heads * p->q_blocks;
  run.lanes = calloc((size_t)run.threads, sizeof *run.lanes);
  if (!run.lanes || pthread_mutex_init(&run.lock, NULL) != 0) {
    free(run.lanes);
    return false;
  }
  bool ok = job->oracle || fast_head_init(&run.fast, p);
  for (int t = 0; ok && t < run.threads; t++)
    ok = lane_init(&run.lanes[t], job);
  ok = ok && run_heads(&run);
  for (int t = 0; t < run.threads; t++)
    lane_free(&run.lanes[t]);
  fast_head_free(&run.fast);
  pthread_mutex_destroy(&run.lock);
  free(run.lanes);
  return ok;
}
