/* flat_query.c: the rows of a unit. In go query numbers; out come their tokens, what is forced for
   them, and A operands of q. */
#include <assert.h>

#include "compiler/kernels/flat.h"

enum { HALF = 2, FAR_BELOW = -8 };

static int log2_of(int x) {
  int bits = 0;
  while (1 << bits < x)
    bits++;
  assert(1 << bits == x);
  return bits;
}

/* ---- forced leaves ---- */

/* Leaves that tokens [begin, end) touch, of those there are: first and count. */
static void set_range(struct ir *k, struct flat *a, int i, val begin, val end) {
  int shift = log2_of(a->plan->leaf);
  val from = smax(k, begin, i32(k, 0)), to = smin(k, end, a->s.keys);
  val first = shift_right(k, from, i32(k, shift));
  val behind = shift_right(k, add_const(k, to, a->plan->leaf - 1), i32(k, shift));
  a->forced_first[i] = first;
  a->forced_count[i] = choose(k, is_lt(k, from, to), sub(k, behind, first), i32(k, 0));
}

static void forced_leaves(struct ir *k, struct flat *a) {
  for (int i = 0; i < a->plan->n_always; i++) {
    const struct always_tokens *always = &a->plan->always[i];
    if (always->kind == ALWAYS_TOKENS_LAST)
      set_range(k, a, i, add_const(k, a->s.keys, -always->end), a->s.keys);
    else
      set_range(k, a, i, i32(k, always->begin), i32(k, always->end));
  }
}

val flat_is_always(struct ir *k, const struct flat *a, val leaf) {
  val any = is_lt(k, i32(k, 1), i32(k, 0));
  for (int i = 0; i < a->plan->n_always; i++)
    any = either(k, any, is_ugt(k, a->forced_count[i], sub(k, leaf, a->forced_first[i])));
  return any;
}

val flat_is_near(struct ir *k, const struct flat *a, const struct flat_row *row, val leaf) {
  val any = is_lt(k, i32(k, 1), i32(k, 0));
  if (a->plan->current)
    any = either(k, any, is_eq(k, leaf, row->own));
  if (a->plan->previous)
    any = either(k, any, is_eq(k, leaf, add_const(k, row->own, -1)));
  return any;
}

val flat_log_count(struct ir *k, const struct flat *a, val leaf) {
  val full = f32(k, log2_of(a->plan->leaf));
  if (a->plan->causal)
    return full;
  val rest = sub(k, a->s.keys, mul_const(k, leaf, a->plan->leaf));
  val part = log2_approx(k, to_float(k, rest));
  return choose(k, is_lt(k, rest, i32(k, a->plan->leaf)), part, full);
}

/* ---- rows ---- */

/* Query of the unit and head that row |r| of tile |tile| is. */
static void row_place(struct ir *k, const struct flat *a, int tile, int r, val *query, val *head) {
  val row = add_const(k, mma_lane_row(k, &a->lanes), MMA_ROWS * tile + 8 * r);
  *query = shift_right(k, row, i32(k, log2_of(a->heads)));
  *head = bit_and(k, row, i32(k, a->heads - 1));
}

static struct flat_row row_of_query(struct ir *k, const struct flat *a, val query) {
  int shift = log2_of(a->plan->leaf);
  struct flat_row row = {.token = sequence_token(k, &a->s, query)};
  val seen = is_ge(k, row.token, i32(k, 0));
  row.own = choose(k, seen, shift_right(k, row.token, i32(k, shift)), i32(k, FAR_BELOW));
  row.visible = level_visible(k, a->plan, a->s.keys, row.token, i32(k, 1));
  row.readable = a->plan->causal ? smin(k, add_const(k, row.token, 1), a->s.keys) : a->s.keys;
  return row;
}

/* Number of the unit's query |query|; behind the last one that one. */
static val number(struct ir *k, const struct flat *a, val query) {
  return add(k, a->first, smin(k, query, add_const(k, a->count, -1)));
}

