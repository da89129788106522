/* walk_level.c: in go the kept nodes of one depth; out come those of the depth below.

   Kept node i lies at word (i mod n) stride + i / n, n the nodes whose rows one product has (8 /
   rows of a node, at least 1): then what a lane reads for its products is adjacent.

   Few candidates stay in registers, one a lane (node_score.h); many leave their keys in shared
   memory, a step of products at a time. */
#include "compiler/kernels/walk.h"

enum { TILE = 8, FOUR = 4 };

static int rows_of_parent(const struct walk *w) {
  return walk_parent_rows(w->plan);
}
static int parents_per_tile(const struct walk *w) {
  return rows_of_parent(w) < TILE ? TILE / rows_of_parent(w) : 1;
}
static int tiles_per_parent(const struct walk *w) {
  return rows_of_parent(w) < TILE ? 1 : rows_of_parent(w) / TILE;
}
static int stride_of(const struct walk *w) {
  int n = parents_per_tile(w);
  return walk_round_up((w->room.parents + n - 1) / n, FOUR);
}

val walk_shift(struct ir *k, const struct walk *w, val depth) {
  return mul_const(k, depth, log2_from(w->plan->children));
}

val walk_kept_at(struct ir *k, const struct walk *w, val index) {
  int n = parents_per_tile(w);
  val place = index;
  if (n > 1) {
    val part = mul_const(k, bit_and(k, index, i32(k, n - 1)), stride_of(w));
    place = add(k, part, shift_right(k, index, i32(k, log2_from(n))));
  }
  return at(k, w->kept, mul_const(k, place, WALK_WORD));
}

val walk_kept(struct ir *k, const struct walk *w, val index) {
  if (is_null(w->fan))
    return load(k, k->i32, walk_kept_at(k, w, index), WALK_WORD);
  val above = walk_kept_at(k, w, shift_right(k, index, w->fan));
  val first = shift_left(k, load(k, k->i32, above, WALK_WORD), w->fan);
  val others = bit_not(k, shift_left(k, i32(k, -1), w->fan));
  return add(k, first, bit_and(k, index, others));
}

val walk_node(struct ir *k, const struct walk *w, val slot) {
  int g = w->plan->children;
  val parent = walk_kept(k, w, shift_right(k, slot, i32(k, log2_from(g))));
  return add(k, mul_const(k, parent, g), bit_and(k, slot, i32(k, g - 1)));
}

val walk_level_rows(struct ir *k, const struct walk *w, val level) {
  val offset = warp_read(k, w->offsets, add_const(k, level, -1));
  return at(k, w->rows, mul_const(k, widen(k, offset), walk_row_bytes(w)));
}

/* Parts of log-sum-exps are numbers and not negative: their order is that of their bits. */
static val worth_key(struct ir *k, const struct walk *w, val worth) {
  if (!plan_is_mass(w->plan) || w->plan->score != SCORE_LSE)
    return best_key(k, worth);
  return bit_or(k, bits_of(k, maximum(k, worth, f32(k, 0))), i32(k, INT32_MIN));
}

val walk_key(struct ir *k, const struct walk *w, val node, val shift, val worth) {
  val forced = walk_is_forced(k, w, node, shift);
  val key = choose(k, forced, i32(k, BEST_FORCED), worth_key(k, w, worth));
  val seen = is_le(k, node, shift_right_signed(k, w->last, shift));
  return choose(k, seen, key, i32(k, BEST_ABSENT));
}

void walk_begin(struct ir *k, struct walk *w, val seen) {
  warp_sync(k);
  for (int i = 0; i < walk_round_up(w->room.parents, parents_per_tile(w)); i += 32) {
    val index = add_const(k, w->lanes.lane, i);
    IF (k, is_lt(k, index, i32(k, walk_round_up(w->room.parents, parents_per_tile(w))))) {
      store(k, smin(k, index, seen), walk_kept_at(k, w, index), WALK_WORD);
    }
  }
  set(k, w->parents, seen);
  warp_sync(k);
}

/* ---- rows ---- */

val walk_read_level(struct ir *k, const struct walk *w, val depth) {
  return node_reads_children(w->plan) ? depth : add_const(k, depth, 1);
}

val walk_lane_base(struct ir *k, const struct walk *w, val base, val rest) {
  return at(k, mean_row(k, w->plan->head_dim, base, rest), mma_lane_bytes(k, &w->lanes));
}

/* This lane's row of tile |j| and those that follow it: parent |*parent| of the tile (0 .. n - 1),
   row |*rest| of those below it; both without what |j| adds. */
static void lane_place(struct ir *k, const struct walk *w, val *parent, val *rest) {
  val x = node_lane_row(k, w->plan, &w->lanes);
  int rows = rows_of_parent(w);
  *parent = rows < TILE ? shift_right(k, x, i32(k, log2_from(rows))) : i32(k, 0);
  *rest = rows < TILE ? bit_and(k, x, i32(k, rows - 1)) : x;
}

