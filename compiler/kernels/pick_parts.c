/* pick_parts.c: in go the scores of one head by lane and word, see pick_heads.c; out come the
   words' parts of its softmax. */
#include "compiler/kernels/pick.h"

/* Finite, below every score that counts: the maximum of heads without one. */
static const double LEAST = -1e30;

/* Powers of 2 of the lane's head's words, all; over places. */
static val sum_of(struct ir *k, const struct pick_head *h, const val *e) {
  val sum = e[0];
  for (int i = 1; i < h->words + h->others; i++)
    sum = add(k, sum, e[i]);
  for (int lanes = 1; lanes < h->places; lanes *= 2)
    sum = add(k, sum, warp_across(k, sum, lanes));
  return sum;
}

/* Of scores less the head's greatest; a nan counts as nothing. Returns their sum. */
static val powers_below(struct ir *k, const struct pick_head *h, const val *x, val *e) {
  const int all = h->words + h->others;
  val most = f32(k, LEAST);
  for (int i = 0; i < all; i++)
    most = maximum(k, most, x[i]);
  for (int lanes = 1; lanes < h->places; lanes *= 2)
    most = maximum(k, most, warp_across(k, most, lanes));
  for (int i = 0; i < all; i++)
    e[i] = fused_saturated(k, exp2_approx(k, sub(k, x[i], most)), f32(k, 1), f32(k, 0));
  return sum_of(k, h, e);
}

/* i1: the sum of a head is not in [2^-47, 2^81), or nan: see node_share.c. */
static val is_out_of_range(struct ir *k, const struct pick_head *h, val sum) {
  enum { RAISE = 48 << 23, HIGHEST = 1 << 30 };
  val is_out = is_lt(k, add_const(k, bits_of(k, sum), RAISE), i32(k, HIGHEST));
  return is_null(h->is_head) ? is_out : both(k, is_out, h->is_head);
}

/* Scores (log2) -> their parts, those of candidates. The greatest of a head is subtracted in rows
   where a sum is out of range without that. */
void pick_parts(struct ir *k, const struct pick_head *h, val *x) {
  const int n = h->words, all = n + h->others;
  val e[PICK_MAX_WORDS + PICK_MAX_OTHERS];
  struct var part[PICK_MAX_WORDS];
  for (int i = 0; i < all; i++)
    e[i] = exp2_approx(k, x[i]);
  val sum = sum_of(k, h, e), out = warp_ballot(k, is_out_of_range(k, h, sum));
  struct var total = var_init(k, sum);
  for (int i = 0; i < n; i++)
    part[i] = var_init(k, e[i]);
  IF (k, is_ne(k, out, i32(k, 0))) {
    val is_mine = is_ne(k, bit_and(k, out, h->members), i32(k, 0)),
        below[PICK_MAX_WORDS + PICK_MAX_OTHERS];
    set(k, total, choose(k, is_mine, powers_below(k, h, x, below), sum));
    for (int i = 0; i < n; i++)
      set(k, part[i], choose(k, is_mine, below[i], e[i]));
  }
  val inverse = reciprocal_approx(k, maximum(k, get(k, total), f32(k, 1e-30)));
  for (int i = 0; i < n; i++)
    x[i] = mul(k, get(k, part[i]), inverse);
}
