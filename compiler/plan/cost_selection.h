/* cost_selection.h: what block selection does and how long it takes at a given length: at best,
   from counts and the rates of the target, and as expected, from rates that these kernels reached
   on an H200. */
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
  double forced;   /* of these, the ones it must read */
};

/* Seconds, launches included; selection includes the pyramid. */
struct cost_expected {
  double select; /* what the plan does */
  double attend; /* over the lists */
  double dense;  /* dense attention in place of both */
  double flat;   /* selection by the same scores, by a flat scan */
  double means;  /* a flat scan of leaf means, each head by itself */
  double folded; /* the same of the heads' sum: what score mean and reduce sum allow */
  /* A decoding step of one sequence, and of COST_BATCH, with keys from memory: append, select and
     attend; and a dense one. */
  double step, steps, dense_step, dense_steps;
};
enum { COST_BATCH = 32 };

struct selection_costs {
  int64_t tokens;
  int levels;                              /* of the pyramid */
  struct cost_level last[COST_MAX_LEVELS]; /* of the last query; [l - 1]: level l */
  struct cost_query query;
  struct cost_query decoded;                /* the last one, as the kernel decode takes it */
  int tile_queries;                         /* whose lists attend_blocks reads together */
  struct cost launch[PLAN_PYRAMID_KERNELS]; /* of phase prefill */
  int n_launches;
  double seconds; /* all launches at best, their fixed costs included; attention too */
  struct cost_expected expected;
  double workspace; /* bytes a token, but for what clusters are counted in */
};

/* |plan| selects blocks. Batch 1, the spec's heads, Nq = Nk = |tokens| >= 1. */
struct selection_costs selection_cost_of(const struct plan *plan, int64_t tokens);

/* Queries of all key heads. */
double selection_rows(const struct plan *plan, const struct selection_costs *c);

/* Fills |expected| from the counts; selection_cost_of calls it. */
void selection_expect(const struct plan *plan, struct selection_costs *c);

/* Whether |plan| has the shape at which rates were measured, and was measured itself; else what is
   expected of it is an estimate. */
bool selection_is_measured(const struct plan *plan);

/* What a walk may be compared with. */
enum selection_rival {
  RIVAL_FLAT,
  RIVAL_MEANS,
  RIVAL_FOLDED,
  RIVAL_DENSE,
  RIVAL_STEP, /* of decoding, one sequence */
  RIVAL_STEPS /* COST_BATCH */
};
/* What |rival| is expected to take, and what the plan for the same: selection, beside dense
   attention selection and attention, or a decoding step. */
double selection_rival_seconds(const struct selection_costs *c, enum selection_rival rival);
double selection_own_seconds(const struct selection_costs *c, enum selection_rival rival);

enum { SELECTION_LEAST_TOKENS = 1024 }; /* of a crossover */
/* The shortest length, in steps of an eighth from SELECTION_LEAST_TOKENS on, from which the plan is
   expected to take less time than |rival| at all lengths up to 16 M tokens; 0: none. */
int64_t selection_crossover(const struct plan *plan, enum selection_rival rival);

#endif
