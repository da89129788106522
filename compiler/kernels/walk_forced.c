/* walk_forced.c: in go the forced leaves of a plan and a row's position; out come tests of nodes.
 */
#include <assert.h>

#include "compiler/kernels/walk.h"

/* Whether a range of leaves that are not seen can only name the own leaf's nodes, forced anyway. */
static bool own_forced(const struct plan_pyramid *plan) {
  return plan->causal && plan->current;
}

/* Ranges that begin behind the last leaf seen name nothing. */
static val seen_first(struct ir *k, const struct walk *w, val first) {
  if (own_forced(w->plan))
    return first;
  return choose(k, is_le(k, first, w->last), first, i32(k, INT32_MAX));
}

static struct walk_range range_of(struct ir *k, const struct walk *w,
                                  const struct always_tokens *a) {
  const int64_t C = w->plan->leaf;
  switch (a->kind) {
  case ALWAYS_TOKENS_FIRST:
    return (struct walk_range){.last = i32(k, (a->end - 1) / C)};
  case ALWAYS_TOKENS_LAST: {
    val begin = smax(k, add_const(k, w->s.keys, -a->end), i32(k, 0));
    val leaf = shift_right(k, begin, i32(k, log2_from(w->plan->leaf)));
    return (struct walk_range){.first = seen_first(k, w, leaf)};
  }
  case ALWAYS_RANGE:
    break;
  }
  return (struct walk_range){.first = seen_first(k, w, i32(k, a->begin / C)),
                             .last = i32(k, (a->end - 1) / C)};
}

static bool is_empty(const struct always_tokens *a) {
  return a->end <= 0 || (a->kind == ALWAYS_RANGE && a->begin >= a->end);
}

/* The previous leaf, the own one or both; below 0 there are none. */
static struct walk_range near_range(struct ir *k, const struct walk *w) {
  bool to_end = w->plan->current && w->plan->causal;
  struct walk_range r = {.first = w->plan->previous ? add_const(k, w->own, -1) : w->own};
  if (!to_end)
    r.last = w->plan->current ? w->own : add_const(k, w->own, -1);
  return r;
}

void walk_ranges(struct ir *k, struct walk *w) {
  w->ranges = 0;
  for (int i = 0; i < w->plan->n_always; i++)
    if (!is_empty(&w->plan->always[i]))
      w->range[w->ranges++] = range_of(k, w, &w->plan->always[i]);
  if (w->plan->previous || w->plan->current)
    w->range[w->ranges++] = near_range(k, w);
  assert(w->ranges <= WALK_MAX_RANGES);
}

val walk_is_forced(struct ir *k, const struct walk *w, val node, val shift) {
  val forced = is_lt(k, node, i32(k, 0));
  for (int i = 0; i < w->ranges; i++) {
    const struct walk_range *r = &w->range[i];
    val in = {0};
    if (!is_null(r->first))
      in = is_ge(k, node, shift_right_signed(k, r->first, shift));
    if (!is_null(r->last)) {
      val before = is_le(k, node, shift_right_signed(k, r->last, shift));
      in = is_null(in) ? before : both(k, in, before);
    }
    forced = i == 0 ? in : either(k, forced, in);
  }
  return forced;
}

val walk_has_unforced(struct ir *k, const struct walk *w, val parent) {
  val first = mul_const(k, parent, w->plan->children), any = is_lt(k, parent, parent);
  for (int r = 0; r < w->plan->children; r++) {
    val leaf = add_const(k, first, r), seen = is_le(k, leaf, w->last);
    val forced = walk_is_forced(k, w, leaf, i32(k, 0));
    any = either(k, any, both(k, seen, bit_not(k, forced)));
  }
  return any;
}
