/* flat_best.c: the K best leaves of each query of a unit, while all are scanned. In go worths of a
   step's leaves; out come lists.

   Of each query, in shared memory: the keys of a step, K keys and ids of the best so far in no
   order, and the worst of them. Steps come with ascending ids, so one that is only as good as the
   worst is not taken, and of equal ones the largest id makes place. */
#include <float.h>
#include <limits.h>
#include <math.h>

#include "compiler/kernels/flat.h"
#include "compiler/sm90/sync.h"

enum { WORD = 4, SLOTS = 2, LANES = 32, EMPTY_ID = 1 << 30 };

/* ---- where they lie ---- */

static val key_place(struct ir *k, const struct flat *a, val query, val leaf) {
  val row = at(k, a->smem, mul_const(k, query, FLAT_KEY_BYTES));
  return at(k, row, mul_const(k, leaf, WORD));
}

/* Entry |slot| of a query's list: its key. */
static val list_key(struct ir *k, const struct flat *a, val query, val slot) {
  val entry = add(k, mul_const(k, query, a->plan->keep), slot);
  return at_const(k, at(k, a->smem, mul_const(k, entry, WORD)), a->queries * FLAT_KEY_BYTES);
}

/* Its id: behind the keys of all lists. */
static val list_id(struct ir *k, const struct flat *a, val query, val slot) {
  return at_const(k, list_key(k, a, query, slot), a->queries * a->plan->keep * WORD);
}

static val worst_place(struct ir *k, const struct flat *a, val query) {
  int begin = a->queries * (FLAT_KEY_BYTES + 2 * a->plan->keep * WORD);
  return at_const(k, at(k, a->smem, mul_const(k, query, WORD)), begin);
}

/* ---- keys ---- */

/* Sorts like the score; nan as -inf, -0 as +0, infinity as the largest number. */
static val key_of(struct ir *k, val score) {
  val least = maximum(k, score, f32(k, -INFINITY));
  val most = negate(k, maximum(k, negate(k, least), f32(k, -FLT_MAX)));
  val bits = bits_of(k, add(k, most, f32(k, 0)));
  val sign = shift_right_signed(k, bits, i32(k, 31));
  return bit_xor(k, bits, bit_or(k, sign, i32(k, INT_MIN)));
}

static val score_of(struct ir *k, val key) {
  val positive = is_lt(k, key, i32(k, 0));
  return float_of(k, choose(k, positive, bit_xor(k, key, i32(k, INT_MIN)), bit_not(k, key)));
}

/* |worth| of leaf |leaf| as a key of the row's query. */
static val ranked(struct ir *k, const struct flat *a, const struct flat_row *row, val leaf,
                  val worth, bool plain) {
  val key = key_of(k, worth);
  if (plain)
    return key;
  val forced = either(k, flat_is_near(k, a, row, leaf), flat_is_always(k, a, leaf));
  key = choose(k, forced, i32(k, FLAT_FORCED), key);
  return choose(k, is_lt(k, leaf, row->visible), key, i32(k, FLAT_ABSENT));
}

/* ---- a step ---- */

/* The lane's query of rows r. */
static val lane_query(struct ir *k, const struct flat *a, int r) {
  if (a->heads > 8)
    return i32(k, 0);
  int shift = a->heads == 8 ? 3 : a->heads == 4 ? 2 : a->heads == 2 ? 1 : 0;
  return shift_right(k, add_const(k, mma_lane_row(k, &a->lanes), 8 * r), i32(k, shift));
}

/* Lanes of which each has other queries: of those with one query's heads the first. */
static val speaks(struct ir *k, const struct flat *a) {
  int rows = a->heads < 8 ? a->heads : 8;
  return is_eq(k, bit_and(k, mma_lane_row(k, &a->lanes), i32(k, rows - 1)), i32(k, 0));
}

/* Keys of the eight leaves from |offset| of a step on; |better|, of each row: 1 where any beats the
   query's worst. */
static void store_keys(struct ir *k, const struct flat *a, val first, val offset, bool plain,
                       val shift[2][FRAG_ROWS], const val worst[FRAG_ROWS],
                       const struct var better[FRAG_ROWS]) {
  val eight = add(k, first, offset), worth[FRAG_ROWS][2];
  val column = add(k, offset, frag_lane_column(k, &a->lanes));
  struct flat_scores x = flat_scores_of(k, a, eight, plain, shift);
  flat_reduce(k, a, &x, worth);
  for (int r = 0; r < flat_query_rows(a); r++) {
    val key[2];
    for (int q = 0; q < 2; q++) {
      val leaf = add_const(k, add(k, first, column), q);
      key[q] = ranked(k, a, &a->row[r], leaf, worth[r][q], plain);
      val beats = widen_bool(k, is_ugt(k, key[q], worst[r]));
      set(k, better[r], bit_or(k, get(k, better[r]), beats));
    }
    IF (k, speaks(k, a)) {
      store(k, pack2(k, key[0], key[1]), key_place(k, a, lane_query(k, a, r), column), 2 * WORD);
    }
  }
}

