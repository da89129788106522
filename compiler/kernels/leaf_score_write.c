/* Scores of heads -> those of groups, and to memory; see leaf_score.h. */
#include <math.h>

#include "compiler/kernels/leaf_score.h"

struct aim aim_new(struct ir *k, const struct leaf_score *a) {
  struct aim t = {.at = var_init(k, i32(k, -1)), .name = var_init(k, i32(k, 0))};
  if (plan_is_mass(a->plan))
    t.near = var_init(k, i32(k, 0));
  return t;
}

void aim_copy(struct ir *k, const struct leaf_score *a, const struct aim *to,
              const struct aim *from) {
  set(k, to->at, get(k, from->at));
  set(k, to->name, get(k, from->name));
  if (plan_is_mass(a->plan))
    set(k, to->near, get(k, from->near));
}

/* ---- over heads ---- */

/* log2 (2^x + 2^y) = most + log2 (1 + 2^-|x - y|); of two equal infinite ones the difference is
   nan, of which the maximum with 0 is 0. */
static val log_add(struct ir *k, val x, val y) {
  val most = maximum(k, x, y), apart = maximum(k, sub(k, most, x), sub(k, most, y));
  val part = exp2_approx(k, negate(k, maximum(k, apart, f32(k, 0))));
  return add(k, most, log2_approx(k, add(k, part, f32(k, 1))));
}

static val joined(struct ir *k, const struct leaf_score *a, val x, val y) {
  return a->plan->reduce == REDUCE_MAX   ? maximum(k, x, y)
         : a->plan->reduce == REDUCE_LSE ? log_add(k, x, y)
                                         : add(k, x, y);
}

/* Over the heads of a tile, which are spread over lanes and, with 16 of them, over both rows. */
static val over_heads(struct ir *k, const struct leaf_score *a, val x) {
  for (int heads = 1, distance = 4; heads < a->head_rows && heads < 8; heads *= 2, distance *= 2)
    x = joined(k, a, x, warp_across(k, x, distance));
  return a->head_rows == WARP_ROWS ? joined(k, a, x, warp_across(k, x, 2)) : x;
}

/* ---- to memory ---- */

static val head_in_tile(struct ir *k, const struct leaf_score *a) {
  val lower = bit_and(k, shift_right(k, a->lanes.lane, i32(k, 1)), i32(k, 1));
  val row = add(k, shift_right(k, a->lanes.lane, i32(k, 2)), mul_const(k, lower, 8));
  return bit_and(k, row, i32(k, a->head_rows - 1));
}

static val is_second_pass(struct ir *k, const struct aim *aim) {
  return is_ne(k, bit_and(k, get(k, aim->name), i32(k, 1)), i32(k, 0));
}

/* Slot of pair |pair|'s leaf, and whether it has one: of a NEAR item halves begin with its leaves.
 */
static val slot_of(struct ir *k, const struct leaf_score *a, const struct aim *aim, int pair,
                   val *is_there) {
  val at = get(k, aim->at), slot = add_const(k, at, 2 * pair);
  *is_there = is_ge(k, at, i32(k, 0));
  if (!plan_is_mass(a->plan) || a->pairs == 1)
    return slot;
  val is_near = is_ne(k, get(k, aim->near), i32(k, 0));
  val is_first = is_eq(k, bit_and(k, a->lanes.lane, i32(k, 1)), i32(k, 0));
  bool begins = pair == 0 || pair == a->pairs / 2;
  val has = begins ? either(k, bit_not(k, is_near), is_first) : bit_not(k, is_near);
  *is_there = both(k, *is_there, has);
  return choose(k, is_near, add_const(k, at, pair != 0), slot);
}

static void write_heads(struct ir *k, const struct leaf_score *a, const struct aim *aim,
                        const val *score) {
  val head = head_in_tile(k, a);
  if (a->passes == 2)
    head = add(k, head, choose(k, is_second_pass(k, aim), i32(k, WARP_ROWS), i32(k, 0)));
  val is_head = is_lt(k, head, i32(k, a->plan->group));
  for (int p = 0; p < a->pairs; p++) {
    val is_there, slot = slot_of(k, a, aim, p, &is_there);
    val row = at_row(k, ARG(scores), slot, i32(k, a->plan->group * WORD));
    store_if(k, both(k, is_there, is_head), score[p], at(k, row, mul_const(k, head, WORD)));
  }
}

static void write_groups(struct ir *k, const struct leaf_score *a, const struct aim *aim,
                         const val *score, const struct var *carry) {
  val none = f32(k, a->plan->reduce == REDUCE_MAX || a->plan->reduce == REDUCE_LSE ? -INFINITY : 0);
  val head = head_in_tile(k, a), writes = is_eq(k, head, i32(k, 0));
  val second = a->passes == 2 ? is_second_pass(k, aim) : (val){0};
  if (a->passes == 2) {
    head = add(k, head, choose(k, second, i32(k, WARP_ROWS), i32(k, 0)));
    writes = both(k, writes, second);
  }
  val is_head = is_lt(k, head, i32(k, a->plan->group));
  for (int p = 0; p < a->pairs; p++) {
    bool padded = a->plan->group < a->head_rows * a->passes;
    val x = over_heads(k, a, padded ? choose(k, is_head, score[p], none) : score[p]);
    if (a->passes == 2) {
      val whole = joined(k, a, get(k, carry[p]), x);
      set(k, carry[p], x);
      x = whole;
    }
    val is_there, slot = slot_of(k, a, aim, p, &is_there);
    store_if(k, both(k, is_there, writes), x, at_row(k, ARG(scores), slot, i32(k, WORD)));
  }
}

void aim_write(struct ir *k, const struct leaf_score *a, const struct aim *aim, const val *score,
               const struct var *carry) {
  if (plan_is_mass(a->plan))
    write_heads(k, a, aim, score);
  else
    write_groups(k, a, aim, score, carry);
}
