/* decode_attend: exact attention of few queries over the leaves of their lists, or over all that
   they see.

   In go queries, keys, values and maybe lists; out come o and lse, or with several splits partial
   results of each. A CTA has a query, a key head and a split; its warps take units of 16 keys in
   turn (attend_blocks.h) and merge in shared memory, in the order of the warps. Of a list the units
   are dealt to all warps of all splits, without one each split has a stretch of its own. CTA =
   (query Hk + hk) splits + split.

   Every warp has a unit in flight, 4 KB at D 64 and 8 KB at D 128: 64 KB an SM, where HBM at 4.3
   TB/s and 1 us wants 33 KB. Of a short list each warp has few units: the next one is on its way to
   L2 meanwhile. */
#include <assert.h>

#include "compiler/kernels/attend_blocks.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg decode_attend_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_ATTEND_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_DECODE_ATTEND_##name])

enum { WORD = 4, WARP = 32, PIECE = 8, MAX_WARPS = 16 };

struct decode { /* one CTA */
  const struct plan_pyramid *plan;
  struct lanes lanes;
  struct blocks_query query;
  val split;
  int shares; /* warps of 16 heads each that read the same */
  int places; /* of those that read different units */
};

static int row_bytes(const struct plan_pyramid *plan) {
  return WORD * (plan->head_dim + 4);
}

static int warp_bytes(const struct plan_pyramid *plan) {
  return blocks_rows(plan) * 8 * row_bytes(plan);
}

/* ---- each warp ---- */

/* A warp's part of shared memory: pieces of 8 columns as its lanes have them, four at a time of all
   lanes, so that no two meet in a bank; behind them each row's largest exponent and sum. */
static val piece_at(struct ir *k, const struct decode *a, val part, val number) {
  val lane = mul_const(k, a->lanes.lane, 4 * WORD);
  return at(k, part, add(k, mul_const(k, number, WARP * PIECE * WORD), lane));
}
static val ends_at(struct ir *k, const struct decode *a, val part, val row) {
  const int pieces = blocks_rows(a->plan) * 8 * a->plan->head_dim * WORD;
  return at_const(k, at(k, part, mul_const(k, row, 4 * WORD)), pieces);
}

static void put_rows(struct ir *k, const struct decode *a, const struct blocks *x) {
  const int pieces = mma_sums_pieces(a->plan->head_dim);
  val mine = at(k, k->smem, mul_const(k, a->lanes.warp, warp_bytes(a->plan)));
  for (int n = 0; n < blocks_rows(a->plan) * pieces; n++) {
    val o[PIECE], place = piece_at(k, a, mine, i32(k, n));
    mma_sums_piece(k, &x->o, n / pieces, n % pieces, o);
    for (int i = 0; i < PIECE; i += 4) {
      const val four[] = {bits_of(k, o[i]), bits_of(k, o[i + 1]), bits_of(k, o[i + 2]),
                          bits_of(k, o[i + 3])};
      store(k, pack4(k, four), at_const(k, place, i * WARP * WORD), 4 * WORD);
    }
  }
  for (int r = 0; r < blocks_rows(a->plan); r++) {
    val row = add_const(k, mma_lane_row(k, &a->lanes), 8 * r),
        top = negate(k, get(k, x->offset[r]));
    IF (k, is_eq(k, frag_lane_column(k, &a->lanes), i32(k, 0))) {
      store(k, pack2(k, top, get(k, x->sum[r])), ends_at(k, a, mine, row), 2 * WORD);
    }
  }
}

