/* method.h: one variant of a spec as plain data: everything that launch and the CPU executor must
   know about the method. Filled by manifest.c and valid by construction (docs/ABI.md section 2). */
#ifndef PISA_RUNTIME_METHOD_H
#define PISA_RUNTIME_METHOD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi.def"
#include "runtime/pisa.h"

enum pisa_family { PISA_PIECEWISE, PISA_PYRAMID };
enum pisa_mask { PISA_MASK_NONE, PISA_MASK_CAUSAL };
/* Piecewise: scale * qbar . kbar. Pyramid: of the logits of a node's children (docs/DESIGN.md). */
enum pisa_score { PISA_SCORE_MEAN, PISA_SCORE_HALF_VARIANCE, PISA_SCORE_LSE };
enum pisa_reduce {
  PISA_REDUCE_SUM,
  PISA_REDUCE_MAX,
  PISA_REDUCE_LSE,
  PISA_REDUCE_MASS,
  PISA_REDUCE_MAX_MASS
};
enum pisa_term {
  PISA_TERM_NONE,
  PISA_TERM_LOG_COVARIANCE,  /* + ln(||H_j||_F + 1e-5) */
  PISA_TERM_LOG_RESIDUAL,    /* + ln(||H_j - Hbar||_F + 1e-5), Hbar the mean of the NT H_j */
  PISA_TERM_LOG_KEY_VARIANCE /* + ln(max(tr C_j, 1e-8)), C_j the covariance of block j's keys */
};
/* Threshold: a block is read when its score is above mu + threshold * sigma (docs/LANGUAGE.md 5.7).
 */
enum pisa_budget { PISA_BUDGET_DENSITY, PISA_BUDGET_KEEP, PISA_BUDGET_THRESHOLD };
enum pisa_variance { PISA_VARIANCE_DIAGONAL, PISA_VARIANCE_FULL };
enum pisa_tail {
  PISA_TAIL_DROP,
  PISA_TAIL_TAYLOR_0,
  PISA_TAIL_TAYLOR_1, /* token by token: e^(s_mean) (1 + s_n - s_mean), s_mean the block's mean */
  PISA_TAIL_TAYLOR_HYBRID
};
/* What a block mean weighs: e^(scale q . kbar_j), or that of Gaussian keys, whose exponent gains
   scale^2/2 q^T diag(C_j) q. */
enum pisa_mass { PISA_MASS_ZEROTH_ORDER, PISA_MASS_SECOND_ORDER };

/* Tokens that are always read exactly: every key block that one of them touches. */
enum pisa_always_kind { PISA_ALWAYS_FIRST, PISA_ALWAYS_LAST, PISA_ALWAYS_RANGE };
enum { PISA_MAX_ALWAYS = 4 };
struct pisa_always {
  enum pisa_always_kind kind;
  int64_t begin, end; /* FIRST and LAST: begin = 0, end = number of tokens; RANGE: [begin, end) */
};

struct pisa_method {
  enum pisa_family family;
  bool dense; /* every key block is read exactly; the fields from |score| on do not count */
  int heads, kv_heads; /* the spec's defaults; G = heads / kv_heads is compiled in */
  int head_dim;        /* D */
  pisa_type type;      /* of q, k, v, o and of the stored means */
  enum pisa_mask mask;
  int query, key; /* rows of a query block, tokens of a key block; key divides query */
  enum pisa_score score;
  enum pisa_term term;
  enum pisa_budget budget;              /* what a call without density and keep gets */
  int64_t density_num, density_den;     /* 15 / 100; den is a power of ten, at most 10^9 */
  int64_t keep;                         /* blocks, for PISA_BUDGET_KEEP */
  int64_t threshold_num, threshold_den; /* 25 / 10, for PISA_BUDGET_THRESHOLD */
  enum pisa_variance variance;          /* what sigma is taken from */
  struct pisa_always always[PISA_MAX_ALWAYS];
  int n_always;
  bool has_window; /* the key blocks that the rows of a query block touch are forced, */
  int64_t window;  /* and that many to each side of them */
  enum pisa_tail tail;
  enum pisa_mass mass; /* zeroth order for PISA_TAIL_DROP */
  bool union_lists;    /* pairs of lists of 64-row query blocks are ordered for one walk (ABI.md) */
  int64_t dense_below; /* n_k below this is attended densely, of PISA_PYRAMID in phase prefill; 0:
                          never */

