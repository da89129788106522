/* problem.h: one attention call as the executors see it: the method, the sizes derived from it, the
   arrays.

   Immutable once made. Both executors and the GPU verifier start from it. */
#ifndef PISA_CPU_PROBLEM_H
#define PISA_CPU_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/pisa.h"

enum { CPU_MAX_ALWAYS = 4, CPU_MAX_HEAD_DIM = 256 };

struct cpu_range { /* key blocks [begin, end) */
  int64_t begin, end;
};

struct cpu_problem {
  /* method */
  bool dense;          /* every token, no routing; kept == k_blocks */
  bool means;          /* unlisted blocks enter as one column each (taylor 0, hybrid) */
  bool first_order;    /* g * (q . h_sum) joins the numerator (hybrid) */
  bool second_order;   /* a mean column's score gains scale * (q^2 . k_variance) */
  bool log_covariance; /* scores gain ln(||H_j||_F + 1e-5) */
  bool key_variance;   /* scores gain ln(max(tr C_j, 1e-8)) */
  int query, key;      /* rows of a query block, tokens of a key block: 64 or 128, key <= query */
  int head_dim;        /* D */
  pisa_type type;      /* of q, k, v, o and of every stored summary */
  /* call */
  int64_t batch, heads, kv_heads, n_q, n_k;
  double scale;           /* multiplies q.k */
  pisa_tensor q, k, v, o; /* host memory */
  /* derived */
  int64_t q_blocks, k_blocks; /* NTq = ceil(Nq/query), NT = ceil(Nk/key) */
  int64_t q_sub_blocks;       /* NQS = ceil(Nq/key) */
  int64_t kept;               /* blocks per list, always-set included */
  struct cpu_range always[CPU_MAX_ALWAYS];
  int n_always;
  int64_t window; /* forced blocks to each side of those the query block touches; -1: none */
};

/* From a checked call. */
struct pisa_method;
struct pisa_shape;
void cpu_problem_init(struct cpu_problem *problem, const struct pisa_method *method,
                      const struct pisa_shape *shape, const pisa_attention *call);
/* Fills the derived sizes from the fields above them. |kept|, |always| and |window| are the
 * caller's. */
void cpu_problem_derive(struct cpu_problem *problem);

/* Whether H_j is needed at all. */
bool cpu_wants_h(const struct cpu_problem *problem);
/* Key blocks that |window| forces for query block |i|; {0, 0} when none. */
struct cpu_range cpu_window(const struct cpu_problem *problem, int64_t i);
/* Tokens of key block |j|; only the last block can be short. */
int64_t cpu_key_length(const struct cpu_problem *problem, int64_t j);
/* Rows of query block |i|. */
int64_t cpu_query_length(const struct cpu_problem *problem, int64_t i);
/* G, the query heads that share a key/value head, and the one that query head |h| reads. */
int64_t cpu_group(const struct cpu_problem *problem);
int64_t cpu_kv_head(const struct cpu_problem *problem, int64_t h);
/* An element of h_sum once stored, less the gain it is stored with (pisa_h_gain). */
double cpu_round_h_sum(const struct cpu_problem *problem, double value);
/* A stored k_variance: |variance| of a key column times scale / 2, rounded. */
double cpu_round_variance(const struct cpu_problem *problem, double variance);
/* First element of row |n| of [B, H, N, D]. */
uint16_t *cpu_row(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n);

#endif
