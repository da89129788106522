/* decode_attend_join.c: the splits of a query are the CTAs of a cluster. In go the sums of each;
   out come o and lse.

   Pieces are dealt to the CTAs in turn. Each CTA puts its sums of a piece into the shared memory of
   the one that joins it, so that after the cluster's barrier, or the mbarrier |joined| at which
   what is sent arrives, no one waits for another's memory:

       slot (index / splits) splits + split of CTA index mod splits:
           4 of x, all lanes | the other 4 | top and sum                      40 bytes a lane

   Sums are joined in the order of splits. */
#include <math.h>

#include "compiler/kernels/decode_attend.h"
#include "compiler/sm90/peers.h"

enum { WORD = 4, WARP = 32, PIECE = DECODE_ATTEND_PIECE, ENDS = PIECE * WARP * WORD };

/* Of this lane. */
static val slot_at(struct ir *k, const struct decode_attend *a, val slot) {
  val bytes = mul_const(k, slot, DECODE_ATTEND_SLOT_BYTES);
  val lane = mul_const(k, a->lanes.lane, 4 * WORD);
  const int parts = decode_attend_part_bytes(a->plan) * a->warps;
  return at_const(k, at(k, k->smem, add(k, bytes, lane)), parts);
}
static val ends_offset(struct ir *k, const struct decode_attend *a) {
  return mul_const(k, a->lanes.lane, -2 * WORD); /* two words a lane, not four */
}

val decode_attend_sent(struct ir *k, const struct plan_pyramid *plan, val split, val splits) {
  val behind = sub(k, add_const(k, splits, decode_attend_numbers(plan) - 1), split);
  val pieces = udiv(k, behind, splits);
  return mul_const(k, mul(k, pieces, splits), DECODE_ATTEND_SLOT_BYTES);
}

static void send(struct ir *k, const struct decode_attend *a, int n, const val *words, val to,
                 int bytes, val barrier) {
  if (is_null(a->joined))
    peers_store(k, n, words, to, bytes);
  else
    peers_send(k, n, words, to, bytes, barrier);
}

void decode_attend_send(struct ir *k, const struct decode_attend *a, val index,
                        const struct piece_sums *x) {
  val turn = udiv(k, index, a->splits), base = mul(k, turn, a->splits);
  val to = slot_at(k, a, add(k, base, a->split));
  val peer = sub(k, index, base), barrier = {0};
  to = peers_address(k, to, peer);
  if (!is_null(a->joined))
    barrier = peers_address(k, a->joined, peer);
  for (int i = 0; i < PIECE; i += 4) {
    val four[4];
    for (int j = 0; j < 4; j++)
      four[j] = bits_of(k, x->x[i + j]);
    send(k, a, 4, four, to, i * WARP * WORD, barrier);
  }
  const val ends[2] = {bits_of(k, x->top), bits_of(k, x->sum)};
  send(k, a, 2, ends, add(k, to, ends_offset(k, a)), ENDS, barrier);
}

/* Split |s| of those at slot |base|; behind the last one of no weight. */
static struct piece_sums load_split(struct ir *k, const struct decode_attend *a, val base, int s) {
  val last = add_const(k, a->splits, -1), split = i32(k, s);
  val from = slot_at(k, a, add(k, base, smin(k, split, last)));
  val ends = load(k, k->f32x2, at_const(k, at(k, from, ends_offset(k, a)), ENDS), 2 * WORD);
  val top = choose(k, is_le(k, split, last), element(k, ends, 0, k->f32), f32(k, -INFINITY));
  struct piece_sums x = {.top = top, .sum = element(k, ends, 1, k->f32)};
  for (int i = 0; i < PIECE; i += 4) {
    val four = load(k, k->i32x4, at_const(k, from, i * WARP * WORD), 4 * WORD);
    for (int j = 0; j < 4; j++)
      x.x[i + j] = float_of(k, element(k, four, j, k->i32));
  }
  return x;
}

static struct piece_sums join(struct ir *k, const struct decode_attend *a, val base) {
  struct piece_sums part[DECODE_ATTEND_MAX_SPLITS], all = {.top = {0}};
  for (int s = 0; s < DECODE_ATTEND_MAX_SPLITS; s++) {
    part[s] = load_split(k, a, base, s);
    all.top = s == 0 ? part[s].top : maximum(k, all.top, part[s].top);
  }
  for (int s = 0; s < DECODE_ATTEND_MAX_SPLITS; s++) {
    val factor = exp2_approx(k, sub(k, part[s].top, all.top));
    all.sum = s == 0 ? mul(k, part[s].sum, factor) : fused(k, part[s].sum, factor, all.sum);
    for (int i = 0; i < PIECE; i++)
      all.x[i] = s == 0 ? mul(k, part[s].x[i], factor) : fused(k, part[s].x[i], factor, all.x[i]);
  }
  return all;
}

void decode_attend_join(struct ir *k, const struct decode_attend *a, const struct outputs *out) {
  val step = mul_const(k, a->splits, a->warps);
  val first = add(k, mul(k, a->lanes.warp, a->splits), a->split);
  FOR_STEP(k, index, first, i32(k, decode_attend_numbers(a->plan)), step) {
    const struct piece p = piece_of(k, a, index);
    const struct piece_sums x = join(k, a, sub(k, index, a->split));
    IF (k, is_lt(k, p.head, i32(k, a->plan->group))) {
      outputs_store(k, out, p.head, p.column, x.x, x.sum);
      outputs_store_lse(k, out, is_eq(k, p.column, i32(k, 0)), p.head, x.top, x.sum);
    }
  }
}
