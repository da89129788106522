/* node_share.c: in go logits or scores of candidates by head; out come their parts of each head's
   softmax, and the worth of a candidate. Of few candidates in registers, of more than lanes hold by
   way of shared memory. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/node_score.h"
#include "compiler/kernels/sequence.h"

enum { F32 = 4, SLOT = 8, QUAD = 4 };

/* Finite, below every score that counts: the maximum of heads without one. */
static const double LEAST = -1e30;

/* ---- of what a warp has in registers ---- */

/* e[u][s] / sum[s]: head s's share; e = 2^score, or that less the head's greatest. */
struct parts {
  int slots, values;
  val e[NODE_MAX_VALUES][NODE_MAX_SLOTS], sum[NODE_MAX_SLOTS];
};

/* Sums over all candidates: of this lane's values, and those of the quad. */
static void sum_parts(struct ir *k, struct parts *x) {
  for (int s = 0; s < x->slots; s++) {
    val sum = x->e[0][s];
    for (int v = 1; v < x->values; v++)
      sum = add(k, sum, x->e[v][s]);
    x->sum[s] = quad_sum(k, sum);
  }
}

/* Of log-sum-exps the sum of their terms: no logarithm. |shift|: in log2 units, or null. */
static void lse_parts(struct ir *k, const struct plan_pyramid *plan, val cs, val shift,
                      const struct node_logits *x, int s, struct parts *out) {
  for (int j = 0; j < x->tiles; j++) {
    val e[2];
    for (int q = 0; q < 2; q++) {
      val logit = x->x[j][s][q];
      e[q] = exp2_approx(k, is_null(shift) ? mul(k, cs, logit) : fused(k, cs, logit, shift));
    }
    out->e[j][s] = node_children_sum(k, plan, add(k, e[0], e[1]));
  }
}

/* Less the maximum. Where no logit is a number, or one is infinite, terms are nan. */
static void lse_parts_below(struct ir *k, const struct plan_pyramid *plan, val cs,
                            const struct node_logits *x, int s, struct parts *out) {
  val most = maximum(k, x->x[0][s][0], x->x[0][s][1]);
  for (int j = 1; j < x->tiles; j++)
    most = maximum(k, maximum(k, most, x->x[j][s][0]), x->x[j][s][1]);
  lse_parts(k, plan, cs, negate(k, mul(k, cs, quad_max(k, most))), x, s, out);
}

static void score_parts(struct ir *k, const struct node_scores *x, int s, struct parts *out) {
  val most = f32(k, LEAST);
  for (int v = 0; v < x->values; v++)
    most = maximum(k, most, x->score[v][s]);
  most = quad_max(k, most);
  for (int v = 0; v < x->values; v++)
    out->e[v][s] = exp2_approx(k, sub(k, x->score[v][s], most));
}

static val any_lane(struct ir *k, val condition) {
  return is_ne(k, warp_ballot(k, condition), i32(k, 0));
}

/* i1: some sum of the warp is not in [2^-47, 2^81), or nan. There exponents raised by 48 have
   their highest bit and no carry out of it, which others have not. */
static val any_out_of_range(struct ir *k, const struct parts *x) {
  enum { RAISE = 48 << 23, HIGHEST = 1 << 30 };
  val all = {0};
  for (int s = 0; s < x->slots; s++) {
    val raised = add_const(k, bits_of(k, x->sum[s]), RAISE);
    all = s == 0 ? raised : bit_and(k, all, raised);
  }
  return any_lane(k, is_lt(k, all, i32(k, HIGHEST)));
}

/* nan counts as nothing. */
static void keep_numbers(struct ir *k, struct parts *x) {
  for (int s = 0; s < x->slots; s++)
    for (int v = 0; v < x->values; v++)
      x->e[v][s] = maximum(k, x->e[v][s], f32(k, 0));
  sum_parts(k, x);
  for (int s = 0; s < x->slots; s++)
    x->sum[s] = maximum(k, x->sum[s], f32(k, 1e-30));
}

