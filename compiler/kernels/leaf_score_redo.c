/* leaf_score_redo.c: in go the rows of a warp whose sums left the range of floats; out come their
   scores with the maximum of each row and leaf subtracted. Everything is read again from global
   memory: stages and accumulators already belong to later tiles. Eight keys at a time; once for
   the maxima, once for the sums. Slow, and seldom needed. */
#include <math.h>

#include "compiler/kernels/leaf_score.h"
#include "compiler/sm90/key_image.h"
#include "compiler/sm90/mma.h"

enum { CHUNK_BYTES = 64, LANE_BYTES = 16 };

struct redo {
  struct item item;
  val row[FRAG_ROWS];  /* pointers to the thread's rows of q, with the lane's part added */
  val past[FRAG_ROWS]; /* NEAR: keys of the own leaf that each sees */
};

/* The last segment that begins at or before item |number|: with equal beginnings, the one that has
   items. */
static val segment_of(struct ir *k, const struct leaf_score *a, val number) {
  struct var low = var_init(k, i32(k, 0)), high = var_init(k, ARG(segments));
  WHILE (k, is_lt(k, add_const(k, get(k, low), 1), get(k, high))) {
    val middle = shift_right(k, add(k, get(k, low), get(k, high)), i32(k, 1));
    val first = load(k, k->i32, at(k, a->prefix, mul_const(k, middle, WORD)), WORD);
    val before = is_le(k, first, number);
    set(k, low, choose(k, before, middle, get(k, low)));
    set(k, high, choose(k, before, get(k, high), middle));
  }
  return get(k, low);
}

static struct redo redo_new(struct ir *k, const struct leaf_score *a, val name) {
  val number = shift_right(k, name, i32(k, TILE_SHIFT));
  val tile = bit_and(k, name, i32(k, (1 << TILE_SHIFT) - 1));
  struct redo x = {.item = item_load(k, a, number, segment_of(k, a, number))};
  val past = add_const(k, item_info(k, &x.item, ITEM_PAST_SHIFT, ITEM_PAST_MASK), 1);
  for (int r = 0; r < FRAG_ROWS; r++) {
    val member = tile_member(k, a, tile, r);
    val entry = item_entry(k, a, &x.item, smin(k, member, add_const(k, x.item.members, -1)));
    val query = bit_and(k, entry, i32(k, ENTRY_QUERY_MASK));
    val row = add_const(k, shift_right(k, a->lanes.lane, i32(k, 2)), 8 * r);
    val head = bit_and(k, row, i32(k, a->head_rows - 1));
    if (a->passes == 2)
      head = add(k, head, mul_const(k, bit_and(k, tile, i32(k, 1)), WARP_ROWS));
    head = smin(k, head, i32(k, a->plan->group - 1));
    val offset = item_query_offset(k, a, &x.item, entry);
    offset = add(k, offset, mul(k, widen(k, head), ARG(q_head)));
    offset = add(k, offset, mul(k, widen(k, query), ARG(q_token)));
    offset = add(k, offset, widen(k, gather_lane_offset(k, &a->lanes)));
    x.row[r] = at(k, ARG(q), offset);
    x.past[r] = add(k, past, sub(k, query, x.item.word[2]));
  }
  return x;
}

/* log2 logits c[2 r + q] of the thread's rows and keys |first| + frag_lane_column + q. */
static void logits(struct ir *k, const struct leaf_score *a, const struct redo *x, val image,
                   val first, val c[4]) {
  const int d = a->plan->head_dim;
  struct lanes lanes = a->lanes;
  val key = add(k, first, mma_lane_row(k, &lanes));
  val lane_word = mul_const(k, bit_and(k, a->lanes.lane, i32(k, 3)), WORD);
  for (int i = 0; i < 4; i++)
    c[i] = f32(k, 0);
  for (int chunk = 0; chunk < d * 2 / CHUNK_BYTES; chunk++) {
    val q[FRAG_ROWS];
    for (int r = 0; r < FRAG_ROWS; r++)
      q[r] = load(k, k->i32x4, at_const(k, x->row[r], chunk * CHUNK_BYTES), LANE_BYTES);
    for (int step = 0; step < 2; step++) {
      val left[4], right[2];
      for (int z = 0; z < 4; z++)
        left[z] = element(k, q[z & 1], 2 * step + (z >> 1), k->i32);
      for (int i = 0; i < 2; i++) {
        val word = key_image_chunk(k, key, 4 * chunk + 2 * step + i, d);
        right[i] = load(k, k->i32, at(k, at(k, image, word), lane_word), WORD);
      }
      mma_product(k, c, left, right);
    }
  }
  for (int i = 0; i < 4; i++)
    c[i] = mul(k, c[i], a->log2_scale);
}

