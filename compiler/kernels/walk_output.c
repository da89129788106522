/* walk_output.c: in goes what a row keeps; out go lists for the caller, or parents for cluster and
   scatter. */
#include <math.h>

#include "compiler/kernels/cluster.h"
#include "compiler/kernels/walk.h"
#include "runtime/abi.def"

static const double LN2 = 0.69314718055994530942;

/* ---- ids and worth ---- */

static val list_place(struct ir *k, const struct walk *w, val array, val place) {
  val row = sequence_list_row(k, &w->s, w->query, w->kv_head);
  val bytes = at_row(k, array, row, i32(k, w->plan->keep * WALK_WORD));
  return at(k, bytes, mul_const(k, widen(k, place), WALK_WORD));
}

static void write_entry(struct ir *k, const struct walk *w, val place, val id, val worth) {
  store(k, id, list_place(k, w, WALK_ARG(ids), place), WALK_WORD);
  IF (k, bit_not(k, is_null_pointer(k, WALK_ARG(worth)))) {
    store(k, worth, list_place(k, w, WALK_ARG(worth), place), WALK_WORD);
  }
}

/* i1: |leaf| was the only candidate, so it is kept unranked. Of K nodes only one can have so few
   children: its last ones. A walk that begins at the leaves has more candidates than K. */
static val is_alone(struct ir *k, const struct walk *w, val leaf) {
  val place = bit_and(k, leaf, i32(k, w->plan->children - 1)); /* among its parent's */
  val alone = both(k, is_eq(k, place, i32(k, 0)), is_eq(k, leaf, w->last));
  return both(k, alone, is_ge(k, leaf, i32(k, w->plan->start_nodes)));
}

void walk_write_leaf(struct ir *k, void *context, val leaf, val key, val place) {
  const struct walk *w = context;
  val forced = is_eq(k, key, i32(k, BEST_FORCED)), worth = best_worth(k, key);
  if (w->plan->keep == 1 && !walk_reads_keys(w->plan)) /* else their keys say so */
    forced = either(k, forced, is_alone(k, w, leaf));
  if (!plan_is_mass(w->plan))
    worth = mul(k, worth, f32(k, LN2));
  write_entry(k, w, place, leaf, choose(k, forced, f32(k, INFINITY), worth));
}

/* Entries lane, lane + 32, ... of |keep|, from |first| on. */
static void write_entries(struct ir *k, const struct walk *w, val first, val end, bool all) {
  for (int i = 0; i < w->plan->keep; i += 32) {
    val place = add_const(k, w->lanes.lane, i);
    IF (k, both(k, is_ge(k, place, first), is_lt(k, place, i32(k, w->plan->keep)))) {
      val seen = is_lt(k, place, end);
      val id = choose(k, seen, place, i32(k, -1));
      write_entry(k, w, place, all ? id : i32(k, -1),
                  choose(k, seen, f32(k, INFINITY), f32(k, -INFINITY)));
    }
  }
}

void walk_write_all(struct ir *k, const struct walk *w) {
  write_entries(k, w, i32(k, 0), add_const(k, w->last, 1), true);
}

void walk_write_rest(struct ir *k, const struct walk *w, val count) {
  write_entries(k, w, count, i32(k, 0), false);
}

/* ---- parents ---- */

/* Whether the pair is in the parent's cluster: see cluster.h. */
static val wants_scores(struct ir *k, const struct walk *w, val parent, val seen) {
  val wanted = cluster_has_singles(w->plan)
                   ? bit_not(k, walk_is_forced(k, w, parent, i32(k, log2_from(w->plan->children))))
                   : walk_has_unforced(k, w, parent);
  return both(k, seen, wanted);
}

static val counter(struct ir *k, const struct walk *w, val parent) {
  val log2_chunk = sub(k, i32(k, 31), count_leading_zeros(k, WALK_ARG(chunk)));
  val group = shift_right(k, w->query, log2_chunk); /* chunk is a power of two */
  val segment = add(k, mul(k, group, SEQUENCE_ARG(kv_heads)), w->kv_head);
  val row = at_row(k, WALK_ARG(counts), segment, mul_const(k, WALK_ARG(parents), WALK_WORD));
  return at(k, row, mul_const(k, widen(k, add(k, w->parent_base, parent)), WALK_WORD));
}

