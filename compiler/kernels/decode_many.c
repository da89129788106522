/* decode_many.c: in go keys of any number of candidates, or their heads' scores; out come those
   that are kept, by all warps of the CTA.

       mass: a softmax over all, a head a warp; shares, a candidate a thread     (a sync each)
       how many keys are greater: 32 candidates a warp, or a part of the others  (a sync)
       one warp adds up the parts: the K of lowest rank, of equal ones the first */
#include <math.h>

#include "compiler/kernels/decode.h"
#include "compiler/sm90/sync.h"

enum { WARP = 32, QUAD = 4, MAX_UNROLLED = 4, MAX_HELD = 8, MAX_RANKED = 32 };
static const double LEAST = -1e30; /* finite, below every score that counts */

static int groups_of(const struct decode *d) {
  return decode_groups(d->w.room.candidates);
}
static val key_at(struct ir *k, const struct decode *d, val slot) {
  return at(k, d->w.keys, mul_const(k, slot, WALK_WORD));
}

/* ---- heads' parts of a softmax ---- */

static val score_at(struct ir *k, const struct decode *d, val slot, val head) {
  val row = at(k, d->w.scores, mul_const(k, slot, node_scores_bytes(&d->plan)));
  return at(k, row, mul_const(k, head, WALK_WORD));
}

static val over_lanes(struct ir *k, val v, bool sum) {
  for (int distance = 1; distance < WARP; distance *= 2) {
    val other = warp_across(k, v, distance);
    v = sum ? add(k, v, other) : maximum(k, v, other);
  }
  return v;
}

/* Scores of |n| candidates become parts. */
static void softmax_loops(struct ir *k, const struct decode *d, val n, val head) {
  struct var most = var_init(k, f32(k, LEAST)), sum = var_init(k, f32(k, 0));
  val lane = d->w.lanes.lane, step = i32(k, WARP);
  FOR_STEP(k, c, lane, n, step) {
    val x = load(k, k->f32, score_at(k, d, c, head), WALK_WORD);
    set(k, most, maximum(k, get(k, most), x));
  }
  val all = over_lanes(k, get(k, most), false);
  FOR_STEP(k, c, lane, n, step) {
    val place = score_at(k, d, c, head);
    val e = exp2_approx(k, sub(k, load(k, k->f32, place, WALK_WORD), all));
    set(k, sum, add(k, get(k, sum), e));
    store(k, e, place, WALK_WORD);
  }
  val inverse = reciprocal_approx(k, maximum(k, over_lanes(k, get(k, sum), true), f32(k, 1e-30)));
  FOR_STEP(k, c, lane, n, step) {
    val place = score_at(k, d, c, head);
    store(k, mul(k, load(k, k->f32, place, WALK_WORD), inverse), place, WALK_WORD);
  }
}

/* The same, in the same order, where a lane's candidates fit registers. */
static void softmax_held(struct ir *k, const struct decode *d, val n, val head) {
  val x[MAX_HELD], most = f32(k, LEAST), sum = f32(k, 0), place[MAX_HELD];
  for (int i = 0; i < groups_of(d); i++) {
    val c = add_const(k, d->w.lanes.lane, (int64_t)i * WARP);
    place[i] = score_at(k, d, c, head);
    x[i] = choose(k, is_lt(k, c, n), load(k, k->f32, place[i], WALK_WORD), f32(k, -INFINITY));
    most = maximum(k, most, x[i]);
  }
  val all = over_lanes(k, most, false);
  for (int i = 0; i < groups_of(d); i++) {
    x[i] = exp2_approx(k, sub(k, x[i], all));
    sum = add(k, sum, x[i]);
  }
  val inverse = reciprocal_approx(k, maximum(k, over_lanes(k, sum, true), f32(k, 1e-30)));
  for (int i = 0; i < groups_of(d); i++)
    store(k, mul(k, x[i], inverse), place[i], WALK_WORD);
}

static void softmax_head(struct ir *k, const struct decode *d, val n, val head) {
  if (groups_of(d) <= MAX_HELD)
    softmax_held(k, d, n, head);
  else
    softmax_loops(k, d, n, head);
}

static void softmax(struct ir *k, const struct decode *d, val seen) {
  FOR_STEP(k, head, d->w.lanes.warp, i32(k, d->plan.group), i32(k, d->warps)) {
    softmax_head(k, d, seen, head);
  }
  cta_sync(k);
}

/* ---- keys ---- */

