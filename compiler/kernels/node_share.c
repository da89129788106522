/* node_share.c: in go scores of candidates by head, in shared memory; out come their parts of each
   head's softmax, and the worth of a candidate. For levels with more candidates than lanes hold. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/node_score.h"

enum { F32 = 4, SLOT = 8, QUAD = 4 };

/* Finite, below every score that counts: the maximum of heads without one. */
static const double LEAST = -1e30;

static int power_of_two_from(int n) {
  int power = 1;
  while (power < n)
    power *= 2;
  return power;
}

void node_scores_store(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                       const struct node_scores *x, val scores) {
  int width = node_width(plan), copies = QUAD / width;
  val lane = bit_and(k, lanes->lane, i32(k, QUAD - 1)), row = mma_lane_row(k, lanes);
  val speaks = is_eq(k, bit_and(k, lane, i32(k, copies - 1)), i32(k, 0));
  val within = udiv(k, lane, i32(k, copies));
  val mine = at(k, scores, mul_const(k, within, node_scores_bytes(plan)));
  for (int s = 0; s < node_slots(plan); s++) {
    val head = add_const(k, row, SLOT * s);
    IF (k, both(k, speaks, is_lt(k, head, i32(k, plan->group)))) {
      for (int v = 0; v < x->values; v++) {
        val place = at_const(k, mine, (int64_t)v * width * node_scores_bytes(plan));
        store(k, x->score[v][s], at(k, place, mul_const(k, head, F32)), F32);
      }
    }
  }
}

static val score_place(struct ir *k, const struct plan_pyramid *plan, val scores, val candidate,
                       val head) {
  val row = at(k, scores, mul_const(k, candidate, node_scores_bytes(plan)));
  return at(k, row, mul_const(k, head, F32));
}

static val over_lanes(struct ir *k, val v, int from, bool sum) {
  for (int distance = from; distance < 32; distance *= 2) {
    val other = warp_across(k, v, distance);
    v = sum ? add(k, v, other) : maximum(k, v, other);
  }
  return v;
}

/* Lanes of one head, lane mod |heads|, take every (32 / heads)-th candidate. */
void node_softmax(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val n,
                  val scores) {
  int heads = power_of_two_from(plan->group), bits = __builtin_ctz((unsigned)heads);
  assert(heads <= 32);
  val head = bit_and(k, lanes->lane, i32(k, heads - 1));
  val first = shift_right(k, lanes->lane, i32(k, bits));
  struct var most = var_init(k, f32(k, LEAST)), sum = var_init(k, f32(k, 0));
  warp_sync(k);
  val exists = is_lt(k, head, i32(k, plan->group));
  val end = choose(k, exists, n, i32(k, 0));
  FOR_STEP(k, c, first, end, i32(k, 32 / heads)) {
    val x = load(k, k->f32, score_place(k, plan, scores, c, head), F32);
    set(k, most, maximum(k, get(k, most), x));
  }
  val all = over_lanes(k, get(k, most), heads, false);
  FOR_STEP(k, c, first, end, i32(k, 32 / heads)) {
    val place = score_place(k, plan, scores, c, head);
    val e = exp2_approx(k, sub(k, load(k, k->f32, place, F32), all));
    set(k, sum, add(k, get(k, sum), e));
    store(k, e, place, F32);
  }
  val total = maximum(k, over_lanes(k, get(k, sum), heads, true), f32(k, 1e-30));
  val inverse = reciprocal_approx(k, total);
  FOR_STEP(k, c, first, end, i32(k, 32 / heads)) {
    val place = score_place(k, plan, scores, c, head);
    store(k, mul(k, load(k, k->f32, place, F32), inverse), place, F32);
  }
  warp_sync(k);
}

val node_share_of(struct ir *k, const struct plan_pyramid *plan, val scores, val candidate) {
  val worth = {0};
  for (int h = 0; h < plan->group; h++) {
    val x = load(k, k->f32, score_place(k, plan, scores, candidate, i32(k, h)), F32);
    worth = h == 0 ? x : node_join_two(k, plan, worth, x);
  }
  return worth;
}
