/* walk_mask.c: in go the kept nodes of one depth and the query's place; out come the rows of a
   level's products that count for it, and scores in which the others do not. */
#include <math.h>

#include "compiler/kernels/walk.h"

enum { TILE = 8, FOUR = 4 };

/* Of sums of full nodes in the past rows that do not count only make scores that nothing reads. */
bool walk_has_partial(const struct plan_pyramid *plan) {
  return plan_is_mass(plan) || !plan->causal || !plan->current;
}
/* With mean the own node is then judged by its children. */
static bool judges_own(const struct plan_pyramid *plan) {
  return plan->score == SCORE_MEAN && plan->causal && walk_has_partial(plan);
}

/* Tokens of a node of the level read, log2. */
static val read_shift(struct ir *k, const struct walk *w, val depth) {
  val level = walk_read_level(k, w, depth);
  int step = log2_from(w->plan->children);
  return add_const(k, mul_const(k, level, step), log2_from(w->plan->leaf) - step);
}

/* Sets |end| and |weight| of |m|: only rows of the last kept node can be cut off. */
static void set_reach(struct ir *k, const struct walk *w, val depth, struct walk_mask *m) {
  const struct plan_pyramid *plan = w->plan;
  val shift = read_shift(k, w, depth), keys = w->s.keys;
  val nodes = add_const(k, shift_right_signed(k, add_const(k, keys, -1), shift), 1);
  val end = nodes;
  if (plan->causal)
    end = node_reads_children(plan) ? shift_right_signed(k, add_const(k, w->t, 1), shift)
                                    : add_const(k, shift_right_signed(k, w->t, shift), 1);
  val index = add_const(k, get(k, w->parents), -1), rows = i32(k, walk_parent_rows(w->plan));
  bool own_is_last = plan->causal && plan->current;
  val last = own_is_last ? shift_right(k, w->own, walk_shift(k, w, add_const(k, depth, 1)))
                         : walk_kept(k, w, index);
  val first = mul(k, last, rows), count = sub(k, end, first);
  if (!own_is_last || !node_reads_children(plan)) /* else t is one of its tokens */
    count = smax(k, i32(k, 0), smin(k, count, rows));
  m->end = add(k, mul(k, index, rows), count);
  if (!plan->causal) {
    val tokens = sub(k, keys, shift_left(k, add_const(k, nodes, -1), shift));
    val full = to_float(k, shift_left(k, i32(k, 1), shift));
    val part = mul(k, to_float(k, tokens), reciprocal_approx(k, full));
    val is_last = is_eq(k, add(k, first, count), nodes);
    m->weight = choose(k, is_last, part, f32(k, 1));
  }
}

/* What the own node of |depth| is worth to each head by those of its children that are full and in
   the past: their mean, with mass plus its weight; unscaled. Returns whether some are not (i1):
   else it is judged as others are. */
static val own_score(struct ir *k, const struct walk *w, val depth, val out[NODE_MAX_SLOTS]) {
  const struct plan_pyramid *plan = w->plan;
  int g = plan->children;
  val own = shift_right_signed(k, w->own, walk_shift(k, w, depth));
  val child_shift = add_const(k, read_shift(k, w, depth), -log2_from(g));
  val end = shift_right_signed(k, add_const(k, w->t, 1), child_shift);
  val first = mul_const(k, own, g), count = smax(k, i32(k, 0), sub(k, end, first));
  val child = smin(k, mma_lane_row(k, &w->lanes), smax(k, add_const(k, count, -1), i32(k, 0)));
  val rows = walk_level_rows(k, w, depth);
  val row =
      walk_lane_base(k, w, at(k, rows, mul_const(k, widen(k, first), walk_row_bytes(w))), child);
  struct node_logits x;
  node_multiply(k, plan, &w->q, 1, &row, &x);
  val n = to_float(k, count), part = reciprocal_approx(k, n), bonus = f32(k, 0);
  if (plan_is_mass(plan)) {
    val log = log2_approx(k, mul(k, n, f32(k, 1.0 / g)));
    bonus = mul(k, log, reciprocal_approx(k, log2_units(k, WALK_ARG(scale))));
  }
  val none = is_le(k, count, i32(k, 0)), column = bit_and(k, w->lanes.lane, i32(k, 3));
  for (int s = 0; s < node_slots(plan); s++) {
    val sum = f32(k, 0), base = warp_first(k, x.x[0][s][0], FOUR);
    for (int q = 0; q < 2; q++) {
      val place = add_const(k, mul_const(k, column, 2), q), d = sub(k, x.x[0][s][q], base);
      sum = add(k, sum, choose(k, is_lt(k, place, count), d, f32(k, 0)));
    }
    val mean = fused(k, quad_sum(k, sum), part, base); /* of equal ones their bits */
    out[s] = choose(k, none, f32(k, -INFINITY), add(k, mean, bonus));
  }
  return is_lt(k, count, i32(k, g));
}