/* The unit's queries of which a key beats the worst: bit 4 row + r of the lane row's first lane. */
static val better_queries(struct ir *k, const struct flat *a, const struct var better[FRAG_ROWS]) {
  val all = i32(k, 0), speaker = speaks(k, a);
  for (int r = 0; r < flat_query_rows(a); r++) {
    val mine = both(k, speaker, is_ne(k, get(k, better[r]), i32(k, 0)));
    val bits = warp_ballot(k, mine);
    bits = bit_or(k, bits, shift_right(k, bits, i32(k, 2)));
    bits = bit_or(k, bits, shift_right(k, bits, i32(k, 1)));
    bits = bit_and(k, bits, i32(k, 0x11111111));
    all = bit_or(k, all, shift_left(k, bits, i32(k, r)));
  }
  return all;
}

/* The query of a bit of the above. */
static val bit_query(struct ir *k, const struct flat *a, val bit) {
  val row = add(k, shift_right(k, bit, i32(k, 2)), mul_const(k, bit_and(k, bit, i32(k, 1)), 8));
  int shift = a->heads >= 8 ? 3 : a->heads == 4 ? 2 : a->heads == 2 ? 1 : 0;
  return a->heads > 8 ? i32(k, 0) : shift_right(k, row, i32(k, shift));
}

/* ---- a list ---- */

struct list { /* of one query, entry 32 s + lane; slots that do not exist are never the worst */
  int slots;
  val exists[SLOTS];
  struct var key[SLOTS], id[SLOTS];
};

static struct list list_load(struct ir *k, const struct flat *a, val query) {
  struct list l = {.slots = (a->plan->keep + LANES - 1) / LANES};
  for (int s = 0; s < l.slots; s++) {
    val slot = add_const(k, a->lanes.lane, LANES * s), last = i32(k, a->plan->keep - 1);
    val place = smin(k, slot, last);
    l.exists[s] = is_le(k, slot, last);
    val key = load(k, k->i32, list_key(k, a, query, place), WORD);
    l.key[s] = var_init(k, choose(k, l.exists[s], key, i32(k, FLAT_NEVER_WORST)));
    l.id[s] = var_init(k, load(k, k->i32, list_id(k, a, query, place), WORD));
  }
  return l;
}

static void list_store(struct ir *k, const struct flat *a, const struct list *l, val query) {
  warp_sync(k); /* lanes without a slot have read the last one */
  for (int s = 0; s < l->slots; s++) {
    val slot = add_const(k, a->lanes.lane, LANES * s);
    IF (k, l->exists[s]) {
      store(k, get(k, l->key[s]), list_key(k, a, query, slot), WORD);
      store(k, get(k, l->id[s]), list_id(k, a, query, slot), WORD);
    }
  }
}

static val list_worst(struct ir *k, const struct list *l) {
  val least = get(k, l->key[0]);
  for (int s = 1; s < l->slots; s++)
    least = umin(k, least, get(k, l->key[s]));
  return warp_min_u32(k, least);
}

/* |key|, |id| in place of the one with the largest id of those that are worth |worst|. */
static void list_replace(struct ir *k, const struct list *l, val worst, val key, val id) {
  val mine = i32(k, 0);
  for (int s = 0; s < l->slots; s++) {
    val is_worst = is_eq(k, get(k, l->key[s]), worst);
    mine = umax(k, mine, choose(k, is_worst, add_const(k, get(k, l->id[s]), 1), i32(k, 0)));
  }
  val last = add_const(k, warp_max_u32(k, mine), -1);
  for (int s = 0; s < l->slots; s++) {
    val goes = both(k, is_eq(k, get(k, l->key[s]), worst), is_eq(k, get(k, l->id[s]), last));
    set(k, l->key[s], choose(k, goes, key, get(k, l->key[s])));
    set(k, l->id[s], choose(k, goes, id, get(k, l->id[s])));
  }
}

/* The keys of a step into the list of |query|, best first. Lane i has leaf 31 - i: of equal ones
   the highest lane comes first. */
