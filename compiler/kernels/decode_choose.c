/* decode_choose.c: in go keys of up to 32 candidates, or their heads' scores; out come those that
   one warp keeps of them. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/decode.h"

enum { WARP = 32 };
static const double LEAST = -1e30; /* finite, below every score that counts */

struct decode_lanes decode_lanes_of(struct ir *k, const struct decode *d) {
  struct decode_lanes x = {.n = d->plan.keep * d->plan.children};
  assert(x.n <= WARP);
  x.copy = x.n <= WARP / 2 ? WARP / 2 : 0;
  x.candidate = x.copy ? bit_and(k, d->w.lanes.lane, i32(k, x.copy - 1)) : d->w.lanes.lane;
  x.first = is_lt(k, d->w.lanes.lane, i32(k, x.copy ? x.copy : WARP));
  return x;
}

/* ---- heads' parts of a softmax ---- */

/* Lane h + |heads| c has head h of candidates c, c + WARP / heads, ... */
struct heads {
  int heads, rounds; /* powers of two; candidates of a lane */
  val head, first;
  val exists; /* i1: there is such a head */
};

static struct heads heads_of(struct ir *k, const struct decode *d, int n) {
  struct heads h = {.heads = power_of_two_from(d->plan.group)};
  const int at_once = WARP / h.heads;
  h.rounds = power_of_two_from((n + at_once - 1) / at_once);
  h.head = bit_and(k, d->w.lanes.lane, i32(k, h.heads - 1));
  h.first = shift_right(k, d->w.lanes.lane, i32(k, log2_from(h.heads)));
  h.exists = is_lt(k, h.head, i32(k, d->plan.group));
  return h;
}

static val over_candidates(struct ir *k, const struct heads *h, val v, bool sum) {
  for (int distance = h->heads; distance < WARP; distance *= 2) {
    val other = warp_across(k, v, distance);
    v = sum ? add(k, v, other) : maximum(k, v, other);
  }
  return v;
}

/* This lane's scores: of its head, of seen candidates. */
static void load_scores(struct ir *k, const struct decode *d, const struct walk *w,
                        const struct heads *h, val slot, val seen, val *x) {
  const int at_once = WARP / h->heads;
  val mask = warp_ballot(k, seen);
  val head = smin(k, h->head, i32(k, d->plan.group - 1));
  val scores = at(k, w->scores, mul_const(k, head, WALK_WORD));
  for (int j = 0; j < h->rounds; j++) {
    val lane = add_const(k, h->first, (int64_t)j * at_once);
    val bytes = mul_const(k, warp_read(k, slot, lane), node_scores_bytes(&d->plan));
    val bit = bit_and(k, shift_right(k, mask, lane), i32(k, 1));
    val counts = both(k, h->exists, is_ne(k, bit, i32(k, 0)));
    x[j] = choose(k, counts, load(k, k->f32, at(k, scores, bytes), WALK_WORD), f32(k, -INFINITY));
  }
}

/* |n| values of candidates, of each head: joined over the lanes of all heads, one a lane. Of lanes
   alike in the upper bits of their head all have the same. */
static val join_heads(struct ir *k, const struct decode *d, const struct heads *h, val *v) {
  bool sums = d->plan.reduce == REDUCE_MASS;
  int left = h->rounds;
  for (int distance = h->heads / 2; distance >= 1; distance /= 2) {
    val upper = is_ne(k, bit_and(k, d->w.lanes.lane, i32(k, distance)), i32(k, 0));
    int half = left / 2;
    for (int u = 0; u < (half > 0 ? half : 1); u++) {
      val mine = half > 0 ? choose(k, upper, v[u + half], v[u]) : v[u];
      val other = half > 0 ? choose(k, upper, v[u], v[u + half]) : v[u];
      other = warp_across(k, other, distance);
      v[u] = sums ? add(k, mine, other) : maximum(k, mine, other);
    }
    left = half > 0 ? half : 1;
  }
  assert(left == 1);
  return v[0];
}