/* Puts |own| in the place |end| - 1 of the columns. */
static void place_own(struct ir *k, const struct walk *w, val end, const val *own,
                      struct node_logits *x) {
  val column = bit_and(k, w->lanes.lane, i32(k, 3)), place = sub(k, end, column);
  for (int j = 0; j < x->tiles; j++)
    for (int q = 0; q < 2; q++) {
      val here = is_eq(k, place, i32(k, TILE * j + FOUR * q + 1));
      for (int s = 0; s < node_slots(w->plan); s++)
        x->x[j][s][q] = choose(k, here, own[s], x->x[j][s][q]);
    }
}

struct walk_mask walk_mask_of(struct ir *k, const struct walk *w, val depth) {
  struct walk_mask m = {.masks = walk_has_partial(w->plan), .judges = judges_own(w->plan)};
  if (m.masks)
    set_reach(k, w, depth, &m);
  if (m.judges) {
    val is_partial = own_score(k, w, depth, m.own);
    val last = walk_node(k, w, add_const(k, m.end, -1));
    val own = shift_right_signed(k, w->own, walk_shift(k, w, depth));
    m.has_own = both(k, is_partial, is_eq(k, last, own));
  }
  return m;
}

/* Only the last tile, where all of K parents are there. */
static void mask_few(struct ir *k, const struct walk *w, const struct walk_mask *m,
                     struct node_logits *x) {
  struct node_logits cut = *x;
  struct var kept[NODE_MAX_TILES][NODE_MAX_SLOTS][2];
  const int last = x->tiles - 1, slots = node_slots(w->plan);
  for (int i = 0; i < 2 * slots * last; i++)
    kept[i / 2 / slots][i / 2 % slots][i % 2] =
        var_init(k, x->x[i / 2 / slots][i / 2 % slots][i % 2]);
  IF (k, is_lt(k, m->end, i32(k, TILE * last))) {
    node_mask(k, w->plan, &w->lanes, WALK_ARG(scale), 0, m->end, m->weight, &cut);
    for (int i = 0; i < 2 * slots * last; i++)
      set(k, kept[i / 2 / slots][i / 2 % slots][i % 2], cut.x[i / 2 / slots][i / 2 % slots][i % 2]);
  }
  for (int i = 0; i < 2 * slots * last; i++)
    x->x[i / 2 / slots][i / 2 % slots][i % 2] = get(k, kept[i / 2 / slots][i / 2 % slots][i % 2]);
  node_mask(k, w->plan, &w->lanes, WALK_ARG(scale), last, m->end, m->weight, x);
}

/* Log-sum-exps without weights need no more of a column left out than its logit. */
static bool masks_few(const struct walk *w, const struct walk_mask *m,
                      const struct node_logits *x) {
  return w->plan->score == SCORE_LSE && is_null(m->weight) && x->tiles > 1;
}

void walk_mask_apply(struct ir *k, const struct walk *w, const struct walk_mask *m, val begin,
                     bool all, struct node_logits *x) {
  if (!m->masks)
    return;
  if (all && masks_few(w, m, x)) {
    mask_few(k, w, m, x);
    return;
  }
  val end = sub(k, m->end, begin);
  node_mask(k, w->plan, &w->lanes, WALK_ARG(scale), 0, end, m->weight, x);
  if (m->judges)
    place_own(k, w, choose(k, m->has_own, end, i32(k, -1)), m->own, x);
}
