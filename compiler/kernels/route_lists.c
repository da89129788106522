/* What route stores of a query block: its mask, its count, its ids and its list; see route.c. */
#include "compiler/kernels/route.h"
#include "compiler/sm90/sync.h"

struct outputs { /* of one row */
  val list, mask, ids;
  val wants_ids;
};

static struct outputs outputs_of(struct ir *k, const struct route *a, val query) {
  val item = add(k, mul(k, a->head, a->q_tiles), query);
  return (struct outputs){
      .list = at_row(k, ARG(lists), item, mul_const(k, ARG(list_stride), WORD)),
      .mask = at_row(k, ARG(masks), item, mul_const(k, ARG(mask_words), WORD)),
      .ids = at_row(k, ARG(ids), item, mul_const(k, ARG(keep), WORD)),
      .wants_ids = bit_not(k, is_null_pointer(k, ARG(ids))),
  };
}

static void store_entry(struct ir *k, val array, val position, val j) {
  store(k, j, at(k, array, mul_const(k, position, WORD)), WORD);
}

static void store_entry_if(struct ir *k, val condition, val array, val position, val j) {
  store_if(k, condition, float_of(k, j), at(k, array, mul_const(k, position, WORD)));
}

static void fill(struct ir *k, const struct route *a, val array, val begin, val end, int word) {
  FOR_STEP(k, i, add(k, begin, a->lanes.lane), end, i32(k, 32)) {
    store_entry(k, array, i, i32(k, word));
  }
}

/* ---- a walk over the keys of a row ---- */

struct writing {
  const struct row_keys *keys;
  const struct choice *choice;
  const struct outputs *out;
  struct var ties, listed; /* still to be taken; so far */
};

/* Bits of the lanes whose block is listed. Of the keys that equal the threshold those behind the
   first |ties| may not be. */
static val listed_word(struct ir *k, const struct route *a, const struct writing *w, val key) {
  struct var word = var_init(k, warp_ballot(k, is_uge(k, key, w->choice->threshold)));
  IF (k, is_ne(k, w->choice->cut, i32(k, 0))) {
    val equal = is_eq(k, key, w->choice->threshold), equals = warp_ballot(k, equal);
    val late = is_ge(k, count_below(k, &a->lanes, equals), get(k, w->ties));
    val lates = warp_ballot(k, both(k, equal, late));
    set(k, word, bit_and(k, get(k, word), bit_not(k, lates)));
    set(k, w->ties, sub(k, get(k, w->ties), count_bits(k, equals)));
  }
  return get(k, word);
}

/* A lane's block has |before| listed ones before it. */
static void write_word(struct ir *k, const struct route *a, const struct writing *w, val word,
                       val j) {
  val before = add(k, get(k, w->listed), count_below(k, &a->lanes, word));
  val bit = bit_and(k, word, shift_left(k, i32(k, 1), a->lanes.lane));
  val listed = is_ne(k, bit, i32(k, 0));
  if (!a->plan->pairs) {
    store_entry_if(k, listed, w->out->list, before, j);
  }
  IF (k, w->out->wants_ids) {
    store_entry_if(k, listed, w->out->ids, before, j);
  }
  if (a->plan->rest_follows) {
    IF (k, both(k, is_eq(k, bit, i32(k, 0)), is_lt(k, j, a->k_blocks))) {
      store_entry(k, w->out->list, sub(k, add(k, w->choice->count, j), before), j);
    }
  }
  set(k, w->listed, add(k, get(k, w->listed), count_bits(k, word)));
}

/* Bits of word w of blocks that do not exist. */
static val absent_word(struct ir *k, const struct route *a, val w) {
  val n = smin(k, smax(k, sub(k, a->k_blocks, mul_const(k, w, 32)), i32(k, 0)), i32(k, 32));
  val some = shift_left(k, i32(k, -1), bit_and(k, n, i32(k, 31)));
  return choose(k, is_eq(k, n, i32(k, 32)), i32(k, 0), some);
}

