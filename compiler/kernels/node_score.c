/* node_score.c: in go a query's heads and rows of means; out come scores and worths of nodes,
   spread over a warp as node_score.h draws. */
#include "compiler/kernels/node_score.h"

#include <assert.h>
#include <math.h>

#include "compiler/kernels/sequence.h"

enum { F32 = 4, SLOT = 8, QUAD = 4, LOADED_WORDS = 64, CHUNK_BYTES = 64 };

int node_slots(const struct plan_pyramid *plan) {
  return (plan->group + SLOT - 1) / SLOT;
}

bool node_reads_children(const struct plan_pyramid *plan) {
  return plan->score != SCORE_MEAN;
}

int node_rows(const struct plan_pyramid *plan) {
  return node_reads_children(plan) ? plan->children : 1;
}

int node_width(const struct plan_pyramid *plan) {
  return node_reads_children(plan) ? SLOT / plan->children : QUAD;
}

int node_values(const struct plan_pyramid *plan) {
  return node_reads_children(plan) ? 1 : 2;
}

int node_per_tile(const struct plan_pyramid *plan) {
  return SLOT / node_rows(plan);
}

/* Heads of the last slot, whose rows may repeat: power of two, each equally often. */
static int last_heads(const struct plan_pyramid *plan) {
  return plan->group - SLOT * (node_slots(plan) - 1);
}
static bool repeats(const struct plan_pyramid *plan) {
  return plan->group < SLOT && power_of_two_from(plan->group) == plan->group;
}

/* ---- the query ---- */

struct node_query_vars node_query_vars_new(struct ir *k, const struct plan_pyramid *plan) {
  struct node_query_vars vars = {.slots = node_slots(plan)};
  assert(vars.slots <= NODE_MAX_SLOTS);
  for (int s = 0; s < vars.slots; s++)
    vars.row[s] = mma_row_vars_new(k, plan->head_dim);
  return vars;
}

/* The head that this lane's row of a slot is. */
static val head_of(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                   int slot) {
  val row = mma_lane_row(k, lanes);
  if (repeats(plan))
    return bit_and(k, row, i32(k, plan->group - 1));
  val head = add_const(k, row, SLOT * slot);
  bool whole = SLOT * (slot + 1) <= plan->group;
  return whole ? head : smin(k, head, i32(k, plan->group - 1));
}

void node_query_load(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                     val q, val head_bytes, const struct node_query_vars *to) {
  for (int s = 0; s < to->slots; s++) {
    val row = at(k, q, mul(k, widen(k, head_of(k, plan, lanes, s)), head_bytes));
    struct mma_row x = mma_row_load(k, row, plan->head_dim, lanes);
    mma_row_vars_set(k, &to->row[s], &x);
  }
}

static struct mma_row tied(struct ir *k, struct mma_row x, val zero) {
  for (int w = 0; w < x.head_dim / 8; w++)
    x.word[w] = bit_xor(k, x.word[w], zero);
  return x;
}

static struct mma_row zero_row(struct ir *k, int head_dim) {
  struct mma_row x = {.head_dim = head_dim};
  for (int w = 0; w < head_dim / 8; w++)
    x.word[w] = i32(k, 0);
  return x;
}

struct node_query node_query_get(struct ir *k, const struct node_query_vars *vars, val zero) {
  struct node_query q = {.tiles = (vars->slots + 1) / 2};
  for (int s = 0; s < 2 * q.tiles; s++) {
    q.a[s / 2].r[s % 2] = s < vars->slots ? tied(k, mma_row_vars_get(k, &vars->row[s]), zero)
                                          : zero_row(k, vars->row[0].head_dim);
  }
  return q;
}

/* ---- products ---- */

static val quad_lane(struct ir *k, const struct lanes *lanes) {
  return bit_and(k, lanes->lane, i32(k, QUAD - 1));
}

val node_lane_row(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes) {
  val x = mma_lane_row(k, lanes);
  if (node_reads_children(plan))
    return x;
  val odd = bit_and(k, x, i32(k, 1));
  return add(k, mul_const(k, odd, QUAD), shift_right(k, x, i32(k, 1)));
}

/* Tiles whose rows are loaded at once: as many as registers hold. */
static int tiles_at_once(const struct plan_pyramid *plan) {
  int n = LOADED_WORDS / (plan->head_dim / 8);
  return n < NODE_MAX_TILES ? n : NODE_MAX_TILES;
}

