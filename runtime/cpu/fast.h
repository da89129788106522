/* fast.h: the same stages as oracle.h in float, on tiles of 64 keys, for several threads.

   One (batch, head) at a time. Means, scores and lists are formed in double, so that they coincide
   with the oracle's; H_j, attention and the first-order term are float.

   A fast_head is loaded by one thread, then read by many; each has its own fast_scratch. Functions
   that return bool return false only when memory runs out. */
#ifndef PISA_CPU_FAST_H
#define PISA_CPU_FAST_H

#include "runtime/cpu/oracle.h"

struct fast_head {
  const struct cpu_problem *call;
  struct cpu_problem problem;    /* the sequence that is loaded */
  struct oracle_summary summary; /* as the oracle's: what the routing reads */
  float *k;                      /* [ceil(Nk/64), D, 64] keys, transposed by tile; zero past n_b */
  float *v;                      /* [ceil(Nk/64), 64, D] zero past n_b */
  float *k_mean;                 /* [ceil(NT/64), D, 64] rounded, transposed by tile */
  float *v_mean;                 /* [ceil(NT/64), 64, D] rounded */
  float *k_variance;             /* as k_mean; NULL unless means are to second order */
  float *log2_length;            /* [NT] log2 of a block's tokens */
  float *h_sum;                  /* [D, D] */
  float *key_center;             /* [NT, D] unrounded means of the keys */
  double *h_square;              /* [D/8, NT] sum of squares of 8 rows of H_j */
  int64_t b, h, kv_head;         /* what is loaded; -1: nothing */
};

struct fast_scratch {
  float *q;        /* [query, D] */
  float *q_square; /* [query, D] rounded, of means to second order */
  float *s;        /* [query, max(64, key)] */
  float *o;        /* [query, D] the result of fast_attend, not rounded */
  float *slope;    /* [query, D] q . h_sum */
  float *row;      /* [5, query] m, l, g, f, sum of tile_softmax */
  bool *listed;    /* [NT] */
};

/* |problem|: the whole call. */
bool fast_head_init(struct fast_head *head, const struct cpu_problem *problem);
void fast_head_free(struct fast_head *head);
bool fast_scratch_init(struct fast_scratch *scratch, const struct cpu_problem *problem);
void fast_scratch_free(struct fast_scratch *scratch);

/* Stage 1 for head (b, h) on |threads| threads; keys and values already loaded are kept. The later
   stages take head->problem. */
void fast_load(struct fast_head *head, int64_t b, int64_t h, int threads);
/* Stage 4 for query block |i|, |n| distinct blocks listed: scratch->o and lse [rows]. */
void fast_attend(const struct fast_head *head, struct fast_scratch *scratch, int64_t i,
                 const int32_t *list, int64_t n, float *lse);

#endif