/* Of a list every |splits| places'th unit, else a stretch of |each| units. */
static struct blocks_share share_of(struct ir *k, const struct decode *a, val place) {
  val row = sequence_list_row(k, &a->query.sequence, a->query.query, a->query.kv_head);
  val units = shift_right(k, add_const(k, a->query.limit, BLOCKS_UNIT - 1), i32(k, 4));
  val each = udiv(k, add(k, units, add_const(k, ARG(splits), -1)), ARG(splits));
  val begin = mul(k, each, a->split), end = smin(k, add(k, begin, each), units);
  val listed = mul_const(k, ARG(width), a->plan->leaf / BLOCKS_UNIT);
  val turn = mul_const(k, a->split, a->places), turns = mul_const(k, ARG(splits), a->places);
  struct blocks_share share = {.is_list = bit_not(k, is_null_pointer(k, ARG(lists))),
                               .ahead = !a->plan->dense};
  share.list = at_row(k, ARG(lists), row, mul_const(k, ARG(width), WORD));
  share.first = add(k, choose(k, share.is_list, turn, begin), place);
  share.stride = choose(k, share.is_list, turns, i32(k, a->places));
  share.end = choose(k, share.is_list, listed, end);
  return share;
}

static void read_part(struct ir *k, const struct decode *a, val place, val first_head) {
  struct blocks x = blocks_new(k, a->plan, &a->lanes, &a->query, first_head, ARG(scale));
  struct blocks_share share = share_of(k, a, place);
  blocks_read(k, &x, &share);
  blocks_end(k, &x);
  put_rows(k, a, &x);
}

/* ---- all warps ---- */

struct piece {       /* eight columns of a head, as a lane of the warps of |share| has them */
  val share, number; /* number: 8 rows of a piece are one */
  val row, head;     /* of the share, of the group */
  val column;
};

/* The piece of this lane that the warps' |index|-th is. */
static struct piece piece_of(struct ir *k, const struct decode *a, val index) {
  const int pieces = mma_sums_pieces(a->plan->head_dim), all = blocks_rows(a->plan) * pieces;
  const struct mma_sums o = {.head_dim = a->plan->head_dim};
  struct piece p = {.share = udiv(k, index, i32(k, all)), .column = i32(k, 0)};
  p.number = sub(k, index, mul_const(k, p.share, all));
  val r = udiv(k, p.number, i32(k, pieces)), piece = sub(k, p.number, mul_const(k, r, pieces));
  p.row = add(k, mma_lane_row(k, &a->lanes), mul_const(k, r, 8));
  p.head = add(k, mul_const(k, p.share, BLOCKS_HEADS), p.row);
  for (int i = 0; i < pieces; i++) {
    val column = mma_sums_column(k, &o, i, &a->lanes);
    p.column = choose(k, is_eq(k, piece, i32(k, i)), column, p.column);
  }
  return p;
}

/* It, of all warps that have it. */
static void merge_piece(struct ir *k, const struct decode *a, const struct piece *p, val x[PIECE],
                        val *top, val *sum) {
  val first = at(k, k->smem, mul_const(k, p->share, warp_bytes(a->plan)));
  val part[MAX_WARPS], tops[MAX_WARPS], sums[MAX_WARPS];
  for (int w = 0; w < a->places; w++) {
    part[w] = at_const(k, first, w * a->shares * warp_bytes(a->plan));
    val ends = load(k, k->f32x2, ends_at(k, a, part[w], p->row), 2 * WORD);
    tops[w] = element(k, ends, 0, k->f32);
    sums[w] = element(k, ends, 1, k->f32);
    *top = w == 0 ? tops[w] : maximum(k, *top, tops[w]);
  }
  for (int w = 0; w < a->places; w++) {
    val factor = exp2_approx(k, sub(k, tops[w], *top)), four = {0};
    *sum = w == 0 ? mul(k, sums[w], factor) : fused(k, sums[w], factor, *sum);
    val place = piece_at(k, a, part[w], p->number);
    for (int i = 0; i < PIECE; i++) {
      if (i % 4 == 0)
        four = load(k, k->i32x4, at_const(k, place, i * WARP * WORD), 4 * WORD);
      val o = float_of(k, element(k, four, i % 4, k->i32));
      x[i] = w == 0 ? mul(k, o, factor) : fused(k, o, factor, x[i]);
    }
  }
}

