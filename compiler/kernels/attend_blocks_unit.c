/* attend_blocks_unit.c: in go units of 16 keys and values; out come sums of values weighted by
   e^score, and of the weights. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/attend_blocks.h"

enum { HALF = 2 };
/* What p may reach before sums are scaled: 2^8 leaves half a range of 2^15 in fp16, and room in
   f32. What is above the first scores by less is not worth the products. */

struct scores { /* of a unit */
  struct var x[FRAG_ROWS][BLOCKS_TILES][2];
};

/* ---- the query ---- */

struct blocks_query blocks_query(struct ir *k, const struct plan_pyramid *plan, val query,
                                 val kv_head) {
  struct blocks_query x = {.query = query, .kv_head = kv_head};
  x.sequence = sequence_of_query(k, query);
  val t = sequence_token(k, &x.sequence, query);
  val limit = plan->causal ? add_const(k, t, 1) : x.sequence.keys;
  x.limit = warp_read(k, limit, i32(k, 0)); /* known to be the same for the whole warp */
  return x;
}

/* The lane's two heads; those behind the last are the last again, and not stored. */
static struct mma_rows load_queries(struct ir *k, const struct blocks *a) {
  const struct blocks_query *x = &a->query;
  val place =
      sequence_query_offset(k, &x->sequence, x->query, BLOCKS_ARG(q_batch), BLOCKS_ARG(q_token));
  val first = mul_const(k, x->kv_head, a->plan->group);
  struct mma_rows q;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val head = add_const(k, add(k, a->first_head, mma_lane_row(k, &a->lanes)), 8 * r);
    head = add(k, first, smin(k, head, i32(k, a->plan->group - 1)));
    val offset = add(k, place, mul(k, widen(k, head), BLOCKS_ARG(q_head)));
    q.r[r] = mma_row_load(k, at(k, BLOCKS_ARG(q), offset), a->plan->head_dim, &a->lanes);
  }
  return q;
}

/* What the words are is hidden from ptxas, which would move them into their fragments for every
   unit. Waits for them. */
static struct mma_rows hide(struct ir *k, struct mma_rows q) {
  const val never_negative[FRAG_ROWS] = {SEQUENCE_ARG(kv_heads), SEQUENCE_ARG(batch)};
  for (int r = 0; r < FRAG_ROWS; r++) {
    val zero = shift_right(k, never_negative[r], i32(k, 31));
    for (int w = 0; w < q.r[r].head_dim / 8; w++)
      q.r[r].word[w] = bit_xor(k, q.r[r].word[w], zero);
  }
  return q;
}

static val array_start(struct ir *k, const struct blocks *a, const struct sequence_array *array) {
  if (a->plan->page > 0)
    return at(k, array->base, mul(k, widen(k, a->query.kv_head), array->head_bytes));
  return sequence_key(k, &a->query.sequence, array, 0, a->query.kv_head, i32(k, 0));
}

struct blocks blocks_new(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                         const struct blocks_query *query, val first_head, val scale) {
  struct blocks a = {.plan = plan, .lanes = *lanes, .query = *query, .first_head = first_head};
  a.scale_log2 = log2_units(k, scale);
  a.keys = (struct sequence_array){BLOCKS_ARG(k), BLOCKS_ARG(k_batch), BLOCKS_ARG(k_head),
                                   BLOCKS_ARG(k_token)};
  a.values = (struct sequence_array){BLOCKS_ARG(v), BLOCKS_ARG(v_batch), BLOCKS_ARG(v_head),
                                     BLOCKS_ARG(v_token)};
  a.keys.base = at(k, array_start(k, &a, &a.keys), mma_lane_bytes(k, lanes));
  a.values.base = at(k, array_start(k, &a, &a.values), mma_values_lane_bytes(k, lanes));
  a.q = load_queries(k, &a);
  for (int tile = 0; tile < BLOCKS_TILES; tile++)
    a.key[tile] = mma_row_vars_new(k, plan->head_dim);
  a.value = mma_values_new(k, plan->head_dim);
  a.o = mma_sums_new(k, plan->head_dim);
  for (int r = 0; r < FRAG_ROWS; r++) {
    a.offset[r] = var_init(k, f32(k, BLOCKS_UNSEEN));
    a.sum[r] = var_init(k, f32(k, 0));
  }
  return a;
}

/* ---- loads ---- */

/* Row |row| of the unit at |cursor|, or the last one seen where that lies behind it: its weight is
   0 then, and the product is that of a value which counts. */
static val unit_row(struct ir *k, const struct blocks *a, const struct sequence_array *array,
                    const struct cursor *cursor, val row) {
  val last = add_const(k, a->query.limit, -1);
  val token = umin(k, add(k, get(k, cursor->token), row), last); /* unsigned: -1 is the last too */
  val start = array->base, token_bytes = narrow(k, array->token_bytes);
  if (a->plan->page > 0) {
    start = at(k, start, mul(k, widen(k, get(k, cursor->page)), array->batch_bytes));
    token = bit_and(k, token, i32(k, a->plan->page - 1));
  }
  return at_row_wide(k, start, token, token_bytes);
}

