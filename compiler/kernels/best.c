/* best.c: in go the keys of a warp's candidates; out come those that are kept, and their places. */
#include "compiler/kernels/best.h"

#include <assert.h>
#include <math.h>

enum { WORD = 4, QUAD_WORDS = 4, LANES = 32, MAX_HELD = 8 };

/* ---- keys ---- */

/* Of the bits of a float negative ones are all flipped, others get their sign bit set. */
val best_key(struct ir *k, val worth) {
  val bits = bits_of(k, add(k, maximum(k, worth, f32(k, -INFINITY)), f32(k, 0)));
  val sign = shift_right_signed(k, bits, i32(k, 31));
  return bit_xor(k, bits, bit_or(k, sign, i32(k, INT32_MIN)));
}

val best_worth(struct ir *k, val key) {
  val positive = shift_right_signed(k, key, i32(k, 31));
  return float_of(k, bit_xor(k, key, bit_or(k, bit_not(k, positive), i32(k, INT32_MIN))));
}

/* ---- in lanes ---- */

/* How many of |n| keys from |keys| on are greater than |key|. */
static val rank_among(struct ir *k, int n, val key, val keys) {
  val least = add_const(k, key, 1), count[2] = {i32(k, 0), i32(k, 0)};
  for (int j = 0; j < n; j += QUAD_WORDS) {
    val four = load(k, k->i32x4, at_const(k, keys, (int64_t)j * WORD), QUAD_WORDS * WORD);
    for (int i = 0; i < QUAD_WORDS && j + i < n; i++)
      count[i % 2] = add_if_uge(k, count[i % 2], element(k, four, i, k->i32), least);
  }
  return add(k, count[0], count[1]);
}

/* Each of two copies looks at half of the keys. */
static val rank_of(struct ir *k, const struct lanes *lanes, int n, int copy, val key, val keys) {
  if (copy == 0 || n % (2 * QUAD_WORDS) != 0)
    return rank_among(k, n, key, keys);
  val second = is_ne(k, bit_and(k, lanes->lane, i32(k, copy)), i32(k, 0));
  val half = choose(k, second, i32(k, n / 2 * WORD), i32(k, 0));
  val rank = rank_among(k, n / 2, key, at(k, keys, half));
  return add(k, rank, warp_across(k, rank, copy));
}

/* Equal keys have equal ranks: of the last ones kept the first so many that |keep| are. */
static void drop_ties(struct ir *k, const struct lanes *lanes, int keep, struct var mask, val kept,
                      val rank) {
  val last = warp_max_u32(k, choose(k, kept, rank, i32(k, 0)));
  val tied = both(k, kept, is_eq(k, rank, last)), ties = warp_ballot(k, tied);
  val too_many = add_const(k, count_bits(k, get(k, mask)), -keep);
  val room = sub(k, count_bits(k, ties), too_many);
  val drop = both(k, tied, is_ge(k, count_below(k, lanes, ties), room));
  set(k, mask, bit_xor(k, get(k, mask), warp_ballot(k, drop)));
}

struct best best_of_lanes(struct ir *k, const struct lanes *lanes, int keep, int n, val candidate,
                          val first, int copy, val key, val keys) {
  assert(n >= 1 && n <= LANES);
  IF (k, both(k, first, is_lt(k, candidate, i32(k, n)))) {
    store(k, key, at(k, keys, mul_const(k, candidate, WORD)), WORD);
  }
  warp_sync(k);
  val rank = rank_of(k, lanes, n, copy, key, keys);
  val present = both(k, first, is_ne(k, key, i32(k, BEST_ABSENT)));
  val good = both(k, present, is_lt(k, rank, i32(k, keep)));
  /* what nearly always holds is ready before the warp knows that no two are tied */
  val usual = warp_ballot(k, good), count = count_bits(k, usual);
  struct var mask = var_init(k, usual), is_kept = var_init(k, widen_bool(k, good));
  struct var place = var_init(k, count_below(k, lanes, usual));
  IF (k, is_lt(k, i32(k, keep), count)) {
    drop_ties(k, lanes, keep, mask, good, rank);
    set(k, is_kept, bit_and(k, shift_right(k, get(k, mask), lanes->lane), i32(k, 1)));
    set(k, place, count_below(k, lanes, get(k, mask)));
  }
  return (struct best){
      .kept = is_ne(k, get(k, is_kept), i32(k, 0)),
      .place = get(k, place),
      .count = count_bits(k, get(k, mask)),
  };
}

/* ---- in shared memory ---- */

