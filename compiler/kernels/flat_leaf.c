/* flat_leaf.c: one leaf by its keys. In go rows of q and a leaf's number; out come, of every row,
   the log-sum-exp of its logits, their mean and variance. */
#include <math.h>

#include "compiler/kernels/flat.h"

enum { NO_LEAF = -16 };

/* The keys of a leaf are taken in chunks of at most this many products. */
enum { CHUNK_GROUPS = 2 };

struct sums { /* of one row: this lane's columns, then the quad's */
  struct var max, sum;
  struct var base, first, second; /* sum of x - base, of its square; base: the first key's logit */
};

static val or_0(struct ir *k, val x) {
  return choose(k, is_eq(k, x, f32(k, -INFINITY)), f32(k, 0), x);
}

/* Products of eight keys from |token| on; behind the sequence those of its last one. */
static struct flat_scores products(struct ir *k, const struct flat *a, val token) {
  val mine = add(k, token, mma_lane_row(k, &a->lanes));
  val last = add_const(k, a->s.keys, -1);
  val pointer = sequence_key(k, &a->s, &a->keys, a->plan->page, a->kv_head, smin(k, mine, last));
  struct mma_row row = mma_row_load(k, pointer, a->plan->head_dim, &a->lanes);
  struct flat_scores x;
  for (int tile = 0; tile < a->tiles; tile++) {
    struct mma_scores high = mma_multiply(k, &a->q[tile], &row), low = high;
    bool two = a->folded && a->plan->group > 1;
    if (two)
      low = mma_multiply(k, &a->q[1], &row);
    for (int i = 0; i < 4; i++) {
      val sum = two ? add(k, high.s[i / 2][i % 2], low.s[i / 2][i % 2]) : high.s[i / 2][i % 2];
      x.s[tile][i / 2][i % 2] = mul(k, sum, a->unit);
    }
  }
  return x;
}

/* Whether the lane's column |q| of the keys from |token| on may be read by row |r|. */
static val counts(struct ir *k, const struct flat *a, val token, int r, int q) {
  val column = add_const(k, add(k, token, frag_lane_column(k, &a->lanes)), q);
  return is_lt(k, column, flat_row_of(a, r)->readable);
}

/* |x|: the row's logits in this lane, 2 |groups|; |in|: whether each counts. */
static void add_exponentials(struct ir *k, const struct sums *s, int n, const val *x,
                             const val *in) {
  val old = get(k, s->max), max = old;
  for (int i = 0; i < n; i++)
    max = maximum(k, max, choose(k, in[i], x[i], f32(k, -INFINITY)));
  val base = or_0(k, max);
  val sum = mul(k, get(k, s->sum), exp2_approx(k, sub(k, old, base)));
  for (int i = 0; i < n; i++) {
    val y = choose(k, in[i], sub(k, x[i], base), f32(k, -INFINITY));
    sum = add(k, sum, exp2_approx(k, y));
  }
  set(k, s->max, max);
  set(k, s->sum, sum);
}

static void add_moments(struct ir *k, const struct sums *s, int n, const val *x, const val *in) {
  val first = get(k, s->first), second = get(k, s->second), base = get(k, s->base);
  for (int i = 0; i < n; i++) {
    val d = choose(k, in[i], sub(k, x[i], base), f32(k, 0));
    first = add(k, first, d);
    second = fused(k, d, d, second);
  }
  set(k, s->first, first);
  set(k, s->second, second);
}

/* The quad's first lane's. */
static val quad_first(struct ir *k, const struct flat *a, val x) {
  return warp_read(k, x, bit_and(k, a->lanes.lane, i32(k, 28)));
}

static void add_chunk(struct ir *k, const struct flat *a, struct sums sums[2][FRAG_ROWS], val token,
                      val is_first, int groups, bool moments) {
  struct flat_scores x[CHUNK_GROUPS];
  for (int g = 0; g < groups; g++)
    x[g] = products(k, a, add_const(k, token, 8 * g));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val in[2 * CHUNK_GROUPS];
    for (int i = 0; i < 2 * groups; i++)
      in[i] = counts(k, a, add_const(k, token, 8 * (i / 2)), r, i % 2);
    for (int tile = 0; tile < a->tiles; tile++) {
      const struct sums *s = &sums[tile][r];
      val row[2 * CHUNK_GROUPS];
      for (int i = 0; i < 2 * groups; i++)
        row[i] = x[i / 2].s[tile][r][i % 2];
      add_exponentials(k, s, 2 * groups, row, in);
      if (moments) {
        set(k, s->base, choose(k, is_first, quad_first(k, a, row[0]), get(k, s->base)));
        add_moments(k, s, 2 * groups, row, in);
      }
    }
  }
}

static void sums_clear(struct ir *k, struct sums *s) {
  s->max = var_init(k, f32(k, -INFINITY));
  s->sum = var_init(k, f32(k, 0));
  s->base = var_init(k, f32(k, 0));
  s->first = var_init(k, f32(k, 0));
  s->second = var_init(k, f32(k, 0));
}

