/* select.h: which leaves a query reads, naively, in double: the reference of block selection.

   One query of one key head at a time: the G query heads that share the head share a list, so q is
   [G, D]. Every stage can be called alone, with candidates, scores or means that a device made:

       pyramid, q --select_scores--> score [G, n] --select_reduce--> worth [n] --select_best--> kept
       |                                                                                       |
       \--------------------- select_children: candidates of the level below ------------------/

   A candidate is a node's place in its level, never its place among the candidates.

   Position. Query row r of Nq stands at token t = N - Nq + r: the last query at the last key. With
   |causal| it may read tokens 0 .. t, and a node is visible if its first token is; where t < 0
   nothing is. Without, it may read all; t still says which leaf is its own.

   Forced. The visible leaves that |always|, |previous| and |current| name, and all nodes above
   them, are kept unranked and count inside |keep|. More of them than |keep|: they and no others.
   Where the own leaf is one of them every node that is ranked under a causal mask is full and lies
   in the past, which is why a kernel needs no mask for scores.

   Walk. Candidates of the first level are the root, or with start_nodes all nodes of the lowest
   level of which the query sees at most that many: seen nodes, not all, so that later tokens change
   nothing. Of at most |keep| candidates all are kept unscored; of more, the forced ones and the
   best others, equals by the smaller number. Then the children of what was kept, down to leaves.
   A flat selection has all visible leaves as candidates.

   Score of a node for one head, x_r = scale q . mean of child r (of a leaf: of a key), n_r the
   tokens of child r over those of a full one (1 but for a last child):
       mean            scale q . mean of the node, as stored
       half variance   the mean of the x_r + half their variance, both weighted by n_r
       lse             ln sum n_r e^x_r
   With a causal mask a child counts if it is full and in the past. A node that is not full or not
   in the past as a whole (the own one) has for mean that of the x_r, and -inf if no child counts.

   With mass a score is the log of the node's part of the softmax, less what all of a level share:
   mean and half variance gain ln sum n_r. Forced nodes are scored too, for they hold most of what
   the parts are parts of; as any other node, but of the leaves among them
       the own and the previous       lse over their keys in the past, whichever the score
       another                        by its mean: it may be the first, which every query would read
   A score that is NaN counts as -inf.

   Functions that return bool return false only when memory runs out. */
#ifndef PISA_CPU_SELECT_H
#define PISA_CPU_SELECT_H

#include "runtime/cpu/problem.h" /* struct cpu_range */
#include "runtime/cpu/pyramid.h"

enum { SELECT_MAX_ALWAYS = 6 };
enum select_score { SELECT_MEAN, SELECT_HALF_VARIANCE, SELECT_LSE };
enum select_reduce {
  SELECT_SUM,
  SELECT_MAX,
  SELECT_LOG_SUM, /* ln sum over heads of e^score */
  SELECT_MASS,    /* sum over heads of the softmax over the candidates of a level */
  SELECT_MAX_MASS
};

struct selection {
  bool flat, causal;
  int keep;
  int64_t start_nodes; /* of a walk; 0: from the root */
  enum select_score score;
  enum select_reduce reduce;
  bool previous, current;
  struct cpu_range always[SELECT_MAX_ALWAYS]; /* tokens; begin < 0: the last -begin ones */
  int n_always;
  double scale; /* multiplies q.k */
  int heads;    /* G */
};

/* Nodes of |level| that the query at |t| sees; the first ones. */
int64_t select_visible(const struct selection *s, const struct pyramid *pyramid, int64_t t,
                       int level);
/* Whether a visible node is kept unranked: one of its leaves is. */
bool select_forced(const struct selection *s, const struct pyramid *pyramid, int64_t t, int level,
                   int64_t node);
/* The level a walk begins at, 1 if flat. */
int select_start(const struct selection *s, const struct pyramid *pyramid, int64_t t);

/* score [G, n] of candidate [n], nodes of |level|. Without mass those of forced ones are 0. */
void select_scores(const struct selection *s, const struct pyramid *pyramid, const double *q,
                   int64_t t, int level, const int32_t *candidate, int64_t n, double *score);
/* worth [n] of all heads, forced ones too. */
void select_reduce(const struct selection *s, const double *score, int64_t n, double *worth);
/* kept [at most n] = those of candidate [n] that stay, in their order; their number; may be
   |candidate|. Forced
   ones get worth +inf. */
int64_t select_best(const struct selection *s, const struct pyramid *pyramid, int64_t t, int level,
                    const int32_t *candidate, double *worth, int64_t n, int32_t *kept);
/* child [at most n * children] = the visible nodes of the level below under node [n], ascending;
   their number. */
int64_t select_children(const struct selection *s, const struct pyramid *pyramid, int64_t t,
                        int level, const int32_t *node, int64_t n, int32_t *child);

/* All of it. list [room] = the leaves that the query reads, ascending, then -1; *n their number, at
   most max(keep, forced leaves), for which there must be room. worth [room] of each, or NULL: +inf
   of leaves that were kept unranked, -inf behind the last. */
bool select_leaves(const struct selection *s, const struct pyramid *pyramid, const double *q,
                   int64_t t, int64_t room, int32_t *list, double *worth, int64_t *n);
/* For the n_q queries of q [G, Nq, D]: list [Nq, room], worth [Nq, room] or NULL. */
bool select_sequence(const struct selection *s, const struct pyramid *pyramid, const double *q,
                     int64_t n_q, int64_t room, int32_t *list, double *worth);

#endif