/* Parts of the softmax, joined over the lane's heads. */
static void join_parts(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                       const struct parts *x, val *value) {
  const int copies = QUAD / node_width(plan); /* lanes that have the same */
  struct node_scores scores = {.values = x->values};
  for (int s = 0; s < x->slots; s++) {
    val inverse = mul(k, f32(k, copies), reciprocal_approx(k, x->sum[s]));
    for (int v = 0; v < x->values; v++)
      scores.score[v][s] = mul(k, x->e[v][s], inverse);
  }
  node_join_slots(k, plan, lanes, &scores, value);
}

/* Shares of the lane's heads, joined: what is right nearly always, ready before the warp knows that
   it is; a rare branch sets them again. */
struct choice {
  struct var value[NODE_MAX_VALUES];
  int values;
};
static struct choice choice_of(struct ir *k, const struct plan_pyramid *plan,
                               const struct lanes *lanes, const struct parts *usual) {
  struct choice c = {.values = usual->values};
  val value[NODE_MAX_VALUES];
  join_parts(k, plan, lanes, usual, value);
  for (int v = 0; v < c.values; v++)
    c.value[v] = var_init(k, value[v]);
  return c;
}
static void choose_other(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                         const struct choice *c, struct parts *seldom) {
  val value[NODE_MAX_VALUES];
  keep_numbers(k, seldom);
  join_parts(k, plan, lanes, seldom, value);
  for (int v = 0; v < c->values; v++)
    set(k, c->value[v], value[v]);
}

/* Scores are rarely so great or small that the greatest must be subtracted. That all heads of the
   warp do so or none hangs on its query alone. */
static struct choice lse_shares(struct ir *k, const struct plan_pyramid *plan,
                                const struct lanes *lanes, val scale, const struct node_logits *x,
                                struct parts *parts) {
  val cs = log2_units(k, scale);
  for (int s = 0; s < parts->slots; s++)
    lse_parts(k, plan, cs, (val){0}, x, s, parts);
  sum_parts(k, parts);
  val is_out = any_out_of_range(k, parts);
  struct choice shares = choice_of(k, plan, lanes, parts);
  IF (k, is_out) {
    struct parts below = {.slots = parts->slots, .values = parts->values};
    for (int s = 0; s < parts->slots; s++)
      lse_parts_below(k, plan, cs, x, s, &below);
    choose_other(k, plan, lanes, &shares, &below);
  }
  return shares;
}

static struct choice score_shares(struct ir *k, const struct plan_pyramid *plan,
                                  const struct lanes *lanes, val scale, const struct node_logits *x,
                                  struct parts *parts) {
  struct node_scores scores;
  node_scores_of(k, plan, scale, x, &scores);
  for (int s = 0; s < parts->slots; s++)
    score_parts(k, &scores, s, parts);
  sum_parts(k, parts);
  val all = parts->sum[0];
  for (int s = 1; s < parts->slots; s++)
    all = add(k, all, parts->sum[s]);
  val is_nan = any_lane(k, is_ne(k, all, all));
  struct choice shares = choice_of(k, plan, lanes, parts);
  IF (k, is_nan) {
    choose_other(k, plan, lanes, &shares, parts);
  }
  return shares;
}

val node_share(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               const struct node_logits *x) {
  struct parts parts = {.slots = node_slots(plan), .values = node_values(plan) * x->tiles};
  val value[NODE_MAX_VALUES];
  struct choice shares = plan->score == SCORE_LSE ? lse_shares(k, plan, lanes, scale, x, &parts)
                                                  : score_shares(k, plan, lanes, scale, x, &parts);
  for (int v = 0; v < shares.values; v++)
    value[v] = get(k, shares.value[v]);
  return node_join_lanes(k, plan, lanes, shares.values, value);
}

/* ---- by way of shared memory ---- */

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
  int heads = power_of_two_from(plan->group);
  assert(heads <= 32);
  val head = bit_and(k, lanes->lane, i32(k, heads - 1));
  val first = shift_right(k, lanes->lane, i32(k, log2_from(heads)));
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