/* Where the own leaf is masked: the first of the second half, of a NEAR item. */
static void mask(struct ir *k, const struct leaf_score *a, const struct redo *x, val leaf,
                 val first, val c[4]) {
  val is_near = is_eq(k, x->item.kind, i32(k, ITEM_NEAR));
  val masks = both(k, is_near, is_eq(k, leaf, i32(k, a->plan->children / 2)));
  val column = add(k, first, frag_lane_column(k, &a->lanes));
  for (int i = 0; i < 4; i++) {
    val unseen = is_ge(k, add_const(k, column, i & 1), x->past[i >> 1]);
    c[i] = choose(k, both(k, masks, unseen), f32(k, -INFINITY), c[i]);
  }
}

/* Log-sum-exps of leaf |leaf| (i32) of the item, for both rows. */
static struct rowval leaf_scores(struct ir *k, const struct leaf_score *a, const struct redo *x,
                                 val leaf) {
  const int half = a->plan->children / 2;
  val is_second = is_ge(k, leaf, i32(k, half));
  val begin = choose(k, is_second, add_const(k, x->item.word[1], -half), x->item.word[0]);
  val number =
      smin(k, add(k, begin, leaf), add_const(k, ARG(leaves), -1)); /* a child may be absent */
  val image = leaf_image(k, a, x->item.kv_head, number);
  struct rowvec most = rowvec_new(k), sum = rowvec_new(k);
  rowvec_fill(k, &most, f32(k, -INFINITY));
  rowvec_fill(k, &sum, f32(k, 0));
  val end =
      add_const(k, a->zero, a->plan->leaf); /* unknown, so that registers suffice: not unrolled */
  for (int pass = 0; pass < 2; pass++) {
    FOR_STEP(k, first, i32(k, 0), end, i32(k, MMA_COLUMNS)) {
      val c[4];
      logits(k, a, x, image, first, c);
      if (plan_is_mass(a->plan))
        mask(k, a, x, leaf, first, c);
      for (int i = 0; i < 4; i++) {
        struct var m = most.r[i >> 1], s = sum.r[i >> 1];
        if (pass == 0)
          set(k, m, maximum(k, get(k, m), c[i]));
        else
          set(k, s, add(k, get(k, s), exp2_approx(k, sub(k, c[i], get(k, m)))));
      }
    }
    for (int r = 0; r < FRAG_ROWS && pass == 0; r++)
      set(k, most.r[r], quad_max(k, get(k, most.r[r])));
  }
  struct rowval score;
  for (int r = 0; r < FRAG_ROWS; r++)
    score.r[r] = add(k, get(k, most.r[r]), log2_approx(k, quad_sum(k, get(k, sum.r[r]))));
  return score;
}

void leaf_score_redo(struct ir *k, const struct leaf_score *a, val name, const struct var *value,
                     const val *safe) {
  struct redo x = redo_new(k, a, name);
  val mine = bit_and(k, a->lanes.lane, i32(k, 1));
  val is_lower = is_ne(k, bit_and(k, a->lanes.lane, i32(k, 2)), i32(k, 0));
  FOR (k, leaf, i32(k, 0), i32(k, a->plan->children)) {
    struct rowval score = leaf_scores(k, a, &x, leaf);
    val of_row = choose(k, is_lower, score.r[1], score.r[0]);
    for (int p = 0; p < a->pairs; p++) {
      val is_mine = is_eq(k, leaf, add_const(k, mine, 2 * p));
      val wanted = both(k, is_mine, bit_not(k, safe[p]));
      set(k, value[p], choose(k, wanted, of_row, get(k, value[p])));
    }
  }
}
