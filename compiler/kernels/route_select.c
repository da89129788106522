/* Which blocks of a row of keys are listed; see route.c. One warp, one row. */
#include "compiler/kernels/route.h"
#include "compiler/sm90/sync.h"

/* ---- forced blocks ---- */

static void fill(struct ir *k, const struct route *a, val row, val begin, val end, int key) {
  FOR_STEP(k, j, add(k, begin, a->lanes.lane), end, i32(k, 32)) {
    store(k, i32(k, key), at(k, row, mul_const(k, j, WORD)), WORD);
  }
}

/* The blocks that tokens [begin, end) of the sequence touch; its last -begin where begin < 0. */
static void force_tokens(struct ir *k, const struct route *a, val row, val begin, val end) {
  const int key = a->plan->key;
  IF (k, is_ne(k, begin, end)) {
    val is_last = is_lt(k, begin, i32(k, 0));
    val first = choose(k, is_last, smax(k, add(k, a->keys, begin), i32(k, 0)), begin);
    val last = choose(k, is_last, a->keys, smin(k, end, a->keys));
    val last_block = choose(k, is_lt(k, first, last), blocks_of(k, last, key), i32(k, 0));
    fill(k, a, row, udiv(k, first, i32(k, key)), last_block, KEY_FORCED);
  }
}

/* The key blocks that query block |query| touches and |window| to each side, where they exist. With
   -1 none are left, as it touches one or two. */
static void force_window(struct ir *k, const struct route *a, val row, val query) {
  const int blocks = a->plan->query / a->plan->key;
  val first = mul_const(k, query, blocks), end = add_const(k, first, blocks);
  val begin = smax(k, sub(k, first, ARG(window)), i32(k, 0));
  fill(k, a, row, begin, smin(k, add(k, end, ARG(window)), a->k_blocks), KEY_FORCED);
}

/* Overwrites what does not depend on scores. */
static void exclude_and_force(struct ir *k, const struct route *a, val row, val query) {
  fill(k, a, row, a->k_blocks, mul_const(k, a->spans, SPAN), KEY_ABSENT);
  force_tokens(k, a, row, ARG(always_0_begin), ARG(always_0_end));
  force_tokens(k, a, row, ARG(always_1_begin), ARG(always_1_end));
  force_tokens(k, a, row, ARG(always_2_begin), ARG(always_2_end));
  force_tokens(k, a, row, ARG(always_3_begin), ARG(always_3_end));
  if (a->plan->wants_window) {
    force_window(k, a, row, query);
  }
  warp_sync(k);
}

/* Whether any key may be forced: else they need no counting. */
static val forces(struct ir *k, const struct route *a) {
  val any = either(k,
                   either(k, is_ne(k, ARG(always_0_begin), ARG(always_0_end)),
                          is_ne(k, ARG(always_1_begin), ARG(always_1_end))),
                   either(k, is_ne(k, ARG(always_2_begin), ARG(always_2_end)),
                          is_ne(k, ARG(always_3_begin), ARG(always_3_end))));
  return a->plan->wants_window ? either(k, any, is_ge(k, ARG(window), i32(k, 0))) : any;
}

/* In place of scores: what the caller lists is forced. */
static void mark_given(struct ir *k, const struct route *a, val row, val item) {
  fill(k, a, row, i32(k, 0), a->k_blocks, KEY_PRESENT);
  fill(k, a, row, a->k_blocks, mul_const(k, a->spans, SPAN), KEY_ABSENT);
  warp_sync(k);
  val list = at_row(k, ARG(given), item, mul_const(k, ARG(n_given), WORD));
  FOR_STEP(k, i, a->lanes.lane, ARG(n_given), i32(k, 32)) {
    val j = load(k, k->i32, at(k, list, mul_const(k, i, WORD)), WORD);
    IF (k, is_ugt(k, a->k_blocks, j)) {
      store(k, i32(k, KEY_FORCED), at(k, row, mul_const(k, j, WORD)), WORD);
    }
  }
  warp_sync(k);
}

/* ---- reading a row ---- */

static void read_span(struct ir *k, const struct route *a, val row, val span, val key[SPAN_WORDS]) {
  val column = add(k, mul_const(k, span, SPAN), a->lanes.lane);
  val first = at(k, row, mul_const(k, column, WORD));
  for (int w = 0; w < SPAN_WORDS; w++) {
    key[w] = load(k, k->i32, at_const(k, first, 32 * w * WORD), WORD);
  }
}

