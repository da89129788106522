/* node_score.h: what nodes of one level are worth to the G heads of one query, by one warp.

   Heads are the rows of m16n8k16 products, read as sm90/mma.h draws; 8 heads are a slot (rows t / 4
   of the lanes t), so a tile of rows has two. Rows behind the last head repeat one: where G < 8 is
   a power of two head t / 4 mod G, else head G - 1, which reductions leave out.

   Columns are the rows of means of candidates: with score mean the nodes themselves, else their g
   children, adjacent. A tile is 8 columns, of 8 or 8 / g candidates. A lane has one number, a
   *value*, of each tile and slot (mean: two), which its quad shares out to |width| candidates:

                                   columns                                   width   of value u,
   lane t children, g = 2   child x mod 2 of candidate 4 j + x / 2                 4     4 u + t mod
   4 children, g = 4   child x mod 4 of candidate 2 j + x / 4                 2     2 u + (t mod 4)
   / 2 children, g = 8   child x of candidate j                                 1     u mean
   candidate 8 j + 4 (x mod 2) + x / 2                    4     4 u + t mod 4

   for column x of tile j; u = j, or 2 j and 2 j + 1 for mean. Scores are in units of log2: natural
   ones times log2 e. */
#ifndef PISA_KERNELS_NODE_SCORE_H
#define PISA_KERNELS_NODE_SCORE_H

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/mma.h"

enum { NODE_MAX_SLOTS = 4, NODE_MAX_TILES = 8, NODE_MAX_VALUES = 8 };

/* ---- the query ---- */

struct node_query { /* A operands */
  int tiles;
  struct mma_rows a[NODE_MAX_SLOTS / 2];
};
struct node_query_vars { /* as loaded: a row a slot; so that it may be loaded ahead of its use */
  int slots;
  struct mma_row_vars row[NODE_MAX_SLOTS];
};
struct node_query_vars node_query_vars_new(struct ir *k, const struct plan_pyramid *plan);
/* |q|: pointer to the query in the first head of its group. */
void node_query_load(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                     val q, val head_bytes, const struct node_query_vars *to);
/* |zero|: i32 0 that neither compiler knows to be 0: it ties operands to registers, which would
   else be copied together before every product. */
struct node_query node_query_get(struct ir *k, const struct node_query_vars *vars, val zero);

/* ---- columns ---- */

int node_slots(const struct plan_pyramid *plan);
bool node_reads_children(const struct plan_pyramid *plan);
int node_rows(const struct plan_pyramid *plan);   /* rows of means a candidate has: g, mean: 1 */
int node_width(const struct plan_pyramid *plan);  /* candidates of a value */
int node_values(const struct plan_pyramid *plan); /* of a tile: 1, mean: 2 */
/* Candidates of a tile: 8 / node_rows. */
int node_per_tile(const struct plan_pyramid *plan);
/* Which of the 8 rows of a tile (child x mod g of candidate x / g of the tile) this lane loads. */
val node_lane_row(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes);

/* Products, unscaled: x[tile][slot][q] belongs to column 2 (t mod 4) + q. */
struct node_logits {
  int tiles;
  val x[NODE_MAX_TILES][NODE_MAX_SLOTS][2];
  bool masked[NODE_MAX_TILES];
  val weight[NODE_MAX_TILES][2]; /* of masked ones */
};
/* |row|: pointers to this lane's row of each tile, mean_row's, plus mma_lane_bytes. All are loaded
   before the first product, unless they are too many. */
void node_multiply(struct ir *k, const struct plan_pyramid *plan, const struct node_query *query,
                   int tiles, const val *row, struct node_logits *out);
/* The same of rows of keys, 16-byte aligned. */
void node_multiply_keys(struct ir *k, const struct plan_pyramid *plan,
                        const struct node_query *query, int tiles, const val *row,
                        struct node_logits *out);
/* Rows of the tiles from the |end|th (i32) on are left out, as if they were not there; none are in
   tiles below |first_tile|. The one before it weighs |last| (f32) of a full one; null: 1. */
void node_mask(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               int first_tile, val end, val last, struct node_logits *x);

/* ---- scores ---- */

struct node_scores { /* of each head: score[value][slot] in log2 units */
  int values;
  val score[NODE_MAX_VALUES][NODE_MAX_SLOTS];
};
/* With mass what select.h adds, less what all candidates share. nan becomes -inf. */
void node_scores_of(struct ir *k, const struct plan_pyramid *plan, val scale,
                    const struct node_logits *x, struct node_scores *out);
/* Heads of each value joined by the plan's sum, maximum or lse of heads: of this lane's candidate.
 */
val node_join(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
              const struct node_scores *x);
/* Its two parts: value[v], over a lane's heads; over lanes. */
void node_join_slots(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                     const struct node_scores *x, val *value);
val node_join_lanes(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                    int values, const val *value);
/* The worth of this lane's candidate, heads reduced by sum, max or lse; log2 units; nan counts as
   -inf. */
val node_worth(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               const struct node_logits *x);

/* The same where heads are reduced by their parts of the softmax (mass, max_mass), over the
   candidates of one product of all. */
val node_share(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               const struct node_logits *x);
/* Over the lanes of a quad that have children of the same node. */
val node_children_sum(struct ir *k, const struct plan_pyramid *plan, val v);
/* node_variance.c: cs (mean + scale variance / 2) of one head, with mass + log2 of the children's
   weight; |weight|: of the lane's two children, null: 1. */
val node_half_variance(struct ir *k, const struct plan_pyramid *plan, val cs, val scale,
                       const val x[2], const val *weight);
/* Of two heads, as the plan reduces them. */
val node_join_two(struct ir *k, const struct plan_pyramid *plan, val a, val b);

/* ---- node_share.c ---- */

/* Or over candidates of many products: their scores lie in shared memory, f32 [n, G | 1]. */
static inline int node_scores_bytes(const struct plan_pyramid *plan) { /* of a candidate */
  return 4 * (plan->group | 1);
}
/* |scores|: those of the first candidate of |x|. */
void node_scores_store(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                       const struct node_scores *x, val scores);
/* Scores of |n| (i32) candidates become heads' parts; ends with a sync. */
void node_softmax(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val n,
                  val scores);
/* The worth of candidate |candidate|, which may be another one in each lane. */
val node_share_of(struct ir *k, const struct plan_pyramid *plan, val scores, val candidate);

/* ---- node_score.c ---- */

/* Of |values| values a lane speaks for one candidate: this one of values * node_width; several
   lanes do, and those with node_lane_first are the first each, ascending. */
val node_lane_candidate(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                        int values);
val node_lane_first(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                    int values);
/* A distance of two lanes that always have the same candidate; 0: there is none. */
int node_lane_copy(const struct plan_pyramid *plan, int values);

#endif