static void load_keys(struct ir *k, const struct blocks *a, const struct cursor *cursor) {
  for (int tile = 0; tile < BLOCKS_TILES; tile++) {
    val row = add_const(k, mma_lane_row(k, &a->lanes), MMA_COLUMNS * tile);
    val place = unit_row(k, a, &a->keys, cursor, row);
    struct mma_row words = mma_row_load_mine(k, place, a->plan->head_dim);
    mma_row_vars_set(k, &a->key[tile], &words);
  }
}

static void load_values(struct ir *k, const struct blocks *a, const struct cursor *cursor) {
  for (int i = 0; i < VALUES_LANE_ROWS; i++) {
    val place = unit_row(k, a, &a->values, cursor, mma_values_row(k, &a->lanes, i));
    mma_values_load(k, &a->value, i, place, &a->lanes);
  }
}

/* The 16 rows of the unit at |cursor| to L2, a sector a lane: loads of it wait less. */
static void fetch_rows(struct ir *k, const struct blocks *a, const struct sequence_array *array,
                       val lane_bytes, const struct cursor *cursor) {
  const int sector = 32, sectors = 4;
  val column = bit_and(k, a->lanes.lane, i32(k, sectors - 1));
  val offset = sub(k, mul_const(k, column, sector), lane_bytes);
  for (int tile = 0; tile < BLOCKS_TILES; tile++) {
    val row = add_const(k, mma_lane_row(k, &a->lanes), MMA_COLUMNS * tile);
    val place = at(k, unit_row(k, a, array, cursor, row), widen(k, offset));
    for (int i = 0; i < a->plan->head_dim * HALF; i += sector * sectors)
      prefetch(k, at_const(k, place, i));
  }
}

static void fetch_unit(struct ir *k, const struct blocks *a, const struct cursor *cursor) {
  fetch_rows(k, a, &a->keys, mma_lane_bytes(k, &a->lanes), cursor);
  fetch_rows(k, a, &a->values, mma_values_lane_bytes(k, &a->lanes), cursor);
}

/* ---- a unit ---- */

/* q.k, unscaled. */
static void score_keys(struct ir *k, const struct blocks *a, const struct mma_rows *q,
                       const struct scores *s) {
  const int rows = blocks_rows(a->plan);
  for (int tile = 0; tile < BLOCKS_TILES; tile++) {
    struct mma_row key = mma_row_vars_get(k, &a->key[tile]);
    val c[4];
    for (int i = 0; i < 4; i++)
      c[i] = f32(k, 0);
    for (int w = 0; w < a->plan->head_dim / 8; w += 2) {
      val left[4];
      for (int z = 0; z < 4; z++)
        left[z] = q->r[z % 2].word[w + z / 2];
      mma_product(k, c, left, &key.word[w]);
    }
    for (int i = 0; i < 2 * rows; i++)
      set(k, s->x[i / 2][tile][i % 2], c[i]);
  }
}

/* What lies behind the limit, of a unit that reaches there. */
static void mask_scores(struct ir *k, const struct blocks *a, const struct scores *s, val token) {
  IF (k, is_lt(k, a->query.limit, add_const(k, token, BLOCKS_UNIT))) {
    val first = add(k, token, frag_lane_column(k, &a->lanes));
    for (int i = 0; i < 2 * BLOCKS_TILES; i++) {
      val seen = is_lt(k, add_const(k, first, MMA_COLUMNS * (i / 2) + i % 2), a->query.limit);
      for (int r = 0; r < blocks_rows(a->plan); r++) {
        struct var x = s->x[r][i / 2][i % 2];
        set(k, x, choose(k, seen, get(k, x), f32(k, -INFINITY)));
      }
    }
  }
}

/* x of a row: c q.k + offset. */
static void row_exponents(struct ir *k, const struct blocks *a, const val product[4], int r,
                          val x[4]) {
  val offset = get(k, a->offset[r]);
  for (int i = 0; i < 4; i++)
    x[i] = fused(k, product[i], a->scale_log2, offset);
}

static val row_maximum(struct ir *k, const val x[4]) {
  val left = maximum(k, x[0], x[1]);
  return maximum(k, left, maximum(k, x[2], x[3]));
}

/* A larger offset for row |r|, and the sums so far in it. */
static void renew_row(struct ir *k, const struct blocks *a, const val product[4], int r) {
  val scaled[4];
  for (int i = 0; i < 4; i++)
    scaled[i] = mul(k, product[i], a->scale_log2);
  val before = negate(k, get(k, a->offset[r]));
  val top = maximum(k, before, quad_max(k, row_maximum(k, scaled)));
  val factor = exp2_approx(k, sub(k, before, top));
  set(k, a->offset[r], negate(k, top));
  set(k, a->sum[r], mul(k, get(k, a->sum[r]), factor));
  mma_sums_scale(k, &a->o, r, factor);
}