static struct row_keys row_held(struct ir *k, const struct route *a, val row) {
  struct row_keys keys = {.row = row, .held = true};
  for (int s = 0; s < HELD_SPANS; s++) {
    struct var *key = keys.key + s * SPAN_WORDS;
    for (int w = 0; w < SPAN_WORDS; w++) {
      key[w] = var_new(k, k->i32);
    }
    IF (k, is_lt(k, i32(k, s), a->spans)) {
      val now[SPAN_WORDS];
      read_span(k, a, row, i32(k, s), now);
      for (int w = 0; w < SPAN_WORDS; w++) {
        set(k, key[w], now[w]);
      }
    }
  }
  return keys;
}

static void held_span(struct ir *k, const struct route *a, const struct row_keys *keys, int s,
                      span_body *body, void *context) {
  IF (k, is_lt(k, i32(k, s), a->spans)) {
    val key[SPAN_WORDS];
    for (int w = 0; w < SPAN_WORDS; w++) {
      key[w] = get(k, keys->key[s * SPAN_WORDS + w]);
    }
    body(k, a, context, i32(k, s), key);
  }
}

void row_walk(struct ir *k, const struct route *a, const struct row_keys *keys, span_body *body,
              void *context) {
  if (keys->held) {
    for (int s = 0; s < HELD_SPANS; s++) {
      held_span(k, a, keys, s, body, context);
    }
  } else {
    FOR (k, span, i32(k, 0), a->spans) {
      val key[SPAN_WORDS];
      read_span(k, a, keys->row, span, key);
      body(k, a, context, span, key);
    }
  }
}

struct counting {
  val threshold;
  struct var count[2]; /* two chains of dependent additions */
};
static void count_span(struct ir *k, const struct route *a, void *context, val span,
                       const val key[SPAN_WORDS]) {
  (void)a, (void)span;
  const struct counting *c = context;
  for (int w = 0; w < SPAN_WORDS; w++) {
    struct var count = c->count[w % 2];
    set(k, count, add_if_uge(k, get(k, count), key[w], c->threshold));
  }
}

static val count_from(struct ir *k, const struct route *a, const struct row_keys *keys,
                      val threshold) {
  struct counting c = {threshold, {var_init(k, i32(k, 0)), var_init(k, i32(k, 0))}};
  row_walk(k, a, keys, count_span, &c);
  return warp_sum_u32(k, add(k, get(k, c.count[0]), get(k, c.count[1])));
}

/* The least and the greatest key of a score. Both are offset so that keys outside of the order lie
   at the end that does not count: the least key less 1, the greatest plus 2. Without scores the
   greatest is -2 or 0, the least anything. */
struct spread {
  struct var least, most;
};
static void spread_span(struct ir *k, const struct route *a, void *context, val span,
                        const val key[SPAN_WORDS]) {
  (void)a, (void)span;
  const struct spread *spread = context;
  for (int w = 0; w < SPAN_WORDS; w++) {
    set(k, spread->least, umin(k, get(k, spread->least), add_const(k, key[w], -1)));
    set(k, spread->most, umax(k, get(k, spread->most), add_const(k, key[w], 2)));
  }
}

static void spread_of(struct ir *k, const struct route *a, const struct row_keys *keys, val *least,
                      val *most) {
  struct spread spread = {var_init(k, i32(k, -1)), var_init(k, i32(k, 0))};
  row_walk(k, a, keys, spread_span, &spread);
  *least = add_const(k, warp_min_u32(k, get(k, spread.least)), 1);
  *most = add_const(k, warp_max_u32(k, get(k, spread.most)), -2);
}

/* ---- the search ---- */

/* Two thresholds with the number of keys on or above each: at least |want| of them at the low one,
   fewer at the high one. What an end has too many, as the difference of square roots (the tail of
   the scores is nearly a line then), and the weight of that if the other end moves next. */
struct bracket {
  struct var low, high, n_low, n_high;
  struct var over_low, over_high, weight_low, weight_high;
  struct var passes;
  val want, root; /* and its square root */
};

static val root_of(struct ir *k, val n) {
  return sqrt_approx(k, to_float(k, n));
}