static val row_pointer(struct ir *k, const struct walk *w, val base, val node, int row) {
  int64_t bytes = (int64_t)rows_of_parent(w) * walk_row_bytes(w);
  return at_const(k, at(k, base, mul_const(k, widen(k, node), bytes)),
                  (int64_t)row * walk_row_bytes(w));
}

/* Rows of K kept nodes: their numbers are loaded four at once. */
static void few_rows(struct ir *k, const struct walk *w, val base, int tiles, val *row) {
  val part, rest, node[4 * NODE_MAX_TILES];
  int each = tiles_per_parent(w), nodes = (tiles + each - 1) / each;
  lane_place(k, w, &part, &rest);
  val mine = at(k, w->kept, mul_const(k, part, (int64_t)stride_of(w) * WALK_WORD));
  for (int i = 0; i < nodes; i += FOUR) {
    val four = load(k, k->i32x4, at_const(k, mine, (int64_t)i * WALK_WORD), FOUR * WALK_WORD);
    for (int z = 0; z < FOUR && i + z < nodes; z++)
      node[i + z] = element(k, four, z, k->i32);
  }
  base = walk_lane_base(k, w, base, rest);
  for (int j = 0; j < tiles; j++)
    row[j] = row_pointer(k, w, base, node[j / each], j % each * TILE);
}

/* Rows of tiles |first| (i32) and on of any number of kept nodes; behind the last, its own. */
static void many_rows(struct ir *k, const struct walk *w, val base, val first, int tiles,
                      val *row) {
  val part, rest, most = add_const(k, get(k, w->parents), -1);
  int each = tiles_per_parent(w), n = parents_per_tile(w);
  lane_place(k, w, &part, &rest);
  base = walk_lane_base(k, w, base, rest);
  for (int j = 0; j < tiles; j++) {
    val tile = add_const(k, first, j), index;
    if (each > 1)
      index = shift_right(k, tile, i32(k, log2_from(each)));
    else
      index = add(k, mul_const(k, tile, n), part);
    val node = walk_kept(k, w, smin(k, index, most));
    if (!is_null(w->bound))
      node = smin(k, node, w->bound);
    row[j] = row_pointer(k, w, base, node, 0);
    if (each > 1) {
      val within = bit_and(k, tile, i32(k, each - 1));
      row[j] = at(k, row[j], mul_const(k, within, TILE * walk_row_bytes(w)));
    }
  }
}

/* ---- few candidates ---- */

/* More are seen than kept (of one kept node, perhaps as many): K are, which is known to be alike in
   all lanes. */
static val few_level(struct ir *k, struct walk *w, val depth, best_body *body, void *context) {
  const struct plan_pyramid *plan = w->plan;
  const int n = plan->keep * plan->children;
  const int tiles = (n + node_per_tile(plan) - 1) / node_per_tile(plan);
  const int values = tiles * node_values(plan);
  val shift = walk_shift(k, w, depth), row[NODE_MAX_TILES];
  few_rows(k, w, walk_level_rows(k, w, walk_read_level(k, w, depth)), tiles, row);
  val slot = node_lane_candidate(k, plan, &w->lanes, values);
  val node = walk_node(k, w, n < 32 ? smin(k, slot, i32(k, n - 1)) : slot);
  struct walk_mask mask = walk_mask_of(k, w, depth);
  struct node_logits x;
  node_multiply(k, plan, &w->q, tiles, row, &x);
  walk_mask_apply(k, w, &mask, i32(k, 0), true, &x);
  val worth = plan_is_mass(plan) ? node_share(k, plan, &w->lanes, WALK_ARG(scale), &x)
                                 : node_worth(k, plan, &w->lanes, WALK_ARG(scale), &x);
  val key = walk_key(k, w, node, shift, worth);
  if ((node_width(plan) << log2_from(values)) > n)
    key = choose(k, is_lt(k, slot, i32(k, n)), key, i32(k, BEST_ABSENT));
  struct best best =
      best_of_lanes(k, &w->lanes, plan->keep, n, slot, node_lane_first(k, plan, &w->lanes, values),
                    node_lane_copy(plan, values), key, w->keys);
  if (body) {
    IF (k, best.kept) {
      body(k, context, node, key, best.place);
    }
  } else {
    store_shared_if(k, best.kept, node, walk_kept_at(k, w, best.place));
  }
  warp_sync(k);
  return i32(k, plan->keep);
}

/* ---- many candidates ---- */

static int step_tiles(const struct walk *w) {
  if (w->tiles > 0)
    return w->tiles;
  int most = NODE_MAX_VALUES / node_values(w->plan);
  int all = (w->room.parents * rows_of_parent(w) + TILE - 1) / TILE;
  int tiles = most;
  while (tiles > 1 && tiles / 2 >= all)
    tiles /= 2;
  return tiles;
}