/* Heads' parts of the softmax over the candidates, joined: of this lane's candidate. */
static val share_of(struct ir *k, const struct decode *d, const struct walk *w,
                    const struct decode_lanes *x, val slot, val seen) {
  const struct heads h = heads_of(k, d, x->n);
  const int at_once = WARP / h.heads, spare = log2_from(h.heads / h.rounds);
  assert(h.rounds <= h.heads);
  val e[WARP], most = f32(k, LEAST), sum = f32(k, 0);
  load_scores(k, d, w, &h, slot, both(k, seen, x->first), e);
  for (int j = 0; j < h.rounds; j++)
    most = maximum(k, most, e[j]);
  most = over_candidates(k, &h, most, false);
  for (int j = 0; j < h.rounds; j++) {
    e[j] = exp2_approx(k, sub(k, e[j], most));
    sum = add(k, sum, e[j]);
  }
  sum = maximum(k, over_candidates(k, &h, sum, true), f32(k, 1e-30));
  val inverse = reciprocal_approx(k, sum);
  for (int j = 0; j < h.rounds; j++)
    e[j] = mul(k, e[j], inverse);
  val worth = join_heads(k, d, &h, e), round = shift_right(k, h.head, i32(k, spare));
  val candidate = add(k, h.first, mul_const(k, round, at_once));
  store_shared_if(k, is_eq(k, bit_and(k, h.head, i32(k, (1 << spare) - 1)), i32(k, 0)),
                  bits_of(k, worth), at(k, d->worths, mul_const(k, candidate, WALK_WORD)));
  warp_sync(k);
  return load(k, k->f32, at(k, d->worths, mul_const(k, x->candidate, WALK_WORD)), WALK_WORD);
}

/* ---- the choice ---- */

static val key_in(struct ir *k, const struct walk *w, val slot) {
  return load(k, k->i32, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
}

/* Its key, as it is forced, |forced| or not seen, which those that a warp has left may not tell. */
static val complete_key(struct ir *k, const struct decode *d, const struct walk *w,
                        const struct decode_lanes *x, val slot, val node, val depth, val forced) {
  val shift = walk_shift(k, w, depth), exists = is_lt(k, x->candidate, i32(k, x->n));
  val seen = both(k, exists, is_le(k, node, shift_right_signed(k, w->last, shift)));
  val named = walk_is_forced(k, w, node, shift), key;
  if (!is_null(forced))
    named = either(k, named, forced);
  if (plan_is_mass(&d->plan))
    key = best_key(k, share_of(k, d, w, x, slot, seen));
  else
    key = key_in(k, w, slot);
  key = choose(k, named, i32(k, BEST_FORCED), key);
  return choose(k, seen, key, i32(k, BEST_ABSENT));
}

static struct best best_of(struct ir *k, const struct decode *d, const struct decode_lanes *x,
                           val key) {
  return best_of_lanes(k, &d->w.lanes, d->plan.keep, x->n, x->candidate, x->first, x->copy, key,
                       d->lanes);
}

struct best decode_best_nodes(struct ir *k, const struct decode *d, const struct walk *w,
                              const struct decode_lanes *x, val slot, val node, val depth,
                              val *key) {
  const val no = {0};
  if (walk_has_partial(&d->plan)) {
    *key = complete_key(k, d, w, x, slot, node, depth, no);
  } else { /* those of all slots are there, of nodes that are not seen too */
    *key = key_in(k, w, slot);
    if (x->n != WARP && x->n != x->copy)
      *key = choose(k, is_lt(k, x->candidate, i32(k, x->n)), *key, i32(k, BEST_ABSENT));
  }
  return best_of(k, d, x, *key);
}

struct best decode_best_leaves(struct ir *k, const struct decode *d, const struct decode_lanes *x,
                               val slot, val all, val *leaf, val *key) {
  *leaf = walk_node(k, &d->w, slot);
  *key = complete_key(k, d, &d->w, x, slot, *leaf, i32(k, 0), all);
  return best_of(k, d, x, *key);
}
