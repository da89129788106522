/* attend_blocks: exact attention of each query over the leaves of its list.

   In go queries, keys, values and lists; out come o and lse. A warp has a query and a key head (of
   more than 16 query heads of it ceil(G / 16) warps); neighbouring warps of a CTA have neighbouring
   queries, CTAs all queries of a key head before the next. Grid: Hk ceil(T / queries of a CTA).

   What it costs, N 16384, 32/2 heads, D 64, C 64, K 8: 32768 rows of 8 leaves of 16 KB are 4.3 GB
   through L1. Three of the eight are the first, the previous and the own, which eight neighbours
   read in step: 2.9 GB from L2, 0.53 ms at 5.5 TB/s, less where neighbours choose alike. A unit of
   16 keys takes about 170 instructions of a warp, 32 units a row: 0.19 ms of issue slots. Products
   take 0.12 ms, exponentials 0.07 ms. So L2 bounds it, if enough loads are in flight: 2 to 4 KB a
   warp, 32 to 64 KB an SM, where 5.5 TB/s and 0.7 us want 29 KB. */
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

/* Returns whether the warp's query is done. */
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
  const int shares = blocks_warps_of_query(plan), queries = launch->threads / WARP / shares;
  assert(queries >= 1 && plan->leaf % BLOCKS_UNIT == 0 && plan->page % BLOCKS_UNIT == 0);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ATTEND_BLOCKS_N_ARGS, attend_blocks_args);
  struct lanes lanes = lanes_new(k);
  launch_handover(k);
  val tiles = udiv(k, add_const(k, ARG(queries), queries - 1), i32(k, queries));
  val kv_head = udiv(k, cta_index(k), tiles);
  val first = mul_const(k, sub(k, cta_index(k), mul(k, kv_head, tiles)), queries);
  val place = udiv(k, lanes.warp, i32(k, shares));
  val first_head = mul_const(k, sub(k, lanes.warp, mul_const(k, place, shares)), BLOCKS_HEADS);
  val query = add(k, first, place);
  val wanted = both(k, is_lt(k, query, ARG(queries)), is_lt(k, place, i32(k, queries)));
  if (blocks_in_tiles(plan))
    wanted = both(k, wanted, bit_not(k, attend_tile(k, plan, &lanes, kv_head, first)));
  IF (k, wanted) {
    attend_query(k, plan, &lanes, query, kv_head, first_head);
  }
  const int ctas = blocks_in_tiles(plan) ? blocks_tile_ctas(plan, launch->threads)
                                         : blocks_ctas_per_sm(plan, launch->threads);
  kernel_end(k, launch->entry, launch->threads, ctas);
}
