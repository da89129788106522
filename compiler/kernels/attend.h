/* attend.h: what the files of the attend kernel share: attend.c (the algorithm), attend_tile.c and
   attend_end.c (its parts, see attend_rows.h), attend_load.c (the producers), attend_extent.c (what
   an item is and how many tiles it has), attend_mask.c (which columns of a tile count, and as how
   much) and attend_linear.c (taylor 1). */
#ifndef PISA_KERNELS_ATTEND_H
#define PISA_KERNELS_ATTEND_H

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/frag_block.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/tile.h"
#include "compiler/sm90/tma.h"
#include "runtime/abi.def"

#define ATTEND_ARG(name) (k->arg[PISA_ATTEND_##name])

enum {
  ATTEND_GROUPS = 2,
  ATTEND_GROUP_ROWS = 64,
  STREAM_WARPS = 4, /* of a consumer warpgroup */
  ATTEND_MAX_WORDS = 4,
  ATTEND_MAX_BOXES = 2,
  ATTEND_UNIT = 64,
  ATTEND_MAX_H_STAGES = 2
};

struct attend { /* what both roles know */
  const struct plan_attend *plan;
  int columns; /* of every tile: head_dim in whole panels */
  struct lanes lanes;
  struct ring queries, keys, values;
  struct ring outputs; /* pairs: the query stages, when they hold a warpgroup's rows of o */
  val first, step;     /* items of this stream: first, first + step, ... below |items| */

  /* Of every item, or in edge kernels of the one at hand (attend_sized). At least one exact tile:
     where nothing is listed all of it is masked. */
  val length, count;                  /* keys of its sequence; entries of its list */
  val k_blocks, last_length;          /* blocks of its sequence, tokens in the last one */
  val exact_tiles, full_tiles, tiles; /* full: exact tiles without a masked column */
  val diagonal;                       /* causal: keys that the item's first row sees, may be <= 0 */
  val units;                          /* half tiles: exact blocks, and means by the 64 */
  val shared_tiles, own_tiles;        /* pairs: the exact tiles of both lists, then those of each */
};

/* What an item of an edge kernel or of pairs differs by from others; null vals where all are
   alike. */
struct extent {
  val length, count; /* edge; count: null when dense */
  val diagonal;      /* causal */
  val shared;        /* pairs: entries that the two lists begin with alike, an even number */
};
struct extent attend_extent(struct ir *k, const struct attend *a, val item);
/* |a| for the items of that extent. */
struct attend attend_sized(struct ir *k, const struct attend *a, struct extent extent);
/* |a| with the sizes that all items have, for kernels that are not edge. */
void attend_size_all(struct ir *k, struct attend *a);

/* The same with the rings and items of |stream|: with one stream all consumers share them, with two
   each consumer warpgroup has its own. */
struct attend attend_stream(struct ir *k, const struct attend *a, val stream);

struct item {
  val index, q_row;    /* first row of the query block */
  struct place4 q, kv; /* kv: of the key/value head that this query head reads */
};
struct item attend_item(struct ir *k, const struct attend *a, val index);
/* The item after |index| in this stream, or the last one there is. */
val attend_next_item(struct ir *k, const struct attend *a, val index);
/* The row of lists and masks that warpgroup |group| walks in an item: the item's own, but a pair
   has two, or two times the last one. */
val attend_list_row(struct ir *k, const struct attend *a, val index, val group);
val attend_list(struct ir *k, val row); /* first entry of that list of key blocks */

/* Pairs: a ring holds the tiles that both lists share, then in turn one of the first list and one
   of the second, then what follows for both. 1: tile |tile| of a warpgroup is in a stage of its
   own. Null without pairs. */
val attend_is_own(struct ir *k, const struct attend *a, val tile);
/* |sized| with its tiles counted as the rings hold them. */
struct attend attend_in_rings(struct ir *k, const struct attend *sized);

/* The 64 query rows of consumer warpgroup |group| in a stage of the query ring. */
struct tile attend_query_tile(struct ir *k, const struct attend *a, struct slot slot, val group);
/* A stage of the key or value ring: tile_k rows. */
struct tile attend_kv_tile(struct ir *k, const struct attend *a, const struct ring *ring,
                           struct slot slot);
int attend_h_stages(const struct plan_attend *plan); /* of the value ring that hold Hsum */

/* Brings the maps of all tiles into the copy engine's cache; by one thread. */
void attend_prefetch_maps(struct ir *k, const struct attend *a);
/* By one thread each. */
void attend_produce_queries_and_keys(struct ir *k, const struct attend *a);
void attend_produce_values(struct ir *k, const struct attend *a);
/* Pairs: the rows of o of warpgroup |group|, from its half of the query stages to memory. */
void attend_store_outputs(struct ir *k, const struct attend *a, val group);
/* |a->outputs| of warpgroup |group|. */
struct ring attend_outputs(const struct attend *a, val group);

struct listed { /* what is listed for a warpgroup's query rows */
  val row;      /* of the lists, in global memory */
  val mask;     /* its mask row, in shared memory; null where nothing needs it */
  val offset;   /* causal: the warpgroup's first row in the item */
};
struct tile_mask {
  val words[ATTEND_MAX_WORDS]; /* bit c: column c of the tile is not to be seen */
  struct mask_bias bias;
  bool counts_as_tail;  /* g counts the columns, */
  val is_mean;          /* where this is; null: always */
  struct rowval behind; /* causal, in place of words: see frag_mask_behind */
};
/* EITHER: exact or means. LINEAR: unlisted blocks, token by token. UNITS: a unit that may be exact,
   then one of means. HALF: the last unit of all, alone. */
enum tile_kind {
  TILE_FULL,
  TILE_EXACT,
  TILE_MEANS,
  TILE_EITHER,
  TILE_LINEAR,
  TILE_UNITS,
  TILE_HALF
};
/* The mask row of warpgroup |group|, in shared memory beside its queries. */
val attend_mask_row(struct ir *k, const struct attend *a, struct slot query, val group);
struct tile_mask attend_mask(struct ir *k, const struct attend *a, enum tile_kind kind,
                             struct listed listed, val tile);
/* Of a unit of 64 columns: listed block |unit|, or behind all those 64 means. |may_be_exact|: it is
   not known to be means. */
struct tile_mask attend_unit_mask(struct ir *k, const struct attend *a, struct listed listed,
                                  val unit, bool may_be_exact);
void attend_apply_mask(struct ir *k, const struct attend *a, const struct frag *s,
                       const struct tile_mask *mask);

/* -c m. Where |may_be_empty|, 0 for m = -inf, the maximum of a row without a column so far: its p
   and f are 0 then. */
struct rowval attend_offset(struct ir *k, const struct rowval *m, bool may_be_empty);

/* The blocks of tile |tile| (a linear one) of |item|. */
struct frag_blocks attend_linear_columns(struct ir *k, const struct attend *a, val item, val tile);
/* Their p in the place of s, into m and l; returns f, the factor of everything summed before. */
struct rowval attend_linear(struct ir *k, const struct attend *a, const struct frag *s,
                            const struct rowvec *m, const struct rowvec *l,
                            const struct frag_blocks *columns);

#endif
