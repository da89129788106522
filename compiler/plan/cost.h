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

/* Fills |seconds| and |bound| of |c| from its counts: the slowest resource, the work in |items|
   equal pieces, |streams| at a time on an SM. */
void cost_bound(const struct target *t, struct cost *c, int64_t items, int streams);

/* The part of two neighbouring lists taken to be alike, where they are walked together. */
#define COST_SHARED 0.5

struct costs {
  int64_t tokens, key_blocks, query_blocks, items;
  const struct plan_attend *attend; /* the kernel of this length */
  int64_t kept;                     /* the most key blocks that a query block reads exactly */
  double mean_kept;                 /* of all query blocks */
  double exact_tiles;               /* of a list, of all query blocks; halves with half_tile */
  double mean_tiles;
  double linear_tiles; /* taylor 1: of blocks that are not listed */
  struct cost launch[4];
  int n_launches;
  double flops, dense_flops; /* attention alone, and what dense attention would take */
  double seconds;            /* all launches and their fixed costs */
};

/* Costs of |plan| for one batch, the spec's heads and Nq = Nk = |tokens| >= 1, dense where that is
   below what the spec says. Of a plan that selects blocks only where it is. */
struct costs cost_of(const struct plan *plan, int64_t tokens);

/* The most keys of a call, which the route kernel's shared memory bounds; 0: any number. */
int64_t cost_most_tokens(const struct plan *plan);

/* The shortest length, in steps of 128 tokens, from which |plan| needs less time than dense
   attention by these costs, whatever `below` says; 0 when there is none up to 128 K tokens, or when
   |plan| is dense. */
int64_t cost_crossover(struct arena *arena, const struct plan *plan);

#endif
