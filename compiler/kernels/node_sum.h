/* node_sum.h: sums of the keys under nodes, and the means they become.

   The order of additions is fixed, so a node has the same bits whoever sums it and however many of
   its tokens are there yet: a leaf is 0 + its keys, one by one, ascending; a node above is 0 + the
   sums of its children, ascending, the last of which may be of fewer tokens. Sums are f32 and not
   rounded; a mean is rounded when it is stored.

   A thread has COLUMNS adjacent columns, a chunk of 16 bytes of half: D / 8 chunks a row. */
#ifndef PISA_KERNELS_NODE_SUM_H
#define PISA_KERNELS_NODE_SUM_H

#include "compiler/ir/ir.h"
#include "compiler/kernels/sequence.h"
#include "compiler/plan/plan.h"

enum { NODE_COLUMNS = 8, NODE_BATCH = 16 /* keys of a leaf whose loads are in flight */ };

struct nodes { /* of a sequence and key head */
  const struct plan_pyramid *plan;
  struct sequence sequence;
  val kv_head;
  struct sequence_array keys;
  val means; /* pointer to the row of its first node */
  val open;  /* pointer to its rows of |open| */
  val opens; /* i1: they are written; null val: never */
};
struct nodes nodes_new(struct ir *k, const struct plan_pyramid *plan, struct sequence sequence,
                       val kv_head, struct sequence_array keys, val means);

static inline int node_chunks(const struct plan_pyramid *plan) {
  return plan->head_dim / NODE_COLUMNS;
}
/* log2 of the children of a node above leaves. */
int node_children_log2(const struct plan_pyramid *plan);
/* log2 of the tokens of a node of |level|, at most 31: more than any sequence has. */
val node_shift(struct ir *k, const struct plan_pyramid *plan, val level);

/* Rounds |sum| of |count| tokens (i32) to columns [column, column + n) of row |row| (both i32; row
   from the first node on); n 2 or 8. */
void node_mean_store(struct ir *k, const struct nodes *nodes, val row, val column, val count, int n,
                     const val *sum);

/* ---- leaves ---- */

/* Called for NODE_BATCH keys of a leaf, before they are summed: row of the first one in the leaf,
   and four words of each; zeros behind the last key. */
typedef void leaf_body(struct ir *k, const void *context, val row, val word[][4]);
struct leaf_sum {
  struct var x[NODE_COLUMNS];
};
/* Sums chunk |chunk| of the keys of leaf |leaf| (both i32). |whole|: every lane's leaf is known to
   be full; else any are, also beyond the last key. |body| may be null. */
struct leaf_sum leaf_sum_of(struct ir *k, const struct nodes *nodes, val leaf, val chunk,
                            bool whole, leaf_body *body, const void *context);

/* Zeros in rows [first, end) (i32) of |open|, by |threads| threads. */
void open_clear(struct ir *k, const struct nodes *nodes, val first, val end, val thread,
                int threads);

/* ---- rows of sums in shared memory, or of |open| ---- */

void sum_row_store(struct ir *k, const struct plan_pyramid *plan, val rows, val row, val chunk,
                   const val x[NODE_COLUMNS]);
void sum_row_load(struct ir *k, const struct plan_pyramid *plan, val rows, val row, val chunk,
                  val x[NODE_COLUMNS]);

/* ---- levels ---- */

/* |width| adjacent nodes of one level, their sums in shared memory [width, D] f32. */
struct subtree {
  val sums;
  int steps;   /* levels above; width = children^steps */
  val level;   /* of the nodes */
  val offset;  /* off_level */
  val first;   /* the first node's place in its level, a multiple of width */
  bool stores; /* the means of the levels above */
};
/* By |threads| threads, all of the CTA, of which this is |thread|; they meet before and after. Sums
   the levels above, until one node is left, and leaves the sum of all nodes in row 0. With
   nodes->opens rows of |open| are written of the nodes above that grow and have a full child: they
   must hold zeros. */
void subtree_sum(struct ir *k, const struct nodes *nodes, const struct subtree *subtree, val thread,
                 int threads);

#endif
