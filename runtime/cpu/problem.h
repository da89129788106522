/* problem.h: one attention call as the executors see it: the method, the sizes derived from it, the
   arrays.

   Immutable once made. Both executors and the GPU verifier start from it, and then take one
   sequence at a time. */
#ifndef PISA_CPU_PROBLEM_H
#define PISA_CPU_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/pisa.h"

enum { CPU_MAX_ALWAYS = 4, CPU_MAX_HEAD_DIM = 256 };

struct cpu_range { /* [begin, end) */
  int64_t begin, end;
};

struct cpu_problem {
  /* method */
  bool dense;          /* every token, no routing; also a call that is too short to be routed */
  bool causal;         /* dense alone: row i reads tokens up to n_k - n_q + i */
  bool means;          /* unlisted blocks enter as one column each (taylor 0, hybrid) */
  bool first_order;    /* g * (q . h_sum) joins the numerator (hybrid) */
  bool linear;         /* unlisted blocks enter token by token, to first order (taylor 1) */
  bool second_order;   /* the mass of an unlisted block counts the spread of its logits */
  bool log_covariance; /* scores gain ln(||H_j||_F + 1e-5) */
  bool log_residual;   /* scores gain ln(||H_j - Hbar||_F + 1e-5) */
  bool key_variance;   /* scores gain ln(max(tr C_j, 1e-8)) */
  bool threshold;      /* blocks that score above mu + tau sigma, in place of the k best */
  bool full_variance;  /* sigma from the scores themselves; else from the variances of kbar */
  double tau;
  int query, key; /* rows of a query block, tokens of a key block: 64 or 128, key <= query */
  int head_dim;   /* D */
  pisa_type type; /* of q, k, v, o and of every stored summary */
  struct cpu_range always[CPU_MAX_ALWAYS]; /* tokens; begin < 0: the last -begin ones */
  int n_always;
  int64_t window; /* forced blocks to each side of those the query block touches; -1: none */
  /* call */
  int64_t batch, heads, kv_heads, n_q, n_k;
  const int32_t *lengths; /* [B] keys of each sequence, clamped to 0 .. n_k; NULL: n_k each */
  const int32_t *pages;   /* [B, page_columns] where k and v are pages of |page| tokens, or NULL */
  int64_t page_columns;
  int page;
  int64_t density_num, density_den; /* k = max(1, floor(num NT / den)); num 0: k = keep */
  int64_t keep;
  double scale;           /* multiplies q.k */
  pisa_tensor q, k, v, o; /* host memory */
  int64_t kept;           /* entries a list has room for */
  /* derived */
  int64_t q_blocks, k_blocks; /* NTq = ceil(Nq/query), NT = ceil(Nk/key) */
  int64_t q_sub_blocks;       /* NQS = ceil(Nq/key) */
};

/* From a checked call. */
struct pisa_method;
struct pisa_shape;
void cpu_problem_init(struct cpu_problem *problem, const struct pisa_method *method,
                      const struct pisa_shape *shape, const pisa_attention *call);
/* Fills the derived sizes from the fields above them. */
void cpu_problem_derive(struct cpu_problem *problem);

/* Keys of sequence |b|, n_b in [0, n_k]. */
int64_t cpu_keys(const struct cpu_problem *problem, int64_t b);
/* Sequence |b| as a problem without lengths, whose n_k is n_b (maybe 0) and whose k_blocks is NT_b:
   a length means what a shorter call does. Tensors, |kept| and b in them stay those of the call. */
struct cpu_problem cpu_sequence(const struct cpu_problem *problem, int64_t b);

/* Whether H_j is needed at all. */
bool cpu_wants_h(const struct cpu_problem *problem);

/* What follows takes a problem without lengths. */

/* Whether block |j| of NT is always read for query block |i|. */
bool cpu_forced(const struct cpu_problem *problem, int64_t i, int64_t j);
/* Entries of the list of query block |i|: min(NT, max(k, forced blocks)). Not with a threshold. */
int64_t cpu_count(const struct cpu_problem *problem, int64_t i);
/* list [n] = the ids of given [n] that are in [0, NT), ascending, each once; their number. */
int64_t cpu_given_list(const struct cpu_problem *problem, const int32_t *given, int64_t n,
                       int32_t *list);
/* Tokens of key block |j|; only the last block can be short. */
int64_t cpu_key_length(const struct cpu_problem *problem, int64_t j);
/* Tokens that row |row| of q reads of n_k, maybe 0: all, or with |causal| the first ones. */
int64_t cpu_seen(const struct cpu_problem *problem, int64_t row);
/* Rows of query block |i|. */
int64_t cpu_query_length(const struct cpu_problem *problem, int64_t i);
/* G, the query heads that share a key/value head, and the one that query head |h| reads. */
int64_t cpu_group(const struct cpu_problem *problem);
int64_t cpu_kv_head(const struct cpu_problem *problem, int64_t h);
/* An element of h_sum once stored, less the gain it is stored with (pisa_h_gain). */
double cpu_round_h_sum(const struct cpu_problem *problem, double value);
/* A stored k_variance: |variance| of a key column times scale / 2, rounded; and q^2 of an element,
   rounded. Both less the gain that they are rounded with (pisa_variance_gain). */
double cpu_round_variance(const struct cpu_problem *problem, double variance);
double cpu_round_square(const struct cpu_problem *problem, double q);
/* First element of row |n| of [B, H, N, D]. */
uint16_t *cpu_row(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n);
/* The same of key |n| of k or v, in its page where there are pages. */
const uint16_t *cpu_key_row(const struct cpu_problem *problem, const pisa_tensor *tensor, int64_t b,
                            int64_t kv_head, int64_t n);

#endif