static void list_join(struct ir *k, const struct flat *a, val query, val first) {
  val leaf = sub(k, i32(k, LANES - 1), a->lanes.lane);
  struct var key = var_init(k, load(k, k->i32, key_place(k, a, query, leaf), WORD));
  struct list l = list_load(k, a, query);
  struct var worst = var_init(k, list_worst(k, &l));
  struct var best = var_init(k, warp_max_u32(k, get(k, key)));
  WHILE (k, is_ugt(k, get(k, best), get(k, worst))) {
    val place = count_leading_zeros(k, warp_ballot(k, is_eq(k, get(k, key), get(k, best))));
    list_replace(k, &l, get(k, worst), get(k, best), add(k, first, place));
    set(k, key, choose(k, is_eq(k, leaf, place), i32(k, 0), get(k, key)));
    set(k, worst, list_worst(k, &l));
    set(k, best, warp_max_u32(k, get(k, key)));
  }
  list_store(k, a, &l, query);
  IF (k, is_eq(k, a->lanes.lane, i32(k, 0))) {
    store(k, get(k, worst), worst_place(k, a, query), WORD);
  }
}

/* ---- lists together ---- */

/* The largest id of those that are worth |worst|. */
static val worst_id(struct ir *k, const struct list *l, val worst) {
  val id = i32(k, 0);
  for (int s = 0; s < l->slots; s++) {
    val is_worst = is_eq(k, get(k, l->key[s]), worst);
    id = umax(k, id, choose(k, is_worst, get(k, l->id[s]), i32(k, 0)));
  }
  return warp_max_u32(k, id);
}

/* The best entry of a list, of equal ones that of the smallest id. Slots that do not exist never
   are. */
static void best_entry(struct ir *k, const struct list *l, val *key, val *id) {
  val most = i32(k, 0), least = i32(k, -1);
  for (int s = 0; s < l->slots; s++)
    most = umax(k, most, choose(k, l->exists[s], get(k, l->key[s]), i32(k, 0)));
  *key = warp_max_u32(k, most);
  for (int s = 0; s < l->slots; s++) {
    val is_best = both(k, l->exists[s], is_eq(k, get(k, l->key[s]), *key));
    least = umin(k, least, choose(k, is_best, get(k, l->id[s]), i32(k, -1)));
  }
  *id = warp_min_u32(k, least);
}

/* Takes the entry out: it is absent then. */
static void drop_entry(struct ir *k, const struct list *l, val id) {
  for (int s = 0; s < l->slots; s++) {
    val is_it = both(k, l->exists[s], is_eq(k, get(k, l->id[s]), id));
    set(k, l->key[s], choose(k, is_it, i32(k, FLAT_ABSENT), get(k, l->key[s])));
  }
}

void flat_best_merge(struct ir *k, const struct flat *a, val smem) {
  struct flat other = *a;
  val query = i32(k, 0);
  other.smem = smem;
  struct list mine = list_load(k, a, query), theirs = list_load(k, &other, query);
  struct var open = var_init(k, i32(k, 1));
  WHILE (k, is_ne(k, get(k, open), i32(k, 0))) {
    val key, id, worst = list_worst(k, &mine);
    best_entry(k, &theirs, &key, &id);
    val earlier = both(k, is_eq(k, key, worst), is_ugt(k, worst_id(k, &mine, worst), id));
    val better =
        both(k, either(k, is_ugt(k, key, worst), earlier), is_ne(k, key, i32(k, FLAT_ABSENT)));
    set(k, open, widen_bool(k, better));
    IF (k, better) {
      list_replace(k, &mine, worst, key, id);
      drop_entry(k, &theirs, id);
    }
  }
  list_store(k, a, &mine, query);
}

/* ---- the scan ---- */

void flat_best_clear(struct ir *k, const struct flat *a) {
  int entries = a->queries * a->plan->keep;
  warp_sync(k);
  FOR_STEP(k, i, a->lanes.lane, i32(k, entries), i32(k, LANES)) {
    store(k, i32(k, FLAT_ABSENT), list_key(k, a, i32(k, 0), i), WORD);
    store(k, add_const(k, i, EMPTY_ID), list_id(k, a, i32(k, 0), i), WORD);
  }
  FOR_STEP(k, i, a->lanes.lane, i32(k, a->queries), i32(k, LANES)) {
    val worst = choose(k, is_lt(k, i, a->count), i32(k, FLAT_ABSENT), i32(k, FLAT_NEVER_WORST));
    store(k, worst, worst_place(k, a, i), WORD); /* rows that repeat a query beat nothing */
  }
  warp_sync(k);
}

/* Whether a forced leaf of |always| may be in a step. */
static val meets_always(struct ir *k, const struct flat *a, val first) {
  val any = is_lt(k, i32(k, 1), i32(k, 0));
  for (int i = 0; i < a->plan->n_always; i++) {
    val begin = a->forced_first[i], end = add(k, begin, a->forced_count[i]);
    val meets = both(k, is_lt(k, first, end), is_lt(k, begin, add_const(k, first, FLAT_STEP)));
    any = either(k, any, meets);
  }
  return any;
}

