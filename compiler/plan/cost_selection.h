/* cost_selection.h: what block selection does and how long it takes at a given length: at best,
   from counts and the rates of the target, and as expected, from rates that prototypes of these
   kernels reached on an H200. */
#ifndef PISA_PLAN_COST_SELECTION_H
#define PISA_PLAN_COST_SELECTION_H

#include "compiler/plan/cost.h"

enum { COST_MAX_LEVELS = 32 };

struct cost_level { /* of the walk of one query */
  int64_t nodes, candidates;
  int64_t ranked; /* candidates that are scored; 0: all are kept */
};

/* Of one query and key head; on average over all queries of a sequence. */
struct cost_query {
  double levels;   /* that are scored above the leaves */
  double means;    /* read, each multiplied with G heads */
  double far;      /* those of levels that an SM does not keep */
  double keys;     /* the same of keys, for leaves */
  double products; /* tiles of m16n8k16 */
  double exps;     /* of all G heads */
  double parents;  /* clustered: whose clusters the query is in */
  double listed;   /* leaves it reads in the end */
};

struct selection_costs {
  int64_t tokens;
  int levels;                              /* of the pyramid */
  struct cost_level last[COST_MAX_LEVELS]; /* of the last query; [l - 1]: level l */
  struct cost_query query;
  struct cost launch[PLAN_PYRAMID_KERNELS]; /* of phase prefill */
  int n_launches;
  double seconds;         /* all launches at best, their fixed costs included; attention too */
  double expected;        /* of selection alone */
  double expected_flat;   /* of the same scores by a flat scan */
  double expected_means;  /* of a flat scan of leaf means, each head by itself */
  double expected_folded; /* the same of the heads' sum: what score mean and reduce sum allow */
  double workspace;       /* bytes a token, but for what clusters are counted in */
};

/* |plan| selects blocks. Batch 1, the spec's heads, Nq = Nk = |tokens| >= 1. */
struct selection_costs selection_cost_of(const struct plan *plan, int64_t tokens);

/* The shortest length, in steps of an eighth, from which the walk is expected to take less time
   than |flat| says of a flat scan; 0: none up to 16 M tokens. */
int64_t selection_crossover(const struct plan *plan,
                            double (*flat)(const struct selection_costs *));
double selection_flat(const struct selection_costs *c);
double selection_means(const struct selection_costs *c);
double selection_folded(const struct selection_costs *c);

#endif
