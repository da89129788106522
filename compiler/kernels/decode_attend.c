/* decode_attend: exact attention of few queries over the leaves of their lists, or over all that
   they see.

   In go queries, keys, values and maybe lists; out come o and lse, or of dense packs with several
   splits partial results of each. A CTA has a query, a key head and a split; its warps take units
   of 16 keys in turn (attend_blocks.h) and merge in shared memory, in the order of the warps. CTA =
   (query Hk + hk) splits + split.

   Of a list the units are dealt to the splits in turn, which are a cluster and join what they have
   (decode_attend_join.c); without one each split has a stretch of its own, for decode_merge.

   Every warp has a unit in flight, 4 KB at D 64 and 8 KB at D 128: 64 KB an SM, where HBM at 4.3
   TB/s and 1 us wants 33 KB. Of a short list each warp has few units: the next one is on its way to
   L2 meanwhile. */
#include <assert.h>

#include "compiler/kernels/decode_attend.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/peers.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg decode_attend_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_ATTEND_ARGS(X)
#undef X
};
/* Of the kernel decode_attend; decode puts its own there. */
#define ARG(name) (k->arg[PISA_DECODE_ATTEND_##name])

enum { WORD = 4, WARP = 32, PIECE = DECODE_ATTEND_PIECE, FEW_PLACES = 4 };

/* ---- each warp ---- */

/* A warp's part of shared memory: pieces of 8 columns as its lanes have them, four at a time of all
   lanes, so that no two meet in a bank; behind them each row's largest exponent and sum. */
static val piece_at(struct ir *k, const struct decode_attend *a, val part, val number) {
  val lane = mul_const(k, a->lanes.lane, 4 * WORD);
  return at(k, part, add(k, mul_const(k, number, WARP * PIECE * WORD), lane));
}
static val ends_at(struct ir *k, const struct decode_attend *a, val part, val row) {
  const int pieces = blocks_rows(a->plan) * 8 * a->plan->head_dim * WORD;
  return at_const(k, at(k, part, mul_const(k, row, 4 * WORD)), pieces);
}

static val listed_units(struct ir *k, const struct decode_attend *a) {
  return mul_const(k, ARG(width), a->plan->leaf / BLOCKS_UNIT);
}

