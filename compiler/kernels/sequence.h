/* sequence.h: where the queries, keys and nodes of a sequence lie (runtime/abi.def, block
   selection). Every kernel of block selection has PISA_SEQUENCE_ARGS first, so these words read
   them from k->arg by themselves. */
#ifndef PISA_KERNELS_SEQUENCE_H
#define PISA_KERNELS_SEQUENCE_H

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"
#include "runtime/abi.def"

#define SEQUENCE_ARG(name) (k->arg[PISA_SEQUENCE_##name])

struct sequence {
  val index;   /* b */
  val packed;  /* i1: with starts */
  val q_begin; /* i32: its first query number, b n_q or q_starts[b] */
  val queries; /* i32: n_q of it */
  val k_begin; /* i64 */
  val room;    /* i32 */
  val keys;    /* i32, 0 .. room */
};
/* Sequence |b| (i32); all lanes alike. */
struct sequence sequence_at(struct ir *k, val b);
/* That of query number |query| (i32, 0 .. T - 1): a division, or a binary search of q_starts. */
struct sequence sequence_of_query(struct ir *k, val query);
/* The same where sequences mostly have one query: no division then. */
struct sequence sequence_of_step(struct ir *k, val query);
/* The largest b for which floor(k_begin / tokens) + b <= number: whose span, leaf or parent it is;
   its place there in |place| (i32). Not checked: the place may lie behind the last one. */
struct sequence sequence_of_part(struct ir *k, val number, int64_t tokens, val *place);

/* Token t = keys - queries + i of query number |query|; may be negative. */
val sequence_token(struct ir *k, const struct sequence *s, val query);
/* i64 byte offset of query number |query| in an array [B, H, n_q, D] with these strides, head 0. */
val sequence_query_offset(struct ir *k, const struct sequence *s, val query, val batch_bytes,
                          val token_bytes);
/* Row (i32) of the caller's arrays [B, Hk, n_q] for a query number and key head; see abi.def. */
val sequence_list_row(struct ir *k, const struct sequence *s, val query, val kv_head);
/* The same of lse, [B, H, n_q], for query head |head| of |heads|. */
val sequence_head_row(struct ir *k, const struct sequence *s, val query, val head, val heads);
/* Row (i32) of internal arrays [R]: hk T + query. */
val sequence_row(struct ir *k, val query, val kv_head);

/* An array of keys or values: base pointer and strides. */
struct sequence_array {
  val base, batch_bytes, head_bytes, token_bytes;
};
/* Pointer to row |token| (i32, 0 <= token < room) of key head |kv_head|. With pages |page| > 0
   tokens a page: one load of the table. Rows of one aligned group of |page| tokens are
   token_bytes apart. */
val sequence_key(struct ir *k, const struct sequence *s, const struct sequence_array *array,
                 int page, val kv_head, val token);

/* Logits in log2 units: log2 e times the kernel's |scale|. */
val log2_units(struct ir *k, val scale);

/* ---- levels ---- */

/* i64 row of the means of key head |kv_head|'s first node: hk P + node_base. */
val sequence_node_base(struct ir *k, const struct sequence *s, int leaf, val kv_head);
/* Rows of means share their bytes two by two (pisa_mean_place): pointer to the first piece of row
   |row| (i32, >= 0) from |means|, an even row, on; bytes (i32) from there to column |column|. The
   pieces of a row are MEAN_APART bytes apart. */
enum { MEAN_APART = 2 * PISA_MEAN_PIECE * 2 };
val mean_row(struct ir *k, int head_dim, val means, val row);
val mean_column(struct ir *k, val column);
/* log2 of the tokens of a node of |level| (i32, >= 1). */
val level_shift(struct ir *k, int leaf, int children, val level);
/* M_l (i32) of |tokens| (i32) for level |level| (i32, >= 1): ceil(tokens / (leaf children^(l-1))).
   children is a power of two. */
val level_nodes(struct ir *k, val tokens, int leaf, int children, val level);
/* Nodes of |level| that a query at |t| sees of |keys| keys: causal min(M_l, t / size + 1), 0 for
   t < 0; else M_l. */
val level_visible(struct ir *k, const struct plan_pyramid *plan, val keys, val t, val level);
/* off_l (i32) of a sequence with |room| keys, by a loop over the levels below. */
val level_offset(struct ir *k, val room, int leaf, int children, val level);

#endif