struct pool { /* |n| keys, a round of 32 at a time; few of them held in registers */
  const struct lanes *lanes;
  val n, keys;
  int held; /* rounds; 0: read again each time */
  val key[MAX_HELD];
};

static val key_at(struct ir *k, const struct pool *p, val candidate) {
  val last = smax(k, add_const(k, p->n, -1), i32(k, 0));
  val place = mul_const(k, smin(k, candidate, last), WORD);
  val key = load(k, k->i32, at(k, p->keys, place), WORD);
  return choose(k, is_lt(k, candidate, p->n), key, i32(k, BEST_ABSENT));
}

static struct pool pool_of(struct ir *k, const struct lanes *lanes, val n, int most, val keys) {
  struct pool p = {.lanes = lanes, .n = n, .keys = keys, .held = (most + LANES - 1) / LANES};
  if (p.held > MAX_HELD)
    p.held = 0;
  for (int r = 0; r < p.held; r++)
    p.key[r] = key_at(k, &p, add_const(k, lanes->lane, (int64_t)r * LANES));
  return p;
}

/* Keys that are at least |threshold|, of all lanes. */
static val count_from(struct ir *k, const struct pool *p, val threshold) {
  if (p->held > 0) {
    val count = i32(k, 0);
    for (int r = 0; r < p->held; r++)
      count = add_if_uge(k, count, p->key[r], threshold);
    return warp_sum_u32(k, count);
  }
  struct var count = var_init(k, i32(k, 0));
  FOR_STEP(k, base, i32(k, 0), p->n, i32(k, LANES)) {
    val key = key_at(k, p, add(k, base, p->lanes->lane));
    set(k, count, add_if_uge(k, get(k, count), key, threshold));
  }
  return warp_sum_u32(k, get(k, count));
}

/* The |keep|th greatest key, bit by bit; absent where there are fewer. */
static val threshold_of(struct ir *k, const struct pool *p, int keep) {
  struct var threshold = var_init(k, i32(k, 0)), bit = var_init(k, i32(k, INT32_MIN));
  WHILE (k, is_ne(k, get(k, bit), i32(k, 0))) {
    val trial = bit_or(k, get(k, threshold), get(k, bit));
    val enough = is_ge(k, count_from(k, p, trial), i32(k, keep));
    set(k, threshold, choose(k, enough, trial, get(k, threshold)));
    set(k, bit, shift_right(k, get(k, bit), i32(k, 1)));
  }
  return get(k, threshold);
}

struct writer {
  val threshold, room; /* of keys equal to it so many are kept */
  struct var ties, kept;
  best_body *body;
  void *context;
};

static void write_round(struct ir *k, const struct pool *p, const struct writer *w, val candidate,
                        val key) {
  val tied = both(k, is_eq(k, key, w->threshold), is_ne(k, key, i32(k, BEST_ABSENT)));
  val ties = warp_ballot(k, tied);
  val before = add(k, get(k, w->ties), count_below(k, p->lanes, ties));
  val keep = either(k, is_ugt(k, key, w->threshold), both(k, tied, is_lt(k, before, w->room)));
  val mask = warp_ballot(k, keep);
  val place = add(k, get(k, w->kept), count_below(k, p->lanes, mask));
  IF (k, keep) {
    w->body(k, w->context, candidate, key, place);
  }
  set(k, w->ties, add(k, get(k, w->ties), count_bits(k, ties)));
  set(k, w->kept, add(k, get(k, w->kept), count_bits(k, mask)));
}

val best_of_keys(struct ir *k, const struct lanes *lanes, int keep, val n, int most, val keys,
                 best_body *body, void *context) {
  warp_sync(k);
  struct pool p = pool_of(k, lanes, n, most, keys);
  val threshold = threshold_of(k, &p, keep);
  val above = count_from(k, &p, umax(k, add_const(k, threshold, 1), i32(k, 1)));
  struct writer w = {
      .threshold = threshold,
      .room = sub(k, i32(k, keep), above),
      .ties = var_init(k, i32(k, 0)),
      .kept = var_init(k, i32(k, 0)),
      .body = body,
      .context = context,
  };
  if (p.held > 0) {
    for (int r = 0; r < p.held; r++)
      write_round(k, &p, &w, add_const(k, lanes->lane, (int64_t)r * LANES), p.key[r]);
  } else {
    FOR_STEP(k, base, i32(k, 0), n, i32(k, LANES)) {
      val candidate = add(k, base, lanes->lane);
      write_round(k, &p, &w, candidate, key_at(k, &p, candidate));
    }
  }
  return get(k, w.kept);
}
