/* sequence.c: in go the arguments of a call and a number of a query, a part or a node; out come
   the sequence it belongs to and where its rows lie. */
#include "compiler/kernels/sequence.h"

#include <assert.h>

enum { WORD = 4, HALF = 2 };

static int log2_of(int64_t x) {
  int bits = 0;
  while ((int64_t)1 << bits < x)
    bits++;
  assert((int64_t)1 << bits == x);
  return bits;
}

static val word_at(struct ir *k, val array, val index) {
  return load(k, k->i32, at(k, array, mul(k, widen(k, index), i64(k, WORD))), WORD);
}

static val is_packed(struct ir *k) {
  return bit_not(k, is_null_pointer(k, SEQUENCE_ARG(k_starts)));
}

/* ---- sequences ---- */

/* All keys there is room for, or as many as |lengths| says. */
static val keys_of(struct ir *k, val b, val room) {
  struct var keys = var_init(k, room);
  IF (k, bit_not(k, is_null_pointer(k, SEQUENCE_ARG(lengths)))) {
    val length = word_at(k, SEQUENCE_ARG(lengths), b);
    set(k, keys, smin(k, smax(k, length, i32(k, 0)), room));
  }
  return get(k, keys);
}

struct sequence sequence_at(struct ir *k, val b) {
  struct sequence s = {.index = b, .packed = is_packed(k)};
  struct var q_begin = var_init(k, mul(k, b, SEQUENCE_ARG(n_q)));
  struct var queries = var_init(k, SEQUENCE_ARG(n_q));
  struct var k_begin = var_init(k, i32(k, 0)), room = var_init(k, SEQUENCE_ARG(n_k));
  IF (k, s.packed) {
    val next = add_const(k, b, 1);
    val q = word_at(k, SEQUENCE_ARG(q_starts), b), keys = word_at(k, SEQUENCE_ARG(k_starts), b);
    set(k, q_begin, q);
    set(k, queries, sub(k, word_at(k, SEQUENCE_ARG(q_starts), next), q));
    set(k, k_begin, keys);
    set(k, room, sub(k, word_at(k, SEQUENCE_ARG(k_starts), next), keys));
  }
  val equal = mul(k, widen(k, b), widen(k, SEQUENCE_ARG(n_k)));
  s.q_begin = get(k, q_begin);
  s.queries = get(k, queries);
  s.k_begin = choose(k, s.packed, widen(k, get(k, k_begin)), equal);
  s.room = get(k, room);
  s.keys = keys_of(k, b, s.room);
  return s;
}

/* The largest b of |batch| for which starts[b] / 2^shift + (counts ? b : 0) is at most |number|,
   which holds for 0. */
static val search(struct ir *k, val starts, int shift, bool counts, val number) {
  struct var low = var_init(k, i32(k, 0)), high = var_init(k, SEQUENCE_ARG(batch));
  WHILE (k, is_lt(k, add_const(k, get(k, low), 1), get(k, high))) {
    val middle = shift_right(k, add(k, get(k, low), get(k, high)), i32(k, 1));
    val first = shift_right(k, word_at(k, starts, middle), i32(k, shift));
    val before = is_le(k, counts ? add(k, first, middle) : first, number);
    set(k, low, choose(k, before, middle, get(k, low)));
    set(k, high, choose(k, before, get(k, high), middle));
  }
  return get(k, low);
}

/* |mostly_one|: a branch spares most calls the division. */
static struct sequence of_query(struct ir *k, val query, bool mostly_one) {
  struct var b = var_init(k, query);
  IF (k, is_packed(k)) {
    set(k, b, search(k, SEQUENCE_ARG(q_starts), 0, false, query));
  }
  ELSE (k) {
    if (mostly_one) {
      IF (k, is_ne(k, SEQUENCE_ARG(n_q), i32(k, 1))) {
        set(k, b, udiv(k, query, SEQUENCE_ARG(n_q)));
      }
    } else {
      set(k, b, udiv(k, query, SEQUENCE_ARG(n_q)));
    }
  }
  return sequence_at(k, get(k, b));
}

struct sequence sequence_of_query(struct ir *k, val query) {
  return of_query(k, query, false);
}

struct sequence sequence_of_step(struct ir *k, val query) {
  return of_query(k, query, true);
}

/* With equal rooms b n_k / tokens + b <= number, rounded down, is b (n_k + tokens) < (number + 1)
   tokens. */
static val part_of_equal(struct ir *k, val number, int64_t tokens) {
  val end = mul_const(k, add_const(k, widen(k, number), 1), tokens);
  val stride = add_const(k, widen(k, SEQUENCE_ARG(n_k)), tokens);
  val b = narrow(k, udiv(k, add_const(k, end, -1), stride));
  return smin(k, b, add_const(k, SEQUENCE_ARG(batch), -1));
}

struct sequence sequence_of_part(struct ir *k, val number, int64_t tokens, val *place) {
  int shift = log2_of(tokens);
  struct var b = var_new(k, k->i32);
  IF (k, is_packed(k)) {
    set(k, b, search(k, SEQUENCE_ARG(k_starts), shift, true, number));
  }
  ELSE (k) {
    set(k, b, part_of_equal(k, number, tokens));
  }
  struct sequence s = sequence_at(k, get(k, b));
  val first = narrow(k, shift_right(k, s.k_begin, i64(k, shift)));
  *place = sub(k, number, add(k, first, s.index));
  return s;
}

/* ---- rows ---- */