static void multiply_some(struct ir *k, const struct plan_pyramid *plan,
                          const struct node_query *query, int first, int n, const val *row,
                          int apart, struct node_logits *out) {
  struct mma_row b[NODE_MAX_TILES];
  struct mma_scores product[NODE_MAX_TILES];
  for (int j = 0; j < n; j++)
    b[j] = mma_row_load_apart(k, row[first + j], plan->head_dim, apart);
  for (int a = 0; a < query->tiles; a++) {
    mma_multiply_each(k, &query->a[a], n, b, product);
    for (int j = 0; j < n; j++)
      for (int i = 0; i < 4; i++)
        out->x[first + j][2 * a + i / 2][i % 2] = product[j].s[i / 2][i % 2];
  }
}

static void multiply(struct ir *k, const struct plan_pyramid *plan, const struct node_query *query,
                     int tiles, const val *row, int apart, struct node_logits *out) {
  int step = tiles_at_once(plan);
  assert(tiles >= 1 && tiles <= NODE_MAX_TILES);
  *out = (struct node_logits){.tiles = tiles};
  for (int j = 0; j < tiles; j += step)
    multiply_some(k, plan, query, j, tiles - j < step ? tiles - j : step, row, apart, out);
}

void node_multiply(struct ir *k, const struct plan_pyramid *plan, const struct node_query *query,
                   int tiles, const val *row, struct node_logits *out) {
  multiply(k, plan, query, tiles, row, MEAN_APART, out);
}

void node_multiply_keys(struct ir *k, const struct plan_pyramid *plan,
                        const struct node_query *query, int tiles, const val *row,
                        struct node_logits *out) {
  multiply(k, plan, query, tiles, row, CHUNK_BYTES, out);
}

/* ---- masks ---- */

/* Row of a tile that this lane's column q is, less what the lane adds to it. */
static int column_row(const struct plan_pyramid *plan, int q) {
  return node_reads_children(plan) ? q : QUAD * q;
}
static val lane_column_row(struct ir *k, const struct plan_pyramid *plan,
                           const struct lanes *lanes) {
  return mul_const(k, quad_lane(k, lanes), node_reads_children(plan) ? 2 : 1);
}

/* What is added to a logit whose weight is |last|, in its units; also with mass for mean. */
static bool weighs_logits(const struct plan_pyramid *plan) {
  return plan->score == SCORE_LSE || (plan->score == SCORE_MEAN && plan_is_mass(plan));
}

static void mask_tile(struct ir *k, const struct plan_pyramid *plan, val rest, val last, val bonus,
                      int j, struct node_logits *x) {
  bool half = plan->score == SCORE_HALF_VARIANCE;
  x->masked[j] = true;
  for (int q = 0; q < 2; q++) {
    int place = SLOT * j + column_row(plan, q);
    val inside = is_lt(k, i32(k, place), rest);
    val ends = is_eq(k, i32(k, place + 1), rest);
    val weight = is_null(last) ? f32(k, 1) : choose(k, ends, last, f32(k, 1));
    x->weight[j][q] = choose(k, inside, weight, f32(k, 0));
    for (int s = 0; s < node_slots(plan); s++) {
      val logit = x->x[j][s][q];
      if (!is_null(bonus))
        logit = choose(k, ends, add(k, logit, bonus), logit);
      x->x[j][s][q] = choose(k, inside, logit, f32(k, half ? 0 : -INFINITY));
    }
  }
}

void node_mask(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               int first_tile, val end, val last, struct node_logits *x) {
  val rest = sub(k, end, lane_column_row(k, plan, lanes)), bonus = {0};
  if (!is_null(last) && weighs_logits(plan))
    bonus = mul(k, log2_approx(k, last), reciprocal_approx(k, log2_units(k, scale)));
  for (int j = first_tile; j < x->tiles; j++)
    mask_tile(k, plan, rest, last, bonus, j, x);
}

/* ---- one head ---- */

/* Over the lanes of a quad that have children of the same node. */
static val children_max(struct ir *k, const struct plan_pyramid *plan, val v) {
  for (int distance = 1; 4 * distance <= plan->children; distance *= 2)
    v = maximum(k, v, warp_across(k, v, distance));
  return v;
}
val node_children_sum(struct ir *k, const struct plan_pyramid *plan, val v) {
  for (int distance = 1; 4 * distance <= plan->children; distance *= 2)
    v = add(k, v, warp_across(k, v, distance));
  return v;
}

