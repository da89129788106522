/* shape.h: the check of a pisa_attention against the method, and the sizes derived from it. Shared
   by the GPU and the CPU path; what only a GPU limits is in limits.h. */
#ifndef PISA_RUNTIME_SHAPE_H
#define PISA_RUNTIME_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/budget.h"
#include "runtime/method.h"
#include "runtime/status.h"

enum { PISA_MAX_TOKENS = 1 << 30 };

struct pisa_shape { /* valid by construction */
  int64_t batch, heads, kv_heads, n_q, n_k;
  int64_t bh;   /* batch * heads */
  int64_t bh_k; /* batch * kv_heads */
  int64_t nt;   /* NT = ceil(n_k / key) */
  int64_t nt_q; /* NTq = ceil(n_q / query) */
  int64_t nq_s; /* NQS = ceil(n_q / key): sub-blocks, of which a query block has query / key */
  int64_t vb;   /* VB = max(NT, G * NQS): blocks of a kv head that the statistics kernel walks */
  int64_t kept; /* blocks per list; NT when dense */
  struct pisa_range always[PISA_MAX_ALWAYS];
  float scale; /* multiplies q.k; 1/sqrt(D) is filled in */
};

/* Checks struct_size, sizes, density, keep and scale; pointers and strides are not looked at. */
pisa_status pisa_shape_sizes(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error);

/* Checks pointers, alignment, strides and overlaps. |workspace| is NULL when there is none. */
pisa_status pisa_shape_tensors(const struct pisa_method *method, const pisa_attention *call,
                               const struct pisa_shape *shape, const void *workspace,
                               size_t workspace_bytes, pisa_error *error);

/* Both. */
pisa_status pisa_shape_check(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error);

#endif
