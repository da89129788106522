/* walk_leaves.c: in go kept parents; out go the best of their leaves, each judged by its own keys,
   as select.h says.

   A leaf's keys are columns of products, 64 or all at a time, read where they lie. All lanes of a
   quad end with the same score of each of their heads. */
#include <math.h>

#include "compiler/kernels/walk.h"
#include "runtime/abi.def"

enum { TILE = 8, QUAD = 4 };

static const double LEAST = -1e30; /* finite, below every logit */

/* Scores of one leaf as variables: branches set them. */
struct leaf_score {
  struct var slot[NODE_MAX_SLOTS];
};

struct leaf { /* at hand */
  val number;
  val count; /* keys that count, from its first; at most C */
};

/* ---- keys ---- */

/* Whether some leaf that is scored has keys that do not count. */
static bool has_partial(const struct plan_pyramid *plan) {
  return plan_is_mass(plan) || !plan->causal || !plan->current;
}

static struct leaf leaf_of(struct ir *k, const struct walk *w, val number) {
  val end = w->plan->causal ? add_const(k, w->t, 1) : w->s.keys;
  val rest = sub(k, end, mul_const(k, number, w->plan->leaf));
  return (struct leaf){number, smin(k, rest, i32(k, w->plan->leaf))};
}

static int step_tiles(const struct walk *w) {
  int all = w->plan->leaf / TILE;
  return all < NODE_MAX_TILES ? all : NODE_MAX_TILES;
}

/* Logits of the leaf's keys from |first| on. */
static void key_logits(struct ir *k, const struct walk *w, const struct leaf *leaf, int first,
                       struct node_logits *x) {
  const int tiles = step_tiles(w);
  val row[NODE_MAX_TILES], token = mul_const(k, leaf->number, w->plan->leaf);
  val mine = add(k, token, mma_lane_row(k, &w->lanes)), last = add_const(k, w->s.keys, -1);
  for (int j = 0; j < tiles; j++) {
    val key = add_const(k, mine, first + TILE * j);
    val at_key = sequence_key(k, &w->s, &w->k, w->plan->page, w->kv_head, smin(k, key, last));
    row[j] = at(k, at_key, mma_lane_bytes(k, &w->lanes));
  }
  node_multiply_keys(k, w->plan, &w->q, tiles, row, x);
}

/* Keys that count, from this lane's first column on. */
static val keys_left(struct ir *k, const struct walk *w, const struct leaf *leaf) {
  val column = mul_const(k, bit_and(k, w->lanes.lane, i32(k, 3)), 2);
  return sub(k, leaf->count, column);
}

/* |x| where the lane's column |j| of products from key |first| on counts, else |otherwise|. */
static val counted(struct ir *k, val left, int first, int j, val x, double otherwise) {
  val counts = is_lt(k, i32(k, first + TILE * (j / 2) + j % 2), left);
  return choose(k, counts, x, f32(k, otherwise));
}

/* ---- log-sum-exps ---- */

struct log_sum { /* sum of 2^(cs x - cs most), of the quad */
  val most, sum;
};

static struct log_sum step_log_sum(struct ir *k, val cs, const struct node_logits *x, int s) {
  val most = f32(k, LEAST), sum = f32(k, 0);
  for (int j = 0; j < x->tiles; j++)
    most = maximum(k, maximum(k, most, x->x[j][s][0]), x->x[j][s][1]);
  most = quad_max(k, most);
  val shift = negate(k, mul(k, cs, most));
  for (int j = 0; j < 2 * x->tiles; j++)
    sum = add(k, sum, exp2_approx(k, fused(k, cs, x->x[j / 2][s][j % 2], shift)));
  return (struct log_sum){most, quad_sum(k, sum)};
}

static struct log_sum join_log_sums(struct ir *k, val cs, struct log_sum a, struct log_sum b) {
  val most = maximum(k, a.most, b.most);
  val x = exp2_approx(k, mul(k, cs, sub(k, a.most, most)));
  val y = exp2_approx(k, mul(k, cs, sub(k, b.most, most)));
  return (struct log_sum){most, fused(k, a.sum, x, mul(k, b.sum, y))};
}

