/* pick_warp.c: one row by one warp, keys of candidates in shared memory; see pick.h. For as many
   candidates and heads as there may be: scores are read where they are needed.

   With mass the worth of a leaf is the sum (or maximum) over heads of its part of the softmax over
   all candidates: those that are ranked, the own leaf and a forced previous one, and what |forced|
   says of the other forced leaves. A lane has a head and every so many-th candidate. */
#include <math.h>

#include "compiler/kernels/best.h"
#include "compiler/kernels/cluster.h"
#include "compiler/kernels/pick.h"

int pick_warp_bytes(const struct plan_pyramid *plan) {
  return (plan->keep * plan->children + WARP - 1) / WARP * WARP * WORD;
}

struct chooser {
  const struct pick *a;
  const struct pick_row *row;
  val keys; /* shared */
};

static val leaf_of(struct ir *k, const struct pick *a, const struct pick_row *row, val candidate) {
  const int g = a->plan->children;
  val slot = udiv(k, candidate, i32(k, g)), child = bit_and(k, candidate, i32(k, g - 1));
  val parent = load(k, k->i32, at(k, row->kept, mul_const(k, slot, WORD)), WORD);
  return add(k, mul_const(k, parent, g), child);
}

static val is_visible(struct ir *k, const struct pick_row *row, val leaf) {
  return is_ugt(k, row->visible, leaf);
}

/* ---- scores of groups ---- */

static void rank_scores(struct ir *k, const struct chooser *c) {
  const struct pick *a = c->a;
  val scores = at_row(k, ARG(scores), c->row->row, i32(k, a->slots * WORD));
  FOR_STEP(k, candidate, a->lanes.lane, i32(k, a->candidates), i32(k, WARP)) {
    val offset = mul_const(k, candidate, WORD), leaf = leaf_of(k, a, c->row, candidate);
    val score = load(k, k->f32, at(k, scores, offset), WORD);
    val forced = pick_is_forced(k, a, c->row, leaf);
    val ranked = choose(k, forced, i32(k, BEST_FORCED), best_key(k, score));
    val key = choose(k, is_visible(k, c->row, leaf), ranked, i32(k, BEST_ABSENT));
    store(k, key, at(k, c->keys, offset), WORD);
  }
}

/* ---- parts of a softmax ---- */

struct parts {
  int heads;   /* lanes of a candidate: G, up to a power of two */
  val head;    /* of this lane */
  val is_head; /* there is such a one */
  val first;   /* candidate of this lane, then every 32 / heads-th */
  val scores;  /* of the row, at this lane's head */
};

static struct parts parts_new(struct ir *k, const struct chooser *c) {
  const struct pick *a = c->a;
  struct parts p = {.heads = power_of_two_from(a->plan->group)};
  p.head = bit_and(k, a->lanes.lane, i32(k, p.heads - 1));
  p.is_head = is_lt(k, p.head, i32(k, a->plan->group));
  p.first = udiv(k, a->lanes.lane, i32(k, p.heads));
  const int row_bytes = a->slots * a->plan->group * WORD;
  val row = at_row(k, ARG(scores), c->row->row, i32(k, row_bytes));
  p.scores = at(k, row, mul_const(k, p.head, WORD));
  return p;
}

/* log2 score of a slot for the lane's head where |is_there|, else -inf. */
static val score_at(struct ir *k, const struct pick *a, const struct parts *p, val slot,
                    val is_there) {
  val from = at(k, p->scores, mul_const(k, slot, a->plan->group * WORD));
  val none = bits_of(k, f32(k, -INFINITY));
  return float_of(k, load_if(k, both(k, is_there, p->is_head), from, none));
}

/* Of candidate |candidate|, if it is visible and ranked. */
static val ranked_score(struct ir *k, const struct chooser *c, const struct parts *p, val candidate,
                        val *leaf, val *is_ranked) {
  val last = i32(k, c->a->candidates - 1), is_one = is_le(k, candidate, last);
  val which = smin(k, candidate, last);
  *leaf = leaf_of(k, c->a, c->row, which);
  val ranked =
      both(k, is_visible(k, c->row, *leaf), bit_not(k, pick_is_forced(k, c->a, c->row, *leaf)));
  *is_ranked = both(k, is_one, ranked);
  return score_at(k, c->a, p, which, *is_ranked);
}

static void add_part(struct ir *k, struct var most, struct var sum, val x, bool sums) {
  if (!sums)
    set(k, most, maximum(k, get(k, most), x));
  else
    set(k, sum, add(k, get(k, sum), exp2_approx(k, sub(k, x, get(k, most)))));
}

/* log2 of the sum over candidates, of the lane's head; |most| is 0 where there are none, so that
   2^(-inf - most) is 0. */
