/* job.h: a whole call on the CPU, once its problem is known: every head, every query block, all
 * threads. */
#ifndef PISA_CPU_JOB_H
#define PISA_CPU_JOB_H

#include "runtime/cpu/problem.h"

struct cpu_job {
  const struct cpu_problem *problem; /* its o is written */
  bool oracle;                       /* false: fast.h; true: oracle.h */
  int threads;                       /* 0: one per processor */
  const int32_t *lists;              /* NULL: route; else [B, H, NTq, n_listed], see pisa.h */
  int64_t n_listed;
  float *lse;      /* NULL, or out: [B, H, Nq] */
  int32_t *blocks; /* NULL, or out: [B, H, NTq, kept] */
  void (*progress)(void *user, int64_t done,
                   int64_t total); /* NULL, or called under a lock per query block */
  void *user;
};

/* False when memory ran out; o, lse and blocks are then incomplete. */
bool cpu_job_run(const struct cpu_job *job);

#endif
