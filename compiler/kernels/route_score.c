/* Scores of a tile's query blocks and all key blocks of a head, straight from global memory, into
   shared memory; see route.c. */
#include "compiler/kernels/route.h"

#include <math.h>

#include "compiler/sm90/frag.h"

enum { NORM_PARTS = 8 };

/* ---- query means ---- */

int words_per_lane(const struct route *a) {
  return (a->plan->head_dim / 2 + 31) / 32;
}

static val word_index(struct ir *k, const struct route *a, int i) {
  const int words = a->plan->head_dim / 2;
  val word = add_const(k, a->lanes.lane, 32 * i);
  return 32 * (i + 1) > words ? umin(k, word, i32(k, words - 1)) : word;
}

struct words words_load(struct ir *k, const struct route *a, val row) {
  struct words x;
  for (int i = 0; i < words_per_lane(a); i++) {
    x.word[i] = load(k, k->i32, at(k, row, mul_const(k, word_index(k, a, i), WORD)), WORD);
  }
  return x;
}

static struct words query_words(struct ir *k, const struct route *a, val sub_block) {
  val index = add(k, mul(k, a->head, a->q_blocks), sub_block);
  return words_load(k, a, at_row(k, ARG(q_mean), index, i32(k, a->plan->head_dim * HALF)));
}

/* Of sub-block i of the queries. */
static val rows_of(struct ir *k, const struct route *a, val i) {
  const int rows = a->plan->key;
  return smin(k, sub(k, ARG(n_q), mul_const(k, i, rows)), i32(k, rows));
}

/* The mean of a query block, on its way: of its sub-blocks' means, one or two. Rows without a block
   take the last; a second sub-block without rows is the first again, and each counts half. */
struct query {
  val row;  /* of the tile */
  val i[2]; /* sub-blocks */
  struct words x[2];
};
static int sub_blocks(const struct route *a) {
  return a->plan->query / a->plan->key;
}
static struct query query_load(struct ir *k, const struct route *a, val row) {
  val i = umin(k, add(k, a->first, row), add_const(k, a->q_tiles, -1));
  val first = mul_const(k, i, sub_blocks(a)), last = add_const(k, a->q_blocks, -1);
  struct query q = {.row = row, .i = {first, umin(k, add_const(k, first, 1), last)}};
  for (int n = 0; n < sub_blocks(a); n++) {
    q.x[n] = query_words(k, a, q.i[n]);
  }
  return q;
}

/* Sub-blocks count by their rows. */
static struct words query_mean(struct ir *k, const struct route *a, const struct query *q) {
  if (sub_blocks(a) == 1) {
    return q->x[0];
  }
  val nx = to_float(k, rows_of(k, a, q->i[0])), ny = to_float(k, rows_of(k, a, q->i[1]));
  val inverse = reciprocal_approx(k, add(k, nx, ny));
  val wx = mul(k, nx, inverse), wy = mul(k, ny, inverse);
  struct words mean;
  for (int w = 0; w < words_per_lane(a); w++) {
    mean.word[w] = half_blend(k, q->x[0].word[w], wx, q->x[1].word[w], wy);
  }
  return mean;
}

/* The A operand of all warps is at the end of the tile's rows, before there are keys. */
static val query_rows(struct ir *k, const struct route *a) {
  return at_const(k, row_at(k, a, i32(k, MMA_ROWS)), -mma_rows_bytes(a->plan->head_dim));
}

/* Its row of the operand. */
static void share_query(struct ir *k, const struct route *a, const struct query *query) {
  struct words mean = query_mean(k, a, query);
  for (int i = 0; i < words_per_lane(a); i++) {
    val place = mma_rows_place(k, query->row, word_index(k, a, i));
    store(k, mean.word[i], at(k, query_rows(k, a), place), WORD);
  }
}

/* ---- biases ---- */