static val row_place(struct ir *k, const struct walk *w, val array, val row, val place) {
  val mine = at_row(k, array, row, i32(k, w->plan->keep * WALK_WORD));
  return at(k, mine, mul_const(k, widen(k, place), WALK_WORD));
}

/* Lane |place| of the row that was written last: only now its place in the cluster is known. */
static void write_position(struct ir *k, const struct walk *w, val place) {
  val row = get(k, w->pending_row);
  IF (k, both(k, is_ge(k, row, i32(k, 0)), is_lt(k, place, i32(k, w->plan->keep)))) {
    store(k, get(k, w->pending), row_place(k, w, WALK_ARG(positions), row, place), WALK_WORD);
  }
}

void walk_flush(struct ir *k, const struct walk *w) {
  write_position(k, w, w->lanes.lane);
}

static void write_parent(struct ir *k, const struct walk *w, val row, val place, val small) {
  int shift = log2_from(w->plan->children);
  val node = load(k, k->i32, walk_kept_at(k, w, place), WALK_WORD);
  val seen = is_le(k, node, shift_right_signed(k, w->last, i32(k, shift)));
  val out = row_place(k, w, WALK_ARG(kept), row, place);
  store(k, choose(k, seen, node, i32(k, -1)), out, WALK_WORD);
  set(k, w->pending, i32(k, -1));
  IF (k, both(k, bit_not(k, small), wants_scores(k, w, node, seen))) {
    set(k, w->pending, atomic_add(k, counter(k, w, node), i32(k, 1)));
  }
}

void walk_write_parents(struct ir *k, const struct walk *w, val small) {
  val row = sequence_row(k, w->query, w->kv_head);
  for (int i = 0; i < w->plan->keep; i += 32) {
    val place = add_const(k, w->lanes.lane, i);
    write_position(k, w, i == 0 ? place : add_const(k, place, -32));
    IF (k, is_lt(k, place, i32(k, w->plan->keep))) {
      write_parent(k, w, row, place, small);
    }
    set(k, w->pending_row, row);
  }
  if (w->plan->keep > 32) {
    write_position(k, w, add_const(k, w->lanes.lane, (w->plan->keep - 1) / 32 * 32));
    set(k, w->pending_row, i32(k, -1));
  }
}

/* ---- the sink ---- */

/* i1: leaf 0 is forced by a range, and neither the own nor the previous leaf. */
static val sink_counts(struct ir *k, const struct walk *w) {
  val forced = walk_is_forced(k, w, i32(k, 0), i32(k, 0));
  return both(k, forced, is_lt(k, i32(k, 1), w->own));
}

void walk_write_sink(struct ir *k, const struct walk *w) {
  const struct plan_pyramid *plan = w->plan;
  val counts = sink_counts(k, w), cs = log2_units(k, WALK_ARG(scale));
  struct node_logits x;
  val first_mean = at(k, w->rows, mma_lane_bytes(k, &w->lanes));
  node_multiply(k, plan, &w->q, 1, &first_mean, &x);
  val row = sequence_row(k, w->query, w->kv_head);
  val out = at_row(k, WALK_ARG(forced), row, i32(k, plan->group * WALK_WORD));
  val first = is_eq(k, bit_and(k, w->lanes.lane, i32(k, 3)), i32(k, 0));
  for (int s = 0; s < node_slots(plan); s++) {
    val head = add_const(k, mma_lane_row(k, &w->lanes), (int64_t)s * 8);
    val score = fused(k, cs, x.x[0][s][0], f32(k, log2_from(plan->leaf)));
    score = choose(k, counts, maximum(k, score, f32(k, -INFINITY)), f32(k, -INFINITY));
    val exists = both(k, first, is_lt(k, head, i32(k, plan->group)));
    store_if(k, exists, score, at(k, out, mul_const(k, head, WALK_WORD)));
  }
}
