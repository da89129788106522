/* walk.h: what the files of the kernel walk share.

   A warp takes a row, a query and a key head, and goes from the lowest level of which the query
   sees at most K nodes (or start_nodes, if they are more) down to the leaves, or to their parents.
   Depth d is level d + 1: leaves have depth 0. Kept nodes lie in the warp's shared memory,
   ascending; their children are the candidates of the depth below, in slots g i + r for child r of
   the ith. Places behind the last kept node hold the first node that is not seen, so their slots
   are seen as little as it is. */
#ifndef PISA_KERNELS_WALK_H
#define PISA_KERNELS_WALK_H

#include "compiler/ir/ir.h"
#include "compiler/kernels/best.h"
#include "compiler/kernels/node_score.h"
#include "compiler/kernels/sequence.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/walk.h"
#include "compiler/sm90/lanes.h"

#define WALK_ARG(name) (k->arg[PISA_WALK_##name])

enum { WALK_WORD = 4, WALK_HALF = 2, WALK_MAX_RANGES = PLAN_MAX_ALWAYS + 1 };

/* Leaves [first, last] that are kept unranked where they are seen. */
struct walk_range {
  val first, last; /* null: from 0; to the last one seen */
};

struct walk {
  const struct plan_pyramid *plan;
  struct walk_room room;
  struct lanes lanes;
  val kept, next, keys, scores; /* shared memory of this warp */
  val zero;                     /* node_query_get's */
  struct sequence_array k;

  struct sequence s;
  val offsets;     /* lane i: off of level i + 1 */
  val parent_base; /* clustered: number of its parent 0 */

  /* of the row at hand */
  val query, kv_head;
  val t, own; /* token and leaf */
  val last;   /* the last leaf seen; -1: none */
  val rows;   /* pointer: mean of leaf 0 */
  struct walk_range range[WALK_MAX_RANGES];
  int ranges;
  struct node_query q;
  struct var parents; /* kept nodes, i32 */
  val fan;   /* i32: each stands for its 2^fan descendants so many levels below; null: for itself */
  val bound; /* i32: of those, the last whose rows may be read, in place of those behind it; null */
  int tiles; /* of a product of many candidates; 0: as many as registers hold */

  /* the lane's place in a cluster, of the row before, or -1: not stored yet */
  struct var pending, pending_row;
};

static inline int walk_row_bytes(const struct walk *w) {
  return w->plan->head_dim * WALK_HALF;
}

/* log2 of the leaves of a node of |depth| (i32). */
val walk_shift(struct ir *k, const struct walk *w, val depth);

/* ---- walk.c ---- */

/* The least depth, from |least| on, of which at most |most| nodes are seen; how many of a depth. */
val walk_start_depth(struct ir *k, const struct walk *w, int most, int least);
val walk_seen_at(struct ir *k, const struct walk *w, val depth);
/* Depth of the last level that walk_level scores; of means the leaves themselves. */
int walk_last_depth(const struct plan_pyramid *plan);

/* ---- walk_forced.c ---- */

void walk_ranges(struct ir *k, struct walk *w);
/* i1: whether the seen node |node|, of 2^|shift| leaves, is kept unranked. */
val walk_is_forced(struct ir *k, const struct walk *w, val node, val shift);
/* i1: parent |parent| (depth 1) is seen and has a seen leaf that is not. */
val walk_has_unforced(struct ir *k, const struct walk *w, val parent);

/* ---- walk_level.c ---- */

/* Kept node |index| (i32), with |fan| its descendant; the shared pointer to it, without. */
val walk_kept(struct ir *k, const struct walk *w, val index);
val walk_kept_at(struct ir *k, const struct walk *w, val index);
/* Of the candidate in slot |slot|. */
val walk_node(struct ir *k, const struct walk *w, val slot);
/* Pointer to node 0 of |level| (i32, from 1). */
val walk_level_rows(struct ir *k, const struct walk *w, val level);
/* The level that is read for scores of |depth|. */
val walk_read_level(struct ir *k, const struct walk *w, val depth);
/* Pointer to this lane's part of row |rest| (i32) behind |base|, an even row. */
val walk_lane_base(struct ir *k, const struct walk *w, val base, val rest);
/* Keeps the nodes 0, 1, ... of |depth|, |seen| of them. */
void walk_begin(struct ir *k, struct walk *w, val seen);
/* Candidates of |depth| take the place of their parents; |dense|: there may be more than K parents.
   |body| instead, where it is not null, gets what is kept: candidate, key, place. Returns how many
   are. */
val walk_level(struct ir *k, struct walk *w, val depth, bool dense, best_body *body, void *context);
/* Its first part where candidates are many, which |step| warps share: warp |first| of them. */
void walk_score_many(struct ir *k, const struct walk *w, val depth, val first, int step);
/* A product of it: tiles |first| (i32) and on. */
void walk_score_tiles(struct ir *k, const struct walk *w, val depth, val first);
/* Key of a node with |worth|: as it is forced or not seen. */
val walk_key(struct ir *k, const struct walk *w, val node, val shift, val worth);

/* ---- walk_mask.c ---- */

/* Whether some node that is ranked, or a part of a softmax, may not be full or not all in the past.
 */
bool walk_has_partial(const struct plan_pyramid *plan);
/* Which rows of the level read count, as places among those of the kept nodes, and what the own
   node is worth where it is judged by its children. */
struct walk_mask {
  bool masks, judges;      /* whether anything is cut off; whether |own| and |has_own| are there */
  val end, weight;         /* rows that count, and what the last of them weighs; null: 1 */
  val own[NODE_MAX_SLOTS]; /* to each head */
  val has_own;             /* i1: the last row that counts is the own node */
};
struct walk_mask walk_mask_of(struct ir *k, const struct walk *w, val depth);
/* Of columns of which the first is row |begin| of the kept nodes'; |all|: of all K nodes. */
void walk_mask_apply(struct ir *k, const struct walk *w, const struct walk_mask *m, val begin,
                     bool all, struct node_logits *x);

/* ---- walk_leaves.c ---- */

/* Scores the leaves of the kept parents and writes the row's ids and worth. */
void walk_leaves(struct ir *k, struct walk *w);
/* Of |seen| leaves, more than are kept: their scores, which |step| warps share: warp |first| of
   them. */
void walk_score_leaves(struct ir *k, const struct walk *w, val seen, val first, int step);

/* ---- walk_output.c ---- */

/* All leaves seen, unranked. */
void walk_write_all(struct ir *k, const struct walk *w);
/* Kept parents and their clusters; |small|: i1, all leaves are kept. */
void walk_write_parents(struct ir *k, const struct walk *w, val small);
/* What is pending, at the end. */
void walk_flush(struct ir *k, const struct walk *w);
/* Mass: what the first leaf scores where it is forced and far. */
void walk_write_sink(struct ir *k, const struct walk *w);
/* A body for walk_level and best_of_keys: a leaf and its worth. context: struct walk. */
void walk_write_leaf(struct ir *k, void *context, val slot, val key, val place);
/* The row's places from |count| on. */
void walk_write_rest(struct ir *k, const struct walk *w, val count);

#endif