/* Of those whose names, or heads' parts, make them: |forced|, where not null, of all seen ones. */
static void complete_keys(struct ir *k, const struct decode *d, val depth, val n, val forced) {
  const struct walk *w = &d->w;
  FOR_STEP(k, slot, thread_index(k), n, i32(k, WARP * d->warps)) {
    val key = {0}, node = walk_node(k, w, slot), shift = walk_shift(k, w, depth);
    if (plan_is_mass(&d->plan))
      key = best_key(k, node_share_of(k, &d->plan, w->scores, slot));
    else
      key = load(k, k->i32, key_at(k, d, slot), WALK_WORD);
    val named = walk_is_forced(k, w, node, shift);
    if (!is_null(forced))
      named = either(k, named, forced);
    key = choose(k, named, i32(k, BEST_FORCED), key);
    val seen = is_le(k, node, shift_right_signed(k, w->last, shift));
    store(k, choose(k, seen, key, i32(k, BEST_ABSENT)), key_at(k, d, slot), WALK_WORD);
  }
}

/* ---- ranks ---- */

/* Keys behind the last are read too, of the last group or four: absent. */
static void pad_keys(struct ir *k, const struct decode *d, val n) {
  const int end = WARP * groups_of(d), threads = WARP * d->warps;
  FOR_STEP(k, slot, add(k, n, thread_index(k)), i32(k, end + DECODE_PAD), i32(k, threads)) {
    store(k, i32(k, BEST_ABSENT), key_at(k, d, slot), WALK_WORD);
  }
}

static val rank_at(struct ir *k, const struct decode *d, val part, val slot) {
  val place = add(k, mul_const(k, part, (int64_t)WARP * groups_of(d)), slot);
  return at(k, d->ranks, mul_const(k, place, WALK_WORD));
}

/* Of |length| keys from |begin| on those that are at least |least|. */
static val count_at_once(struct ir *k, const struct decode *d, val begin, int length, val least) {
  val four[MAX_RANKED / QUAD], count[QUAD];
  for (int i = 0; i < length; i += QUAD)
    four[i / QUAD] = load(k, k->i32x4, key_at(k, d, add_const(k, begin, i)), QUAD * WALK_WORD);
  for (int z = 0; z < QUAD; z++)
    count[z] = i32(k, 0);
  for (int i = 0; i < length; i++) {
    val key = element(k, four[i / QUAD], i % QUAD, k->i32);
    count[i % QUAD] = add_if_uge(k, count[i % QUAD], key, least);
  }
  return add(k, add(k, count[0], count[1]), add(k, count[2], count[3]));
}

/* The same of those before |n|. */
static val count_in_turn(struct ir *k, const struct decode *d, val begin, int length, val n,
                         val least) {
  struct var count = var_init(k, i32(k, 0));
  FOR_STEP(k, i, begin, smin(k, n, add_const(k, begin, length)), i32(k, QUAD)) {
    val four = load(k, k->i32x4, key_at(k, d, i), QUAD * WALK_WORD), sum = get(k, count);
    for (int z = 0; z < QUAD; z++)
      sum = add_if_uge(k, sum, element(k, four, z, k->i32), least);
    set(k, count, sum);
  }
  return get(k, count);
}

/* Part |part| of the keys that are greater than those of group |group|. */
static void rank_group(struct ir *k, const struct decode *d, val group, val part, val n) {
  const int length = groups_of(d) * WARP / d->room.rank_parts;
  val slot = add(k, mul_const(k, group, WARP), d->w.lanes.lane);
  val mine = load(k, k->i32, key_at(k, d, smin(k, slot, n)), WALK_WORD);
  val least = add_const(k, mine, 1), begin = mul_const(k, part, length);
  val count = length <= MAX_RANKED ? count_at_once(k, d, begin, length, least)
                                   : count_in_turn(k, d, begin, length, n, least);
  store(k, count, rank_at(k, d, part, slot), WALK_WORD);
}

static void rank_all(struct ir *k, const struct decode *d, val n) {
  const int parts = d->room.rank_parts;
  FOR_STEP(k, item, d->w.lanes.warp, i32(k, groups_of(d) * parts), i32(k, d->warps)) {
    val group = shift_right(k, item, i32(k, log2_from(parts)));
    IF (k, is_lt(k, mul_const(k, group, WARP), n)) {
      rank_group(k, d, group, bit_and(k, item, i32(k, parts - 1)), n);
    }
  }
}

/* ---- the choice ---- */

struct chooser {
  const struct decode *d;
  val n;
  struct var worst;      /* the last rank below K */
  val room;              /* of that rank so many are kept */
  struct var ties, kept; /* in groups before */
  best_body *body;
  void *context;
};
struct group { /* of 32 candidates */
  val slot, key, rank;
};

