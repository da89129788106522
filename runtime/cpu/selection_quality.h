/* selection_quality.h: how good a list of leaves is, against the attention that all keys would get.

   mass of leaf b for the query at t = 1/G sum over heads h of sum over its readable tokens j of
   softmax_j(scale q_h . k_j): what a full attention would give it, so the masses of a query sum
   to 1. Lists hold ids in any order, each once; ids below 0 are padding. */
#ifndef PISA_CPU_SELECTION_QUALITY_H
#define PISA_CPU_SELECTION_QUALITY_H

#include "runtime/cpu/select.h"

/* mass [leaves] of q [G, D], from the keys of the pyramid; all 0 where the query reads nothing. */
void quality_mass(const struct selection *s, const struct pyramid *pyramid, const double *q,
                  int64_t t, double *mass);
/* The reference set: the forced leaves and, up to |keep|, those of the largest mass, equals by the
   smaller number. list [room] ascending, then -1; *n their number. False: no memory. */
bool quality_best(const struct selection *s, const struct pyramid *pyramid, int64_t t,
                  const double *mass, int64_t room, int32_t *list, int64_t *n);

/* Sums over queries; each mean divides by |queries|. */
struct selection_quality {
  int64_t queries;
  double recall;   /* of |S n R| / |R|; 1 where R is empty */
  double captured; /* of the mass of S */
  double ratio;    /* of mass of S / mass of R; 1 where R holds none */
};

/* A query that selects S = list [n] where another selector takes R = other [n_other]; mass
   [leaves]. To be left out where the query sees no more leaves than it keeps: there nothing is
   chosen. */
void quality_add(struct selection_quality *quality, const double *mass, const int32_t *list,
                 int64_t n, const int32_t *other, int64_t n_other);
/* |to| gains the sums of |from|. */
void quality_join(struct selection_quality *to, const struct selection_quality *from);
/* Means over the queries added; NaN of none. */
struct selection_quality quality_means(const struct selection_quality *quality);

#endif