static void step_keys(struct ir *k, const struct flat *a, val first, val plain_end,
                      val shift[2][FRAG_ROWS], const val worst[FRAG_ROWS],
                      const struct var better[FRAG_ROWS]) {
  if (a->plan->score != SCORE_MEAN) { /* long code: in a loop */
    FOR_STEP(k, offset, i32(k, 0), i32(k, FLAT_STEP), i32(k, MMA_COLUMNS)) {
      store_keys(k, a, first, offset, false, shift, worst, better);
    }
    return;
  }
  val plain = both(k, is_le(k, add_const(k, first, FLAT_STEP), plain_end),
                   bit_not(k, meets_always(k, a, first)));
  IF (k, plain) {
    for (int g = 0; g < FLAT_GROUPS; g++)
      store_keys(k, a, first, i32(k, MMA_COLUMNS * g), true, shift, worst, better);
  }
  ELSE (k) {
    for (int g = 0; g < FLAT_GROUPS; g++)
      store_keys(k, a, first, i32(k, MMA_COLUMNS * g), false, shift, worst, better);
  }
}

void flat_scan(struct ir *k, const struct flat *a, val shift[2][FRAG_ROWS]) {
  val plain_end = flat_plain_end(k, a);
  FOR_STEP(k, first, a->start, a->visible, i32(k, a->stride)) {
    val worst[FRAG_ROWS];
    struct var better[FRAG_ROWS];
    for (int r = 0; r < flat_query_rows(a); r++) {
      worst[r] = load(k, k->i32, worst_place(k, a, lane_query(k, a, r)), WORD);
      better[r] = var_init(k, i32(k, 0));
    }
    step_keys(k, a, first, plain_end, shift, worst, better);
    struct var left = var_init(k, better_queries(k, a, better));
    warp_sync(k);
    WHILE (k, is_ne(k, get(k, left), i32(k, 0))) {
      val bit = sub(k, i32(k, 31), count_leading_zeros(k, get(k, left)));
      set(k, left, bit_xor(k, get(k, left), shift_left(k, i32(k, 1), bit)));
      list_join(k, a, bit_query(k, a, bit), first);
    }
    warp_sync(k);
  }
}

/* ---- lists out ---- */

/* How many entries of the list have a smaller id. */
static val rank_of(struct ir *k, const struct flat *a, val query, val id) {
  struct var rank = var_init(k, i32(k, 0));
  FOR (k, slot, i32(k, 0), i32(k, a->plan->keep)) {
    val other = load(k, k->i32, list_id(k, a, query, slot), WORD);
    set(k, rank, add(k, get(k, rank), widen_bool(k, is_lt(k, other, id))));
  }
  return get(k, rank);
}

/* In natural logarithms, or a part. */
static val worth_of(struct ir *k, const struct flat *a, val key) {
  val score = score_of(k, key);
  return plan_is_mass(a->plan) ? score : mul(k, score, f32(k, FLAT_LN2));
}

/* Entry |slot| of a query that sees |visible| leaves: of at most K each is kept unranked. */
static void write_entry(struct ir *k, const struct flat *a, val query, val slot, val visible,
                        val row) {
  val key = load(k, k->i32, list_key(k, a, query, slot), WORD);
  val id = load(k, k->i32, list_id(k, a, query, slot), WORD);
  val all = is_le(k, visible, i32(k, a->plan->keep));
  val place = choose(k, all, slot, rank_of(k, a, query, id));
  val exists = choose(k, all, is_lt(k, slot, visible), is_ne(k, key, i32(k, FLAT_ABSENT)));
  val unranked = either(k, all, is_eq(k, key, i32(k, FLAT_FORCED)));
  val leaf = choose(k, exists, choose(k, all, slot, id), i32(k, -1));
  val offset = add(k, mul_const(k, widen(k, row), a->plan->keep * WORD),
                   widen(k, mul_const(k, place, WORD)));
  store(k, leaf, at(k, FLAT_ARG(ids), offset), WORD);
  IF (k, bit_not(k, is_null_pointer(k, FLAT_ARG(worth)))) {
    val worth = choose(k, unranked, f32(k, INFINITY), worth_of(k, a, key));
    worth = choose(k, exists, worth, f32(k, -INFINITY));
    store(k, worth, at(k, FLAT_ARG(worth), offset), WORD);
  }
}

void flat_write(struct ir *k, const struct flat *a) {
  warp_sync(k);
  FOR (k, query, i32(k, 0), a->count) {
    val number = add(k, a->first, query), t = sequence_token(k, &a->s, number);
    val visible = level_visible(k, a->plan, a->s.keys, t, i32(k, 1));
    val row = sequence_list_row(k, &a->s, number, a->kv_head);
    FOR_STEP(k, slot, a->lanes.lane, i32(k, a->plan->keep), i32(k, LANES)) {
      write_entry(k, a, query, slot, visible, row);
    }
  }
}