/* Its part of o, the largest exponent and the sum, for decode_merge. */
static void put_partial(struct ir *k, const struct decode *a, const struct piece *p,
                        const val x[PIECE], val top, val sum) {
  val row = sequence_row(k, a->query.query, a->query.kv_head);
  val part = add(k, mul(k, widen(k, row), widen(k, ARG(splits))), widen(k, a->split));
  val index = add(k, mul_const(k, part, a->plan->group), widen(k, p->head));
  val start = at(k, ARG(partial), mul_const(k, index, partial_row_bytes(a->plan)));
  val place = at(k, start, mul_const(k, p->column, WORD));
  for (int i = 0; i < PIECE; i += 2)
    store(k, pack2(k, x[i], x[i + 1]), at_const(k, place, i * WORD), 2 * WORD);
  IF (k, is_eq(k, p->column, i32(k, 0))) {
    val ends = at_const(k, start, a->plan->head_dim * WORD);
    store(k, pack2(k, top, sum), ends, 2 * WORD);
  }
}

static void put_piece(struct ir *k, const struct decode *a, const struct outputs *out,
                      const struct piece *p) {
  val x[PIECE], top = {0}, sum = {0};
  merge_piece(k, a, p, x, &top, &sum);
  IF (k, is_eq(k, ARG(splits), i32(k, 1))) {
    outputs_store(k, out, p->head, p->column, x, sum);
    outputs_store_lse(k, out, is_eq(k, p->column, i32(k, 0)), p->head, top, sum);
  }
  ELSE (k) {
    put_partial(k, a, p, x, top, sum);
  }
}

static void merge(struct ir *k, const struct decode *a) {
  const int pieces = blocks_rows(a->plan) * mma_sums_pieces(a->plan->head_dim);
  struct outputs out = outputs_of(k, &a->query, ARG(o), ARG(o_batch), ARG(o_head), ARG(o_token),
                                  ARG(lse), a->plan->group);
  FOR_STEP(k, index, a->lanes.warp, i32(k, a->shares * pieces),
           i32(k, a->plan->decode_attend.threads / WARP)) {
    const struct piece p = piece_of(k, a, index);
    IF (k, is_lt(k, p.head, i32(k, a->plan->group))) {
      put_piece(k, a, &out, &p);
    }
  }
}

void kernel_decode_attend(struct ir *k, const struct plan_pyramid *plan) {
  const int warps = plan->decode_attend.threads / WARP;
  struct decode a = {.plan = plan, .shares = blocks_warps_of_query(plan)};
  a.places = warps / a.shares;
  assert(a.places >= 1 && a.places <= MAX_WARPS);
  assert(plan->leaf % BLOCKS_UNIT == 0 && plan->page % BLOCKS_UNIT == 0);
  assert(warps * warp_bytes(plan) == plan->decode_attend.smem_bytes);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_ATTEND_N_ARGS, decode_attend_args);
  a.lanes = lanes_new(k);
  val row = udiv(k, cta_index(k), ARG(splits));
  val query = udiv(k, row, SEQUENCE_ARG(kv_heads));
  val kv_head = sub(k, row, mul(k, query, SEQUENCE_ARG(kv_heads)));
  a.split = sub(k, cta_index(k), mul(k, row, ARG(splits)));
  launch_handover(k);
  a.query = blocks_query(k, plan, query, kv_head);
  val place = udiv(k, a.lanes.warp, i32(k, a.shares));
  val share = sub(k, a.lanes.warp, mul_const(k, place, a.shares));
  if (a.places * a.shares ==
      warps) { /* no branch: all that is known to lie where is loaded at once */
    read_part(k, &a, place, mul_const(k, share, BLOCKS_HEADS));
  } else {
    IF (k, is_lt(k, place, i32(k, a.places))) {
      read_part(k, &a, place, mul_const(k, share, BLOCKS_HEADS));
    }
  }
  cta_sync(k);
  merge(k, &a);
  kernel_end(k, plan->decode_attend.entry, plan->decode_attend.threads,
             blocks_ctas_per_sm(plan, plan->decode_attend.threads));
}
