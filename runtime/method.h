/* method.h: one variant of a spec as plain data: everything that launch and the CPU executor must
   know about the method. Filled by manifest.c and valid by construction (docs/ABI.md section 2). */
#ifndef PISA_RUNTIME_METHOD_H
#define PISA_RUNTIME_METHOD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi.def"
#include "runtime/pisa.h"

enum pisa_family { PISA_PIECEWISE };
enum pisa_mask { PISA_MASK_NONE, PISA_MASK_CAUSAL };
enum pisa_score { PISA_SCORE_MEAN };                         /* scale * qbar . kbar */
enum pisa_term { PISA_TERM_NONE, PISA_TERM_LOG_COVARIANCE }; /* + ln(||H_j||_F + 1e-5) */
enum pisa_budget { PISA_BUDGET_DENSITY, PISA_BUDGET_KEEP };
enum pisa_tail { PISA_TAIL_DROP, PISA_TAIL_TAYLOR_0, PISA_TAIL_TAYLOR_HYBRID };

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
  int query, key; /* rows of a query block, tokens of a key block */
  enum pisa_score score;
  enum pisa_term term;
  enum pisa_budget budget;          /* what a call without density and keep gets */
  int64_t density_num, density_den; /* 15 / 100; den is a power of ten, at most 10^9 */
  int64_t keep;                     /* blocks, for PISA_BUDGET_KEEP */
  struct pisa_always always[PISA_MAX_ALWAYS];
  int n_always;
  enum pisa_tail tail;
};

/* G, query heads per key/value head. */
static inline int pisa_method_group(const struct pisa_method *method) {
  return method->heads / method->kv_heads;
}

/* The factor that a stored h_sum carries: everything reads it back divided by this. */
static inline double pisa_h_gain(pisa_type type) {
  return type == PISA_FP16 ? PISA_FP16_H_GAIN : 1;
}

/* Which statistics the method reads: vbar_j, ||H_j||_F, and the sum of all H_j. */
static inline bool pisa_wants_v_mean(const struct pisa_method *method) {
  return !method->dense && method->tail != PISA_TAIL_DROP;
}
static inline bool pisa_wants_h_norm2(const struct pisa_method *method) {
  return !method->dense && method->term == PISA_TERM_LOG_COVARIANCE;
}
static inline bool pisa_wants_h_sum(const struct pisa_method *method) {
  return !method->dense && method->tail == PISA_TAIL_TAYLOR_HYBRID;
}

#endif
