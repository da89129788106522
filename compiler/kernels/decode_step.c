/* decode_step.c: in go kept nodes of one depth; out come those some depths below, which all warps
   score together and one chooses, depth after depth. */
#include <assert.h>

#include "compiler/kernels/decode.h"
#include "compiler/sm90/sync.h"

/* choice[i] for run-time |i|. */
static val one_of(struct ir *k, int n, const int *choice, val i) {
  val x = i32(k, choice[0]);
  for (int c = 1; c < n; c++)
    x = choose(k, is_eq(k, i, i32(k, c)), i32(k, choice[c]), x);
  return x;
}

/* The walk as the |i|th depth of a step sees it, |i| a number of ours or of run time. */
static struct walk at_depth(struct ir *k, const struct decode *d, val i) {
  struct walk w = d->w;
  val slot = one_of(k, d->room.depths, d->room.slots, i);
  w.fan = mul_const(k, i, log2_from(d->plan.children));
  w.keys = at(k, w.keys, mul_const(k, slot, WALK_WORD));
  w.scores = at(k, w.scores, mul_const(k, slot, node_scores_bytes(&d->plan)));
  return w;
}

/* ---- scores ---- */

/* Nodes of the depth above |depth| that are seen, of those which |w| makes of the kept ones. */
static val seen_parents(struct ir *k, const struct decode *d, const struct walk *w, val depth) {
  val kept = get(k, d->w.parents), last = add_const(k, kept, -1);
  val node = load(k, k->i32, walk_kept_at(k, &d->w, last), WALK_WORD);
  val shift = walk_shift(k, w, add_const(k, depth, 1));
  val behind = sub(k, shift_right_signed(k, w->last, shift), shift_left(k, node, w->fan));
  val seen = add(k, shift_left(k, last, w->fan), add_const(k, behind, 1));
  return smin(k, seen, shift_left(k, kept, w->fan));
}

/* Which parents |w| scores the children of. Where no score depends on how many are seen that is not
   asked for: keys tell who is, and rows behind the last are not read. */
static void set_parents(struct ir *k, const struct decode *d, struct walk *w, val depth) {
  if (walk_has_partial(&d->plan)) {
    w->parents = var_init(k, seen_parents(k, d, w, depth));
    return;
  }
  w->parents = var_init(k, shift_left(k, i32(k, d->plan.keep), w->fan));
  w->bound = shift_right_signed(k, w->last, walk_shift(k, w, add_const(k, depth, 1)));
}

/* Part |part| of a step from |depth| down. */
static void score_part(struct ir *k, const struct decode *d, const struct decode_tiling *t,
                       val depth, val part) {
  const int depths = d->room.depths;
  int begin[DECODE_MAX_DEPTHS] = {0};
  val i = i32(k, 0);
  for (int c = 1; c < depths && t->parts[c] > 0; c++) {
    begin[c] = begin[c - 1] + t->parts[c - 1];
    i = choose(k, is_le(k, i32(k, begin[c]), part), i32(k, c), i);
  }
  i = warp_read(k, i, i32(k, 0));
  struct walk w = at_depth(k, d, i);
  val here = sub(k, depth, i);
  w.tiles = t->tiles;
  set_parents(k, d, &w, here);
  val first = sub(k, part, one_of(k, depths, begin, i));
  walk_score_tiles(k, &w, here, mul_const(k, first, t->tiles));
}

static void score_by(struct ir *k, const struct decode *d, const struct decode_tiling *t, val depth,
                     val depths) {
  const int most = d->room.depths;
  int end[DECODE_MAX_DEPTHS + 1] = {0};
  for (int c = 0; c < most; c++)
    end[c + 1] = end[c] + t->parts[c];
  val parts = one_of(k, most + 1, end, depths);
  if (end[most] <= d->warps) {
    IF (k, is_lt(k, d->w.lanes.warp, parts)) {
      score_part(k, d, t, depth, d->w.lanes.warp);
    }
    return;
  }
  FOR_STEP(k, part, d->w.lanes.warp, parts, i32(k, d->warps)) {
    score_part(k, d, t, depth, part);
  }
}

static void score(struct ir *k, const struct decode *d, val depth, val depths) {
  const struct decode_room *r = &d->room;
  if (r->deep.tiles == r->shallow.tiles) {
    score_by(k, d, &r->deep, depth, depths);
    return;
  }
  IF (k, is_eq(k, depths, i32(k, r->depths))) {
    score_by(k, d, &r->deep, depth, depths);
  }
  ELSE (k) {
    score_by(k, d, &r->shallow, depth, depths);
  }
}