void decode_attend_put(struct ir *k, const struct decode_attend *a, const struct blocks *x) {
  const int pieces = mma_sums_pieces(a->plan->head_dim);
  val mine = at(k, k->smem, mul_const(k, a->lanes.warp, decode_attend_part_bytes(a->plan)));
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

/* Units of a list, dealt to all warps of all splits: every split has as many. */
static struct blocks_share listed_share(struct ir *k, const struct decode_attend *a, val place) {
  val row = sequence_list_row(k, &a->query.sequence, a->query.query, a->query.kv_head);
  struct blocks_share share = {.ahead = true};
  share.list = at_row(k, ARG(lists), row, mul_const(k, ARG(width), WORD));
  share.first = add(k, mul(k, place, a->splits), a->split);
  share.stride = mul_const(k, a->splits, a->places);
  share.end = listed_units(k, a);
  return share;
}

/* Of all that is seen a stretch of the split's own. */
static struct blocks_share dense_share(struct ir *k, const struct decode_attend *a, val place) {
  val units = shift_right(k, add_const(k, a->query.limit, BLOCKS_UNIT - 1), i32(k, 4));
  val each = udiv(k, add(k, units, add_const(k, a->splits, -1)), a->splits);
  val begin = mul(k, each, a->split);
  struct blocks_share share = {.is_list = is_eq(k, i32(k, 0), i32(k, 1)), .ahead = false};
  share.list = ARG(lists);
  share.first = add(k, begin, place);
  share.stride = i32(k, a->places);
  share.end = smin(k, add(k, begin, each), units);
  return share;
}

static void read_part(struct ir *k, const struct decode_attend *a, val place, val first_head) {
  struct blocks x = blocks_new(k, a->plan, &a->lanes, &a->query, first_head, ARG(scale));
  struct blocks_share share = a->plan->dense ? dense_share(k, a, place) : listed_share(k, a, place);
  blocks_read(k, &x, &share);
  blocks_end(k, &x);
  decode_attend_put(k, a, &x);
}

/* ---- all warps ---- */

struct piece piece_of(struct ir *k, const struct decode_attend *a, val index) {
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

/* Whether part |w| is among |counts|, null: all are. */
static val counted(struct ir *k, val counts, int w, val x, double otherwise) {
  if (is_null(counts))
    return x;
  val counts_here = is_ne(k, bit_and(k, counts, i32(k, 1 << w)), i32(k, 0));
  return choose(k, counts_here, x, f32(k, otherwise));
}

/* It, of those of the first |places| warps that may have it. */
static struct piece_sums merge_piece(struct ir *k, const struct decode_attend *a,
                                     const struct piece *p, int places, val counts) {
  const int bytes = decode_attend_part_bytes(a->plan);
  val first = at(k, k->smem, mul_const(k, p->share, bytes));
  val part[DECODE_ATTEND_MAX_WARPS], tops[DECODE_ATTEND_MAX_WARPS], sums[DECODE_ATTEND_MAX_WARPS];
  struct piece_sums all = {.top = {0}};
  for (int w = 0; w < places; w++) {
    part[w] = at_const(k, first, w * a->shares * bytes);
    val ends = load(k, k->f32x2, ends_at(k, a, part[w], p->row), 2 * WORD);
    tops[w] = counted(k, counts, w, element(k, ends, 0, k->f32), -BLOCKS_UNSEEN);
    sums[w] = counted(k, counts, w, element(k, ends, 1, k->f32), 0);
    all.top = w == 0 ? tops[w] : maximum(k, all.top, tops[w]);
  }
  for (int w = 0; w < places; w++) {
    val factor = exp2_approx(k, sub(k, tops[w], all.top)), four = {0};
    all.sum = w == 0 ? mul(k, sums[w], factor) : fused(k, sums[w], factor, all.sum);
    val place = piece_at(k, a, part[w], p->number);
    for (int i = 0; i < PIECE; i++) {
      if (i % 4 == 0)
        four = load(k, k->i32x4, at_const(k, place, i * WARP * WORD), 4 * WORD);
      val o = counted(k, counts, w, float_of(k, element(k, four, i % 4, k->i32)), 0);
      all.x[i] = w == 0 ? mul(k, o, factor) : fused(k, o, factor, all.x[i]);
    }
  }
  return all;
}

/* Its part of o, the largest exponent and the sum, for decode_merge. */
static void put_partial(struct ir *k, const struct decode_attend *a, const struct piece *p,
                        const struct piece_sums *s) {
  val row = sequence_row(k, a->query.query, a->query.kv_head);
  val part = add(k, mul(k, widen(k, row), widen(k, a->splits)), widen(k, a->split));
  val index = add(k, mul_const(k, part, a->plan->group), widen(k, p->head));
  val start = at(k, ARG(partial), mul_const(k, index, partial_row_bytes(a->plan)));
  val place = at(k, start, mul_const(k, p->column, WORD));
  for (int i = 0; i < PIECE; i += 2)
    store(k, pack2(k, s->x[i], s->x[i + 1]), at_const(k, place, i * WORD), 2 * WORD);
  IF (k, is_eq(k, p->column, i32(k, 0))) {
    val ends = at_const(k, start, a->plan->head_dim * WORD);
    store(k, pack2(k, s->top, s->sum), ends, 2 * WORD);
  }
}

static void put_outputs(struct ir *k, const struct decode_attend *a, const struct outputs *out,
                        const struct piece *p, const struct piece_sums *s) {
  IF (k, is_lt(k, p->head, i32(k, a->plan->group))) {
    outputs_store(k, out, p->head, p->column, s->x, s->sum);
    outputs_store_lse(k, out, is_eq(k, p->column, i32(k, 0)), p->head, s->top, s->sum);
  }
}

/* All pieces, |body| of each; by all warps. */
#define PIECES(k, index, a)                                                                        \
  FOR_STEP(k, index, (a)->lanes.warp, i32(k, decode_attend_numbers((a)->plan)), i32(k, (a)->warps))

static void merge_dense(struct ir *k, const struct decode_attend *a, const struct outputs *out) {
  const val no = {0};
  PIECES(k, index, a) {
    const struct piece p = piece_of(k, a, index);
    const struct piece_sums s = merge_piece(k, a, &p, a->places, no);
    IF (k, is_eq(k, a->splits, i32(k, 1))) {
      put_outputs(k, a, out, &p, &s);
    }
    ELSE (k) {
      IF (k, is_lt(k, p.head, i32(k, a->plan->group))) {
        put_partial(k, a, &p, &s);
      }
    }
  }
}

/* To the peers that join them. */
static void send_pieces(struct ir *k, const struct decode_attend *a, int places, val counts) {
  PIECES(k, index, a) {
    const struct piece p = piece_of(k, a, index);
    const struct piece_sums s = merge_piece(k, a, &p, places, counts);
    decode_attend_send(k, a, index, &s);
  }
}

static void merge_listed(struct ir *k, const struct decode_attend *a, const struct outputs *out) {
  const val no = {0};
  IF (k, is_eq(k, a->splits, i32(k, 1))) {
    PIECES(k, index, a) {
      const struct piece p = piece_of(k, a, index);
      const struct piece_sums s = merge_piece(k, a, &p, a->places, no);
      put_outputs(k, a, out, &p, &s);
    }
  }
  ELSE (k) {
    if (2 * FEW_PLACES <= a->places) {
      IF (k, is_le(k, listed_units(k, a), mul_const(k, a->splits, FEW_PLACES))) {
        send_pieces(k, a, FEW_PLACES, no);
      }
      ELSE (k) {
        send_pieces(k, a, a->places, no);
      }
    } else {
      send_pieces(k, a, a->places, no);
    }
    peers_arrive(k);
    peers_wait(k);
    decode_attend_join(k, a, out);
  }
}

static struct outputs outputs_here(struct ir *k, const struct decode_attend *a) {
  return outputs_of(k, &a->query, ARG(o), ARG(o_batch), ARG(o_head), ARG(o_token), ARG(lse),
                    a->plan->group);
}

static void merge(struct ir *k, const struct decode_attend *a) {
  struct outputs out = outputs_here(k, a);
  if (a->plan->dense)
    merge_dense(k, a, &out);
  else
    merge_listed(k, a, &out);
}

static void read_parts(struct ir *k, const struct decode_attend *a) {
  val place = udiv(k, a->lanes.warp, i32(k, a->shares));
  val share = sub(k, a->lanes.warp, mul_const(k, place, a->shares));
  if (a->places * a->shares == a->warps) {
    /* no branch: all that is known to lie where is loaded at once */
    read_part(k, a, place, mul_const(k, share, BLOCKS_HEADS));
  } else {
    IF (k, is_lt(k, place, i32(k, a->places))) {
      read_part(k, a, place, mul_const(k, share, BLOCKS_HEADS));
    }
  }
}

static struct decode_attend attend_of(const struct plan_pyramid *plan, int threads) {
  struct decode_attend a = {.plan = plan, .shares = blocks_warps_of_query(plan)};
  a.warps = threads / WARP;
  a.places = a.warps / a.shares;
  assert(a.places >= 1 && a.places <= DECODE_ATTEND_MAX_WARPS);
  assert(plan->leaf % BLOCKS_UNIT == 0 && plan->page % BLOCKS_UNIT == 0);
  return a;
}

static void attend(struct ir *k, const struct decode_attend *a) {
  read_parts(k, a);
  cta_sync(k);
  merge(k, a);
}

struct decode_attend decode_attend_of(struct ir *k, const struct plan_pyramid *plan, int threads,
                                      const struct blocks_query *query, val split) {
  struct decode_attend a = attend_of(plan, threads);
  a.lanes = lanes_new(k);
  a.splits = ARG(splits);
  a.split = split;
  a.query = *query;
  return a;
}

struct blocks decode_attend_blocks(struct ir *k, const struct decode_attend *a) {
  return blocks_new(k, a->plan, &a->lanes, &a->query, i32(k, 0), ARG(scale));
}

void decode_attend_merge(struct ir *k, const struct decode_attend *a, int places, val counts) {
  const struct outputs out = outputs_here(k, a);
  send_pieces(k, a, places, counts);
  mbarrier_wait(k, a->joined, i32(k, 0));
  decode_attend_join(k, a, &out);
}

void decode_attend_list(struct ir *k, const struct plan_pyramid *plan, int threads,
                        const struct blocks_query *query, val split) {
  const struct decode_attend a = decode_attend_of(k, plan, threads, query, split);
  attend(k, &a);
}

void kernel_decode_attend(struct ir *k, const struct plan_pyramid *plan) {
  const int threads = plan->decode_attend.threads;
  struct decode_attend a = attend_of(plan, threads);
  assert(decode_attend_bytes(plan, a.warps) == plan->decode_attend.smem_bytes);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_ATTEND_N_ARGS, decode_attend_args);
  a.lanes = lanes_new(k);
  a.splits = ARG(splits);
  val row = udiv(k, cta_index(k), a.splits), query = udiv(k, row, SEQUENCE_ARG(kv_heads));
  val kv_head = sub(k, row, mul(k, query, SEQUENCE_ARG(kv_heads)));
  a.split = sub(k, cta_index(k), mul(k, row, a.splits));
  launch_handover(k);
  a.query = blocks_query(k, plan, query, kv_head);
  attend(k, &a);
  kernel_end(k, plan->decode_attend.entry, threads, blocks_ctas_per_sm(plan, threads));
}
