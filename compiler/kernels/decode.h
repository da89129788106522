/* decode.h: what the files of the kernel decode share.

   A CTA has a query and a key head; its warps score what one of them, or all, then choose from
   (plan/decode.h). Shared memory of the CTA, as that of a warp of walk:

       kept nodes | places | keys of lanes | worths | keys | scores of heads | ranks

   Where a cluster shares leaves, behind what attention has (decode_attend.c) and

       three mbarriers | keys of lanes, with mass their worths, of each warp

   Candidates are seen up to some slot, since kept nodes ascend. All warps pass the same cta_syncs.
 */
#ifndef PISA_KERNELS_DECODE_H
#define PISA_KERNELS_DECODE_H

#include "compiler/kernels/attend_blocks.h"
#include "compiler/kernels/walk.h"
#include "compiler/plan/decode.h"

struct decode {
  struct plan_pyramid plan; /* as a walk's */
  struct decode_room room;
  struct walk w;
  int warps;
  val one;                          /* i1: this is the warp that does alone what one does */
  val places, worths, lanes, ranks; /* shared, 32 words but the last */
  val arrived, warp_lanes;          /* shared, of decode_share.c */
};

/* ---- decode_step.c ---- */

/* Kept nodes of |depth|, which all warps see, become those of the depth |last|, or a list where
   leaves need no keys. Ends with a sync. */
void decode_go_down(struct ir *k, struct decode *d, struct var depth, int last);

/* How many depths a step takes that begins |left| above the last. */
val decode_step_depths(struct ir *k, const struct decode *d, val left);

/* ---- decode_choose.c: choices of one warp ---- */

/* Candidates that one warp chooses from, a lane each; lanes behind the last have its slot. */
struct decode_lanes {
  int n;         /* at most 32 */
  int copy;      /* lanes t and t ^ copy have the same; 0: none */
  val candidate; /* this lane's */
  val first;     /* i1: of copies */
};
struct decode_lanes decode_lanes_of(struct ir *k, const struct decode *d);
/* What is kept of the nodes |node| of |depth| in slots |slot| of |w|, whose keys or scores are
   there; this lane's key. */
struct best decode_best_nodes(struct ir *k, const struct decode *d, const struct walk *w,
                              const struct decode_lanes *x, val slot, val node, val depth,
                              val *key);
/* The same of leaves scored by their keys. |all|: i1, all that are seen are kept unranked. */
struct best decode_best_leaves(struct ir *k, const struct decode *d, const struct decode_lanes *x,
                               val slot, val all, val *leaf, val *key);

/* ---- decode_many.c: choices of all warps ---- */

/* Of the children of kept nodes, |seen| of them, that warps have scored: what is kept, by one warp,
   of which |body| gets candidate, key and place; null: they take their parents' places. Begins with
   a sync, ends without. |forced|, not null, of leaves: whether all are kept unranked (i1). */
void decode_keep_many(struct ir *k, struct decode *d, val depth, val seen, val forced,
                      best_body *body, void *context);

/* ---- decode_leaves.c: leaves by their keys ---- */

/* Of the leaves of kept parents, how many are seen. */
val decode_seen_leaves(struct ir *k, const struct decode *d);
/* The best of them become the list. */
void decode_leaves(struct ir *k, struct decode *d);

/* ---- decode.c ---- */

/* The arguments of decode, |args|, where words of the walk or of attention look for theirs. */
void decode_name_walk(struct ir *k, const val *args);
void decode_name_attend(struct ir *k, const val *args, int keep);
/* The walk's query as attention knows it. */
struct blocks_query decode_query(struct ir *k, const struct walk *w);

/* ---- decode_share.c: leaves by all CTAs of a cluster ---- */

/* i1: whether that many splits do so. */
val decode_shares_now(struct ir *k, const struct plan_pyramid *plan, val splits);
/* Whether a walk may begin at leaves of more than K parents, which are all scored; i1: it does. */
bool decode_may_scan(const struct decode *d);
val decode_scans(struct ir *k, const struct decode *d);
/* Before the first wait for peers of a cluster that does, which follows; all threads. */
void decode_share_begin(struct ir *k, const struct decode *d, const val *args, val split);
/* Of a scan: to L2 what this CTA will read. */
void decode_share_fetch(struct ir *k, const struct decode *d, const struct sequence_array *values,
                        const val *args, val split);
/* From the parents that the first CTA has kept, which all its warps see, or where |scans| (i1) from
   none, to list and attention; by all threads of all CTAs, once peers have begun. */
void decode_share(struct ir *k, struct decode *d, const struct plan_pyramid *plan, const val *args,
                  val split, val scans);

/* ---- decode_ahead.c: what peers of the CTA that selects do meanwhile ---- */

/* To L2 the means that the first step of a walk reads, by all threads of the CTA. */
void decode_fetch_first(struct ir *k, const struct decode *d);
/* The same of what it will read later, by peer |place| of |peers| (i32). */
void decode_fetch(struct ir *k, const struct decode *d, const struct sequence_array *values,
                  val place, val peers);
/* Leaves [first, end) (i32): their keys, and values where those of all queries are few. */
void decode_fetch_leaves(struct ir *k, const struct decode *d, const struct sequence_array *values,
                         val first, val end);

#endif
