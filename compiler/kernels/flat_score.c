/* flat_score.c: scores of leaves. In go rows of q and numbers of leaves; out come scores of heads,
   and what leaves are worth to queries. */
#include <math.h>

#include "compiler/kernels/flat.h"

enum { HALF = 2 };

/* ---- scores of heads ---- */

/* The lane's leaf of column |q| of the eight from |first| on. */
static val column(struct ir *k, const struct flat *a, val first, int q) {
  return add_const(k, add(k, first, frag_lane_column(k, &a->lanes)), q);
}

/* Products of rows and the means of eight leaves, of which the first is even. */
static struct flat_scores mean_products(struct ir *k, const struct flat *a, val first) {
  const int head_dim = a->plan->head_dim;
  val lane = mean_row(k, head_dim, a->means, mma_lane_row(k, &a->lanes));
  val mine = at(k, lane, mma_lane_bytes(k, &a->lanes));
  val pointer = at_row(k, mine, first, i32(k, head_dim * HALF));
  struct mma_row row = mma_row_load_apart(k, pointer, head_dim, MEAN_APART);
  struct flat_scores x;
  for (int tile = 0; tile < a->tiles; tile++) {
    struct mma_scores high = mma_multiply(k, &a->q[tile], &row), low = high;
    bool two = a->folded && a->plan->group > 1;
    if (two)
      low = mma_multiply(k, &a->q[1], &row);
    for (int i = 0; i < 4; i++)
      x.s[tile][i / 2][i % 2] =
          two ? add(k, high.s[i / 2][i % 2], low.s[i / 2][i % 2]) : high.s[i / 2][i % 2];
  }
  return x;
}

static val shifted(struct ir *k, val x, val shift) {
  return is_null(shift) ? x : add(k, x, shift);
}

/* scale q . mean (+ log2 of its tokens) + shift: what is added is added first. */
static struct flat_scores mean_scores(struct ir *k, const struct flat *a, val first, bool plain,
                                      val shift[2][FRAG_ROWS]) {
  struct flat_scores x = mean_products(k, a, first);
  val full = plan_is_mass(a->plan) ? f32(k, log2(a->plan->leaf)) : (val){0};
  for (int i = 0; i < 4 * a->tiles; i++) {
    int tile = i / 4, r = i / 2 % 2, q = i % 2;
    val count = full, *to = &x.s[tile][r][q];
    if (!is_null(full) && !plain)
      count = flat_log_count(k, a, column(k, a, first, q));
    val more = is_null(count) ? shift[tile][r] : shifted(k, count, shift[tile][r]);
    *to = is_null(more) ? mul(k, *to, a->unit) : fused(k, *to, a->unit, more);
  }
  return x;
}

static void put_specials(struct ir *k, const struct flat *a, val first, struct flat_scores *x,
                         val shift[2][FRAG_ROWS]) {
  for (int i = 0; i < 4 * a->tiles; i++) {
    int tile = i / 4, r = i / 2 % 2, q = i % 2;
    for (int which = 0; which < 2; which++) {
      val is_it = is_eq(k, column(k, a, first, q), get(k, a->match[which][r]));
      val special = shifted(k, get(k, a->special[which][tile][r]), shift[tile][r]);
      x->s[tile][r][q] = choose(k, is_it, special, x->s[tile][r][q]);
    }
  }
}

/* The score of a leaf by its keys, alike in the quad. */
static val key_score(struct ir *k, const struct flat *a, const struct flat_leaf *x, int tile,
                     int r) {
  if (a->plan->score == SCORE_LSE)
    return x->lse[tile][r];
  val half =
      mul(k, x->variance[tile][r], f32(k, FLAT_LN2 / 2)); /* variance in log2 units, squared */
  val score = add(k, x->mean[tile][r], half);
  return plan_is_mass(a->plan) ? add(k, score, x->log_count[r]) : score;
}

/* With mass forced leaves have other scores: |mean| that of the leaf's mean. */
static val forced_score(struct ir *k, const struct flat *a, const struct flat_leaf *x, val leaf,
                        val mean, int tile, int r) {
  const struct flat_row *row = flat_row_of(a, r);
  val always = flat_is_always(k, a, leaf);
  val near = either(k, is_eq(k, leaf, row->own), is_eq(k, leaf, add_const(k, row->own, -1)));
  val forced = either(k, always, flat_is_near(k, a, row, leaf));
  val score = key_score(k, a, x, tile, r);
  score = choose(k, forced, choose(k, near, x->lse[tile][r], mean), score);
  return score;
}

