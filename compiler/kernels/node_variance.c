/* node_variance.c: in go the logits of a node's children; out comes its score by mean and variance.

   Where the children are equal their mean is theirs to the bit and their variance 0, whatever they
   weigh: so equal nodes tie, ragged ones too. */
#include "compiler/kernels/node_score.h"

/* mean + scale variance / 2 of children that weigh the same: g equal ones add up without rounding.
 */
static val full_score(struct ir *k, const struct plan_pyramid *plan, val scale, const val x[2]) {
  if (plan->children == 2) {
    val mean = mul(k, f32(k, 0.5), add(k, x[0], x[1])), d = sub(k, x[0], x[1]);
    return fused(k, mul(k, mul(k, scale, f32(k, 0.125)), d), d, mean);
  }
  val part = f32(k, 1.0 / plan->children);
  val mean = mul(k, node_children_sum(k, plan, add(k, x[0], x[1])), part);
  val d0 = sub(k, x[0], mean), d1 = sub(k, x[1], mean);
  val squares = node_children_sum(k, plan, fused(k, d0, d0, mul(k, d1, d1)));
  return fused(k, mul(k, scale, f32(k, 0.5)), mul(k, squares, part), mean);
}

/* The same by |weight|, |all| of all children: from how far they are from the first one, which
   counts if any does. */
static val ragged_score(struct ir *k, const struct plan_pyramid *plan, val scale, const val x[2],
                        const val weight[2], val all) {
  val part = reciprocal_approx(k, all), half = mul(k, scale, f32(k, 0.5));
  if (plan->children == 2) {
    val d = sub(k, x[1], x[0]), t = mul(k, weight[1], part);
    val spread = fused(k, negate(k, t), t, t); /* t (1 - t) d^2 is the variance */
    return fused(k, mul(k, half, spread), mul(k, d, d), fused(k, t, d, x[0]));
  }
  val first = warp_first(k, x[0], plan->children / 2);
  val d0 = sub(k, x[0], first), d1 = sub(k, x[1], first);
  val e0 = mul(k, weight[0], d0), e1 = mul(k, weight[1], d1);
  val shift = mul(k, node_children_sum(k, plan, add(k, e0, e1)), part);
  val squares = node_children_sum(k, plan, fused(k, e0, d0, mul(k, e1, d1)));
  val variance = fused(k, squares, part, negate(k, mul(k, shift, shift)));
  return fused(k, half, variance, add(k, first, shift));
}

val node_half_variance(struct ir *k, const struct plan_pyramid *plan, val cs, val scale,
                       const val x[2], const val *weight) {
  if (weight == NULL)
    return mul(k, cs, full_score(k, plan, scale, x));
  val all = node_children_sum(k, plan, add(k, weight[0], weight[1]));
  val score = mul(k, cs, ragged_score(k, plan, scale, x, weight, all));
  if (plan_is_mass(plan)) {
    val full = f32(k, 1.0 / plan->children);
    score = add(k, score, log2_approx(k, mul(k, all, full)));
  }
  return score;
}
