/* clang-format off: drawings
   attend_blocks.h: exact attention of one query over listed leaves, by one warp: what
   attend_blocks and decode_attend share.

   A warp has a query and up to 16 of the query heads of a key head, as rows of m16n8k16 (mma.h).
   It walks units of 16 keys. K is read from memory as a B operand, V as mma_values.h says, both
   straight to registers and one unit ahead: K as soon as the scores before are out, V as soon as
   the weights before are spent. Nothing passes through shared memory, so L1 is nearly all cache:
   leaves that neighbouring warps read at about the same time come from L2 once.

   Softmax: x = scale log2 e (q.k) + offset, offset = -largest so far, p = 2^x. The largest is
   renewed, and what is summed scaled, only where some x of the warp is above BLOCKS_RENEW, so most
   units have no reduction over lanes. Before the first score offset is BLOCKS_UNSEEN, which any
   score exceeds; a query that sees nothing ends with sum 0. A score that is NaN makes sum and o
   NaN.

   Which units: candidates are numbered, a lane each, 32 at a time (attend_blocks_cursor.c):

       of a list   C / 16 to an entry: entry 0 first, then from the last entry backwards, so that
                   neighbours with ascending lists begin with the leaves they share
       no list     unit i of all visible keys

   Bytes between tokens of k and v are below 2^32 (one wide multiply-add finds a row).
   clang-format on */
#ifndef PISA_KERNELS_ATTEND_BLOCKS_H
#define PISA_KERNELS_ATTEND_BLOCKS_H

#include "compiler/kernels/sequence.h"
#include "compiler/sm90/mma_values.h"

/* The arguments that both kernels have, at one place. */
#define BLOCKS_ARG(name) (k->arg[PISA_ATTEND_BLOCKS_##name])
_Static_assert((int)PISA_ATTEND_BLOCKS_q == (int)PISA_DECODE_ATTEND_q &&
                   (int)PISA_ATTEND_BLOCKS_o_token == (int)PISA_DECODE_ATTEND_o_token &&
                   (int)PISA_ATTEND_BLOCKS_lists == (int)PISA_DECODE_ATTEND_lists &&
                   (int)PISA_ATTEND_BLOCKS_width == (int)PISA_DECODE_ATTEND_width,
               "shared code reads them");

enum { BLOCKS_UNIT = 16, BLOCKS_HEADS = 16, BLOCKS_TILES = 2 };
#define BLOCKS_RENEW 8
#define BLOCKS_UNSEEN 1e30

/* Warps that share a query: ceil(G / 16). */
static inline int blocks_warps_of_query(const struct plan_pyramid *plan) {
  return (plan->group + BLOCKS_HEADS - 1) / BLOCKS_HEADS;
}
/* Rows of the product a lane keeps: 1 where the heads fit the first 8. */
static inline int blocks_rows(const struct plan_pyramid *plan) {
  return plan->group <= BLOCKS_HEADS / 2 ? 1 : FRAG_ROWS;
}

/* CTAs on an SM: 16 warps with 128 registers a thread where o, q and a unit fit them, or 8. */
static inline int blocks_ctas_per_sm(const struct plan_pyramid *plan, int threads) {
  const int most = plan->head_dim == 64 ? 512 : 256;
  return threads < most ? most / threads : 1;
}

/* A query and the limit of what it sees. */
struct blocks_query {
  struct sequence sequence;
  val query, kv_head;
  val limit; /* i32: tokens [0, limit) are seen; may be <= 0 */
};
struct blocks_query blocks_query(struct ir *k, const struct plan_pyramid *plan, val query,
                                 val kv_head);

/* Which candidates a warp has: first, first + stride, ... < end (i32); of a list, or of all that is
   seen. */
struct blocks_share {
  val first, stride, end; /* |stride|: a null val of a run, which has no share */
  val list;               /* pointer to the query's list */
  val is_list;            /* i1; a null val: true */
  bool ahead; /* units come to L2 before they are loaded: for warps that each have few of them */
};
struct cursor { /* all lanes alike but for |tokens| and |pages| */
  struct blocks_share share;
  struct var base;          /* first candidate not yet looked at */
  struct var left;          /* bit 31 - i: the i-th of the last 32 is to be read still */
  struct var tokens, pages; /* the lane's candidate's first token, and the page it is in */
  struct var token, page;   /* of the unit it stands at; -1 and a readable page: at the end */
};
/* Stands at the first unit. limit > 0. */
struct cursor cursor_new(struct ir *k, const struct plan_pyramid *plan,
                         const struct blocks_query *query, const struct blocks_share *share);
/* The same of |units| units from |token| on, less what is not seen; no share, no list. */
struct cursor cursor_of_run(struct ir *k, const struct plan_pyramid *plan,
                            const struct blocks_query *query, val token, val units);
void cursor_advance(struct ir *k, const struct plan_pyramid *plan, const struct blocks_query *query,
                    const struct cursor *cursor);

/* A warp's state. */
struct blocks {
  const struct plan_pyramid *plan;
  struct lanes lanes;
  struct blocks_query query;
  val first_head;                     /* i32: of the group */
  val scale_log2;                     /* scale log2 e */
  struct sequence_array keys, values; /* base: this lane's place in the key head's token 0,
                                          or with pages in row 0 of page 0 */
  struct mma_rows q;
  struct mma_row_vars key[BLOCKS_TILES];
  struct mma_values value;
  struct mma_sums o;                            /* unnormalised */
  struct var offset[FRAG_ROWS], sum[FRAG_ROWS]; /* sum: this lane's part, until blocks_end */
};
struct blocks blocks_new(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                         const struct blocks_query *query, val first_head, val scale);
/* All units of |share|. */
void blocks_read(struct ir *k, const struct blocks *a, const struct blocks_share *share);
/* |units| (i32, at most 32) units from |token| (i32) on, less what is not seen; limit > 0. */
void blocks_read_run(struct ir *k, const struct blocks *a, val token, val units);
/* Completes sum: alike in a quad. */
void blocks_end(struct ir *k, const struct blocks *a);

/* ---- outputs ---- */

struct outputs {
  struct blocks_query query;
  val base, head_bytes;  /* o of the query, query head 0; bytes between heads */
  val lse;               /* f32 array of all, or null */
  val first_head, heads; /* i32: first query head of the key head, and all */
};
struct outputs outputs_of(struct ir *k, const struct blocks_query *query, val o, val batch_bytes,
                          val head_bytes, val token_bytes, val lse, int group);
/* Columns [column, column + 8) of query head |head| of the group = x / sum, 0 where sum is 0. */
void outputs_store(struct ir *k, const struct outputs *out, val head, val column, const val x[8],
                   val sum);
/* lse = ln 2 (top + log2 sum), natural; -inf where sum is 0; where |wanted| and lse is not null. */
void outputs_store_lse(struct ir *k, const struct outputs *out, val wanted, val head, val top,
                       val sum);

/* Bytes of a row of |partial|: o, its maximum (log2), its sum. */
static inline int partial_row_bytes(const struct plan_pyramid *plan) {
  return 4 * (plan->head_dim + 2);
}

#endif
