/* Blocks that are not listed, to first order in the deviation of a score from its block's mean
   (taylor 1). For a row and the tokens n of such a block, s_n = scale q.k_n:

       sbar = mean s_n    var = mean (s_n - sbar)^2, 0 unless to second order in mass
       p_n  = e^(sbar + var / 2) (1 + s_n - sbar)    whose sum is len e^(sbar + var / 2)

   The running maximum is one of sbar + var / 2: that bounds the masses, and p_n has their size. */
#include <math.h>

#include "compiler/kernels/attend.h"

#define ARG ATTEND_ARG

static int entries(const struct attend *a) { /* of a list, per tile */
  return a->plan->tile_k / a->plan->block;
}

/* Columns of the unlisted blocks from tile |tile| on. Only the last of them, in the last entry of a
   sequence's list, can be the short block. */
static val columns_left(struct ir *k, const struct attend *a, val item, val tile) {
  val columns = mul_const(k, sub(k, a->k_blocks, a->count), a->plan->block);
  if (a->plan->edge) {
    val last = add_const(k, a->k_blocks, -1), position = smax(k, last, i32(k, 0));
    val entry = at(k, attend_list(k, item), mul_const(k, position, 4));
    val is_short = is_eq(k, load(k, k->i32, entry, 4), last);
    val missing = sub(k, i32(k, a->plan->block), a->last_length);
    columns = sub(k, columns, choose(k, is_short, missing, i32(k, 0)));
  }
  return sub(k, columns, mul_const(k, sub(k, tile, a->exact_tiles), a->plan->tile_k));
}

struct frag_blocks attend_linear_columns(struct ir *k, const struct attend *a, val item, val tile) {
  val left = columns_left(k, a, item, tile);
  return frag_blocks_new(k, entries(a), a->plan->block, left, &a->lanes);
}

/* sbar + var / 2 in units of unscaled scores, -inf of an absent block. */
static struct rowval peak_of(struct ir *k, const struct attend *a, const struct frag *s,
                             const struct frag_blocks *columns, int b, struct rowval mean,
                             val scale) {
  struct rowval peak = mean;
  if (a->plan->second_order) {
    struct rowval variance = frag_block_variance(k, s, columns, b, mean);
    val half = mul(k, scale, f32(k, 0.5));
    for (int r = 0; r < FRAG_ROWS; r++) {
      peak.r[r] = fused(k, variance.r[r], half, mean.r[r]);
    }
  }
  val absent = is_eq(k, columns->length[b], f32(k, 0));
  for (int r = 0; r < FRAG_ROWS; r++) {
    peak.r[r] = choose(k, absent, f32(k, -INFINITY), peak.r[r]);
  }
  return peak;
}

struct rowval attend_linear(struct ir *k, const struct attend *a, const struct frag *s,
                            const struct rowvec *m, const struct rowvec *l,
                            const struct frag_blocks *columns) {
  const double ln2 = 0.69314718055994530942;
  val c = ARG(scale_log2), scale = mul(k, c, f32(k, ln2));
  struct rowval before = rowvec_get(k, m), sum = rowvec_get(k, l), top = before, f;
  struct rowval mean[FRAG_MAX_BLOCKS], peak[FRAG_MAX_BLOCKS];
  for (int b = 0; b < columns->n; b++) {
    mean[b] = frag_block_mean(k, s, columns, b);
    peak[b] = peak_of(k, a, s, columns, b, mean[b], scale);
    for (int r = 0; r < FRAG_ROWS; r++) {
      top.r[r] = maximum(k, top.r[r], peak[b].r[r]);
    }
  }
  struct rowval offset = attend_offset(k, &top, a->plan->edge);
  for (int r = 0; r < FRAG_ROWS; r++) {
    f.r[r] = exp2_approx(k, fused(k, before.r[r], c, offset.r[r]));
    sum.r[r] = mul(k, sum.r[r], f.r[r]);
  }
  for (int b = 0; b < columns->n; b++) {
    val share = mul(k, columns->length[b], f32(k, 0.25)); /* of each lane of a quad */
    struct rowval factor, first;
    for (int r = 0; r < FRAG_ROWS; r++) {
      val e = exp2_approx(k, fused(k, peak[b].r[r], c, offset.r[r]));
      factor.r[r] = mul(k, e, scale);
      first.r[r] = fused(k, negate(k, factor.r[r]), mean[b].r[r], e);
      sum.r[r] = fused(k, e, share, sum.r[r]);
    }
    frag_block_affine(k, s, columns, b, factor, first);
  }
  rowvec_set(k, m, top);
  rowvec_set(k, l, sum);
  return f;
}