static val place_of_query(struct ir *k, const struct sequence *s, val query) {
  return sub(k, query, s->q_begin);
}

val sequence_token(struct ir *k, const struct sequence *s, val query) {
  return add(k, sub(k, s->keys, s->queries), place_of_query(k, s, query));
}

val sequence_query_offset(struct ir *k, const struct sequence *s, val query, val batch_bytes,
                          val token_bytes) {
  val entry = widen(k, choose(k, s->packed, i32(k, 0), s->index));
  val row = widen(k, choose(k, s->packed, query, place_of_query(k, s, query)));
  return add(k, mul(k, entry, batch_bytes), mul(k, row, token_bytes));
}

/* Row of an array [B, |heads|, n_q]; with starts [heads, T]. */
static val row_of_head(struct ir *k, const struct sequence *s, val query, val head, val heads) {
  val entry = choose(k, s->packed, i32(k, 0), s->index);
  val row = choose(k, s->packed, query, place_of_query(k, s, query));
  return add(k, mul(k, add(k, mul(k, entry, heads), head), SEQUENCE_ARG(n_q)), row);
}

val sequence_list_row(struct ir *k, const struct sequence *s, val query, val kv_head) {
  return row_of_head(k, s, query, kv_head, SEQUENCE_ARG(kv_heads));
}

val sequence_head_row(struct ir *k, const struct sequence *s, val query, val head, val heads) {
  return row_of_head(k, s, query, head, heads);
}

val sequence_row(struct ir *k, val query, val kv_head) {
  return add(k, mul(k, kv_head, SEQUENCE_ARG(queries)), query);
}

/* Offset of |token| from row 0 of a key head. */
static val token_offset(struct ir *k, const struct sequence *s, const struct sequence_array *array,
                        int page, val token) {
  if (page > 0) {
    val column = shift_right(k, token, i32(k, log2_of(page)));
    val row = mul(k, widen(k, s->index), widen(k, SEQUENCE_ARG(page_columns)));
    val entry = at(k, SEQUENCE_ARG(pages), mul_const(k, add(k, row, widen(k, column)), WORD));
    val number = widen(k, load(k, k->i32, entry, WORD));
    val within = widen(k, bit_and(k, token, i32(k, page - 1)));
    return add(k, mul(k, number, array->batch_bytes), mul(k, within, array->token_bytes));
  }
  val row = add(k, choose(k, s->packed, s->k_begin, i64(k, 0)), widen(k, token));
  val entry = widen(k, choose(k, s->packed, i32(k, 0), s->index));
  return add(k, mul(k, entry, array->batch_bytes), mul(k, row, array->token_bytes));
}

val sequence_key(struct ir *k, const struct sequence *s, const struct sequence_array *array,
                 int page, val kv_head, val token) {
  val head = mul(k, widen(k, kv_head), array->head_bytes);
  return at(k, array->base, add(k, head, token_offset(k, s, array, page, token)));
}

val log2_units(struct ir *k, val scale) {
  const double log2_e = 1.44269504088896340736;
  return mul(k, scale, f32(k, log2_e));
}

/* ---- levels ---- */

val sequence_node_base(struct ir *k, const struct sequence *s, int leaf, val kv_head) {
  val pairs = shift_right(k, s->k_begin, i64(k, log2_of(2 * (int64_t)leaf)));
  val base = add(k, mul_const(k, pairs, 4), mul_const(k, widen(k, s->index), 128));
  return add(k, mul(k, widen(k, kv_head), widen(k, SEQUENCE_ARG(node_rows))), base);
}

val mean_row(struct ir *k, int head_dim, val means, val row) {
  assert(head_dim % PISA_MEAN_PIECE == 0);
  val odd = bit_and(k, row, i32(k, 1)), even = sub(k, row, odd);
  val pair = mul_const(k, widen(k, even), (int64_t)head_dim * HALF);
  return at(k, means, add(k, pair, widen(k, mul_const(k, odd, PISA_MEAN_PIECE * HALF))));
}

val mean_column(struct ir *k, val column) {
  val before = bit_and(k, column, i32(k, -PISA_MEAN_PIECE));
  return mul_const(k, add(k, column, before), HALF);
}

val level_shift(struct ir *k, int leaf, int children, val level) {
  int step = log2_of(children);
  return add_const(k, mul_const(k, level, step), log2_of(leaf) - step);
}

/* ceil(tokens / 2^shift), also of 0. */
static val parts(struct ir *k, val tokens, val shift) {
  return add_const(k, shift_right_signed(k, add_const(k, tokens, -1), shift), 1);
}

val level_nodes(struct ir *k, val tokens, int leaf, int children, val level) {
  return parts(k, tokens, level_shift(k, leaf, children, level));
}

val level_visible(struct ir *k, const struct plan_pyramid *plan, val keys, val t, val level) {
  val shift = level_shift(k, plan->leaf, plan->children, level);
  val nodes = parts(k, keys, shift);
  if (!plan->causal)
    return nodes;
  val seen = smin(k, add_const(k, shift_right_signed(k, t, shift), 1), nodes);
  return smax(k, seen, i32(k, 0));
}

val level_offset(struct ir *k, val room, int leaf, int children, val level) {
  struct var offset = var_init(k, i32(k, 0));
  FOR (k, l, i32(k, 1), level) {
    val nodes = level_nodes(k, room, leaf, children, l);
    set(k, offset, add(k, get(k, offset), bit_and(k, add_const(k, nodes, 3), i32(k, -4))));
  }
  return get(k, offset);
}