/* ---- choices ---- */

/* The last depth of a step: nodes, or where leaves need no keys the list. */
static void put_kept(struct ir *k, struct decode *d, const struct best *best, val depth, val node,
                     val key) {
  if (walk_last_depth(&d->plan) == 0) {
    IF (k, is_eq(k, depth, i32(k, 0))) {
      IF (k, best->kept) {
        walk_write_leaf(k, &d->w, node, key, best->place);
      }
      walk_write_rest(k, &d->w, best->count);
    }
  }
  store_shared_if(k, best->kept, node, walk_kept_at(k, &d->w, best->place));
}

/* Where the |place|th of those that a depth keeps leaves its slot; behind it, its node. */
static val slot_at(struct ir *k, const struct decode *d, val place) {
  return at(k, d->places, mul_const(k, place, 2 * WALK_WORD));
}

static void choose_nodes(struct ir *k, struct decode *d, val depth, val depths) {
  const int g = d->plan.children, children = log2_from(g);
  const struct decode_lanes x = decode_lanes_of(k, d);
  val mine = smin(k, x.candidate, i32(k, x.n - 1)), child = bit_and(k, mine, i32(k, g - 1));
  val parent = shift_right(k, mine, i32(k, children));
  const struct walk first = at_depth(k, d, i32(k, 0));
  struct var slot = var_init(k, mine), node = var_init(k, walk_node(k, &first, mine));
  struct var i = var_init(k, i32(k, 0));
  WHILE (k, is_lt(k, get(k, i), depths)) {
    const struct walk w = at_depth(k, d, get(k, i));
    val here = sub(k, depth, get(k, i)), key;
    struct best best = decode_best_nodes(k, d, &w, &x, get(k, slot), get(k, node), here, &key);
    set(k, i, add_const(k, get(k, i), 1));
    IF (k, is_eq(k, get(k, i), depths)) {
      put_kept(k, d, &best, here, get(k, node), key);
    }
    ELSE (k) {
      val place = slot_at(k, d, best.place);
      store_shared_if(k, best.kept, get(k, slot), place);
      store_shared_if(k, best.kept, get(k, node), at_const(k, place, WALK_WORD));
      warp_sync(k);
      val above = slot_at(k, d, parent);
      val slot_above = load(k, k->i32, above, WALK_WORD);
      val node_above = load(k, k->i32, at_const(k, above, WALK_WORD), WALK_WORD);
      set(k, slot, add(k, mul_const(k, slot_above, g), child));
      set(k, node, add(k, mul_const(k, node_above, g), child));
    }
  }
}

/* ---- steps ---- */

/* One depth, of more candidates than lanes. */
static void many_step(struct ir *k, struct decode *d, val depth) {
  const val no = {0};
  score(k, d, depth, i32(k, 1));
  const struct walk children = at_depth(k, d, i32(k, 1));
  val seen = seen_parents(k, d, &children, add_const(k, depth, -1));
  if (walk_last_depth(&d->plan) == 1) {
    decode_keep_many(k, d, depth, seen, no, NULL, NULL);
    return;
  }
  IF (k, is_eq(k, depth, i32(k, 0))) {
    decode_keep_many(k, d, depth, seen, no, walk_write_leaf, &d->w);
  }
  ELSE (k) {
    decode_keep_many(k, d, depth, seen, no, NULL, NULL);
  }
}

/* Depths of a step that begins |left| above the last: the last two are alike. */
val decode_step_depths(struct ir *k, const struct decode *d, val left) {
  const int most = d->room.depths;
  val half = shift_right(k, add_const(k, left, 1), i32(k, 1));
  val some = choose(k, is_le(k, left, i32(k, 2 * most)), half, i32(k, most));
  return choose(k, is_le(k, left, i32(k, most)), left, some);
}

void decode_go_down(struct ir *k, struct decode *d, struct var depth, int last) {
  WHILE (k, is_lt(k, i32(k, last), get(k, depth))) {
    val above = get(k, depth), first = add_const(k, above, -1);
    val depths = decode_step_depths(k, d, sub(k, above, i32(k, last)));
    if (decode_has_few(&d->plan)) {
      score(k, d, first, depths);
      cta_sync(k);
      IF (k, d->one) {
        choose_nodes(k, d, first, depths);
      }
    } else {
      many_step(k, d, first);
    }
    set(k, d->w.parents, i32(k, d->plan.keep));
    set(k, depth, sub(k, above, depths));
    cta_sync(k);
  }
}