void flat_unit(struct ir *k, struct flat *a, val first, val end) {
  a->s = sequence_of_query(k, first);
  a->first = first;
  a->count = sub(k, smin(k, end, add(k, a->s.q_begin, a->s.queries)), first);
  val last = sequence_token(k, &a->s, add(k, first, add_const(k, a->count, -1)));
  a->visible = level_visible(k, a->plan, a->s.keys, last, i32(k, 1));
  val base = sequence_node_base(k, &a->s, a->plan->leaf, a->kv_head);
  a->means = at(k, FLAT_ARG(means), mul_const(k, base, a->plan->head_dim * HALF));
  forced_leaves(k, a);
  for (int r = 0; r < flat_query_rows(a); r++) {
    val query, head;
    row_place(k, a, 0, r, &query, &head);
    a->row[r] = row_of_query(k, a, number(k, a, query));
  }
}

/* ---- q ---- */

static val q_row(struct ir *k, const struct flat *a, val query, val head) {
  val row =
      sequence_query_offset(k, &a->s, number(k, a, query), FLAT_ARG(q_batch), FLAT_ARG(q_token));
  val all = add(k, mul_const(k, a->kv_head, a->plan->group), head);
  return at(k, FLAT_ARG(q), add(k, row, mul(k, widen(k, all), FLAT_ARG(q_head))));
}

/* x, where a difference of infinities was, 0. */
static val or_zero(struct ir *k, val x) {
  return choose(k, is_eq(k, x, x), x, f32(k, 0));
}

/* The sum of a query's heads over 2^n >= G, rounded to half, and the rounded rest: together exact
   to 2^-17 (bf16), 2^-22 (fp16). */
static void fold_row(struct ir *k, struct flat *a, int r) {
  const int words = a->plan->head_dim / 8, divisor = power_of_two_from(a->plan->group);
  struct var sum[2 * MMA_MAX_WORDS];
  for (int i = 0; i < 2 * words; i++)
    sum[i] = var_init(k, f32(k, 0));
  val query, row_head;
  row_place(k, a, 0, r, &query, &row_head);
  FOR (k, head, i32(k, 0), i32(k, a->plan->group)) {
    struct mma_row x = mma_row_load(k, q_row(k, a, query, head), a->plan->head_dim, &a->lanes);
    for (int i = 0; i < words; i++) {
      set(k, sum[2 * i], add(k, get(k, sum[2 * i]), half_lo(k, x.word[i])));
      set(k, sum[2 * i + 1], add(k, get(k, sum[2 * i + 1]), half_hi(k, x.word[i])));
    }
  }
  for (int part = 0; part < 2; part++)
    a->q[part].r[r].head_dim = a->plan->head_dim;
  for (int i = 0; i < words; i++) {
    val x[2];
    for (int q = 0; q < 2; q++)
      x[q] = mul(k, get(k, sum[2 * i + q]), f32(k, 1.0 / divisor));
    val high = pack_half(k, x[0], x[1]);
    a->q[0].r[r].word[i] = high;
    a->q[1].r[r].word[i] = pack_half(k, or_zero(k, sub(k, x[0], half_lo(k, high))),
                                     or_zero(k, sub(k, x[1], half_hi(k, high))));
  }
}

void flat_load(struct ir *k, struct flat *a) {
  for (int tile = 0; tile < a->tiles; tile++)
    for (int r = 0; r < FRAG_ROWS; r++) {
      val query, head, last = i32(k, a->plan->group - 1);
      row_place(k, a, tile, r, &query, &head);
      a->exists[tile][r] = is_le(k, head, last);
      if (a->folded && a->plan->group > 1)
        fold_row(k, a, r);
      else
        a->q[tile].r[r] =
            mma_row_load(k, q_row(k, a, query, smin(k, head, last)), a->plan->head_dim, &a->lanes);
    }
}