/* The words of a span: as they are in place of its keys, with absent blocks to the mask. */
static void write_words(struct ir *k, const struct route *a, const struct writing *w, val span,
                        const val word[SPAN_WORDS]) {
  val place = mul_const(k, span, SPAN_WORDS * WORD), masked[SPAN_WORDS];
  struct var mask[SPAN_WORDS];
  for (int i = 0; i < SPAN_WORDS; i++) {
    mask[i] = var_init(k, word[i]);
  }
  IF (k, is_lt(k, a->k_blocks, mul_const(k, add_const(k, span, 1), SPAN))) {
    for (int i = 0; i < SPAN_WORDS; i++) {
      val index = add_const(k, mul_const(k, span, SPAN_WORDS), i);
      set(k, mask[i], bit_or(k, word[i], absent_word(k, a, index)));
    }
  }
  for (int i = 0; i < SPAN_WORDS; i++) {
    masked[i] = get(k, mask[i]);
  }
  store(k, pack4(k, masked), at(k, w->out->mask, place), SPAN_WORDS * WORD);
  if (a->plan->pairs) {
    store(k, pack4(k, word), at(k, w->keys->row, place), SPAN_WORDS * WORD);
  }
}

static void write_span(struct ir *k, const struct route *a, void *context, val span,
                       const val key[SPAN_WORDS]) {
  const struct writing *w = context;
  val word[SPAN_WORDS];
  for (int i = 0; i < SPAN_WORDS; i++) {
    word[i] = listed_word(k, a, w, key[i]);
    val j = add(k, add_const(k, mul_const(k, span, SPAN), 32 * i), a->lanes.lane);
    write_word(k, a, w, word[i], j);
  }
  if (a->plan->pairs) {
    warp_sync(k); /* words take the place of keys that every lane has read */
  }
  ONE_THREAD (k) {
    write_words(k, a, w, span, word);
  }
}

/* The same where every key on or above the threshold is listed and nobody asked for ids: a third of
   the instructions. */
static void write_plain_span(struct ir *k, const struct route *a, void *context, val span,
                             const val key[SPAN_WORDS]) {
  const struct writing *w = context;
  val word[SPAN_WORDS], listed = get(k, w->listed);
  val first = add(k, mul_const(k, span, SPAN), a->lanes.lane);
  for (int i = 0; i < SPAN_WORDS; i++) {
    val is_listed = is_uge(k, key[i], w->choice->threshold);
    word[i] = warp_ballot(k, is_listed);
    val place = add(k, listed, count_below(k, &a->lanes, word[i]));
    store_entry_if(k, is_listed, w->out->list, place, add_const(k, first, 32 * i));
    listed = add(k, listed, count_bits(k, word[i]));
  }
  set(k, w->listed, listed);
  ONE_THREAD (k) {
    write_words(k, a, w, span, word);
  }
}

/* The general way reads the keys once more: held ones would take its code four times. */
static void write_row(struct ir *k, const struct route *a, struct writing *w) {
  if (a->plan->pairs || a->plan->rest_follows) {
    row_walk(k, a, w->keys, write_span, w);
    return;
  }
  IF (k, either(k, is_ne(k, w->choice->cut, i32(k, 0)), w->out->wants_ids)) {
    const struct row_keys again = row_in_shared(w->keys->row);
    row_walk(k, a, &again, write_span, w);
  }
  ELSE (k) {
    row_walk(k, a, w->keys, write_plain_span, w);
  }
}

void lists_write(struct ir *k, const struct route *a, const struct row_keys *keys,
                 const struct choice *choice, val query) {
  struct outputs out = outputs_of(k, a, query);
  struct writing w = {
      .keys = keys,
      .choice = choice,
      .out = &out,
      .ties = var_init(k, choice->ties),
      .listed = var_init(k, i32(k, 0)),
  };
  write_row(k, a, &w);
  val words = mul_const(k, a->spans, SPAN_WORDS);
  fill(k, a, out.mask, words, ARG(mask_words), -1);
  fill(k, a, out.list, a->plan->rest_follows ? a->k_blocks : choice->count, ARG(list_stride), 0);
  IF (k, out.wants_ids) {
    fill(k, a, out.ids, choice->count, ARG(keep), -1);
  }
  ONE_THREAD (k) {
    store_entry(k, ARG(counts), add(k, mul(k, a->head, a->q_tiles), query), choice->count);
  }
}

