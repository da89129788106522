/* Exponentials in place of a softmax's, and their sums; see frag_sum.h. */
#include "compiler/sm90/frag_sum.h"

#include <assert.h>

enum { CHAINS = 2 };

val frag_sum_is_safe(struct ir *k, val sum) {
  return both(k, is_lt(k, f32(k, 0x1p-100), sum), is_lt(k, sum, f32(k, 0x1p120)));
}

/* 2^x of x / 250 = f |part|, x clamped to [-125, 125]: y = x / 250 + 1/2 saturates to [0, 1], and
   250 y - 125 = n + r with n whole. The constant 1.5 * 2^23 leaves n in the low bits of a sum; 2^r,
   |r| <= 1/2, is a cubic (minimax of the relative error: 7.5e-5), n is added to its exponent. */
static val exp2_polynomial(struct ir *k, val f, val part) {
  const double range = 250, magic = 12582912 - 125;
  val y = fused_saturated(k, f, part, f32(k, 0.5));
  val n = fused(k, y, f32(k, range), f32(k, magic));
  val whole = sub(k, f32(k, magic), n), r = fused(k, y, f32(k, range), whole);
  val p = fused(k, r, f32(k, 0.055171914), f32(k, 0.242611862));
  p = fused(k, r, p, f32(k, 0.693261013));
  p = fused(k, r, p, f32(k, 0.99992803));
  return float_of(k, add(k, shift_left(k, bits_of(k, n), i32(k, 23)), bits_of(k, p)));
}

/* Of a row's values, columns in order, one of 8. */
static bool is_polynomial(int register_index) {
  int place = 2 * (register_index >> 2) + (register_index & 1);
  return place % 8 == 3;
}

struct rowval frag_exp2_sum(struct ir *k, const struct frag *f, int first, int columns, val c) {
  assert(columns % 16 == 0);
  const struct frag part = frag_columns(f, first, columns);
  val scaled = mul(k, c, f32(k, 1.0 / 250)), chain[FRAG_ROWS][CHAINS] = {0};
  for (int i = 0; i < columns / 2; i++) {
    val s = get(k, part.r[i]);
    val x = is_polynomial(i) ? exp2_polynomial(k, s, scaled) : exp2_approx(k, mul(k, s, c));
    val *sum = &chain[frag_row_of(i)][i & 1];
    *sum = is_null(*sum) ? x : add(k, *sum, x);
  }
  return (struct rowval){{add(k, chain[0][0], chain[0][1]), add(k, chain[1][0], chain[1][1])}};
}

/* The lower of two lanes keeps x and gives y away, the upper one the other way round. */
static val halve(struct ir *k, val x, val y, int distance, const struct lanes *lanes) {
  val upper = is_ne(k, bit_and(k, lanes->lane, i32(k, distance)), i32(k, 0));
  val given = choose(k, upper, x, y), kept = choose(k, upper, y, x);
  return add(k, kept, warp_across(k, given, distance));
}

val quad_sum_each(struct ir *k, const val x[4], const struct lanes *lanes) {
  val low = halve(k, x[0], x[1], 1, lanes), high = halve(k, x[2], x[3], 1, lanes);
  return halve(k, low, high, 2, lanes);
}
