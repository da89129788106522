/* route.h: what the files of the route kernel share. A row of keys is one query block's scores in
   shared memory, as unsigned integers that sort like the scores; warp w of a CTA has row w. */
#ifndef PISA_KERNELS_ROUTE_H
#define PISA_KERNELS_ROUTE_H

#include <stdint.h>

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/mma.h"
#include "runtime/abi.def"

#define ARG(name) (k->arg[PISA_ROUTE_##name])

enum { HALF = 2, F32 = 4, WORD = 4, MAX_WORDS = 2 };
enum {
  WARPS = 16,
  THREADS = 32 * WARPS,
  SPAN = WARPS * MMA_COLUMNS, /* columns all warps score together: 128 */
  SPAN_WORDS = SPAN / 32,
  ROW_PADDING = 4 /* keys between rows of shared memory, against bank conflicts */
};
/* Keys outside the order of the scores, of which -inf has the least, 0x007FFFFF, and +inf the
   greatest, 0xFF800000. Forced keys leave room for a threshold above them. */
enum { KEY_ABSENT = 0, KEY_PRESENT = 1, KEY_FORCED = -2 };

struct route {
  const struct plan_route *plan;
  struct lanes lanes;
  val head, first;       /* of this CTA; its first query block */
  val kv_head;           /* whose keys this head reads */
  val q_blocks, q_tiles; /* NQS, NTq */
  val k_stride;          /* NT: rows of k_mean from head to head */
  val keys, k_blocks;    /* of this sequence: n_b, NT_b */
  val spans;             /* columns in shared memory, in units of 128: ceil(NT_b / 128) */
  val row_bytes;         /* of a row of keys */
  struct var limit;      /* plans with a threshold: the score that a block of row w must exceed */
};

val blocks_of(struct ir *k, val n, int rows); /* ceil(n / rows) */

/* ---- route_score.c ---- */

/* Writes 16 rows of keys; their columns from NT_b on are not to be read. With a threshold a->limit
   too. All threads; cta_sync before the rows are read. */
void route_score(struct ir *k, const struct route *a);
/* Orders like the score, nan as -inf, -0 as +0. */
val route_key(struct ir *k, val score);
/* The words of one row of half: word i of a lane is elements 2 (32 i + lane) and the next. Lanes
   without an i-th word take the last one of the row, all alike. */
struct words {
  val word[MAX_WORDS];
};
int words_per_lane(const struct route *a);
struct words words_load(struct ir *k, const struct route *a, val row);

/* ---- route_limit.c: plans with a threshold ---- */

/* scale^2 sum_d q_d^2 var_d, var_d the variance of column d of the block means: of this warp's
   query. All threads; shared memory is free before, and after a cta_sync. */
val limit_diagonal(struct ir *k, const struct route *a, const struct words *query);
/* Rows hold scores without their term, as floats. |variance|: of them, or null: taken from them. */
val limit_of_row(struct ir *k, const struct route *a, val row, val variance);

/* ---- route_select.c ---- */

/* Which keys of a row are listed: those above |threshold|, and those equal to it; where |cut| is
   not 0, of these only the first |ties|. All i32. */
struct choice {
  val threshold, ties, cut;
  val count; /* listed blocks */
};
/* A row's keys as its warp reads them: word w of the row is columns 32 w + lane. */
enum { HELD_SPANS = 4 };
struct row_keys {
  val row;                                 /* in shared memory */
  bool held;                               /* spans <= HELD_SPANS: in registers */
  struct var key[HELD_SPANS * SPAN_WORDS]; /* then only */
};
static inline struct row_keys row_in_shared(val row) {
  return (struct row_keys){.row = row};
}
/* |body| for every span of a row in ascending order, |key|: its four words. */
typedef void span_body(struct ir *k, const struct route *a, void *context, val span,
                       const val key[SPAN_WORDS]);
void row_walk(struct ir *k, const struct route *a, const struct row_keys *keys, span_body *body,
              void *context);
/* For all 16 rows: which blocks are listed, and all outputs. All threads. */
void route_select(struct ir *k, const struct route *a);

/* ---- route_lists.c ---- */

/* Everything that query block |query| says of its lists; with pairs all but the list itself, and
   the words of listed blocks take the place of its keys. */
void lists_write(struct ir *k, const struct route *a, const struct row_keys *keys,
                 const struct choice *choice, val query);
/* The list of |query| and what it shares with its neighbour, whose words are in shared memory. */
void lists_write_pair(struct ir *k, const struct route *a, val query);

#endif