/* ---- pairs ---- */

/* The words of two neighbouring query blocks; a last one without neighbour is its own. */
struct pair_rows {
  val mine, others;
  val short_block; /* is not shared: the last where the keys end within it, else -1 */
};

static struct pair_rows pair_rows_of(struct ir *k, const struct route *a) {
  val neighbour = bit_xor(k, a->lanes.warp, i32(k, 1));
  val exists = is_lt(k, add(k, a->first, neighbour), a->q_tiles);
  val other = choose(k, exists, neighbour, a->lanes.warp);
  val whole = udiv(k, a->keys, i32(k, a->plan->key));
  return (struct pair_rows){
      .mine = at(k, k->smem, mul(k, a->lanes.warp, a->row_bytes)),
      .others = at(k, k->smem, mul(k, other, a->row_bytes)),
      .short_block = choose(k, is_eq(k, whole, a->k_blocks), i32(k, -1), whole),
  };
}

static val word_at(struct ir *k, val row, val w) {
  return load(k, k->i32, at(k, row, mul_const(k, w, WORD)), WORD);
}

/* Blocks of word w that both list, but the short one. */
static val common_word(struct ir *k, const struct pair_rows *rows, val w) {
  val both_list = bit_and(k, word_at(k, rows->mine, w), word_at(k, rows->others, w));
  val is_here = is_eq(k, shift_right_signed(k, rows->short_block, i32(k, 5)), w);
  val bit = shift_left(k, i32(k, 1), bit_and(k, rows->short_block, i32(k, 31)));
  return bit_and(k, both_list, bit_not(k, choose(k, is_here, bit, i32(k, 0))));
}

/* An even number of them. */
static val count_shared(struct ir *k, const struct route *a, const struct pair_rows *rows,
                        val words) {
  struct var count = var_init(k, i32(k, 0));
  FOR_STEP(k, w, a->lanes.lane, words, i32(k, 32)) {
    set(k, count, add(k, get(k, count), count_bits(k, common_word(k, rows, w))));
  }
  return bit_and(k, warp_sum_u32(k, get(k, count)), i32(k, -2));
}

/* First the |shared| blocks, then all others. */
static void write_pair_list(struct ir *k, const struct route *a, const struct pair_rows *rows,
                            val words, val shared, val list) {
  struct var listed = var_init(k, i32(k, 0)), common = var_init(k, i32(k, 0));
  FOR (k, w, i32(k, 0), words) {
    val mine = word_at(k, rows->mine, w), both_list = common_word(k, rows, w);
    val before = add(k, get(k, listed), count_below(k, &a->lanes, mine));
    val before_common = add(k, get(k, common), count_below(k, &a->lanes, both_list));
    val bit = shift_left(k, i32(k, 1), a->lanes.lane), zero = i32(k, 0);
    val in_common =
        both(k, is_ne(k, bit_and(k, both_list, bit), zero), is_lt(k, before_common, shared));
    val own = sub(k, add(k, before, shared), smin(k, before_common, shared));
    IF (k, is_ne(k, bit_and(k, mine, bit), zero)) {
      val j = add(k, mul_const(k, w, 32), a->lanes.lane);
      store_entry(k, list, choose(k, in_common, before_common, own), j);
    }
    set(k, listed, add(k, get(k, listed), count_bits(k, mine)));
    set(k, common, add(k, get(k, common), count_bits(k, both_list)));
  }
}

void lists_write_pair(struct ir *k, const struct route *a, val query) {
  struct pair_rows rows = pair_rows_of(k, a);
  val words = mul_const(k, a->spans, SPAN_WORDS);
  val shared = count_shared(k, a, &rows, words);
  write_pair_list(k, a, &rows, words, shared, outputs_of(k, a, query).list);
  IF (k, is_eq(k, bit_and(k, a->lanes.warp, i32(k, 1)), i32(k, 0))) {
    ONE_THREAD (k) {
      val pairs = blocks_of(k, a->q_tiles, 2);
      val pair = add(k, mul(k, a->head, pairs), udiv(k, query, i32(k, 2)));
      store_entry(k, ARG(shared), pair, shared);
    }
  }
}
