/* oracle.h: the method, naively, in double: the reference of every test and of the GPU verifier.

   One (batch, head) at a time, each stage by itself, so that a kernel's output can be checked with
   that kernel's own inputs: fill a summary with what the device stored, or hand in the lists it
   chose. Formulas: docs/DESIGN.md.

       q, k, v --oracle_statistics--> summary --oracle_choose--> list
                                          \-------oracle_attend---/--> o, lse

   The problem is one sequence, without lengths (cpu_sequence); where it has no keys (n_k 0), lists
   are empty, o is 0 and lse is -inf.

   Functions that return bool return false only when memory runs out. Everything else cannot fail.
 */
#ifndef PISA_CPU_ORACLE_H
#define PISA_CPU_ORACLE_H

#include "runtime/cpu/problem.h"

struct oracle_head {
  const struct cpu_problem *problem;
  double *q; /* [Nq, D] */
  double *k; /* [Nk, D] */
  double *v; /* [Nk, D] */
};

/* Every value as stored, that is rounded to the type, except block_norm. Entries a method does not
 * want stay 0. */
struct oracle_summary {
  double *q_mean;     /* [NQS, D] means of |key| query rows (the last may have fewer) */
  double *k_mean;     /* [NT, D]  kbar_j */
  double *v_mean;     /* [NT, D]  vbar_j */
  double *k_variance; /* [NT, D]  scale / 2 * var_jd, var_jd = mean over the block of (k_nd -
                         kbar_jd)^2 with the unrounded mean */
  double *block_norm; /* [NT] what the score takes the logarithm of: ||H_j||_F, H_j = sum_n (k_n -
                         kbar_j)^T v_n with the unrounded mean; ||H_j - Hbar||_F, Hbar the mean of
                         the H_j; or tr C_j = sum_d var_jd */
  double *h_sum; /* [D, D]   round(sum_j H_j * scale / Nk * gain) / gain, row = key dimension */
};

/* Widens one head. |head| is to be freed also after a false. */
bool oracle_head_init(struct oracle_head *head, const struct cpu_problem *problem, int64_t b,
                      int64_t h);
void oracle_head_free(struct oracle_head *head);

/* Zeroed arrays for one head. |summary| is to be freed also after a false. */
bool oracle_summary_init(struct oracle_summary *summary, const struct cpu_problem *problem);
void oracle_summary_free(struct oracle_summary *summary);

/* Stage 1. */
bool oracle_statistics(const struct oracle_head *head, struct oracle_summary *summary);

/* Stage 2, query block |i|: score [NT]; +inf in the always-set, -inf where it would be NaN. */
void oracle_scores(const struct cpu_problem *problem, const struct oracle_summary *summary,
                   int64_t i, double *score);
/* With a threshold: the limit mu + tau sigma that a score must exceed. mu is the mean over j of
   t_j = scale qbar . kbar_j, a score without its term; sigma^2 - 1e-6 the variance of t_j, or
   scale^2 sum_d qbar_d^2 var_j(kbar_jd). */
double oracle_limit(const struct cpu_problem *problem, const struct oracle_summary *summary,
                    int64_t i);

/* Stages 2 and 3, query block |i|: score [NT] and list [kept], whose first |n| entries are the
   blocks read exactly, ascending. */
bool oracle_choose(const struct cpu_problem *problem, const struct oracle_summary *summary,
                   int64_t i, double *score, int32_t *list, int64_t *n);

/* Stage 4, query block |i| with the |n| blocks of |list| (any order, maybe none) read exactly:
   o [rows, D] not rounded, lse [rows]. */
bool oracle_attend(const struct oracle_head *head, const struct oracle_summary *summary, int64_t i,
                   const int32_t *list, int64_t n, double *o, double *lse);

#endif
