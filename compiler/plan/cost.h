/* cost.h: what a plan does and how long it must take at a given length, from the counts of its
   kernels and the rates of its target. A lower bound, not a prediction. */
#ifndef PISA_PLAN_COST_H
#define PISA_PLAN_COST_H

#include "compiler/plan/plan.h"

struct cost { /* one launch; counts of the whole grid */
  const struct plan_kernel *kernel;
  int64_t ctas;
  int smem_bytes;
  double flops;      /* on the tensor cores */
  double exps;       /* ex2 */
  double l2_bytes;   /* moved between L2 and the SMs */
  double hbm_bytes;  /* moved between memory and L2: every array once */
  double seconds;    /* the slowest of the four, times the imbalance of the last wave */
  const char *bound; /* "tensor", "exp", "L2" or "memory" */
};

struct costs {
  int64_t tokens, key_blocks, query_blocks, items;
  int64_t kept;        /* key blocks a query block reads exactly */
  int64_t exact_tiles; /* of an item */
  int64_t mean_tiles;
  struct cost launch[3];
  int n_launches;
  double flops, dense_flops; /* attention alone, and what dense attention would take */
  double seconds;            /* all launches and their fixed costs */
};

/* Costs of |plan| for one batch, the spec's heads and Nq = Nk = |tokens| >= 1. */
struct costs cost_of(const struct plan *plan, int64_t tokens);

/* The shortest length, in steps of 128 tokens, from which |plan| needs less time than dense
   attention by these costs; 0 when there is none up to 128 K tokens, or when |plan| is dense. */
int64_t cost_crossover(struct arena *arena, const struct plan *plan);

/* Key blocks of |spec| that are read exactly among |key_blocks|: the budget, at least the forced
 * blocks. */
int64_t cost_kept(const struct spec *spec, int64_t tokens);

#endif
