/* route: which key blocks each query block reads exactly.

       score[i, j] = scale qbar_i . kbar_j  (+ ln(||H_j||_F + 1e-5), + ln(max(tr C_j, 1e-8)))
                                                                           nan counts as -inf
       list[i]     = the |keep| largest, ties to the smaller j, forced blocks first; ascending
       mask[i]     = bit j: block j is listed, or does not exist

   A CTA has 16 query blocks of one head, a warp each. First all warps score, straight from global
   memory, into shared memory: as unsigned keys that sort like the scores. Then every warp finds the
   largest threshold with at least |keep| keys of its row on or above it, bit by bit, and walks the
   row once more to write list and mask.

   Query heads [G h, G h + G) score the keys of key/value head h. CTAs behind those of all query
   heads add up the partial sums of H_j that the statistics left, 32 rows of a key/value head each.
 */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/kernels.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/mma.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

static const struct ir_arg route_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ROUTE_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_ROUTE_##name])

enum { NORM_PARTS = 8, HALF = 2, F32 = 4, WORD = 4, MAX_WORDS = 2 };
enum {
  WARPS = 16,
  SPAN = WARPS * MMA_COLUMNS, /* columns all warps score together: 128 */
  SPAN_WORDS = SPAN / 32,
  ROW_PADDING = 4, /* keys between rows of shared memory, against bank conflicts */
  CTAS_PER_SM = 2, /* 64 registers a thread: one CTA's loads hide behind the other's work */
  H_ROWS = 32,     /* of the sum of one head that a CTA adds up, 8 elements a thread */
  PER_THREAD = 8
};
/* Keys outside the order of the scores, of which -inf has the least, 0x007FFFFF, and +inf the
   greatest, 0xFF800000. Forced keys leave room for a threshold above them. */
enum { KEY_ABSENT = 0, KEY_FORCED = -2 };

struct route {
  const struct plan_route *plan;
  struct lanes lanes;
  val head, first;                 /* of this CTA; its first query block */
  val kv_head;                     /* whose keys this head reads */
  val q_blocks, k_blocks, q_tiles; /* NQS, NT, NTq */
  val spans;                       /* columns in shared memory, in units of 128: ceil(NT / 128) */
  val row_bytes;                   /* of a row of keys */
};

static val blocks_of(struct ir *k, val n, int rows) {
  return udiv(k, add_const(k, n, rows - 1), i32(k, rows));
}

/* ---- scores ---- */

static int words_per_lane(const struct route *a) {
  return (a->plan->head_dim / 2 + 31) / 32;
}

/* Lanes without an i-th word take the last one of the row, all alike. */
static val word_offset(struct ir *k, const struct route *a, int i) {
  const int words = a->plan->head_dim / 2;
  val word = add_const(k, a->lanes.lane, 32 * i);
  if (32 * (i + 1) > words) {
    word = umin(k, word, i32(k, words - 1));
  }
  return mul_const(k, word, WORD);
}

/* The words of one mean of query rows: word i of a lane is elements 2 (32 i + lane) and the
 * next. */
struct words {
  val word[MAX_WORDS];
};
static struct words query_words(struct ir *k, const struct route *a, val sub_block) {
  val index = add(k, mul(k, a->head, a->q_blocks), sub_block);
  val row = at_row(k, ARG(q_mean), index, i32(k, a->plan->head_dim * HALF));
  struct words x;
  for (int i = 0; i < words_per_lane(a); i++) {
    x.word[i] = load(k, k->i32, at(k, row, word_offset(k, a, i)), WORD);
  }
  return x;
}

/* Of sub-block i of the queries. */
static val rows_of(struct ir *k, const struct route *a, val i) {
  const int rows = a->plan->key;
  return smin(k, sub(k, ARG(n_q), mul_const(k, i, rows)), i32(k, rows));
}

/* Of a query block of two sub-blocks: both means weighted by their rows. Where the second has none
   the first is read twice, and each counts half. */
static struct words blended_words(struct ir *k, const struct route *a, val i) {
  val even = mul_const(k, i, 2),
      odd = umin(k, add_const(k, even, 1), add_const(k, a->q_blocks, -1));
  struct words x = query_words(k, a, even), y = query_words(k, a, odd);
  val nx = to_float(k, rows_of(k, a, even)), ny = to_float(k, rows_of(k, a, odd));
  val inverse = reciprocal_approx(k, add(k, nx, ny));
  val wx = mul(k, nx, inverse), wy = mul(k, ny, inverse);
  for (int w = 0; w < words_per_lane(a); w++) {
    x.word[w] = half_blend(k, x.word[w], wx, y.word[w], wy);
  }
  return x;
}