/* Eight leaves one after the other, each to the lanes whose column it is. */
static struct flat_scores exact_scores(struct ir *k, const struct flat *a, val first,
                                       val shift[2][FRAG_ROWS]) {
  bool mass = plan_is_mass(a->plan);
  struct flat_scores mean = {0}, out;
  struct var to[2][FRAG_ROWS][2];
  val none[2][FRAG_ROWS] = {{{0}}};
  if (mass)
    mean = mean_scores(k, a, first, false, none);
  for (int i = 0; i < 4 * a->tiles; i++)
    to[i / 4][i / 2 % 2][i % 2] = var_init(k, f32(k, -INFINITY));
  FOR (k, leaf, first, smin(k, add_const(k, first, MMA_COLUMNS), a->visible)) {
    struct flat_leaf x = flat_leaf_read(k, a, leaf, a->plan->score == SCORE_HALF_VARIANCE);
    for (int i = 0; i < 4 * a->tiles; i++) {
      int tile = i / 4, r = i / 2 % 2, q = i % 2;
      val score = mass ? forced_score(k, a, &x, leaf, mean.s[tile][r][q], tile, r)
                       : key_score(k, a, &x, tile, r);
      val mine = is_eq(k, leaf, column(k, a, first, q));
      set(k, to[tile][r][q], choose(k, mine, score, get(k, to[tile][r][q])));
    }
  }
  for (int i = 0; i < 4 * a->tiles; i++) {
    int tile = i / 4, r = i / 2 % 2, q = i % 2;
    out.s[tile][r][q] = shifted(k, get(k, to[tile][r][q]), shift[tile][r]);
  }
  return out;
}

struct flat_scores flat_scores_of(struct ir *k, const struct flat *a, val first, bool plain,
                                  val shift[2][FRAG_ROWS]) {
  if (a->plan->score != SCORE_MEAN)
    return exact_scores(k, a, first, shift);
  struct flat_scores x = mean_scores(k, a, first, plain, shift);
  if (!plain && flat_has_special(a))
    put_specials(k, a, first, &x, shift);
  return x;
}

val flat_plain_end(struct ir *k, const struct flat *a) {
  const struct plan_pyramid *p = a->plan;
  if (!p->causal) { /* own leaves may be anywhere; with mass the last one must be full */
    bool none = flat_has_special(a) || p->current || p->previous;
    return none ? i32(k, 0) : a->visible;
  }
  val t = sequence_token(k, &a->s, a->first);
  val own = udiv(k, smax(k, t, i32(k, 0)), i32(k, p->leaf));
  return smax(k, add_const(k, own, -1), i32(k, 0)); /* not the own, nor the previous one */
}

/* ---- mass ---- */

/* A row's sum of 2^score so far, in this lane. */
struct total {
  struct var max, sum;
};

static void total_add(struct ir *k, const struct total *t, int n, const val *x) {
  val old = get(k, t->max), max = old;
  for (int i = 0; i < n; i++)
    max = maximum(k, max, x[i]);
  val base = choose(k, is_eq(k, max, f32(k, -INFINITY)), f32(k, 0), max);
  val sum = mul(k, get(k, t->sum), exp2_approx(k, sub(k, old, base)));
  for (int i = 0; i < n; i++) /* a score that is nan counts as -inf: maximum drops it */
    sum = add(k, sum, maximum(k, exp2_approx(k, sub(k, x[i], base)), f32(k, 0)));
  set(k, t->max, max);
  set(k, t->sum, sum);
}

/* Two groups at a time, as many as registers hold. */
static void total_step(struct ir *k, const struct flat *a, struct total total[2][FRAG_ROWS],
                       val first, bool plain) {
  enum { GROUPS = 2 };
  val none[2][FRAG_ROWS] = {{{0}}};
  for (int g = 0; g < FLAT_GROUPS; g += GROUPS) {
    struct flat_scores x[GROUPS];
    for (int i = 0; i < GROUPS; i++)
      x[i] = flat_scores_of(k, a, add_const(k, first, MMA_COLUMNS * (g + i)), plain, none);
    for (int i = 0; i < 2 * a->tiles; i++) {
      int tile = i / 2, r = i % 2;
      val row[2 * GROUPS];
      for (int c = 0; c < 2 * GROUPS; c++) {
        row[c] = x[c / 2].s[tile][r][c % 2];
        val leaf = column(k, a, add_const(k, first, MMA_COLUMNS * (g + c / 2)), c % 2);
        if (!plain)
          row[c] = choose(k, is_lt(k, leaf, flat_row_of(a, r)->visible), row[c], f32(k, -INFINITY));
      }
      total_add(k, &total[tile][r], 2 * GROUPS, row);
    }
  }
}

/* The same in steps of eight: leaves by their keys are long code. */
static void total_eight(struct ir *k, const struct flat *a, struct total total[2][FRAG_ROWS],
                        val first) {
  val none[2][FRAG_ROWS] = {{{0}}};
  struct flat_scores x = flat_scores_of(k, a, first, false, none);
  for (int i = 0; i < 2 * a->tiles; i++) {
    int tile = i / 2, r = i % 2;
    val row[2];
    for (int q = 0; q < 2; q++) {
      val seen = is_lt(k, column(k, a, first, q), flat_row_of(a, r)->visible);
      row[q] = choose(k, seen, x.s[tile][r][q], f32(k, -INFINITY));
    }
    total_add(k, &total[tile][r], 2, row);
  }
}

