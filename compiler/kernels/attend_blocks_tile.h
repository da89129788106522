/* clang-format off: drawings
   attend_blocks_tile.h: exact attention of a few neighbouring queries over the union of their
   lists, on the tensor cores of a CTA.

   A warpgroup has 64 rows: T queries x R heads, R = 4, 8, 16 or 32 >= G, query-major; a warp has 16
   of them, half of a query, one, two or four (attend_blocks.c maps warps alike):

       R      4      8      16     32        D 64    4 CTAs an SM, 128 registers a thread
       G    1-4    5-8    9-16  17-32        D 128   2 CTAs, 255: q, o, a step's scores and weights
       T     16      8       4      2                are 144 of them

   A leaf that some of the queries list is copied to shared memory once, in steps of 64 keys, by one
   thread's boxes; it is multiplied with all 64 rows. Warps of which no query lists it skip the
   softmax and multiply values with zeros; in other warps rows that do not list it have the offset
   -inf for this step, so p = 2^(c s - inf) = 0 without work on each score:

       union    leaf  0   9   4  17  30   3 ...       order: first entries of all lists, second
       listed   q0    x   x   .   .   x   .           ones, ...; where more have a leaf, the
       by       q1    x   .   x   .   x   .           first of them says when
                q2    x   .   .   x   .   x
                q3    x   .   .   .   x   .

   Zeros times values that are not finite are not zero. So a warp whose sums are not finite at the
   end does its queries again, each alone (attend_blocks.h); so do all warps of a tile of more than
   one sequence, and of lists longer than K.

   Shared memory: stages of a step's keys and values, and their barriers; ids [entries], entry
   j T + i the j-th of query i's list, -1 where nothing is to be read; masks [entries]; count; union
   [entries] of {id, mask}. The tiles of o lie in the stages after the last step.
   clang-format on */
#ifndef PISA_KERNELS_ATTEND_BLOCKS_TILE_H
#define PISA_KERNELS_ATTEND_BLOCKS_TILE_H

#include "compiler/kernels/attend_blocks.h"
#include "compiler/plan/blocks.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/ring.h"

struct query_tile {
  const struct plan_pyramid *plan;
  struct lanes lanes;
  int threads, queries;      /* of the CTA */
  struct sequence sequence;  /* of the first query */
  val kv_head, first, last;  /* i32: query numbers, of the last that there is */
  int rows, each;            /* of a query; queries of a warp */
  val place;                 /* i32: the warp's first query is first + place, */
  struct blocks_query query; /* or the last one again */
  val first_head;            /* i32: of the group; the warp's first row */
  val is_whole;              /* i1: all queries are of one sequence */
};
struct query_tile query_tile_new(struct ir *k, const struct plan_pyramid *plan,
                                 const struct lanes *lanes, val kv_head, val first);

/* Row |row| (i32, 0 .. 15) of the warp. */
struct tile_row {
  val place;  /* i32: its query is first + place, */
  val query;  /* or the last one again */
  val head;   /* i32: of the group; may be behind the last */
  val limit;  /* i32: tokens [0, limit) are seen */
  val exists; /* i1: query and head do */
};
struct tile_row query_tile_row(struct ir *k, const struct query_tile *t, val row);

/* The union of the lists; |lists|, |width| as in abi.def, width <= K. By all threads; ends with a
   barrier. */
struct leaf_union {
  val n;       /* i32: entries */
  val entries; /* shared pointer: {id, mask}; bit i of the mask: query first + i lists it */
};
struct leaf_union leaf_union_new(struct ir *k, const struct query_tile *t, val lists, val width);
/* Entry |i| (i32). */
void leaf_union_entry(struct ir *k, const struct leaf_union *u, val i, val *id, val *mask);

/* Attention of the tile, whole and with width <= K. Returns (i1, alike in a warp) whether the
   warp's rows of o and lse are written. By all threads. */
val query_tile_attend(struct ir *k, const struct query_tile *t, val lists, val width);

#endif