/* The CTA's 16 query means in shared memory, a row by each warp, and from there to all warps as the
   A operand. */
static struct mma_rows share_queries(struct ir *k, const struct route *a) {
  const int row_bytes = mma_shared_row_bytes(a->plan->head_dim);
  val i = umin(k, add(k, a->first, a->lanes.warp), add_const(k, a->q_tiles, -1));
  bool blended = a->plan->query != a->plan->key;
  struct words mine = blended ? blended_words(k, a, i) : query_words(k, a, i);
  val row = at(k, k->smem, mul_const(k, a->lanes.warp, row_bytes));
  for (int w = 0; w < words_per_lane(a); w++) {
    store(k, mine.word[w], at(k, row, word_offset(k, a, w)), WORD);
  }
  cta_sync(k);
  val lane_row = at(k, k->smem, mul_const(k, mma_lane_row(k, &a->lanes), row_bytes));
  struct mma_rows rows;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val row_r = at_const(k, lane_row, 8 * r * row_bytes);
    rows.r[r] = mma_row_load(k, row_r, a->plan->head_dim, &a->lanes);
  }
  cta_sync(k); /* their place is taken by keys */
  return rows;
}

/* What the term adds to the scores of block |index| of all heads, wanted by a quad of lanes: of its
   partial sums two a lane, added in a fixed order. */
static val bias_of(struct ir *k, const struct route *a, val index) {
  if (a->plan->term == TERM_NONE) {
    return f32(k, 0);
  }
  val parts = at_row(k, ARG(h_norm2), index, i32(k, NORM_PARTS * F32));
  val mine = at(k, parts, mul_const(k, frag_lane_column(k, &a->lanes), F32));
  val two = load(k, k->f32x2, mine, 2 * F32);
  val sum = quad_sum(k, add(k, element(k, two, 0, k->f32), element(k, two, 1, k->f32)));
  val spread = a->plan->term == TERM_LOG_COVARIANCE ? add(k, sqrt_approx(k, sum), f32(k, 1e-5))
                                                    : maximum(k, sum, f32(k, 1e-8));
  const double ln2 = 0.69314718055994530942;
  return mul(k, log2_approx(k, spread), f32(k, ln2));
}

/* An unsigned integer that sorts like the score: nan as -inf, -0 as +0. Then, of the bits, negative
   ones are all flipped, others get their sign bit set. */
static val key_of(struct ir *k, val score) {
  val bits = bits_of(k, add(k, maximum(k, score, f32(k, -INFINITY)), f32(k, 0)));
  val sign = shift_right_signed(k, bits, i32(k, 31));
  return bit_xor(k, bits, bit_or(k, sign, i32(k, INT32_MIN)));
}

/* Four scores of a lane into the keys of its two rows. */
static void store_keys(struct ir *k, const struct route *a, val first_column,
                       const struct mma_scores *dot, val bias) {
  struct mma_pair column_bias = mma_columns(k, bias, &a->lanes);
  val column = add(k, first_column, frag_lane_column(k, &a->lanes));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val row = add_const(k, mma_lane_row(k, &a->lanes), 8 * r), key[2];
    for (int q = 0; q < 2; q++) {
      key[q] = key_of(k, fused(k, dot->s[r][q], ARG(scale), column_bias.q[q]));
    }
    val place = add(k, mul(k, row, a->row_bytes), mul_const(k, column, WORD));
    store(k, pack2(k, key[0], key[1]), at(k, k->smem, place), 2 * WORD);
  }
}

/* Columns past NT are scored like the last one; exclude_and_force follows. */
static void score(struct ir *k, const struct route *a) {
  struct mma_rows queries = share_queries(k, a);
  val warp_column = mul_const(k, a->lanes.warp, MMA_COLUMNS);
  FOR (k, span, i32(k, 0), a->spans) {
    val first = add(k, mul_const(k, span, SPAN), warp_column);
    val column = add(k, first, mma_lane_row(k, &a->lanes));
    val j = umin(k, column, add_const(k, a->k_blocks, -1));
    val index = add(k, mul(k, a->kv_head, a->k_blocks), j);
    val row = at_row(k, ARG(k_mean), index, i32(k, a->plan->head_dim * HALF));
    struct mma_row mean = mma_row_load(k, row, a->plan->head_dim, &a->lanes);
    val bias = bias_of(k, a, index);
    struct mma_scores dot = mma_multiply(k, &queries, &mean);
    store_keys(k, a, first, &dot, bias);
  }
}