static struct bracket bracket_new(struct ir *k, val low, val n_low, val high, val n_high,
                                  val want) {
  val root = root_of(k, want);
  return (struct bracket){
      .low = var_init(k, low),
      .high = var_init(k, high),
      .n_low = var_init(k, n_low),
      .n_high = var_init(k, n_high),
      .over_low = var_init(k, sub(k, root_of(k, n_low), root)),
      .over_high = var_init(k, sub(k, root_of(k, n_high), root)),
      .weight_low = var_init(k, f32(k, 1)),
      .weight_high = var_init(k, f32(k, 1)),
      .passes = var_init(k, i32(k, 0)),
      .want = want,
      .root = root,
  };
}

static val score_of(struct ir *k, val key) {
  val positive = shift_right_signed(k, key, i32(k, 31));
  return float_of(k, bit_xor(k, key, bit_or(k, bit_not(k, positive), i32(k, INT32_MIN))));
}

/* Where a line through both ends has |want|; where that is no key between them, or took too long,
   the key in the middle: at most GUESSES + 32 passes. */
static val guess(struct ir *k, const struct bracket *b) {
  enum { GUESSES = 16 };
  val low = get(k, b->low), high = get(k, b->high);
  val rise = sub(k, get(k, b->over_high), get(k, b->over_low));
  val part = mul(k, get(k, b->over_high), reciprocal_approx(k, rise)), end = score_of(k, high);
  val bits = bits_of(k, fused(k, sub(k, score_of(k, low), end), part, end));
  val key = bit_xor(k, bits, bit_or(k, shift_right_signed(k, bits, i32(k, 31)), i32(k, INT32_MIN)));
  val inside = both(k, is_ugt(k, key, low), is_ugt(k, high, key));
  val middle = add(k, low, shift_right(k, sub(k, high, low), i32(k, 1)));
  return choose(k, both(k, inside, is_lt(k, get(k, b->passes), i32(k, GUESSES))), key, middle);
}

/* Regula falsi with the Illinois rule: an end that stays twice counts half, so that both move. */
static void narrow_bracket(struct ir *k, const struct bracket *b, val key, val n) {
  val over = sub(k, root_of(k, n), b->root);
  set(k, b->passes, add_const(k, get(k, b->passes), 1));
  IF (k, is_ge(k, n, b->want)) {
    set(k, b->low, key);
    set(k, b->n_low, n);
    set(k, b->over_low, over);
    set(k, b->over_high, mul(k, get(k, b->over_high), get(k, b->weight_high)));
    set(k, b->weight_low, f32(k, 1));
    set(k, b->weight_high, f32(k, 0.5));
  }
  ELSE (k) {
    set(k, b->high, key);
    set(k, b->n_high, n);
    set(k, b->over_high, over);
    set(k, b->over_low, mul(k, get(k, b->over_low), get(k, b->weight_low)));
    set(k, b->weight_low, f32(k, 0.5));
    set(k, b->weight_high, f32(k, 1));
  }
}

/* Goes on until |want| keys are on or above a threshold, or the thresholds are neighbours: then the
   low one has ties of which some are not taken. */
static struct choice search(struct ir *k, const struct route *a, const struct row_keys *keys,
                            val forced, val want) {
  val least, most;
  spread_of(k, a, keys, &least, &most);
  struct bracket b = bracket_new(k, least, a->k_blocks, add_const(k, most, 1), forced, want);
  val open = is_ne(k, forced, want);
  WHILE (k, both(k, both(k, open, is_ne(k, get(k, b.n_low), want)),
                 is_ugt(k, sub(k, get(k, b.high), get(k, b.low)), i32(k, 1)))) {
    val key = guess(k, &b);
    narrow_bracket(k, &b, key, count_from(k, a, keys, key));
  }
  val at_low = is_eq(k, get(k, b.n_low), want), at_high = is_eq(k, get(k, b.n_high), want);
  val threshold = choose(k, both(k, at_high, bit_not(k, at_low)), get(k, b.high), get(k, b.low));
  return (struct choice){
      .threshold = umax(k, threshold, i32(k, KEY_ABSENT + 1)), /* low is 0 without any block */
      .ties = sub(k, want, get(k, b.n_high)),
      .cut = widen_bool(k, bit_not(k, either(k, at_low, at_high))),
      .count = want,
  };
}