/* Keys, or with mass scores of heads, of the candidates from tile |first| on. */
static void score_step(struct ir *k, const struct walk *w, val depth, val base, val first,
                       const struct walk_mask *mask) {
  const struct plan_pyramid *plan = w->plan;
  const int tiles = step_tiles(w), values = tiles * node_values(plan);
  val row[NODE_MAX_TILES], slot_0 = mul_const(k, first, node_per_tile(plan));
  struct node_logits x;
  many_rows(k, w, base, first, tiles, row);
  node_multiply(k, plan, &w->q, tiles, row, &x);
  walk_mask_apply(k, w, mask, mul_const(k, first, TILE), false, &x);
  if (plan_is_mass(plan)) {
    struct node_scores scores;
    node_scores_of(k, plan, WALK_ARG(scale), &x, &scores);
    val place = at(k, w->scores, mul_const(k, slot_0, node_scores_bytes(plan)));
    node_scores_store(k, plan, &w->lanes, &scores, place);
    return;
  }
  val worth = node_worth(k, plan, &w->lanes, WALK_ARG(scale), &x);
  val slot = add(k, slot_0, node_lane_candidate(k, plan, &w->lanes, values));
  val n = mul_const(k, get(k, w->parents), plan->children);
  IF (k, both(k, node_lane_first(k, plan, &w->lanes, values), is_lt(k, slot, n))) {
    val key = walk_key(k, w, walk_node(k, w, slot), walk_shift(k, w, depth), worth);
    store(k, key, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
  }
}

void walk_score_tiles(struct ir *k, const struct walk *w, val depth, val first) {
  val base = walk_level_rows(k, w, walk_read_level(k, w, depth));
  struct walk_mask mask = walk_mask_of(k, w, depth);
  score_step(k, w, depth, base, first, &mask);
}

static void share_keys(struct ir *k, const struct walk *w, val depth, val n) {
  node_softmax(k, w->plan, &w->lanes, n, w->scores);
  FOR_STEP(k, slot, w->lanes.lane, n, i32(k, 32)) {
    val worth = node_share_of(k, w->plan, w->scores, slot);
    val key = walk_key(k, w, walk_node(k, w, slot), walk_shift(k, w, depth), worth);
    store(k, key, at(k, w->keys, mul_const(k, slot, WALK_WORD)), WALK_WORD);
  }
}

struct keeper {
  struct walk *w;
  best_body *body;
  void *context;
};
static void keep_node(struct ir *k, void *context, val slot, val key, val place) {
  const struct keeper *keeper = context;
  val node = walk_node(k, keeper->w, slot);
  if (keeper->body)
    keeper->body(k, keeper->context, node, key, place);
  else
    store(k, node, at(k, keeper->w->next, mul_const(k, place, WALK_WORD)), WALK_WORD);
}

void walk_score_many(struct ir *k, const struct walk *w, val depth, val first, int step) {
  const int each = step_tiles(w);
  val base = walk_level_rows(k, w, walk_read_level(k, w, depth));
  val tiles = mul(k, get(k, w->parents), i32(k, rows_of_parent(w)));
  tiles = shift_right(k, add_const(k, tiles, TILE - 1), i32(k, log2_from(TILE)));
  struct walk_mask mask = walk_mask_of(k, w, depth);
  FOR_STEP(k, tile, mul_const(k, first, each), tiles, i32(k, each * step)) {
    score_step(k, w, depth, base, tile, &mask);
  }
}

/* The other part, one warp's, once all have come. */
static val keep_many(struct ir *k, struct walk *w, val depth, best_body *body, void *context) {
  const struct plan_pyramid *plan = w->plan;
  val n = mul_const(k, get(k, w->parents), plan->children);
  if (plan_is_mass(plan))
    share_keys(k, w, depth, n);
  struct keeper keeper = {w, body, context};
  val kept = best_of_keys(k, &w->lanes, plan->keep, n, w->room.parents * plan->children, w->keys,
                          keep_node, &keeper);
  warp_sync(k);
  set(k, w->parents, kept);
  if (body)
    return kept;
  for (int i = 0; i < plan->keep; i += 32) {
    val index = add_const(k, w->lanes.lane, i);
    IF (k, is_lt(k, index, kept)) {
      val node = load(k, k->i32, at(k, w->next, mul_const(k, index, WALK_WORD)), WALK_WORD);
      store(k, node, walk_kept_at(k, w, index), WALK_WORD);
    }
  }
  warp_sync(k);
  return kept;
}

static val many_level(struct ir *k, struct walk *w, val depth, best_body *body, void *context) {
  walk_score_many(k, w, depth, i32(k, 0), 1);
  return keep_many(k, w, depth, body, context);
}

val walk_level(struct ir *k, struct walk *w, val depth, bool dense, best_body *body,
               void *context) {
  val kept = walk_has_few(w->plan) && !dense ? few_level(k, w, depth, body, context)
                                             : many_level(k, w, depth, body, context);
  set(k, w->parents, kept);
  return kept;
}