/* ---- one row, by one warp ---- */

static void fill(struct ir *k, const struct route *a, val row, val begin, val end, int key) {
  FOR_STEP(k, j, add(k, begin, a->lanes.lane), end, i32(k, 32)) {
    store(k, i32(k, key), at(k, row, mul_const(k, j, WORD)), WORD);
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
  fill(k, a, row, ARG(always_0_begin), ARG(always_0_end), KEY_FORCED);
  fill(k, a, row, ARG(always_1_begin), ARG(always_1_end), KEY_FORCED);
  fill(k, a, row, ARG(always_2_begin), ARG(always_2_end), KEY_FORCED);
  fill(k, a, row, ARG(always_3_begin), ARG(always_3_end), KEY_FORCED);
  if (a->plan->wants_window) {
    force_window(k, a, row, query);
  }
  warp_sync(k);
}

/* The keys of a span, four neighbours per lane. */
struct four {
  val key[4];
};
static struct four span_keys(struct ir *k, const struct route *a, val row, val span) {
  val column = add(k, mul_const(k, span, SPAN), mul_const(k, a->lanes.lane, 4));
  val keys = load(k, k->i32x4, at(k, row, mul_const(k, column, WORD)), 4 * WORD);
  struct four four;
  for (int i = 0; i < 4; i++) {
    four.key[i] = element(k, keys, i, k->i32);
  }
  return four;
}

static val count_from(struct ir *k, const struct route *a, val row, val threshold) {
  struct var count = var_init(k, i32(k, 0));
  FOR (k, span, i32(k, 0), a->spans) {
    struct four four = span_keys(k, a, row, span);
    val one[4];
    for (int i = 0; i < 4; i++) {
      one[i] = widen_bool(k, is_uge(k, four.key[i], threshold));
    }
    val sum = add(k, add(k, one[0], one[1]), add(k, one[2], one[3]));
    set(k, count, add(k, get(k, count), sum));
  }
  return warp_sum_u32(k, get(k, count));
}

/* Bits above and at the highest one in which two keys of the row differ. */
struct spread {
  val common;  /* the bits they share, zeros below */
  val differs; /* as a mask of one bit, 0: all keys are equal */
};
static struct spread spread_of(struct ir *k, const struct route *a, val row) {
  struct var most = var_init(k, i32(k, 0)), least = var_init(k, i32(k, -1));
  FOR (k, span, i32(k, 0), a->spans) {
    struct four four = span_keys(k, a, row, span);
    for (int i = 0; i < 4; i++) {
      set(k, most, umax(k, get(k, most), four.key[i]));
      val absent_last = add_const(k, four.key[i], -1); /* an absent key is the greatest here */
      set(k, least, umin(k, get(k, least), absent_last));
    }
  }
  val max = warp_max_u32(k, get(k, most));
  val min = add_const(k, warp_min_u32(k, get(k, least)), 1);
  val differ = bit_xor(k, max, min), zeros = count_leading_zeros(k, differ);
  val top = shift_right(k, i32(k, INT32_MIN), bit_and(k, zeros, i32(k, 31)));
  val below = sub(k, shift_left(k, top, i32(k, 1)), i32(k, 1));
  val equal = is_eq(k, differ, i32(k, 0));
  return (struct spread){
      .common = choose(k, equal, max, bit_and(k, max, bit_not(k, below))),
      .differs = choose(k, equal, i32(k, 0), top),
  };
}

/* The largest threshold that |keep| keys reach; |ties|: how many of those equal to it are taken. As
   soon as exactly |keep| keys reach a threshold it will do, with all its ties. */
struct choice {
  val threshold, ties;
};
static struct choice choose_keys(struct ir *k, const struct route *a, val row) {
  struct spread spread = spread_of(k, a, row);
  struct var threshold = var_init(k, spread.common), bit = var_init(k, spread.differs);
  struct var count = var_init(k, a->k_blocks), ties = var_init(k, ARG(keep));
  WHILE (k, both(k, is_ne(k, get(k, bit), i32(k, 0)), is_ne(k, get(k, count), ARG(keep)))) {
    val higher = bit_or(k, get(k, threshold), get(k, bit));
    val reach = count_from(k, a, row, higher);
    val enough = is_ge(k, reach, ARG(keep));
    set(k, threshold, choose(k, enough, higher, get(k, threshold)));
    set(k, count, choose(k, enough, reach, get(k, count)));
    set(k, bit, shift_right(k, get(k, bit), i32(k, 1)));
  }
  IF (k, is_ne(k, get(k, count), ARG(keep))) {
    val above = count_from(k, a, row, add_const(k, get(k, threshold), 1));
    set(k, ties, sub(k, ARG(keep), above));
  }
  /* Where every block is taken the threshold may still be 0, but an absent key never counts. */
  return (struct choice){umax(k, get(k, threshold), i32(k, KEY_ABSENT + 1)), get(k, ties)};
}

struct outputs {
  val list, mask, ids; /* of this row */
  val wants_ids;
};

static void store_chosen(struct ir *k, const struct outputs *out, val position, val j) {
  val place = mul_const(k, position, WORD);
  store(k, j, at(k, out->list, place), WORD);
  IF (k, out->wants_ids) {
    store(k, j, at(k, out->ids, place), WORD);
  }
}

/* Walks the row in order: lowest ties first, list ascending. */
static void write_chosen(struct ir *k, const struct route *a, val row, struct choice choice,
                         const struct outputs *out) {
  struct var ties = var_init(k, choice.ties), written = var_init(k, i32(k, 0));
  FOR (k, span, i32(k, 0), a->spans) {
    val word[SPAN_WORDS];
    for (int w = 0; w < SPAN_WORDS; w++) {
      val j = add(k, add_const(k, mul_const(k, span, SPAN), 32 * w), a->lanes.lane);
      val key = load(k, k->i32, at(k, row, mul_const(k, j, WORD)), WORD);
      val equal = is_eq(k, key, choice.threshold), equals = warp_ballot(k, equal);
      val in_time = is_lt(k, count_below(k, &a->lanes, equals), get(k, ties));
      val chosen = either(k, is_ugt(k, key, choice.threshold), both(k, equal, in_time));
      word[w] = warp_ballot(k, either(k, chosen, is_ge(k, j, a->k_blocks)));
      IF (k, chosen) {
        val before = count_below(k, &a->lanes, word[w]);
        store_chosen(k, out, add(k, get(k, written), before), j);
      }
      set(k, ties, sub(k, get(k, ties), count_bits(k, equals)));
      set(k, written, add(k, get(k, written), count_bits(k, word[w])));
    }
    ONE_THREAD (k) {
      val words = at(k, out->mask, mul_const(k, span, SPAN_WORDS * WORD));
      store(k, pack4(k, word), words, SPAN_WORDS * WORD);
    }
  }
}

static void write_padding(struct ir *k, const struct route *a, const struct outputs *out) {
  FOR_STEP(k, i, add(k, ARG(keep), a->lanes.lane), ARG(list_stride), i32(k, 32)) {
    store(k, i32(k, 0), at(k, out->list, mul_const(k, i, WORD)), WORD);
  }
  val words = mul_const(k, a->spans, SPAN_WORDS);
  FOR_STEP(k, w, add(k, words, a->lanes.lane), ARG(mask_words), i32(k, 32)) {
    store(k, i32(k, -1), at(k, out->mask, mul_const(k, w, WORD)), WORD);
  }
}

static void select(struct ir *k, const struct route *a) {
  val query = add(k, a->first, a->lanes.warp);
  IF (k, is_lt(k, query, a->q_tiles)) {
    val row = at(k, k->smem, mul(k, a->lanes.warp, a->row_bytes));
    exclude_and_force(k, a, row, query);
    struct choice choice = choose_keys(k, a, row);
    val item = add(k, mul(k, a->head, a->q_tiles), query);
    struct outputs out = {
        .list = at_row(k, ARG(lists), item, mul_const(k, ARG(list_stride), WORD)),
        .mask = at_row(k, ARG(masks), item, mul_const(k, ARG(mask_words), WORD)),
        .ids = at_row(k, ARG(ids), item, mul_const(k, ARG(keep), WORD)),
        .wants_ids = bit_not(k, is_null_pointer(k, ARG(ids))),
    };
    write_chosen(k, a, row, choice, &out);
    write_padding(k, a, &out);
  }
}

/* x / G */
static val per_group(struct ir *k, const struct route *a, val x) {
  return a->plan->group == 1 ? x : udiv(k, x, i32(k, a->plan->group));
}

static void route_rows(struct ir *k, struct route *a) {
  a->head = udiv(k, cta_index(k), ARG(row_tiles));
  a->kv_head = per_group(k, a, a->head);
  val tile = sub(k, cta_index(k), mul(k, a->head, ARG(row_tiles)));
  a->first = mul_const(k, tile, MMA_ROWS);
  a->q_blocks = blocks_of(k, ARG(n_q), a->plan->key);
  a->q_tiles = blocks_of(k, ARG(n_q), a->plan->query);
  a->k_blocks = blocks_of(k, ARG(n_k), a->plan->key);
  a->spans = blocks_of(k, a->k_blocks, SPAN);
  a->row_bytes = mul_const(k, add_const(k, mul_const(k, a->spans, SPAN), ROW_PADDING), WORD);
  score(k, a);
  cta_sync(k);
  select(k, a);
}

/* ---- sum of H_j ---- */

/* The statistics CTA that had block |index| of all key/value heads: CTA c of C had [T c / C,
   T (c + 1) / C). */
static val statistics_cta(struct ir *k, const struct route *a, val index) {
  val heads = per_group(k, a, ARG(total_heads));
  val total = mul(k, widen(k, heads), widen(k, ARG(stat_blocks)));
  val end = mul(k, add_const(k, index, 1), widen(k, ARG(stat_ctas)));
  return narrow(k, udiv(k, add_const(k, end, -1), total));
}

/* Adds PER_THREAD elements of a head's partial sums, from |first| on, in the order of their CTAs;
   slot = cta + head. */
static void reduce_elements(struct ir *k, const struct route *a, val head, val first) {
  const int elements = a->plan->head_dim * a->plan->head_dim;
  val begin = mul(k, widen(k, head), widen(k, ARG(stat_blocks)));
  val end = add(k, begin, widen(k, ARG(stat_blocks)));
  struct var sum[PER_THREAD];
  for (int i = 0; i < PER_THREAD; i++) {
    sum[i] = var_init(k, f32(k, 0));
  }
  val last_cta = statistics_cta(k, a, add_const(k, end, -1));
  FOR (k, c, statistics_cta(k, a, begin), add_const(k, last_cta, 1)) {
    val part = at_row(k, ARG(h_part), add(k, head, c), i32(k, elements * F32));
    val mine = at(k, part, mul_const(k, first, F32));
    for (int i = 0; i < PER_THREAD; i += 4) {
      val four = load(k, k->i32x4, at_const(k, mine, i * F32), 4 * F32);
      for (int z = 0; z < 4; z++) {
        val x = float_of(k, element(k, four, z, k->i32));
        set(k, sum[i + z], add(k, get(k, sum[i + z]), x));
      }
    }
  }
  val pair[PER_THREAD / 2];
  for (int i = 0; i < PER_THREAD / 2; i++) {
    pair[i] = pack_half(k, mul(k, get(k, sum[2 * i]), ARG(h_scale)),
                        mul(k, get(k, sum[2 * i + 1]), ARG(h_scale)));
  }
  val out = at_row(k, ARG(h_sum), head, i32(k, elements * HALF));
  store(k, pack4(k, pair), at(k, out, mul_const(k, first, HALF)), PER_THREAD * HALF);
}

/* CTA |cta| of those that reduce: H_ROWS rows of one key/value head. */
static void reduce_h(struct ir *k, const struct route *a, val cta) {
  const int ctas = a->plan->head_dim / H_ROWS, elements = H_ROWS * a->plan->head_dim;
  assert(elements <= a->plan->kernel.threads * PER_THREAD);
  val head = udiv(k, cta, i32(k, ctas)), part = sub(k, cta, mul_const(k, head, ctas));
  val mine = mul_const(k, thread_index(k), PER_THREAD);
  bool all = elements == a->plan->kernel.threads * PER_THREAD;
  IF (k, is_lt(k, all ? i32(k, 0) : mine, i32(k, elements))) {
    reduce_elements(k, a, head, add(k, mul_const(k, part, elements), mine));
  }
}

/* ---- the kernel ---- */

void kernel_route(struct ir *k, const struct plan_route *plan) {
  assert(plan->rows_per_cta == MMA_ROWS && plan->kernel.threads == 32 * WARPS);
  assert(plan->query == plan->key || plan->query == 2 * plan->key);
  assert(plan->term != TERM_LOG_RESIDUAL);
  assert(plan->head_dim % H_ROWS == 0 && plan->head_dim / 2 <= 32 * MAX_WORDS && plan->group >= 1);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ROUTE_N_ARGS, route_args);
  struct route a = {.plan = plan, .lanes = lanes_new(k)};
  launch_handover(k);
  if (plan->reduces_h) {
    val h_cta = sub(k, cta_index(k), mul(k, ARG(total_heads), ARG(row_tiles)));
    IF (k, is_lt(k, h_cta, i32(k, 0))) {
      route_rows(k, &a);
    }
    ELSE (k) {
      reduce_h(k, &a, h_cta);
    }
  } else {
    route_rows(k, &a);
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, CTAS_PER_SM);
}