static void mask_logits(struct ir *k, const struct walk *w, const struct leaf *leaf, int first,
                        struct node_logits *x) {
  val left = keys_left(k, w, leaf);
  for (int j = 0; j < 2 * x->tiles; j++)
    for (int s = 0; s < node_slots(w->plan); s++)
      x->x[j / 2][s][j % 2] = counted(k, left, first, j, x->x[j / 2][s][j % 2], -INFINITY);
}

static void lse_scores(struct ir *k, const struct walk *w, const struct leaf *leaf,
                       const struct leaf_score *out) {
  struct log_sum l[NODE_MAX_SLOTS];
  val cs = log2_units(k, WALK_ARG(scale));
  for (int first = 0; first < w->plan->leaf; first += TILE * step_tiles(w)) {
    struct node_logits x;
    key_logits(k, w, leaf, first, &x);
    if (has_partial(w->plan))
      mask_logits(k, w, leaf, first, &x);
    for (int s = 0; s < node_slots(w->plan); s++) {
      struct log_sum step = step_log_sum(k, cs, &x, s);
      l[s] = first == 0 ? step : join_log_sums(k, cs, l[s], step);
    }
  }
  for (int s = 0; s < node_slots(w->plan); s++)
    set(k, out->slot[s], fused(k, cs, l[s].most, log2_approx(k, l[s].sum)));
}

/* ---- means and variances ---- */

/* Of the lane's logits, then the quad's: by how far they are from the first key's. So the mean of
   equal ones is theirs to the bit, however many there are, and a ragged leaf ties with a full one.
 */
struct moments {
  val base, shift, squares; /* first key's logit; sum of x - base, and of its square */
};

static void add_moments(struct ir *k, const struct walk *w, const struct leaf *leaf, int first,
                        const struct node_logits *x, struct moments m[NODE_MAX_SLOTS]) {
  const int slots = node_slots(w->plan);
  val left = keys_left(k, w, leaf);
  for (int s = 0; s < slots && first == 0; s++)
    m[s] = (struct moments){warp_first(k, x->x[0][s][0], QUAD), f32(k, 0), f32(k, 0)};
  for (int j = 0; j < 2 * x->tiles; j++)
    for (int s = 0; s < slots; s++) {
      val d = sub(k, x->x[j / 2][s][j % 2], m[s].base);
      if (has_partial(w->plan))
        d = counted(k, left, first, j, d, 0);
      m[s].shift = add(k, m[s].shift, d);
      m[s].squares = fused(k, d, d, m[s].squares);
    }
}

/* Their mean, or with half their variance; |part|: 1 / n. */
static val moment_score(struct ir *k, const struct walk *w, const struct moments *m, val part) {
  val shift = mul(k, quad_sum(k, m->shift), part), mean = add(k, m->base, shift);
  if (w->plan->score != SCORE_HALF_VARIANCE)
    return mean;
  val squares = quad_sum(k, m->squares);
  val variance = fused(k, squares, part, negate(k, mul(k, shift, shift)));
  return fused(k, mul(k, WALK_ARG(scale), f32(k, 0.5)), variance, mean);
}

/* Of the keys that count: mean, or half variance; of none -inf. */
static void moment_scores(struct ir *k, const struct walk *w, const struct leaf *leaf,
                          const struct leaf_score *out) {
  struct moments m[NODE_MAX_SLOTS];
  for (int first = 0; first < w->plan->leaf; first += TILE * step_tiles(w)) {
    struct node_logits x;
    key_logits(k, w, leaf, first, &x);
    add_moments(k, w, leaf, first, &x, m);
  }
  val n = to_float(k, leaf->count), part = reciprocal_approx(k, n);
  val none = is_le(k, leaf->count, i32(k, 0));
  for (int s = 0; s < node_slots(w->plan); s++) {
    val score = mul(k, log2_units(k, WALK_ARG(scale)), moment_score(k, w, &m[s], part));
    if (plan_is_mass(w->plan))
      score = add(k, score, log2_approx(k, n));
    set(k, out->slot[s], choose(k, none, f32(k, -INFINITY), score));
  }
}

