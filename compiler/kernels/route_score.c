/* Scores of 16 query blocks and all key blocks of a head, straight from global memory, into shared
   memory; see route.c. */
#include "compiler/kernels/route.h"

#include <math.h>

#include "compiler/sm90/frag.h"
#include "compiler/sm90/sync.h"

enum { NORM_PARTS = 8, BIAS_ROW = WARPS - 1 };

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

/* The mean of this warp's query block, on its way: of its sub-blocks' means, one or two. Warps
   without a block take the last; a second sub-block without rows is the first again, and each
   counts half. */
struct query {
  val i[2]; /* sub-blocks */
  struct words x[2];
};
static int sub_blocks(const struct route *a) {
  return a->plan->query / a->plan->key;
}
static struct query query_load(struct ir *k, const struct route *a) {
  val i = umin(k, add(k, a->first, a->lanes.warp), add_const(k, a->q_tiles, -1));
  val first = mul_const(k, i, sub_blocks(a)), last = add_const(k, a->q_blocks, -1);
  struct query q = {.i = {first, umin(k, add_const(k, first, 1), last)}};
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

/* Row w of the A operand of all warps is warp w's query. */
static void share_query(struct ir *k, const struct route *a, const struct words *mine) {
  for (int i = 0; i < words_per_lane(a); i++) {
    val place = mma_rows_place(k, a->lanes.warp, word_index(k, a, i));
    store(k, mine->word[i], at(k, k->smem, place), WORD);
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

/* Once per CTA, a column a thread, to the last row: of its columns a warp reads the biases before
   it writes their keys. The query means end before that row. */
static val bias_row(struct ir *k, const struct route *a) {
  return at(k, k->smem, mul_const(k, a->row_bytes, BIAS_ROW));
}

static void share_biases(struct ir *k, const struct route *a) {
  FOR_STEP(k, j, thread_index(k), a->k_blocks, i32(k, THREADS)) {
    store(k, bias_of(k, a, j), at(k, bias_row(k, a), mul_const(k, j, F32)), F32);
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
  val two = load(k, k->f32x2, at(k, bias_row(k, a), mul_const(k, column, F32)), 2 * F32);
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
  val first = at(k, k->smem, add(k, row, mul_const(k, column, WORD)));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val key[2];
    for (int q = 0; q < 2; q++) {
      val score = fused(k, dot->s[r][q], ARG(scale), bias->q[q]);
      key[q] = a->plan->threshold ? bits_of(k, score) : route_key(k, score);
    }
    store(k, pack2(k, key[0], key[1]), at(k, first, mul_const(k, a->row_bytes, 8 * r)), 2 * WORD);
  }
}

/* This lane's part of a warp's eight block means of a span; past NT_b those of the last block. */
static struct mma_row load_mean(struct ir *k, const struct route *a, val span) {
  val column = add(k, mul_const(k, a->lanes.warp, MMA_COLUMNS), mma_lane_row(k, &a->lanes));
  val last = smax(k, add_const(k, a->k_blocks, -1), i32(k, 0));
  val j = umin(k, add(k, mul_const(k, span, SPAN), column), last);
  val index = add(k, mul(k, a->kv_head, a->k_stride), j);
  val row = at_row(k, ARG(k_mean), index, i32(k, a->plan->head_dim * HALF));
  return mma_row_load(k, row, a->plan->head_dim, &a->lanes);
}

/* This lane's columns of a span. */
static void finish_span(struct ir *k, const struct route *a, const struct mma_scores *dot,
                        val span) {
  val warp_column = mul_const(k, a->lanes.warp, MMA_COLUMNS);
  val column = add(k, warp_column, frag_lane_column(k, &a->lanes));
  column = add(k, mul_const(k, span, SPAN), column);
  struct pair bias = bias_pair(k, a, column);
  store_scores(k, a, column, dot, &bias);
}

static struct mma_rows share_queries(struct ir *k, const struct route *a,
                                     const struct query *query) {
  struct words mine = query_mean(k, a, query);
  share_query(k, a, &mine);
  cta_sync(k);
  struct mma_rows rows = mma_rows_load(k, k->smem, a->plan->head_dim, &a->lanes);
  cta_sync(k); /* their place is taken by keys */
  return rows;
}

/* The first means are on their way while the queries are, those of a span while the one before is
   stored. */
static void score_ahead(struct ir *k, const struct route *a, const struct query *query) {
  struct mma_row_vars mean = mma_row_vars_new(k, a->plan->head_dim);
  struct mma_row row = load_mean(k, a, i32(k, 0));
  mma_row_vars_set(k, &mean, &row);
  if (shares_biases(a)) {
    share_biases(k, a);
  }
  struct mma_rows queries = share_queries(k, a, query);
  FOR (k, span, i32(k, 0), a->spans) {
    row = mma_row_vars_get(k, &mean);
    struct mma_scores dot = mma_multiply(k, &queries, &row);
    val next = add_const(k, span, 1);
    IF (k, is_lt(k, next, a->spans)) {
      row = load_mean(k, a, next);
      mma_row_vars_set(k, &mean, &row);
    }
    finish_span(k, a, &dot, span);
  }
}

/* ---- thresholds ---- */

/* Rows of scores without their term become rows of keys with it, a column a thread. */
static void finish_columns(struct ir *k, const struct route *a) {
  FOR_STEP(k, j, thread_index(k), a->k_blocks, i32(k, THREADS)) {
    val bias = a->plan->term == TERM_NONE ? f32(k, 0) : bias_of(k, a, j);
    val column = at(k, k->smem, mul_const(k, j, WORD));
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
    struct query query = query_load(k, a);
    struct words mean = query_mean(k, a, &query);
    variance = limit_diagonal(k, a, &mean);
  }
  struct query query = query_load(k, a);
  struct mma_rows queries = share_queries(k, a, &query);
  FOR (k, span, i32(k, 0), a->spans) { /* not ahead: too few registers */
    struct mma_row mean = load_mean(k, a, span);
    struct mma_scores dot = mma_multiply(k, &queries, &mean);
    finish_span(k, a, &dot, span);
  }
  cta_sync(k);
  val row = at(k, k->smem, mul(k, a->lanes.warp, a->row_bytes));
  set(k, a->limit, limit_of_row(k, a, row, variance));
  cta_sync(k);
  finish_columns(k, a);
}

void route_score(struct ir *k, const struct route *a) {
  if (a->plan->threshold) {
    score_and_limit(k, a);
  } else {
    struct query query = query_load(k, a);
    score_ahead(k, a, &query);
  }
}