/* Minus log2 of the total; of nothing any number, for all parts of it are 0. */
static val minus_log(struct ir *k, const struct flat *a, const struct total *t, int tile, int r) {
  val mine = get(k, t->max), max = quad_max(k, mine);
  val none = is_eq(k, max, f32(k, -INFINITY)), base = choose(k, none, f32(k, 0), max);
  val sum = quad_sum(k, mul(k, get(k, t->sum), exp2_approx(k, sub(k, mine, base))));
  if (!is_null(a->totals)) {
    flat_join_totals(k, a, tile, r, &max, &sum);
    none = is_eq(k, max, f32(k, -INFINITY));
    base = choose(k, none, f32(k, 0), max);
  }
  val endless = is_eq(k, max, f32(k, INFINITY));
  val log = add(k, base, log2_approx(k, sum));
  return negate(k, choose(k, either(k, none, endless), base, log));
}

static void total_means(struct ir *k, const struct flat *a, struct total total[2][FRAG_ROWS]) {
  val end = bit_and(k, flat_plain_end(k, a), i32(k, -FLAT_STEP)), stride = i32(k, a->stride);
  struct var next = var_init(k, a->start);
  FOR_STEP(k, first, a->start, end, stride) {
    total_step(k, a, total, first, true);
    set(k, next, add(k, first, stride));
  }
  FOR_STEP(k, first, get(k, next), a->visible, stride) {
    total_step(k, a, total, first, false);
  }
}

static void total_keys(struct ir *k, const struct flat *a, struct total total[2][FRAG_ROWS]) {
  FOR_STEP(k, step, a->start, a->visible, i32(k, a->stride)) {
    val end = smin(k, add_const(k, step, FLAT_STEP), a->visible);
    FOR_STEP(k, first, step, end, i32(k, MMA_COLUMNS)) {
      total_eight(k, a, total, first);
    }
  }
}

void flat_normalise(struct ir *k, const struct flat *a, val shift[2][FRAG_ROWS]) {
  struct total total[2][FRAG_ROWS];
  for (int i = 0; i < 2 * a->tiles; i++)
    total[i / 2][i % 2] = (struct total){var_init(k, f32(k, -INFINITY)), var_init(k, f32(k, 0))};
  if (a->plan->score == SCORE_MEAN)
    total_means(k, a, total);
  else
    total_keys(k, a, total);
  for (int i = 0; i < 2 * a->tiles; i++)
    shift[i / 2][i % 2] = minus_log(k, a, &total[i / 2][i % 2], i / 2, i % 2);
}

/* ---- heads together ---- */

static bool adds(const struct flat *a) {
  return a->plan->reduce == REDUCE_SUM || a->plan->reduce == REDUCE_MASS;
}

static val across(struct ir *k, const struct flat *a, val x, int lanes) {
  return warp_read(k, x, bit_xor(k, a->lanes.lane, i32(k, lanes)));
}

/* Over the heads of a query: the lane's |n| values (one, or those of both rows and tiles), then the
   lanes with its other heads. */
static val over_heads(struct ir *k, const struct flat *a, int n, const val *x, bool sums) {
  val all = x[0];
  for (int i = 1; i < n; i++)
    all = sums ? add(k, all, x[i]) : maximum(k, all, x[i]);
  for (int rows = 1; rows < a->heads && rows < 8; rows *= 2) {
    val other = across(k, a, all, 4 * rows);
    all = sums ? add(k, all, other) : maximum(k, all, other);
  }
  return all;
}

/* log2 of the sum of 2^x. */
static val log_over_heads(struct ir *k, const struct flat *a, int n, const val *x) {
  val max = over_heads(k, a, n, x, false), part[4];
  val none = is_eq(k, max, f32(k, -INFINITY)), base = choose(k, none, f32(k, 0), max);
  for (int i = 0; i < n; i++)
    part[i] = exp2_approx(k, sub(k, x[i], base));
  val log = add(k, base, log2_approx(k, over_heads(k, a, n, part, true)));
  val is_inf = either(k, none, is_eq(k, max, f32(k, INFINITY)));
  return choose(k, is_inf, max, log);
}

/* What one head brings: its score, or with mass its part; nan counts as -inf. */
static val of_head(struct ir *k, const struct flat *a, val x, val exists) {
  bool mass = plan_is_mass(a->plan);
  val y = mass ? maximum(k, exp2_approx(k, x), f32(k, 0)) : maximum(k, x, f32(k, -INFINITY));
  if (a->folded || a->heads == a->plan->group)
    return y;
  return choose(k, exists, y, f32(k, mass || adds(a) ? 0 : -INFINITY));
}

void flat_reduce(struct ir *k, const struct flat *a, const struct flat_scores *x,
                 val worth[FRAG_ROWS][2]) {
  for (int i = 0; i < 2 * flat_query_rows(a); i++) {
    int row = i / 2, q = i % 2, n = 0;
    val head[4];
    for (int tile = 0; tile < a->tiles; tile++)
      for (int r = 0; r < FRAG_ROWS; r++)
        if (flat_row_id(a, r) == row)
          head[n++] = of_head(k, a, x->s[tile][r][q], a->exists[tile][r]);
    worth[row][q] = a->plan->reduce == REDUCE_LSE ? log_over_heads(k, a, n, head)
                                                  : over_heads(k, a, n, head, adds(a));
  }
}