static struct group load_group(struct ir *k, const struct chooser *c, val number) {
  const struct decode *d = c->d;
  struct group x = {.slot = add(k, mul_const(k, number, WARP), d->w.lanes.lane)};
  val exists = is_lt(k, x.slot, c->n);
  val key = load(k, k->i32, key_at(k, d, smin(k, x.slot, c->n)), WALK_WORD);
  x.key = choose(k, exists, key, i32(k, BEST_ABSENT));
  x.rank = i32(k, 0);
  for (int part = 0; part < d->room.rank_parts; part++) {
    val rank = load(k, k->i32, rank_at(k, d, i32(k, part), x.slot), WALK_WORD);
    x.rank = add(k, x.rank, rank);
  }
  x.rank = choose(k, is_ne(k, x.key, i32(k, BEST_ABSENT)), x.rank, i32(k, INT32_MAX));
  return x;
}

static void see_group(struct ir *k, const struct chooser *c, const struct group *x) {
  val good = is_lt(k, x->rank, i32(k, c->d->plan.keep));
  val worst = choose(k, good, x->rank, i32(k, 0));
  set(k, c->worst, umax(k, get(k, c->worst), worst));
}

static void keep_group(struct ir *k, const struct chooser *c, const struct group *x) {
  const struct lanes *lanes = &c->d->w.lanes;
  val worst = get(k, c->worst), tied = is_eq(k, x->rank, worst), ties = warp_ballot(k, tied);
  val before = add(k, get(k, c->ties), count_below(k, lanes, ties));
  val keep = either(k, is_lt(k, x->rank, worst), both(k, tied, is_lt(k, before, c->room)));
  val mask = warp_ballot(k, keep);
  val place = add(k, get(k, c->kept), count_below(k, lanes, mask));
  IF (k, keep) {
    val node = walk_node(k, &c->d->w, x->slot);
    if (c->body)
      c->body(k, c->context, node, x->key, place);
    else
      store(k, node, at(k, c->d->places, mul_const(k, place, WALK_WORD)), WALK_WORD);
  }
  set(k, c->ties, add(k, get(k, c->ties), count_bits(k, ties)));
  set(k, c->kept, add(k, get(k, c->kept), count_bits(k, mask)));
}

/* Both for every group; what few groups load stays in registers. */
typedef void group_body(struct ir *k, const struct chooser *c, const struct group *x);
static void each_group(struct ir *k, const struct chooser *c, const struct group *held,
                       group_body *body) {
  const int n = groups_of(c->d);
  if (n <= MAX_UNROLLED) {
    for (int i = 0; i < n; i++)
      body(k, c, &held[i]);
    return;
  }
  FOR (k, i, i32(k, 0), i32(k, n)) {
    struct group x = load_group(k, c, i);
    body(k, c, &x);
  }
}

static void move_kept(struct ir *k, const struct decode *d, val kept) {
  warp_sync(k);
  for (int i = 0; i < d->plan.keep; i += WARP) {
    val index = add_const(k, d->w.lanes.lane, i);
    IF (k, is_lt(k, index, kept)) {
      val place = at(k, d->places, mul_const(k, index, WALK_WORD));
      store(k, load(k, k->i32, place, WALK_WORD), walk_kept_at(k, &d->w, index), WALK_WORD);
    }
  }
}

static void keep_best(struct ir *k, const struct decode *d, val n, best_body *body, void *context) {
  struct chooser c = {.d = d, .n = n, .body = body, .context = context};
  struct group held[MAX_UNROLLED];
  c.worst = var_init(k, i32(k, 0));
  c.ties = var_init(k, i32(k, 0));
  c.kept = var_init(k, i32(k, 0));
  for (int i = 0; i < groups_of(d) && groups_of(d) <= MAX_UNROLLED; i++)
    held[i] = load_group(k, &c, i32(k, i));
  each_group(k, &c, held, see_group);
  set(k, c.worst, warp_max_u32(k, get(k, c.worst)));
  c.room = sub(k, i32(k, d->plan.keep), get(k, c.worst)); /* so many keys are greater */
  each_group(k, &c, held, keep_group);
  if (body)
    walk_write_rest(k, &d->w, get(k, c.kept));
  else
    move_kept(k, d, get(k, c.kept));
}

void decode_keep_many(struct ir *k, struct decode *d, val depth, val seen, val forced,
                      best_body *body, void *context) {
  val n = mul_const(k, get(k, d->w.parents), d->plan.children);
  if (plan_is_mass(&d->plan)) {
    cta_sync(k);
    softmax(k, d, seen);
    complete_keys(k, d, depth, n, forced);
  } else if (!is_null(forced)) {
    cta_sync(k);
    complete_keys(k, d, depth, n, forced);
  }
  pad_keys(k, d, n);
  cta_sync(k);
  rank_all(k, d, n);
  cta_sync(k);
  IF (k, d->one) {
    keep_best(k, d, n, body, context);
  }
}
