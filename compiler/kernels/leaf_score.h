/* leaf_score.h: what the files of the kernel leaf_score share.

   A tile is 64 rows of q against the g C keys of an item: member m of the item has rows
   [m H, (m + 1) H) of it, H = cluster_head_rows, row h of them head h (padded heads repeat the last
   one). With more than 16 heads members have two tiles, heads 0 .. 15 and then the others. The key
   tile is two halves with an accumulator each.

   Leaves are taken in pairs (2 p, 2 p + 1). Of a pair lane t of a quad ends with one value: leaf
   2 p + (t & 1), row r = t >> 1 of the thread's two. */
#ifndef PISA_KERNELS_LEAF_SCORE_H
#define PISA_KERNELS_LEAF_SCORE_H

#include "compiler/ir/ir.h"
#include "compiler/kernels/cluster.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/gather.h"
#include "compiler/sm90/lanes.h"
#include "runtime/abi.def"

#define ARG(name) (k->arg[PISA_LEAF_SCORE_##name])

enum {
  TILE_ROWS = 64,
  WARP_ROWS = 16,
  STAGES = 2, /* of key tiles of a warpgroup */
  BARRIER_BYTES = 8,
  MAX_PAIRS = 4,
  MAX_LEAVES = 2 * MAX_PAIRS,
  TILE_SHIFT = 5, /* in a tile's name: its number in its item below, the item above */
  WORD = 4
};

struct leaf_score {
  const struct plan_pyramid *plan;
  struct lanes lanes;
  int head_rows, passes, pairs, half_keys, slots;
  int warp_members; /* of a tile: queries that one warp has rows of */
  int stage_bytes;
  val warp, group;   /* in its warpgroup; warpgroup */
  val prefix;        /* shared, int32 [NSEG + 1]: items of the segments before */
  val total, stride; /* items of all segments; from one of a warpgroup to its next */
  val leader;        /* i1, one thread of the warpgroup */
  val log2_scale, zero;
  val head;           /* of this thread's rows r = 0 in a first tile; of r = 1 8 more if H = 16 */
  val q;              /* of that head, key head 0, at the lane's part of a row */
  val keys, barriers; /* i32 address of the stages; shared pointer */
};

/* Words of an item, and where it is. */
struct item {
  val segment, kv_head, first_query;
  val word[4];
  val members, kind;
};
/* The item of number |number|, whose segment is known. */
struct item item_load(struct ir *k, const struct leaf_score *a, val number, val segment);
/* Entry of member |member| of it: query number in the segment, slot above. */
val item_entry(struct ir *k, const struct leaf_score *a, const struct item *item, val member);
val item_info(struct ir *k, const struct item *item, int shift, int mask);
/* Bytes (i64) from query number 0 of key head 0 to the segment's first query number of its key
   head, as if rows of all sequences were token_bytes apart; |entry| is a member's. */
val item_query_offset(struct ir *k, const struct leaf_score *a, const struct item *item, val entry);
/* Image of leaf |leaf| (i32, a number of abi.def) of a key head. */
val leaf_image(struct ir *k, const struct leaf_score *a, val kv_head, val leaf);

/* Member of this thread's row r in tile |tile| of an item. */
val tile_member(struct ir *k, const struct leaf_score *a, val tile, int r);

/* ---- leaf_score_cursor.c ---- */

struct item_cursor { /* the tile whose queries were loaded last, and the item behind its item */
  struct var number, tile, tiles, live;
  struct var info, entry;          /* word 3 of the item; one member's entry in each lane */
  struct var offset_lo, offset_hi; /* item_query_offset */
  struct var row;                  /* of the segment's first query number */
  struct var next_segment, next_words, next_entry; /* lane i has word i mod 4 of the item */
  struct var is_pending; /* the words are on their way, the entries not yet */
};

struct item_cursor item_cursor_new(struct ir *k);
/* Whether the warpgroup has an item behind the cursor's. */
val item_cursor_has_next(struct ir *k, const struct leaf_score *a, const struct item_cursor *c);
/* Words of item |number|, which becomes the next one, on their way; then those of its entries that
   the warp needs: where that is pending, a tile later at the soonest. */
void item_cursor_request(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                         val number);
void item_cursor_request_entries(struct ir *k, const struct leaf_score *a,
                                 const struct item_cursor *c);
void item_cursor_request_pending(struct ir *k, const struct leaf_score *a,
                                 const struct item_cursor *c);
/* The next item, |number|, becomes the cursor's, and the one behind it is requested. */
void item_cursor_enter(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                       val number);
/* Both halves of the next item's keys on their way to |stage|, by the leader. */
void item_cursor_load_keys(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                           val stage);
/* item_query_offset of its item, i64. */
val item_cursor_offset(struct ir *k, const struct item_cursor *c);

/* ---- leaf_score_redo.c ---- */

/* Scores (log2) of one warp's rows in tile |name|, with the maximum of every row subtracted: of
   pair p into value[p] where not safe[p] (i1): what a row gets may not depend on its neighbours in
   the warp, which differ from run to run. */
void leaf_score_redo(struct ir *k, const struct leaf_score *a, val name, const struct var *value,
                     const val *safe);

/* ---- leaf_score_write.c ---- */

/* What a tile's values are for, once they are known. */
struct aim {
  struct var at;   /* slot of the lane's leaf in pair 0, counted over all rows; -1: none */
  struct var name; /* TILE_SHIFT */
  struct var near; /* mass: keys of the own leaf that a NEAR item's first member sees, else 0 */
};
struct aim aim_new(struct ir *k, const struct leaf_score *a);
void aim_copy(struct ir *k, const struct leaf_score *a, const struct aim *to,
              const struct aim *from);
/* Scores of the lane's leaves and heads (log2) -> of groups of heads, to memory. |carry| [pairs] is
   kept from a member's first tile to its second, if there are two. */
void aim_write(struct ir *k, const struct leaf_score *a, const struct aim *aim, const val *score,
               const struct var *carry);

#endif