static val all_parts(struct ir *k, const struct chooser *c, const struct parts *p) {
  const struct pick *a = c->a;
  struct var most = var_init(k, f32(k, -INFINITY)), sum = var_init(k, f32(k, 0));
  val is_first = is_eq(k, p->first, i32(k, 0));
  val near = cluster_near_slot(k, a->plan, c->row->own);
  val previous = pick_is_forced(k, a, c->row, add_const(k, c->row->own, -1));
  val sink = at_row(k, ARG(forced), c->row->row, i32(k, a->plan->group * WORD));
  const val others[] = {
      score_at(k, a, p, near, both(k, is_first, previous)),
      score_at(k, a, p, add_const(k, near, 1), is_first),
      float_of(k, load_if(k, both(k, is_first, p->is_head),
                          at(k, sink, mul_const(k, p->head, WORD)), bits_of(k, f32(k, -INFINITY)))),
  };
  for (int sums = 0; sums < 2; sums++) {
    FOR_STEP(k, candidate, p->first, i32(k, a->candidates), i32(k, WARP / p->heads)) {
      val leaf, is_ranked;
      add_part(k, most, sum, ranked_score(k, c, p, candidate, &leaf, &is_ranked), sums);
    }
    for (int i = 0; i < 3; i++)
      add_part(k, most, sum, others[i], sums);
    for (int lanes = p->heads; lanes < WARP; lanes *= 2) {
      val mine = get(k, sums ? sum : most), other = warp_across(k, mine, lanes);
      set(k, sums ? sum : most, sums ? add(k, mine, other) : maximum(k, mine, other));
    }
    if (!sums)
      set(k, most, choose(k, is_eq(k, get(k, most), f32(k, -INFINITY)), f32(k, 0), get(k, most)));
  }
  return add(k, get(k, most), log2_approx(k, get(k, sum)));
}

static void rank_parts(struct ir *k, const struct chooser *c) {
  const struct pick *a = c->a;
  struct parts p = parts_new(k, c);
  val all = all_parts(k, c, &p);
  FOR_STEP(k, base, i32(k, 0), i32(k, a->candidates), i32(k, WARP / p.heads)) {
    val candidate = add(k, base, p.first), leaf, is_ranked;
    val x = ranked_score(k, c, &p, candidate, &leaf, &is_ranked);
    val none = is_eq(k, x, f32(k, -INFINITY));
    val part = choose(k, none, f32(k, 0), exp2_approx(k, sub(k, x, all)));
    for (int lanes = 1; lanes < p.heads; lanes *= 2) {
      val other = warp_across(k, part, lanes);
      part = a->plan->reduce == REDUCE_MASS ? add(k, part, other) : maximum(k, part, other);
    }
    val key = choose(k, is_ranked, best_key(k, part), i32(k, BEST_FORCED));
    key = choose(k, is_visible(k, c->row, leaf), key, i32(k, BEST_ABSENT));
    val writes = is_lt(k, candidate, i32(k, a->candidates));
    IF (k, both(k, writes, is_eq(k, p.head, i32(k, 0)))) {
      store(k, key, at(k, c->keys, mul_const(k, candidate, WORD)), WORD);
    }
  }
}

/* ---- lists ---- */

static void put_best(struct ir *k, void *context, val candidate, val key, val place) {
  const struct chooser *c = context;
  pick_put(k, c->row, place, leaf_of(k, c->a, c->row, candidate), pick_worth(k, c->a, key));
}

void pick_put_keys(struct ir *k, const struct pick *a, const struct pick_row *row, val keys) {
  struct chooser c = {a, row, keys};
  val n = i32(k, a->candidates);
  val count = best_of_keys(k, &a->lanes, a->plan->keep, n, a->candidates, keys, put_best, &c);
  pick_put_rest(k, a, row, count, i32(k, 0), a->lanes.lane, WARP);
}

void pick_by_warp(struct ir *k, const struct pick *a, val query) {
  struct pick_row row = pick_row_of(k, a, query);
  IF (k, is_le(k, row.visible, i32(k, a->plan->keep))) {
    pick_put_rest(k, a, &row, i32(k, 0), row.visible, a->lanes.lane, WARP);
  }
  ELSE (k) {
    val keys = at(k, k->smem, mul_const(k, a->lanes.warp, pick_warp_bytes(a->plan)));
    struct chooser c = {a, &row, keys};
    warp_sync(k); /* keys of the row before have been read */
    if (plan_is_mass(a->plan))
      rank_parts(k, &c);
    else
      rank_scores(k, &c);
    pick_put_keys(k, a, &row, keys);
  }
}
