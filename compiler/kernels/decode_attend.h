/* decode_attend.h: what the files of the kernel decode_attend share: one CTA's place, and pieces of
   its sums. */
#ifndef PISA_KERNELS_DECODE_ATTEND_H
#define PISA_KERNELS_DECODE_ATTEND_H

#include "compiler/kernels/attend_blocks.h"
#include "compiler/plan/decode.h"

enum { DECODE_ATTEND_PIECE = 8, DECODE_ATTEND_MAX_WARPS = 16 };

struct decode_attend { /* one CTA */
  const struct plan_pyramid *plan;
  struct lanes lanes;
  struct blocks_query query;
  val split, splits;
  int warps;
  int shares; /* warps of 16 heads each that read the same */
  int places; /* of those that read different units */
  val joined; /* shared pointer: mbarrier that expects decode_attend_sent bytes; null: the splits
                 meet at the cluster's barrier */
};

/* Eight columns of a head, as a lane of the warps of |share| has them. A |number| is 32 of them,
   one a lane: of 8 rows and 32 columns. */
struct piece {
  val share, number;
  val row, head; /* of the share, of the group */
  val column;
};
struct piece_sums {
  val x[DECODE_ATTEND_PIECE], top, sum; /* o = x 2^top, sum of weights = sum 2^top */
};
/* The piece of this lane that the |index|-th of all shares is. */
struct piece piece_of(struct ir *k, const struct decode_attend *a, val index);

/* Attention to the list of a query, by all |threads| of each of the splits, a cluster whose peers
   have all begun. Arguments lie where those of the kernel decode_attend do. */
void decode_attend_list(struct ir *k, const struct plan_pyramid *plan, int threads,
                        const struct blocks_query *query, val split);

/* Its parts, for who knows what each warp reads: a CTA's place; a warp's sums into its part of
   shared memory; then, by all warps after a sync, those of the first |places| parts that |counts|
   (i32, a bit a part) names are joined by all splits, of which there are several. */
struct decode_attend decode_attend_of(struct ir *k, const struct plan_pyramid *plan, int threads,
                                      const struct blocks_query *query, val split);
struct blocks decode_attend_blocks(struct ir *k, const struct decode_attend *a);
void decode_attend_put(struct ir *k, const struct decode_attend *a, const struct blocks *x);
void decode_attend_merge(struct ir *k, const struct decode_attend *a, int places, val counts);

/* ---- decode_attend_join.c ---- */

/* Bytes (i32) that all splits, itself too, send to CTA |split| of them. */
val decode_attend_sent(struct ir *k, const struct plan_pyramid *plan, val split, val splits);
/* This CTA's sums of the |index|-th pieces, into the shared memory of the peer that joins them. */
void decode_attend_send(struct ir *k, const struct decode_attend *a, val index,
                        const struct piece_sums *x);
/* Joins what all peers have sent here, and writes it: by all warps, when it has arrived. */
void decode_attend_join(struct ir *k, const struct decode_attend *a, const struct outputs *out);

#endif