/* ---- what says how many ---- */

/* k of the sequence: the product with a density's numerator has up to 54 bits. */
static val budget_of(struct ir *k, const struct route *a) {
  struct var budget = var_init(k, ARG(budget));
  IF (k, is_ne(k, ARG(density_num), i32(k, 0))) {
    val product = mul(k, widen(k, ARG(density_num)), widen(k, a->k_blocks));
    val whole = narrow(k, udiv(k, product, widen(k, ARG(density_den))));
    set(k, budget, smax(k, whole, i32(k, 1)));
  }
  return get(k, budget);
}

static struct choice choose_best(struct ir *k, const struct route *a, const struct row_keys *keys) {
  struct var forced = var_init(k, i32(k, 0));
  IF (k, forces(k, a)) {
    set(k, forced, count_from(k, a, keys, i32(k, KEY_FORCED)));
  }
  val want = smin(k, a->k_blocks, smax(k, budget_of(k, a), get(k, forced)));
  return search(k, a, keys, get(k, forced), want);
}

/* All above the limit, at least the best one. Nothing is above nan but what is forced. */
static struct choice choose_above(struct ir *k, const struct route *a,
                                  const struct row_keys *keys) {
  val limit = get(k, a->limit), is_number = is_eq(k, limit, limit);
  val above = add_const(k, route_key(k, limit), 1);
  struct var threshold = var_init(k, choose(k, is_number, above, i32(k, KEY_FORCED)));
  struct var count = var_init(k, count_from(k, a, keys, get(k, threshold)));
  struct var cut = var_init(k, i32(k, 0));
  IF (k, both(k, is_eq(k, get(k, count), i32(k, 0)), is_ne(k, a->k_blocks, i32(k, 0)))) {
    val least, most;
    spread_of(k, a, keys, &least, &most);
    set(k, threshold, most);
    set(k, count, i32(k, 1));
    set(k, cut, i32(k, 1));
  }
  return (struct choice){get(k, threshold), i32(k, 1), get(k, cut), get(k, count)};
}

static struct choice choose_given(struct ir *k, const struct route *a,
                                  const struct row_keys *keys) {
  val threshold = i32(k, KEY_FORCED);
  return (struct choice){threshold, i32(k, 0), i32(k, 0), count_from(k, a, keys, threshold)};
}

static void choice_set(struct ir *k, const struct var to[4], struct choice choice) {
  set(k, to[0], choice.threshold);
  set(k, to[1], choice.ties);
  set(k, to[2], choice.cut);
  set(k, to[3], choice.count);
}

static void select_row(struct ir *k, const struct route *a, const struct row_keys *keys,
                       val query) {
  struct var made[4]; /* of either branch */
  for (int i = 0; i < 4; i++) {
    made[i] = var_new(k, k->i32);
  }
  IF (k, is_null_pointer(k, ARG(given))) {
    choice_set(k, made, a->plan->threshold ? choose_above(k, a, keys) : choose_best(k, a, keys));
  }
  ELSE (k) {
    choice_set(k, made, choose_given(k, a, keys));
  }
  struct choice choice = {get(k, made[0]), get(k, made[1]), get(k, made[2]), get(k, made[3])};
  lists_write(k, a, keys, &choice, query);
}

static void select_query(struct ir *k, const struct route *a, val query) {
  val row = at(k, k->smem, mul(k, a->lanes.warp, a->row_bytes));
  IF (k, is_null_pointer(k, ARG(given))) {
    exclude_and_force(k, a, row, query);
  }
  ELSE (k) {
    mark_given(k, a, row, add(k, mul(k, a->head, a->q_tiles), query));
  }
  IF (k, is_le(k, a->spans, i32(k, HELD_SPANS))) {
    struct row_keys keys = row_held(k, a, row);
    select_row(k, a, &keys, query);
  }
  ELSE (k) {
    struct row_keys keys = row_in_shared(row);
    select_row(k, a, &keys, query);
  }
}

void route_select(struct ir *k, const struct route *a) {
  val query = add(k, a->first, a->lanes.warp), exists = is_lt(k, query, a->q_tiles);
  IF (k, exists) {
    select_query(k, a, query);
  }
  if (a->plan->pairs) {
    cta_sync(k);
    IF (k, exists) {
      lists_write_pair(k, a, query);
    }
  }
}