/* What the term adds to the scores of key block j: its partial sums added in a fixed order. */
static val bias_of(struct ir *k, const struct route *a, val j) {
  val index = add(k, mul(k, a->kv_head, a->k_stride), j);
  val parts = at_row(k, ARG(h_norm2), index, i32(k, NORM_PARTS * F32));
  val quarter[NORM_PARTS / 2];
  for (int i = 0; i < NORM_PARTS; i += 4) {
    val four = load(k, k->i32x4, at_const(k, parts, i * F32), 4 * F32), x[4];
    for (int z = 0; z < 4; z++) {
      x[z] = float_of(k, element(k, four, z, k->i32));
    }
    quarter[i / 2] = add(k, x[0], x[1]);
    quarter[i / 2 + 1] = add(k, x[2], x[3]);
  }
  val sum = add(k, add(k, quarter[0], quarter[1]), add(k, quarter[2], quarter[3]));
  val spread = a->plan->term == TERM_LOG_KEY_VARIANCE ? maximum(k, sum, f32(k, 1e-8))
                                                      : add(k, sqrt_approx(k, sum), f32(k, 1e-5));
  const double ln2 = 0.69314718055994530942;
  return mul(k, log2_approx(k, spread), f32(k, ln2));
}

static val thread_of_tile(struct ir *k, const struct route *a) {
  return add(k, mul_const(k, a->lanes.warp, 32), a->lanes.lane);
}

/* Once per tile, a column a thread, to the first row: of its columns a warp reads the biases before
   it writes their keys. The query means begin behind that row. */
static void share_biases(struct ir *k, const struct route *a) {
  FOR_STEP(k, j, thread_of_tile(k, a), a->k_blocks, mul_const(k, a->warps, 32)) {
    store(k, bias_of(k, a, j), at(k, a->rows, mul_const(k, j, F32)), F32);
  }
}

static bool shares_biases(const struct route *a) {
  return a->plan->term != TERM_NONE && !a->plan->threshold;
}

struct pair { /* the lane's two columns of a product */
  val q[2];
};
static struct pair bias_pair(struct ir *k, const struct route *a, val column) {
  if (!shares_biases(a)) {
    return (struct pair){{f32(k, 0), f32(k, 0)}};
  }
  val two = load(k, k->f32x2, at(k, a->rows, mul_const(k, column, F32)), 2 * F32);
  struct pair pair;
  for (int q = 0; q < 2; q++) {
    pair.q[q] = element(k, two, q, k->f32);
  }
  warp_sync(k);
  return pair;
}

/* ---- keys ---- */

/* Of the bits of a float negative ones are all flipped, others get their sign bit set. */
val route_key(struct ir *k, val score) {
  val bits = bits_of(k, add(k, maximum(k, score, f32(k, -INFINITY)), f32(k, 0)));
  val sign = shift_right_signed(k, bits, i32(k, 31));
  return bit_xor(k, bits, bit_or(k, sign, i32(k, INT32_MIN)));
}

/* Four scores of a lane, as keys of its two rows; with a threshold as they are. */
static void store_scores(struct ir *k, const struct route *a, val column,
                         const struct mma_scores *dot, const struct pair *bias) {
  val row = mul(k, mma_lane_row(k, &a->lanes), a->row_bytes);
  val first = at(k, a->rows, add(k, row, mul_const(k, column, WORD)));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val key[2];
    for (int q = 0; q < 2; q++) {
      val score = fused(k, dot->s[r][q], ARG(scale), bias->q[q]);
      key[q] = a->plan->threshold ? bits_of(k, score) : route_key(k, score);
    }
    store(k, pack2(k, key[0], key[1]), at(k, first, mul_const(k, a->row_bytes, 8 * r)), 2 * WORD);
  }
}

/* This lane's part of eight block means from |first| on; past NT_b those of the last block. */
static struct mma_row load_mean(struct ir *k, const struct route *a, val first) {
  val last = smax(k, add_const(k, a->k_blocks, -1), i32(k, 0));
  val j = umin(k, add(k, first, mma_lane_row(k, &a->lanes)), last);
  val index = add(k, mul(k, a->kv_head, a->k_stride), j);
  val row = at_row(k, ARG(k_mean), index, i32(k, a->plan->head_dim * HALF));
  return mma_row_load(k, row, a->plan->head_dim, &a->lanes);
}

