/* shape.h: the check of a pisa_attention against the method, and the sizes derived from it. Shared
   by the GPU and the CPU path; what only a GPU limits is in limits.h. */
#ifndef PISA_RUNTIME_SHAPE_H
#define PISA_RUNTIME_SHAPE_H

#include <stdbool.h>
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
  bool dense;   /* every block is read exactly: the method is dense, or n_k is below dense_below (in
                   phase prefill, without q_starts) */
  struct pisa_quota quota; /* blocks to read in a sequence; unused when dense or with |lists| */
  int64_t k;       /* of n_k keys; NT when dense, n_listed with |lists|, 0 with a threshold */
  int64_t kept;    /* most entries of a list: the extent of |blocks|; NT when dense */
  bool uniform;    /* every list has exactly k entries */
  float scale;     /* multiplies q.k; 1/sqrt(D) is filled in */
  int64_t queries; /* of all sequences: T of block selection */
  int64_t keys;    /* room of all sequences together */
  bool is_decode;  /* phase decode */
  /* block selection: */
  bool is_packed;   /* sequences lie one behind the other (q_starts, k_starts) */
  bool is_flat;     /* prefill: all visible leaves are candidates */
  bool attends;     /* attention follows: the call has an o */
  bool has_blocks;  /* the call has blocks, */
  bool has_pyramid; /* a pyramid of its own, */
  bool has_csr;     /* csr_offsets and csr_queries */
};

/* Checks struct_size and copies |call|: what a caller built against an older pisa.h does not have
   is zero. All functions below take a complete call. */
pisa_status pisa_call_read(const pisa_attention *call, pisa_attention *out, pisa_error *error);

/* Checks sizes, density, keep, scale, n_listed, phase and what goes together; k_lengths, lists and
   pages, and of packs that select blocks o.data, blocks, worth, pyramid, starts and csr_*, are
   tested for NULL.
   Other pointers and strides are not looked at. */
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
