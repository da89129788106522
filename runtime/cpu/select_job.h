/* select_job.h: a whole call of a pack that selects blocks on the CPU: every sequence and key head,
   the queries of one in parallel, so that memory holds one widened head at a time. Double
   arithmetic; means are rounded where the GPU rounds them.

   Decoding makes the means anew from the keys. A pyramid of the call's is written as the GPU leaves
   it, so that one can go on from it. */
#ifndef PISA_CPU_SELECT_JOB_H
#define PISA_CPU_SELECT_JOB_H

#include "runtime/cpu/pyramid.h"
#include "runtime/shape.h"

struct select_job {
  const struct pisa_method *method;
  const struct pisa_shape *shape;
  const pisa_attention *call;                                /* checked */
  int threads;                                               /* 0: one per processor */
  void (*progress)(void *user, int64_t done, int64_t total); /* NULL, or called under a lock */
  void *user;
};

/* PISA_INVALID_ARGUMENT for starts that are none and for pages of a negative number;
   PISA_OUT_OF_MEMORY. */
pisa_status select_job_run(const struct select_job *job, pisa_error *error);

/* PISA_INVALID_ARGUMENT where a page that keys lie in is negative; any checked call with pages. */
pisa_status select_check_pages(const struct pisa_method *method, const struct pisa_shape *shape,
                               const pisa_attention *call, pisa_error *error);

/* Where a sequence and its rows lie (runtime/pyramid.def). */
struct select_sequence {
  int64_t index;   /* b */
  int64_t queries; /* of it */
  int64_t q_begin; /* its first query number */
  int64_t k_begin, room, keys;
};

struct select_sequence select_sequence_at(const struct select_job *job, int64_t b);

/* Turns lists, rows as those of |blocks|, around: the call's csr_offsets and csr_queries. False: no
   memory. */
bool select_csr_write(const struct select_job *job, const int32_t *lists);

/* Writes the nodes of key head |kv_head| of |sequence| that are stored, and open, into the call's
   pyramid. |completed|: only nodes that are full. */
void select_pyramid_write(const struct select_job *job, const struct select_sequence *sequence,
                          int64_t kv_head, const struct pyramid *pyramid, bool completed);

#endif