/* |x| by its sign bit. */
static val magnitude(struct ir *k, val x) {
  return float_of(k, bit_and(k, bits_of(k, x), i32(k, INT32_MAX)));
}

struct log_sum { /* most + log2 sum, most in units of logits */
  val most, sum;
};
static struct log_sum lse_of(struct ir *k, const struct plan_pyramid *plan, val cs,
                             const val x[2]) {
  val most = children_max(k, plan, maximum(k, x[0], x[1]));
  if (plan->children == 2) {
    val less = negate(k, mul(k, cs, magnitude(k, sub(k, x[0], x[1]))));
    return (struct log_sum){most, add(k, f32(k, 1), exp2_approx(k, less))};
  }
  val shift = negate(k, mul(k, cs, most));
  val e0 = exp2_approx(k, fused(k, cs, x[0], shift)),
      e1 = exp2_approx(k, fused(k, cs, x[1], shift));
  return (struct log_sum){most, node_children_sum(k, plan, add(k, e0, e1))};
}

/* nan and what only infinite keys make: -inf. */
static val number(struct ir *k, const struct plan_pyramid *plan, val score) {
  if (!node_reads_children(plan))
    return maximum(k, score, f32(k, -INFINITY));
  return choose(k, is_lt(k, score, f32(k, INFINITY)), score, f32(k, -INFINITY));
}

static val child_score(struct ir *k, const struct plan_pyramid *plan, val scale,
                       const struct node_logits *x, int j, int s) {
  val cs = log2_units(k, scale);
  if (plan->score == SCORE_LSE) {
    struct log_sum l = lse_of(k, plan, cs, x->x[j][s]);
    return fused(k, cs, l.most, log2_approx(k, l.sum));
  }
  return node_half_variance(k, plan, cs, scale, x->x[j][s], x->masked[j] ? x->weight[j] : NULL);
}

void node_scores_of(struct ir *k, const struct plan_pyramid *plan, val scale,
                    const struct node_logits *x, struct node_scores *out) {
  val cs = log2_units(k, scale);
  int per = node_values(plan);
  *out = (struct node_scores){.values = per * x->tiles};
  assert(out->values <= NODE_MAX_VALUES);
  for (int v = 0; v < out->values; v++)
    for (int s = 0; s < node_slots(plan); s++) {
      val score =
          per == 1 ? child_score(k, plan, scale, x, v, s) : mul(k, cs, x->x[v / 2][s][v % 2]);
      out->score[v][s] = number(k, plan, score);
    }
}

/* ---- all heads ---- */

enum join { JOIN_SUM, JOIN_MAX, JOIN_LSE };

static enum join join_of(const struct plan_pyramid *plan) {
  switch (plan->reduce) {
  case REDUCE_MAX:
  case REDUCE_MAX_MASS:
    return JOIN_MAX;
  case REDUCE_LSE:
    return JOIN_LSE;
  default:
    return JOIN_SUM;
  }
}

/* log2 of the sum of two powers of 2, -inf of two -inf. */
static val log_add(struct ir *k, val a, val b) {
  val less = negate(k, magnitude(k, sub(k, a, b)));
  val e = exp2_approx(k, maximum(k, less, f32(k, -200)));
  return add(k, maximum(k, a, b), log2_approx(k, add(k, f32(k, 1), e)));
}

static val joined(struct ir *k, enum join join, val a, val b) {
  return join == JOIN_SUM ? add(k, a, b) : join == JOIN_MAX ? maximum(k, a, b) : log_add(k, a, b);
}

val node_join_two(struct ir *k, const struct plan_pyramid *plan, val a, val b) {
  return joined(k, join_of(plan), a, b);
}

/* |x| where this lane's row of |slot| is a head, else what does not count. */
static val counted(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                   int slot, val x, double otherwise) {
  bool whole = slot + 1 < node_slots(plan) || last_heads(plan) == SLOT || repeats(plan);
  if (whole)
    return x;
  val head = is_lt(k, mma_lane_row(k, lanes), i32(k, last_heads(plan)));
  return choose(k, head, x, f32(k, otherwise));
}

static double nothing(enum join join) {
  return join == JOIN_SUM ? 0 : -INFINITY;
}

