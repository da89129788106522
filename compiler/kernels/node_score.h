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
};
/* |row|: pointers to this lane's row of each tile, 16-byte aligned. All are loaded before the first
   product. */
void node_multiply(struct ir *k, const struct plan_pyramid *plan, const struct node_query *query,
                   const struct lanes *lanes, int tiles, const val *row, struct node_logits *out);
/* Child columns (not with mean) of place >= |end| (i32) in the tiles' 8 |tiles| columns are left
   out; tiles below |first_tile| have none. The column before |end| weighs 2^|last|, or null: 1. */
void node_mask(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
               int first_tile, val end, val last, val cs, struct node_logits *x);

/* ---- scores ---- */

struct node_scores { /* of each head: score[value][slot] in log2 units */
  int values;
  val score[NODE_MAX_VALUES][NODE_MAX_SLOTS];
};
/* |cs|: scale times log2 e; |scale|: k->arg's, for half variance. nan stays nan. */
void node_scores_of(struct ir *k, const struct plan_pyramid *plan, val scale,
                    const struct node_logits *x, struct node_scores *out);
/* The worth of this lane's candidate, heads reduced by sum, max or lse; log2 units. */
val node_worth(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               const struct node_logits *x);

/* Softmax of each head over the candidates of a level, which may come in parts. */
struct node_softmax {
  struct var most[NODE_MAX_SLOTS], sum[NODE_MAX_SLOTS]; /* of this lane's part of the columns */
};
struct node_softmax node_softmax_new(struct ir *k, const struct plan_pyramid *plan);
void node_softmax_clear(struct ir *k, const struct plan_pyramid *plan, struct node_softmax *s);
void node_softmax_add(struct ir *k, const struct plan_pyramid *plan, struct node_softmax *s,
                      const struct node_scores *x);
/* The worth of this lane's candidate: heads' parts of the softmax, reduced by their sum or maximum.
   node_softmax_close once before, when all parts are added. */
void node_softmax_close(struct ir *k, const struct plan_pyramid *plan, struct node_softmax *s);
val node_share(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
               const struct node_softmax *s, const struct node_scores *x);

/* Of |values| values a lane speaks for one candidate: this one of values * node_width; several
   lanes do, and those with node_lane_first are the first each, ascending. */
val node_lane_candidate(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                        int values);
val node_lane_first(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                    int values);

#endif
