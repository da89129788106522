/* attend_rows.h: a consumer warpgroup of attend, and what is done with one tile: attend_tile.c;
   attend_end.c has where items begin and end, attend.c the walk between. */
#ifndef PISA_KERNELS_ATTEND_ROWS_H
#define PISA_KERNELS_ATTEND_ROWS_H

#include "compiler/kernels/attend.h"
#include "compiler/sm90/sync.h"

struct rows {     /* the state of a warpgroup's 64 query rows */
  val group;      /* 0 or 1 */
  val row_offset; /* of its rows in the query block */
  val lane, is_lane_0;
  struct turn turn;
  struct ring_place query, key, value;
  struct frag s, o;
  struct frag_a q; /* two streams: the query rows */
  struct frag_a p, p_next, gq, q_square;
  struct frag s_half; /* left half of s, and of p below */
  struct frag_a p_half, p_next_half;
  struct rowvec m, l, g;
  struct var length, count, diagonal, shared; /* extent of the item at hand */
};

/* ---- stages ---- */

/* Done with a stage: one arrival per consumer warp, or two where the other warpgroup has no use for
   it: |own| is 1 (attend_is_own). As many lanes arrive: ptxas puts an arrival with a count behind
   the whole softmax. */
void attend_release(struct ir *k, const struct rows *x, const struct ring *ring, struct slot slot,
                    val own);
/* The same beside another one. LLVM may make a branch of the two, which in some kernels takes all
   tiles off the uniform datapath. Not for the values of a tile: the copies of p behind them would
   move before the wait (C7513). */
void attend_release_aside(struct ir *k, const struct attend *a, const struct rows *x,
                          const struct ring *ring, struct slot slot, val own);
/* Narrow: keeps the exponentials of a softmax, summed up in x->l, before the wait for a product
   that they run beside; ptxas moves them behind it. |positive|: null, or a float of which ptxas
   does not know the sign, where it knows that of x->l. */
void attend_order(struct ir *k, const struct attend *a, const struct rows *x, val positive);
/* From the stage of a tile, |own| or not, to that of the next one: past the other's behind an own
   one; the second warpgroup steps over a first own one of the other, and is not behind by it at the
   end. */
struct slot attend_slot_after(struct ir *k, const struct rows *x, const struct ring *ring,
                              struct slot slot, val own, val next_own);
void attend_advance(struct ir *k, const struct rows *x, const struct ring *ring,
                    struct ring_place *place, val own, val next_own);
/* To the stage of an item's first tile. */
void attend_enter(struct ir *k, const struct attend *a, const struct rows *x,
                  const struct ring *ring, struct ring_place *place);
/* |own| of an item's last tile, and of what follows it: Hsum, the next item. */
val attend_last_is_own(struct ir *k, const struct attend *a);
val attend_end_is_own(struct ir *k, const struct attend *a);

/* ---- one tile ---- */

/* Whether q is in registers: of two streams; of pairs, where they suffice, but for the first tile
   of an item, while those registers hold g q of the item before. */
bool attend_keeps_q(const struct attend *a);
bool attend_reloads_q(const struct attend *a);
/* The query rows that the scores to come are of; they are in shared memory. */
void attend_take_queries(struct ir *k, const struct attend *a, struct rows *x, struct slot query);
/* q^2, rounded to half, for the mean tiles of the item. */
void attend_square_queries(struct ir *k, const struct attend *a, struct rows *x);
/* |s|, all of x->s or its left half, = q k^T (+ q^2 |variance|^T, NULL: not); |query|: the stage
   with q, null where x->q has it */
void attend_scores(struct ir *k, const struct attend *a, struct rows *x, const struct frag *s,
                   struct slot query, struct slot key, const struct slot *variance);
/* o += left[:, 16 first_step ...] * the rows in |slot| of the value ring */
void attend_accumulate(struct ir *k, const struct attend *a, struct rows *x,
                       const struct frag_a *left, int first_step, struct slot slot);
/* First tile of an item: m = max s, l = sum p, p in p_next. */
void attend_softmax_first(struct ir *k, const struct attend *a, struct rows *x);
/* Any other tile: its scores while the values of the tile before are accumulated. */
void attend_tile(struct ir *k, const struct attend *a, struct rows *x, enum tile_kind kind, val row,
                 val tile);

/* ---- ends ---- */

void attend_open(struct ir *k, const struct attend *a, struct rows *x); /* the first item */
/* The end of item |index|, whose last tile may be a half one, and the beginning of the next, which
   is of |next|'s size. */
void attend_cross(struct ir *k, const struct attend *a, struct rows *x, bool half, val index,
                  const struct attend *next);

#endif