/* Values of the lanes with one t mod 4 become one a lane: lane bit 4 takes the upper half of the
   values, and so on; where there is one left it is the same in both. */
static val scatter(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                   enum join join, int n, const val *value) {
  int left = power_of_two_from(n);
  val v[NODE_MAX_VALUES];
  for (int u = 0; u < left; u++)
    v[u] = value[u < n ? u : n - 1];
  for (int distance = 16; distance >= QUAD; distance /= 2) {
    bool repeated = repeats(plan) && distance >= QUAD * plan->group;
    val upper = is_ne(k, bit_and(k, lanes->lane, i32(k, distance)), i32(k, 0));
    int half = left / 2;
    for (int u = 0; u < half; u++) {
      val mine = choose(k, upper, v[u + half], v[u]), other = choose(k, upper, v[u], v[u + half]);
      v[u] = repeated ? mine : joined(k, join, mine, warp_across(k, other, distance));
    }
    if (half == 0 && !repeated)
      v[0] = joined(k, join, v[0], warp_across(k, v[0], distance));
    left = half > 0 ? half : 1;
  }
  return v[0];
}

/* A lane's heads of each value, joined. */
static void join_slots(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                       enum join join, const struct node_scores *x, val *value) {
  for (int v = 0; v < x->values; v++)
    for (int s = 0; s < node_slots(plan); s++) {
      val mine = counted(k, plan, lanes, s, x->score[v][s], nothing(join));
      value[v] = s == 0 ? mine : joined(k, join, value[v], mine);
    }
}

/* Sums of heads' log-sum-exps need one logarithm for all heads of a lane. */
static val lse_sum(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val cs,
                   const struct node_logits *x, int j) {
  val most = {0}, product = {0};
  for (int s = 0; s < node_slots(plan); s++) {
    struct log_sum l = lse_of(k, plan, cs, x->x[j][s]);
    val m = counted(k, plan, lanes, s, l.most, 0), f = counted(k, plan, lanes, s, l.sum, 1);
    most = s == 0 ? m : add(k, most, m);
    product = s == 0 ? f : mul(k, product, f);
  }
  return fused(k, cs, most, log2_approx(k, product));
}

void node_join_slots(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                     const struct node_scores *x, val *value) {
  join_slots(k, plan, lanes, join_of(plan), x, value);
}

val node_join_lanes(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                    int values, const val *value) {
  return scatter(k, plan, lanes, join_of(plan), values, value);
}

val node_join(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
              const struct node_scores *x) {
  val value[NODE_MAX_VALUES];
  node_join_slots(k, plan, lanes, x, value);
  return node_join_lanes(k, plan, lanes, x->values, value);
}

val node_worth(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes, val scale,
               const struct node_logits *x) {
  val value[NODE_MAX_VALUES], cs = log2_units(k, scale);
  enum join join = join_of(plan);
  if (join == JOIN_SUM && plan->score == SCORE_LSE) {
    for (int j = 0; j < x->tiles; j++)
      value[j] = lse_sum(k, plan, lanes, cs, x, j);
    val sum = scatter(k, plan, lanes, join, x->tiles, value);
    return choose(k, is_eq(k, sum, f32(k, INFINITY)), f32(k, -INFINITY), sum);
  }
  struct node_scores scores;
  node_scores_of(k, plan, scale, x, &scores);
  return node_join(k, plan, lanes, &scores);
}

/* ---- who speaks for whom ---- */

val node_lane_candidate(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                        int values) {
  int width = node_width(plan), spare = 5 - log2_from(values);
  val value = shift_right(k, lanes->lane, i32(k, spare));
  val within = udiv(k, quad_lane(k, lanes), i32(k, QUAD / width));
  return add(k, mul_const(k, value, width), within);
}

val node_lane_first(struct ir *k, const struct plan_pyramid *plan, const struct lanes *lanes,
                    int values) {
  int copies = QUAD / node_width(plan), spare = 5 - log2_from(values);
  int bits = ((1 << spare) - 1) & ~(QUAD - 1);
  return is_eq(k, bit_and(k, lanes->lane, i32(k, bits | (copies - 1))), i32(k, 0));
}

int node_lane_copy(const struct plan_pyramid *plan, int values) {
  return log2_from(values) < 3 ? QUAD : node_width(plan) < QUAD ? 1 : 0;
}