/* From products to x of all rows. */
static void exponents(struct ir *k, const struct blocks *a, const struct scores *s) {
  const int rows = blocks_rows(a->plan);
  val product[FRAG_ROWS][4], x[FRAG_ROWS][4], above = {0};
  for (int r = 0; r < rows; r++) {
    for (int i = 0; i < 4; i++)
      product[r][i] = get(k, s->x[r][i / 2][i % 2]);
    row_exponents(k, a, product[r], r, x[r]);
    for (int i = 0; i < 4; i++)
      set(k, s->x[r][i / 2][i % 2], x[r][i]);
    val mine = is_lt(k, f32(k, BLOCKS_RENEW), row_maximum(k, x[r]));
    above = r == 0 ? mine : either(k, above, mine);
  }
  IF (k, is_ne(k, warp_ballot(k, above), i32(k, 0))) {
    for (int r = 0; r < rows; r++) {
      renew_row(k, a, product[r], r);
      row_exponents(k, a, product[r], r, x[r]);
      for (int i = 0; i < 4; i++)
        set(k, s->x[r][i / 2][i % 2], x[r][i]);
    }
  }
}

/* p of all rows as an A operand, and their sums. */
static void weights(struct ir *k, const struct blocks *a, const struct scores *s, val p[4]) {
  for (int z = 0; z < 4; z++)
    p[z] = i32(k, 0);
  for (int r = 0; r < blocks_rows(a->plan); r++) {
    val part[BLOCKS_TILES];
    for (int tile = 0; tile < BLOCKS_TILES; tile++) {
      val lo = exp2_approx(k, get(k, s->x[r][tile][0]));
      val hi = exp2_approx(k, get(k, s->x[r][tile][1]));
      part[tile] = add(k, lo, hi);
      p[2 * tile + r] = pack_half(k, lo, hi);
    }
    val sum = get(k, a->sum[r]);
    set(k, a->sum[r], add(k, sum, add(k, part[0], part[1])));
  }
}

/* The keys and values loaded, |token| the first one's; |cursor| is where those that are loaded
   meanwhile lie. */
static void read_unit(struct ir *k, const struct blocks *a, const struct mma_rows *q, val token,
                      const struct cursor *cursor) {
  struct scores s;
  for (int i = 0; i < 4 * FRAG_ROWS; i++)
    s.x[i / 4][i / 2 % 2][i % 2] = var_new(k, k->f32);
  score_keys(k, a, q, &s);
  load_keys(k, a, cursor);
  warp_sync(
      k); /* ptxas sinks the loads to the end of the loop otherwise, and waits for them there */
  mask_scores(k, a, &s, token);
  exponents(k, a, &s);
  val p[4];
  weights(k, a, &s, p);
  mma_sums_add(k, &a->o, p, &a->value);
  load_values(k, a, cursor);
}

static void read_units(struct ir *k, const struct blocks *a, const struct cursor *cursor,
                       bool ahead) {
  struct var token = var_init(k, get(k, cursor->token));
  load_keys(k, a, cursor);
  load_values(k, a, cursor);
  cursor_advance(k, a->plan, &a->query, cursor);
  if (ahead)
    fetch_unit(k, a, cursor);
  struct mma_rows q = hide(k, a->q);
  WHILE (k, is_ge(k, get(k, token), i32(k, 0))) {
    read_unit(k, a, &q, get(k, token), cursor);
    set(k, token, get(k, cursor->token));
    cursor_advance(k, a->plan, &a->query, cursor);
    if (ahead)
      fetch_unit(k, a, cursor);
  }
}

void blocks_read(struct ir *k, const struct blocks *a, const struct blocks_share *share) {
  const val sees = is_lt(k, i32(k, 0), a->query.limit);
  if (share->ahead) { /* the list is read while the length is on its way */
    struct cursor cursor = cursor_new(k, a->plan, &a->query, share);
    IF (k, sees) {
      read_units(k, a, &cursor, true);
    }
    return;
  }
  IF (k, sees) {
    struct cursor cursor = cursor_new(k, a->plan, &a->query, share);
    read_units(k, a, &cursor, false);
  }
}

void blocks_read_run(struct ir *k, const struct blocks *a, val token, val units) {
  const struct cursor cursor = cursor_of_run(k, a->plan, &a->query, token, units);
  read_units(k, a, &cursor, false);
}

void blocks_end(struct ir *k, const struct blocks *a) {
  for (int r = 0; r < blocks_rows(a->plan); r++)
    set(k, a->sum[r], quad_sum(k, get(k, a->sum[r])));
}
