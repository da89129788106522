/* attend_blocks: exact attention of each query over the leaves of its list.

   In go queries, keys, values and lists; out come o and lse. A CTA has neighbouring queries of a
   key head, CTAs all queries of a key head before the next. Where heads and leaves suit
   (pisa_attends_in_tiles) its queries are a tile that reads the union of their lists
   (attend_blocks_tile.h); else, and what a tile cannot do, each query is read alone: a warp has a
   query (of more than 16 query heads of it ceil(G / 16) warps). Grid: Hk ceil(T / queries of a
   CTA).

   What a query alone costs, D 64, C 64, K 8, 16 heads: 8 leaves of 16 KB through L1, of which
   neighbours in step share the forced ones; about 170 instructions of a warp for 16 keys. N 131072,
   2 key heads: 3.8 ms on an H200, 9.1 TB/s through L1. */
#include <assert.h>

#include "compiler/kernels/attend_blocks.h"
#include "compiler/kernels/attend_blocks_tile.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg attend_blocks_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ATTEND_BLOCKS_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_ATTEND_BLOCKS_##name])

enum { WORD = 4, WARP = 32 };

/* This lane's pieces of its heads' rows. */
static void store_rows(struct ir *k, const struct blocks *a, const struct outputs *out) {
  for (int r = 0; r < blocks_rows(a->plan); r++) {
    val head = add_const(k, add(k, a->first_head, mma_lane_row(k, &a->lanes)), 8 * r);
    val sum = get(k, a->sum[r]), exists = is_lt(k, head, i32(k, a->plan->group));
    IF (k, exists) {
      for (int piece = 0; piece < mma_sums_pieces(a->plan->head_dim); piece++) {
        val x[8], column = mma_sums_column(k, &a->o, piece, &a->lanes);
        mma_sums_piece(k, &a->o, r, piece, x);
        outputs_store(k, out, head, column, x, sum);
      }
    }
    val first_of_quad = is_eq(k, frag_lane_column(k, &a->lanes), i32(k, 0));
    val top = negate(k, get(k, a->offset[r]));
    outputs_store_lse(k, out, both(k, exists, first_of_quad), head, top, sum);
  }
}

static void attend_query(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                         val query, val kv_head, val first_head) {
  struct blocks_query x = blocks_query(k, plan, query, kv_head);
  struct blocks a = blocks_new(k, plan, lanes, &x, first_head, ARG(scale));
  val row = sequence_list_row(k, &x.sequence, query, kv_head);
  val list = at_row(k, ARG(lists), row, mul_const(k, ARG(width), WORD));
  struct blocks_share share = {.first = i32(k, 0), .stride = i32(k, 1), .list = list};
  share.end = mul_const(k, ARG(width), plan->leaf / BLOCKS_UNIT);
  blocks_read(k, &a, &share);
  blocks_end(k, &a);
  struct outputs out =
      outputs_of(k, &x, ARG(o), ARG(o_batch), ARG(o_head), ARG(o_token), ARG(lse), plan->group);
  store_rows(k, &a, &out);
}

/* Returns whether the warp's queries are done. */
static val attend_tile(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                       val kv_head, val first) {
  struct query_tile tile = query_tile_new(k, plan, lanes, kv_head, first);
  struct var done = var_init(k, i32(k, 0));
  IF (k, both(k, tile.is_whole, is_le(k, ARG(width), i32(k, plan->keep)))) {
    set(k, done, widen_bool(k, query_tile_attend(k, &tile, ARG(lists), ARG(width))));
  }
  return is_ne(k, get(k, done), i32(k, 0));
}

void kernel_attend_blocks(struct ir *k, const struct plan_pyramid *plan) {
  const struct plan_kernel *launch = &plan->attend_blocks;
  const int shares = blocks_warps_of_query(plan), each = blocks_each(plan);
  const int queries = launch->threads / WARP / shares * each;
  assert(queries >= 1 && plan->leaf % BLOCKS_UNIT == 0 && plan->page % BLOCKS_UNIT == 0);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ATTEND_BLOCKS_N_ARGS, attend_blocks_args);
  struct lanes lanes = lanes_new(k);
  launch_handover(k);
  val tiles = udiv(k, add_const(k, ARG(queries), queries - 1), i32(k, queries));
  val kv_head = udiv(k, cta_index(k), tiles);
  val first = mul_const(k, sub(k, cta_index(k), mul(k, kv_head, tiles)), queries);
  val team = udiv(k, lanes.warp, i32(k, shares)), place = mul_const(k, team, each);
  val first_head = mul_const(k, sub(k, lanes.warp, mul_const(k, team, shares)), BLOCKS_HEADS);
  val query = add(k, first, place);
  val wanted = both(k, is_lt(k, query, ARG(queries)), is_lt(k, place, i32(k, queries)));
  if (blocks_in_tiles(plan))
    wanted = both(k, wanted, bit_not(k, attend_tile(k, plan, &lanes, kv_head, first)));
  IF (k, wanted) {
    if (each == 1) {
      attend_query(k, plan, &lanes, query, kv_head, first_head);
    } else {
      FOR (k, x, query, smin(k, add_const(k, query, each), ARG(queries))) {
        attend_query(k, plan, &lanes, x, kv_head, first_head);
      }
    }
  }
  const int ctas = blocks_in_tiles(plan) ? blocks_tile_ctas(plan, launch->threads)
                                         : blocks_ctas_per_sm(plan, launch->threads);
  kernel_end(k, launch->entry, launch->threads, ctas);
}
