/* walk.h: what a warp of the kernel walk has of shared memory, and how it takes a level. In go the
   facts of a selection; plan and kernel both ask here. */
#ifndef PISA_PLAN_WALK_H
#define PISA_PLAN_WALK_H

#include "compiler/plan/plan.h"

/* Words of 4 bytes. */
struct walk_room {
  int parents;    /* nodes that are kept at once, or begun with: K, or those above start_nodes */
  int candidates; /* their children, and padding of a last product */
  int kept;       /* of nodes: words of their places, see walk_level.c */
  int next;       /* of nodes kept of many candidates, until all are read */
  int scores;     /* of heads, with mass: where candidates are in many products */
  int bytes;      /* all, of a warp */
};

static inline int walk_round_up(int n, int to) {
  return (n + to - 1) / to * to;
}

/* Rows of means that a kept node has below it: its children, or with scores of children theirs. */
static inline int walk_parent_rows(const struct plan_pyramid *p) {
  return p->score == SCORE_MEAN ? p->children : p->children * p->children;
}

/* Whether the candidates of K nodes are values of a lane, at most 8, in products of one step. */
static inline bool walk_has_few(const struct plan_pyramid *p) {
  return p->keep * walk_parent_rows(p) <= (p->score == SCORE_MEAN ? 32 : 64) &&
         p->keep * p->children <= 32;
}

/* Nodes of a first level above |keep|: its candidates are scored together. */
static inline bool walk_starts_dense(const struct plan_pyramid *p) {
  return p->start_nodes > p->keep;
}

/* Leaves are scored by their own keys in the walk, not by means of children alone. */
static inline bool walk_reads_keys(const struct plan_pyramid *p) {
  return !p->clustered && (p->score != SCORE_MEAN || plan_is_mass(p) || (p->causal && !p->current));
}

static inline struct walk_room walk_room_of(const struct plan_pyramid *p) {
  const int dense = walk_starts_dense(p) ? (p->start_nodes + p->children - 1) / p->children : 0;
  const bool many = !walk_has_few(p) || dense > 0;
  struct walk_room r = {.parents = dense > p->keep ? dense : p->keep};
  r.candidates = walk_round_up(r.parents * p->children, 32);
  r.kept = walk_round_up(r.parents + 16, 16);
  r.next = many ? walk_round_up(p->keep, 4) : 0;
  if (plan_is_mass(p) && (many || walk_reads_keys(p)))
    r.scores = walk_round_up(r.candidates * (p->group | 1), 4);
  r.bytes = 4 * (r.kept + r.next + r.candidates + r.scores);
  return r;
}

#endif