  /* Block selection, family PISA_PYRAMID: query is 1, key is |leaf|, budget PISA_BUDGET_KEEP with
     |keep| compiled in, tail PISA_TAIL_DROP. */
  int group;                            /* children of a node above the leaves: 2, 4, 8 */
  bool flat;                            /* route flat: all visible leaves are candidates */
  enum pisa_reduce reduce;              /* over the G heads that share a list */
  int64_t start_nodes;                  /* where a walk begins (LANGUAGE.md 5.9); 0: at the root */
  int64_t decode_start_nodes;           /* the same in phase decode */
  bool always_previous, always_current; /* beside |always| */
  bool fused;                           /* leaf_stage fused: the walk scores leaves too */
  int query_tile;                       /* queries that leaf_score multiplies at once */
  int64_t flat_below;                   /* n_k below this is selected flat; 0: never */

  /* Both families; piecewise: decode where it is dense and causal, pages without prefill. */
  bool prefill, decode; /* phases there are kernels for */
  int page;             /* tokens of a page of k and v; 0: no pages */
};

/* Keys of a block of the kernels dense and dense_edge. */
static inline int pisa_dense_key(const struct pisa_method *method) {
  return method->family == PISA_PYRAMID ? PISA_DENSE_KEY : method->key;
}

static inline bool pisa_reduces_mass(const struct pisa_method *method) {
  return method->reduce == PISA_REDUCE_MASS || method->reduce == PISA_REDUCE_MAX_MASS;
}

/* Leaves are scored for clusters of queries, by kernels of their own. */
static inline bool pisa_is_clustered(const struct pisa_method *method) {
  return !method->flat && !method->fused;
}

/* G, query heads per key/value head. */
static inline int pisa_method_group(const struct pisa_method *method) {
  return method->heads / method->kv_heads;
}

/* The factor that a stored h_sum carries: everything reads it back divided by this. */
static inline double pisa_h_gain(pisa_type type) {
  return type == PISA_FP16 ? PISA_FP16_H_GAIN : 1;
}
/* The same of k_variance, by which q^2 is divided before it is rounded. */
static inline double pisa_variance_gain(pisa_type type) {
  return type == PISA_FP16 ? PISA_FP16_VARIANCE_GAIN : 1;
}

/* Which statistics the method reads: vbar_j, the variances of a block's key columns, the
   logarithm's argument in a score, ||H_j||_F as that, and the sum of all H_j. */
static inline bool pisa_wants_v_mean(const struct pisa_method *method) {
  return !method->dense &&
         (method->tail == PISA_TAIL_TAYLOR_0 || method->tail == PISA_TAIL_TAYLOR_HYBRID);
}
static inline bool pisa_wants_k_variance(const struct pisa_method *method) {
  return pisa_wants_v_mean(method) && method->mass == PISA_MASS_SECOND_ORDER;
}
static inline bool pisa_wants_block_norm(const struct pisa_method *method) {
  return !method->dense && method->term != PISA_TERM_NONE;
}
static inline bool pisa_wants_h_norm2(const struct pisa_method *method) {
  return !method->dense && method->term == PISA_TERM_LOG_COVARIANCE;
}
static inline bool pisa_wants_h_sum(const struct pisa_method *method) {
  return !method->dense && method->tail == PISA_TAIL_TAYLOR_HYBRID;
}
static inline bool pisa_wants_residual(const struct pisa_method *method) {
  return !method->dense && method->term == PISA_TERM_LOG_RESIDUAL;
}
/* Partial sums of H_j: what h_sum and the residuals are made from. */
static inline bool pisa_wants_h_part(const struct pisa_method *method) {
  return pisa_wants_h_sum(method) || pisa_wants_residual(method);
}

#endif