/* By its stored mean. */
static void stored_scores(struct ir *k, const struct walk *w, const struct leaf *leaf,
                          const struct leaf_score *out) {
  val mean = mean_row(k, w->plan->head_dim, w->rows, leaf->number);
  val row = at(k, mean, mma_lane_bytes(k, &w->lanes)), bonus = f32(k, 0);
  struct node_logits x;
  node_multiply(k, w->plan, &w->q, 1, &row, &x);
  if (plan_is_mass(w->plan)) {
    val rest = sub(k, w->s.keys, mul_const(k, leaf->number, w->plan->leaf));
    bonus = log2_approx(k, to_float(k, smin(k, rest, i32(k, w->plan->leaf))));
  }
  for (int s = 0; s < node_slots(w->plan); s++)
    set(k, out->slot[s], fused(k, log2_units(k, WALK_ARG(scale)), x.x[0][s][0], bonus));
}

/* ---- which of them ---- */

static void plan_scores(struct ir *k, const struct walk *w, const struct leaf *leaf,
                        const struct leaf_score *out) {
  if (w->plan->score == SCORE_LSE) {
    lse_scores(k, w, leaf, out);
  } else if (w->plan->score == SCORE_HALF_VARIANCE) {
    moment_scores(k, w, leaf, out);
  } else if (!w->plan->causal) {
    stored_scores(k, w, leaf, out);
  } else {
    IF (k, is_lt(k, leaf->count, i32(k, w->plan->leaf))) {
      moment_scores(k, w, leaf, out);
    }
    ELSE (k) {
      stored_scores(k, w, leaf, out);
    }
  }
}

/* i1: the own leaf or the previous one. */
static val is_near(struct ir *k, const struct walk *w, const struct leaf *leaf) {
  val back = sub(k, w->own, leaf->number);
  val near = both(k, is_ge(k, back, i32(k, 0)), is_le(k, back, i32(k, 1)));
  return both(k, near, is_ge(k, w->own, i32(k, 0)));
}

/* With mass forced leaves have parts of a softmax too: the own and the previous by their keys,
   others by their mean. */
static void mass_scores(struct ir *k, const struct walk *w, const struct leaf *leaf, val forced,
                        const struct leaf_score *out) {
  val near = is_near(k, w, leaf);
  IF (k, both(k, forced, bit_not(k, near))) {
    stored_scores(k, w, leaf, out);
  }
  ELSE (k) {
    if (w->plan->score == SCORE_LSE) {
      lse_scores(k, w, leaf, out); /* as all others: once in the code */
    } else {
      IF (k, forced) {
        lse_scores(k, w, leaf, out);
      }
      ELSE (k) {
        plan_scores(k, w, leaf, out);
      }
    }
  }
}

/* nan, and what only infinite keys make: -inf. */
static val number_of(struct ir *k, const struct walk *w, val score) {
  if (w->plan->score == SCORE_MEAN && !plan_is_mass(w->plan))
    return maximum(k, score, f32(k, -INFINITY));
  return choose(k, is_lt(k, score, f32(k, INFINITY)), score, f32(k, -INFINITY));
}

/* Heads' scores of slot |slot| into shared memory. */
static void store_scores(struct ir *k, const struct walk *w, val slot,
                         const struct node_scores *x) {
  val place = at(k, w->scores, mul_const(k, slot, node_scores_bytes(w->plan)));
  val first = is_eq(k, bit_and(k, w->lanes.lane, i32(k, 3)), i32(k, 0));
  for (int s = 0; s < node_slots(w->plan); s++) {
    val head = add_const(k, mma_lane_row(k, &w->lanes), (int64_t)s * TILE);
    IF (k, both(k, first, is_lt(k, head, i32(k, w->plan->group)))) {
      store(k, x->score[0][s], at(k, place, mul_const(k, head, WALK_WORD)), WALK_WORD);
    }
  }
}