static val log_sum(struct ir *k, const struct sums *s) {
  val mine = get(k, s->max), max = quad_max(k, mine), base = or_0(k, max);
  val part = mul(k, get(k, s->sum), exp2_approx(k, sub(k, mine, base)));
  return add(k, max, log2_approx(k, quad_sum(k, part)));
}

struct flat_leaf flat_leaf_read(struct ir *k, const struct flat *a, val leaf, bool moments) {
  int all = a->plan->leaf / MMA_COLUMNS, groups = all < CHUNK_GROUPS ? all : CHUNK_GROUPS;
  struct sums sums[2][FRAG_ROWS];
  for (int i = 0; i < 2 * a->tiles; i++)
    sums_clear(k, &sums[i / 2][i % 2]);
  val begin = mul_const(k, leaf, a->plan->leaf);
  FOR (k, chunk, i32(k, 0), i32(k, all / groups)) {
    val token = add(k, begin, mul_const(k, chunk, 8 * groups));
    add_chunk(k, a, sums, token, is_eq(k, chunk, i32(k, 0)), groups, moments);
  }
  struct flat_leaf out;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val rest = smin(k, sub(k, flat_row_of(a, r)->readable, begin), i32(k, a->plan->leaf));
    val n = to_float(k, smax(k, rest, i32(k, 0))), each = reciprocal_approx(k, n);
    out.log_count[r] = log2_approx(k, n);
    for (int tile = 0; tile < a->tiles; tile++) {
      const struct sums *s = &sums[tile][r];
      out.lse[tile][r] = log_sum(k, s);
      val shift = mul(k, quad_sum(k, get(k, s->first)), each);
      val square = mul(k, quad_sum(k, get(k, s->second)), each);
      out.mean[tile][r] = add(k, get(k, s->base), shift);
      out.variance[tile][r] = maximum(k, sub(k, square, mul(k, shift, shift)), f32(k, 0));
    }
  }
  return out;
}

/* ---- leaves whose score is not that of their mean ---- */

bool flat_has_special(const struct flat *a) {
  const struct plan_pyramid *p = a->plan;
  return p->score == SCORE_MEAN && (plan_is_mass(p) || (p->causal && !p->current));
}

/* Whether all keys of |leaf| may be read, or it ends the sequence of a plan without mask. */
static val is_whole(struct ir *k, const struct flat *a, const struct flat_row *row, val leaf) {
  if (!a->plan->causal)
    return is_le(k, i32(k, 0), leaf);
  val end = mul_const(k, add_const(k, leaf, 1), a->plan->leaf);
  return is_le(k, end, add_const(k, row->token, 1));
}

/* Takes leaf |leaf| as the own one (which 0) or the previous one of the rows whose it is. */
static void take_special(struct ir *k, const struct flat *a, const struct flat_leaf *x, val leaf,
                         int which, int r) {
  const struct flat_row *row = flat_row_of(a, r);
  bool mass = plan_is_mass(a->plan);
  val is_it = is_eq(k, leaf, add_const(k, row->own, -which));
  val forced = either(k, flat_is_near(k, a, row, leaf), flat_is_always(k, a, leaf));
  val exact = mass ? forced : is_lt(k, i32(k, 1), i32(k, 0));
  val partial = bit_not(k, is_whole(k, a, row, leaf));
  val taken = both(k, is_it, either(k, exact, partial));
  set(k, a->match[which][r], choose(k, taken, leaf, get(k, a->match[which][r])));
  for (int tile = 0; tile < a->tiles; tile++) {
    val mean = mass ? add(k, x->mean[tile][r], x->log_count[r]) : x->mean[tile][r];
    val score = choose(k, exact, x->lse[tile][r], mean);
    struct var to = a->special[which][tile][r];
    set(k, to, choose(k, taken, score, get(k, to)));
  }
}

void flat_specials(struct ir *k, struct flat *a) {
  int most = plan_is_mass(a->plan) ? 2 : 1; /* the own one, and the one before */
  for (int i = 0; i < 2 * FRAG_ROWS; i++) {
    set(k, a->match[i / 2][i % 2], i32(k, NO_LEAF));
    for (int tile = 0; tile < a->tiles; tile++)
      set(k, a->special[i / 2][tile][i % 2], f32(k, 0));
  }
  val first = sequence_token(k, &a->s, a->first);
  val last = sequence_token(k, &a->s, add(k, a->first, add_const(k, a->count, -1)));
  val size = i32(k, a->plan->leaf);
  val begin = sub(k, udiv(k, smax(k, first, i32(k, 0)), size), i32(k, most - 1));
  val end = add_const(k, udiv(k, smax(k, last, i32(k, 0)), size), 1);
  FOR (k, leaf, smax(k, begin, i32(k, 0)), smin(k, end, a->visible)) {
    struct flat_leaf x = flat_leaf_read(k, a, leaf, true);
    for (int i = 0; i < most * FRAG_ROWS; i++)
      take_special(k, a, &x, leaf, i / FRAG_ROWS, i % FRAG_ROWS);
  }
}