/* Eight columns; of the tile a warp has every so many. */
static void score_columns(struct ir *k, const struct route *a, const struct mma_rows *queries,
                          const struct mma_row *mean, val first) {
  val column = add(k, first, frag_lane_column(k, &a->lanes));
  struct pair bias = bias_pair(k, a, column);
  struct mma_scores dot = mma_multiply(k, queries, mean);
  store_scores(k, a, column, &dot, &bias);
}

static val first_columns(struct ir *k, const struct route *a) {
  return mul_const(k, a->lanes.warp, MMA_COLUMNS);
}

static val columns_together(struct ir *k, const struct route *a) {
  return mul_const(k, a->warps, MMA_COLUMNS);
}

static struct mma_rows take_queries(struct ir *k, const struct route *a) {
  tile_sync(k, a);
  struct mma_rows rows = mma_rows_load(k, query_rows(k, a), a->plan->head_dim, &a->lanes);
  tile_sync(k, a); /* their place is taken by keys */
  return rows;
}

/* Where a tile has few warps each has a second query. */
static void share_second_query(struct ir *k, const struct route *a) {
  IF (k, is_eq(k, a->warps, i32(k, FEW_WARPS))) {
    struct query second = query_load(k, a, add_const(k, a->lanes.warp, FEW_WARPS));
    share_query(k, a, &second);
  }
}

/* The first means are on their way while the queries are, the next ones while those before are
   stored. */
static void score_ahead(struct ir *k, const struct route *a) {
  struct query query = query_load(k, a, a->lanes.warp);
  struct mma_row_vars mean = mma_row_vars_new(k, a->plan->head_dim);
  struct mma_row row = load_mean(k, a, first_columns(k, a));
  mma_row_vars_set(k, &mean, &row);
  share_second_query(k, a);
  if (shares_biases(a)) {
    share_biases(k, a);
  }
  share_query(k, a, &query);
  struct mma_rows queries = take_queries(k, a);
  FOR_STEP(k, first, first_columns(k, a), a->k_blocks, columns_together(k, a)) {
    row = mma_row_vars_get(k, &mean);
    score_columns(k, a, &queries, &row, first);
    val next = add(k, first, columns_together(k, a));
    IF (k, is_lt(k, next, a->k_blocks)) {
      row = load_mean(k, a, next);
      mma_row_vars_set(k, &mean, &row);
    }
  }
}

/* ---- thresholds ---- */

/* Rows of scores without their term become rows of keys with it, a column a thread. */
static void finish_columns(struct ir *k, const struct route *a) {
  FOR_STEP(k, j, thread_of_tile(k, a), a->k_blocks, i32(k, 32 * WARPS)) {
    val bias = a->plan->term == TERM_NONE ? f32(k, 0) : bias_of(k, a, j);
    val column = at(k, a->rows, mul_const(k, j, WORD));
    FOR (k, row, i32(k, 0), i32(k, MMA_ROWS)) {
      val place = at(k, column, mul(k, row, a->row_bytes));
      val score = add(k, load(k, k->f32, place, WORD), bias);
      store(k, route_key(k, score), place, WORD);
    }
  }
}

static void score_and_limit(struct ir *k, const struct route *a) {
  val variance = {0};
  if (a->plan->variance == VARIANCE_DIAGONAL) {
    struct query query = query_load(k, a, a->lanes.warp);
    struct words mean = query_mean(k, a, &query);
    variance = limit_diagonal(k, a, &mean);
  }
  struct query query = query_load(k, a, a->lanes.warp);
  share_query(k, a, &query);
  struct mma_rows queries = take_queries(k, a);
  /* not ahead: too few registers */
  FOR (k, span, i32(k, 0), a->spans) {
    val first = add(k, mul_const(k, span, SPAN), first_columns(k, a));
    struct mma_row mean = load_mean(k, a, first);
    score_columns(k, a, &queries, &mean, first);
  }
  tile_sync(k, a);
  set(k, a->limit, limit_of_row(k, a, row_at(k, a, a->lanes.warp), variance));
  tile_sync(k, a);
  finish_columns(k, a);
}

void route_score(struct ir *k, const struct route *a) {
  if (a->plan->threshold) {
    score_and_limit(k, a);
  } else {
    score_ahead(k, a);
  }
}