static void score_leaf(struct ir *k, const struct walk *w, val slot, val number, val forced) {
  struct leaf leaf = leaf_of(k, w, number);
  struct leaf_score score;
  for (int s = 0; s < node_slots(w->plan); s++)
    score.slot[s] = var_init(k, f32(k, 0));
  if (plan_is_mass(w->plan))
    mass_scores(k, w, &leaf, forced, &score);
  else
    plan_scores(k, w, &leaf, &score);
  struct node_scores x = {.values = 1};
  for (int s = 0; s < node_slots(w->plan); s++)
    x.score[0][s] = number_of(k, w, get(k, score.slot[s]));
  if (plan_is_mass(w->plan)) {
    store_scores(k, w, slot, &x);
  } else {
    val key = best_key(k, node_join(k, w->plan, &w->lanes, &x));
    ONE_THREAD (k) {
      store(k, key, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
    }
  }
}

/* ---- all of them ---- */

/* Keys of those that need no score: forced or not seen; where no more are seen than kept all are
   as good as forced. Returns how many are seen. */
static val leaf_keys(struct ir *k, const struct walk *w) {
  val n = mul_const(k, get(k, w->parents), w->plan->children);
  struct var seen = var_init(k, i32(k, 0));
  FOR_STEP(k, slot, w->lanes.lane, n, i32(k, 32)) {
    val key = walk_key(k, w, walk_node(k, w, slot), i32(k, 0), f32(k, -INFINITY));
    store(k, key, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
    set(k, seen, add(k, get(k, seen), widen_bool(k, is_ne(k, key, i32(k, BEST_ABSENT)))));
  }
  return warp_sum_u32(k, get(k, seen));
}

static void share_keys(struct ir *k, const struct walk *w, val seen, val n) {
  node_softmax(k, w->plan, &w->lanes, seen, w->scores);
  FOR_STEP(k, slot, w->lanes.lane, n, i32(k, 32)) {
    val worth = node_share_of(k, w->plan, w->scores, slot);
    val key = walk_key(k, w, walk_node(k, w, slot), i32(k, 0), worth);
    store(k, key, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
  }
}

static void force_all(struct ir *k, const struct walk *w, val n) {
  FOR_STEP(k, slot, w->lanes.lane, n, i32(k, 32)) {
    val place = at(k, w->keys, mul_const(k, slot, WALK_WORD));
    val absent = is_eq(k, load(k, k->i32, place, WALK_WORD), i32(k, BEST_ABSENT));
    store(k, choose(k, absent, i32(k, BEST_ABSENT), i32(k, BEST_FORCED)), place, WALK_WORD);
  }
}

static void write_slot(struct ir *k, void *context, val slot, val key, val place) {
  struct walk *w = context;
  walk_write_leaf(k, w, walk_node(k, w, slot), key, place);
}

/* Seen leaves come first: kept parents ascend, and only the last one has others. */
void walk_score_leaves(struct ir *k, const struct walk *w, val seen, val first, int step) {
  FOR_STEP(k, slot, first, seen, i32(k, step)) {
    val leaf = warp_read(k, walk_node(k, w, slot), i32(k, 0));
    val forced = walk_is_forced(k, w, leaf, i32(k, 0));
    if (plan_is_mass(w->plan)) {
      score_leaf(k, w, slot, leaf, forced);
    } else {
      IF (k, bit_not(k, forced)) {
        score_leaf(k, w, slot, leaf, forced);
      }
    }
  }
}

static void keep_leaves(struct ir *k, struct walk *w, val seen) {
  const struct plan_pyramid *plan = w->plan;
  val n = mul_const(k, get(k, w->parents), plan->children);
  IF (k, is_le(k, seen, i32(k, plan->keep))) {
    force_all(k, w, n);
  }
  if (plan_is_mass(plan)) {
    ELSE (k) {
      share_keys(k, w, seen, n);
    }
  }
  val kept = best_of_keys(k, &w->lanes, plan->keep, n, w->room.parents * plan->children, w->keys,
                          write_slot, w);
  walk_write_rest(k, w, kept);
}

void walk_leaves(struct ir *k, struct walk *w) {
  val seen = leaf_keys(k, w);
  warp_sync(k);
  IF (k, is_lt(k, i32(k, w->plan->keep), seen)) {
    walk_score_leaves(k, w, seen, i32(k, 0), 1);
  }
  keep_leaves(k, w, seen);
}
