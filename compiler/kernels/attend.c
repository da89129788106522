/* attend: o = softmax over exact tokens and block means, in one online softmax; arXiv 2602.01077,
   docs/DESIGN.md.

   An item is one query block of 128 rows of one head. Its tiles of 128 columns are, in this order,
   exact (pairs of listed key blocks; every key when dense), then means (128 block means, each
   standing for len_j tokens: bias log2 len_j, listed ones masked), then once the first-order term
   (g q) Hsum. Persistent CTAs walk the items head-major, so that one head's K and V stay in L2.

   Per row, in units where s = q k^T is unscaled and c = scale log2 e:
       m' = max(m, max s)    f = 2^(c m - c m')    p = 2^(c s - c m')
       l = l f + sum p       g = g f + (sum p of mean columns)       o = o f + p v
   at the end o = (o + (g q) Hsum) / l,  LSE = ln 2 (c m + log2 l).

   Two consumer warpgroups of 64 rows share list, K and V; one producer thread brings Q and K,
   another V and Hsum (with a single one, the next item's Q would queue behind this item's V). The
   pipeline runs on over items: the last p v of an item is issued together with the first q k^T of
   the next. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/tile.h"
#include "compiler/sm90/tma.h"
#include "compiler/sm90/wgmma.h"
#include "runtime/abi.def"

static const struct ir_arg attend_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ATTEND_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_ATTEND_##name])

enum { GROUPS = 2, GROUP_ROWS = 64, CONSUMER_WARPS = 8, MASK_WORDS = 4 };

struct attend { /* what both roles know */
  const struct plan_attend *plan;
  int columns; /* of every tile: head_dim in whole panels */
  struct lanes lanes;
  struct ring queries, keys, values;
  val exact_tiles, full_tiles, tiles; /* full: exact tiles without a masked column */
  val k_blocks, last_length;          /* NT, tokens in block NT - 1 */
};

struct item {
  val index, q_row;    /* first row of the query block */
  struct place4 q, kv; /* kv: of the key/value head that this query head reads */
};

static struct item item_at(struct ir *k, const struct attend *a, val index) {
  val bh = udiv(k, index, ARG(q_blocks));
  val block = sub(k, index, mul(k, bh, ARG(q_blocks)));
  val batch = udiv(k, bh, ARG(heads));
  val row = mul_const(k, block, a->plan->tile_q), head = sub(k, bh, mul(k, batch, ARG(heads)));
  val kv_head = a->plan->group == 1 ? head : udiv(k, head, i32(k, a->plan->group));
  return (struct item){index, row, {row, head, batch}, {row, kv_head, batch}};
}

static struct place4 place_row(struct place4 place, val row) {
  place.row = row;
  return place;
}

/* ---- producers
 * ------------------------------------------------------------------------------------------- */

/* The list of an item, read one tile ahead of its use. Rows are padded, so the pair after the last
 * is readable. */
struct cursor {
  val list; /* null when dense: tile t is rows [128 t, 128 t + 128) */
  struct var next[2];
};

static void cursor_read(struct ir *k, const struct cursor *c, val tile) {
  for (int i = 0; i < 2; i++) {
    val entry = at(k, c->list, mul_const(k, add_const(k, mul_const(k, tile, 2), i), 4));
    set(k, c->next[i], load(k, k->i32, entry, 4));
  }
}

static struct cursor cursor_new(struct ir *k, const struct attend *a) {
  struct cursor c = {0};
  if (!a->plan->dense) {
    c.next[0] = var_new(k, k->i32);
    c.next[1] = var_new(k, k->i32);
  }
  return c;
}

static val list_of(struct ir *k, val item) {
  val entries = mul(k, widen(k, item), widen(k, ARG(list_stride)));
  return at(k, ARG(lists), mul_const(k, entries, 4));
}

static void cursor_open(struct ir *k, const struct attend *a, struct cursor *c, val item) {
  if (!a->plan->dense) {
    c->list = list_of(k, item);
    cursor_read(k, c, i32(k, 0));
  }
}

struct tile_rows { /* where the 128 rows of a tile come from */
  val is_mean;     /* null: never */
  val row[2];
};

static struct tile_rows cursor_take(struct ir *k, const struct attend *a, const struct cursor *c,
                                    val tile) {
  struct tile_rows s = {0};
  if (a->plan->means) {
    s.is_mean = is_ge(k, tile, a->exact_tiles);
  }
  for (int i = 0; i < 2; i++) {
    val dense_row = add_const(k, mul_const(k, tile, a->plan->tile_k), a->plan->block * i);
    s.row[i] = a->plan->dense ? dense_row : mul_const(k, get(k, c->next[i]), a->plan->block);
    if (a->plan->means) {
      val mean_row = sub(k, dense_row, mul_const(k, a->exact_tiles, a->plan->tile_k));
      s.row[i] = choose(k, s.is_mean, mean_row, s.row[i]);
    }
  }
  if (!a->plan->dense) {
    cursor_read(k, c, smin(k, add_const(k, tile, 1), a->exact_tiles));
  }
  return s;
}

static struct tile kv_tile(struct ir *k, const struct attend *a, const struct ring *ring,
                           struct slot slot) {
  return tile_new(k, ring_address(k, ring, slot), a->plan->tile_k, a->columns);
}

/* One 128-row stage of |ring| from two 64-row boxes. */
static void load_stage(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, val map, struct place4 place, const val row[2]) {
  struct slot slot = ring_slot(k, where);
  ring_acquire(k, ring, slot);
  ring_expect(k, ring, slot, ring->stage_bytes);
  struct tile tile = kv_tile(k, a, ring, slot);
  for (int i = 0; i < 2; i++) {
    tma_load_rows(k, &tile, BOX_ROWS * i, map, place_row(place, row[i]), ring_full(k, ring, slot));
  }
  ring_advance(k, ring, where);
}

static void load_tiles(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, const struct cursor *cursor, struct item item,
                       val exact_map, val mean_map) {
  FOR (k, t, i32(k, 0), a->tiles) {
    struct tile_rows rows = cursor_take(k, a, cursor, t);
    val map = is_null(rows.is_mean) ? exact_map : choose(k, rows.is_mean, mean_map, exact_map);
    load_stage(k, a, ring, where, map, item.kv, rows.row);
  }
}

static struct tile query_tile(struct ir *k, const struct attend *a, struct slot slot, val group) {
  int bytes = tile_bytes(GROUP_ROWS, a->columns);
  val address = add(k, ring_address(k, &a->queries, slot), mul_const(k, group, bytes));
  return tile_new(k, address, GROUP_ROWS, a->columns);
}

static void load_queries(struct ir *k, const struct attend *a, struct ring_place *where,
                         struct item item) {
  struct slot slot = ring_slot(k, where);
  ring_acquire(k, &a->queries, slot);
  ring_expect(k, &a->queries, slot, a->queries.stage_bytes);
  for (int g = 0; g < GROUPS; g++) {
    struct tile tile = query_tile(k, a, slot, i32(k, g));
    val row = add_const(k, item.q_row, GROUP_ROWS * g);
    tma_load_rows(k, &tile, 0, ARG(q), place_row(item.q, row), ring_full(k, &a->queries, slot));
  }
  ring_advance(k, &a->queries, where);
}

static void produce_queries_and_keys(struct ir *k, const struct attend *a) {
  struct ring_place query = ring_start(k), key = ring_start(k);
  struct cursor cursor = cursor_new(k, a);
  FOR_STEP(k, index, cta_index(k), ARG(items), cta_count(k)) {
    struct item item = item_at(k, a, index);
    cursor_open(k, a, &cursor, index);
    load_queries(k, a, &query, item);
    load_tiles(k, a, &a->keys, &key, &cursor, item, ARG(k), ARG(k_mean));
  }
  ring_pass_empty(k, &a->queries, &query);
  ring_pass_empty(k, &a->keys, &key);
}

static void produce_values(struct ir *k, const struct attend *a) {
  struct ring_place value = ring_start(k);
  struct cursor cursor = cursor_new(k, a);
  FOR_STEP(k, index, cta_index(k), ARG(items), cta_count(k)) {
    struct item item = item_at(k, a, index);
    cursor_open(k, a, &cursor, index);
    load_tiles(k, a, &a->values, &value, &cursor, item, ARG(v), ARG(v_mean));
    if (a->plan->first_order) {
      const val rows[2] = {i32(k, 0), i32(k, BOX_ROWS)};
      load_stage(k, a, &a->values, &value, ARG(h_sum), item.kv, rows);
    }
  }
}

/* ---- masks
 * -------------------------------------------------------------------------------------------------
 */

struct tile_mask {
  val words[MASK_WORDS]; /* bit c: column c of the tile is not to be seen */
  struct mask_bias bias;
  val is_mean; /* null: never */
};

/* Bits of the columns at or past |valid|, of 128. */
static void prefix_words(struct ir *k, val valid, val words[MASK_WORDS]) {
  for (int w = 0; w < MASK_WORDS; w++) {
    val rest = smax(k, add_const(k, valid, -32 * w), i32(k, 0));
    val bits = shift_left(k, i32(k, -1), bit_and(k, rest, i32(k, 31)));
    words[w] = choose(k, is_ge(k, rest, i32(k, 32)), i32(k, 0), bits);
  }
}

/* Valid columns of exact tile |tile| of |item|: all, but in the last one. Lists ascend, so only
   their last entry can be the short block. */
static val valid_columns(struct ir *k, const struct attend *a, val item, val tile) {
  val before = mul_const(k, tile, a->plan->tile_k);
  if (a->plan->dense) {
    return sub(k, ARG(n_k), before);
  }
  val last_entry = at(k, list_of(k, item), mul_const(k, add_const(k, ARG(keep), -1), 4));
  val is_short = is_eq(k, load(k, k->i32, last_entry, 4), add_const(k, a->k_blocks, -1));
  val missing = choose(k, is_short, sub(k, i32(k, a->plan->block), a->last_length), i32(k, 0));
  return sub(k, sub(k, mul_const(k, ARG(keep), a->plan->block), missing), before);
}

/* log2(len) / c: a mean counts as len tokens. */
static val length_bias(struct ir *k, val log2_length) {
  return mul(k, log2_length, reciprocal_approx(k, ARG(scale_log2)));
}

/* The short last block's own length, in edge kernels. */
static void short_mean(struct ir *k, const struct attend *a, struct tile_mask *mask,
                       val mean_tile) {
  val column = sub(k, add_const(k, a->k_blocks, -1), mul_const(k, mean_tile, a->plan->tile_k));
  column = choose(k, mask->is_mean, column, i32(k, -1));
  mask->bias.short_column = sub(k, column, frag_lane_column(k, &a->lanes));
  mask->bias.short_bias = length_bias(k, log2_approx(k, to_float(k, a->last_length)));
}

static struct tile_mask mask_of_exact(struct ir *k, const struct attend *a, val item, val tile) {
  struct tile_mask mask = {.bias = {.bias = f32(k, 0)}};
  prefix_words(k, valid_columns(k, a, item, tile), mask.words);
  return mask;
}

/* Turns the mask of an exact tile into that of tile |tile|, wherever that is a tile of means. */
static void mask_means(struct ir *k, const struct attend *a, struct tile_mask *mask, val item,
                       val tile) {
  val mean_tile = sub(k, tile, a->exact_tiles);
  mask->is_mean = is_ge(k, tile, a->exact_tiles);
  val first = mul(k, widen(k, item), widen(k, ARG(mask_words)));
  val word = mul_const(k, smax(k, mean_tile, i32(k, 0)), MASK_WORDS);
  val row = at(k, ARG(masks), mul_const(k, add(k, first, widen(k, word)), 4));
  val selected = load(k, k->i32x4, row, 16);
  for (int w = 0; w < MASK_WORDS; w++) {
    mask->words[w] = choose(k, mask->is_mean, element(k, selected, w, k->i32), mask->words[w]);
  }
  const double log2_block = 6; /* blocks of 64 */
  mask->bias.bias = choose(k, mask->is_mean, length_bias(k, f32(k, log2_block)), f32(k, 0));
  if (a->plan->edge) {
    short_mean(k, a, mask, mean_tile);
  }
}

static struct tile_mask mask_of_tile(struct ir *k, const struct attend *a, val item, val tile) {
  struct tile_mask mask = mask_of_exact(k, a, item, tile);
  if (a->plan->means) {
    mask_means(k, a, &mask, item, tile);
  }
  return mask;
}

static void apply_mask(struct ir *k, const struct attend *a, const struct frag *s,
                       const struct tile_mask *mask) {
  struct column_mask columns = column_mask_new(k, mask->words, &a->lanes);
  frag_mask_columns(k, s, &columns, &mask->bias);
}

/* ---- consumers
 * --------------------------------------------------------------------------------------------- */

struct rows { /* the state of a warpgroup's 64 query rows */
  val group;  /* 0 or 1 */
  val is_lane_0;
  struct turn turn;
  struct ring_place query, key, value;
  struct frag s, o;
  struct frag_a p, p_next, gq;
  struct rowvec m, l, g;
};

/* One arrival per consumer warp. */
static void release(struct ir *k, const struct rows *x, const struct ring *ring, struct slot slot) {
  ring_release_if(k, ring, slot, x->is_lane_0);
}

/* s = q k^T */
static void scores(struct ir *k, const struct attend *a, struct rows *x, struct slot query,
                   struct slot key) {
  struct tile q = query_tile(k, a, query, x->group), keys = kv_tile(k, a, &a->keys, key);
  struct operand qa = tile_k_major(k, &q), kb = tile_k_major(k, &keys);
  wgmma_fence(k);
  wgmma_ss(k, &x->s, WGMMA_FRESH, &qa, &kb, a->plan->head_dim / K_STEP);
  wgmma_commit(k);
}

/* o += left * the 128 rows in |slot| of the value ring */
static void accumulate(struct ir *k, const struct attend *a, struct rows *x,
                       const struct frag_a *left, struct slot slot, int steps) {
  struct tile tile = kv_tile(k, a, &a->values, slot);
  struct operand b = tile_mn_major(k, &tile, 0);
  wgmma_rs(k, &x->o, WGMMA_ACCUMULATE, left, &b, steps);
}

static struct rowval scaled_negated(struct ir *k, const struct rowval *m, val c) {
  return (struct rowval){{negate(k, mul(k, m->r[0], c)), negate(k, mul(k, m->r[1], c))}};
}

/* First tile of an item: m = max s, l = sum p, p in p_next. */
static void softmax_first(struct ir *k, struct rows *x) {
  struct rowval m = frag_row_max(k, &x->s);
  struct rowval sums = frag_exp2(k, &x->s, ARG(scale_log2), scaled_negated(k, &m, ARG(scale_log2)));
  rowvec_set(k, &x->m, m);
  rowvec_set(k, &x->l, sums);
  frag_to_a(k, &x->p_next, &x->s);
}

/* Any other tile; returns f, the factor of everything summed before. */
static struct rowval softmax_step(struct ir *k, struct rows *x, val counts_as_tail) {
  val c = ARG(scale_log2);
  struct rowval before = rowvec_get(k, &x->m), l = rowvec_get(k, &x->l), g = rowvec_get(k, &x->g);
  struct rowval m = frag_row_max(k, &x->s), f;
  for (int r = 0; r < FRAG_ROWS; r++) {
    m.r[r] = maximum(k, m.r[r], before.r[r]);
  }
  struct rowval offset = scaled_negated(k, &m, c);
  for (int r = 0; r < FRAG_ROWS; r++) {
    f.r[r] = exp2_approx(k, fused(k, before.r[r], c, offset.r[r]));
  }
  struct rowval sums = frag_exp2(k, &x->s, c, offset);
  for (int r = 0; r < FRAG_ROWS; r++) {
    l.r[r] = fused(k, l.r[r], f.r[r], sums.r[r]);
    if (!is_null(counts_as_tail)) {
      val tail = choose(k, counts_as_tail, sums.r[r], f32(k, 0));
      g.r[r] = fused(k, g.r[r], f.r[r], tail);
    }
  }
  rowvec_set(k, &x->m, m);
  rowvec_set(k, &x->l, l);
  rowvec_set(k, &x->g, g);
  frag_to_a(k, &x->p_next, &x->s);
  return f;
}

/* Tile t: its scores while the values of tile t - 1 are accumulated. */
static void tile_step(struct ir *k, const struct attend *a, struct rows *x, val item, val tile,
                      bool masked) {
  struct tile_mask mask = {0};
  if (masked) {
    mask = mask_of_tile(k, a, item, tile);
  }
  struct slot key = ring_slot(k, &x->key), value = ring_slot(k, &x->value);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  scores(k, a, x, ring_slot(k, &x->query), key);
  ring_wait(k, &a->values, value);
  wgmma_fence(k);
  accumulate(k, a, x, &x->p, value, a->plan->tile_k / K_STEP);
  wgmma_commit(k);
  turn_pass(k, &x->turn);

  wgmma_wait(k, 1, &x->s, 0, NULL);
  release(k, x, &a->keys, key);
  if (masked) {
    apply_mask(k, a, &x->s, &mask);
  }
  struct rowval f = softmax_step(k, x, mask.is_mean);

  const struct frag_a *kept[] = {&x->p};
  wgmma_wait(k, 0, &x->o, 1, kept);
  release(k, x, &a->values, value);
  frag_scale_rows(k, &x->o, f);
  frag_a_copy(k, &x->p, &x->p_next);
  ring_advance(k, &a->keys, &x->key);
  ring_advance(k, &a->values, &x->value);
}

/* First tile of |item|, masked in edge kernels only: elsewhere it is full. */
static void mask_first(struct ir *k, const struct attend *a, struct rows *x,
                       const struct tile_mask *mask) {
  if (a->plan->edge) {
    apply_mask(k, a, &x->s, mask);
  }
}

static struct tile_mask first_mask(struct ir *k, const struct attend *a, val item) {
  return a->plan->edge ? mask_of_exact(k, a, item, i32(k, 0)) : (struct tile_mask){0};
}

static void open_first_item(struct ir *k, const struct attend *a, struct rows *x) {
  struct slot query = ring_slot(k, &x->query), key = ring_slot(k, &x->key);
  struct tile_mask mask = first_mask(k, a, cta_index(k));
  ring_wait(k, &a->queries, query);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  scores(k, a, x, query, key);
  turn_pass(k, &x->turn);
  wgmma_wait(k, 0, &x->s, 0, NULL);
  release(k, x, &a->keys, key);
  ring_advance(k, &a->keys, &x->key);
  mask_first(k, a, x, &mask);
  softmax_first(k, x);
  frag_a_copy(k, &x->p, &x->p_next);
}

/* LSE = ln 2 (c m + log2 l), natural logarithm, by one lane of each quad, where it is asked for. */
static void store_lse(struct ir *k, const struct attend *a, struct rows *x, struct item item,
                      struct rowval m, struct rowval l) {
  const double ln2 = 0.69314718055994530942;
  val row_in_block = add(k, mul_const(k, x->group, GROUP_ROWS), frag_lane_row(k, &a->lanes));
  val row = add(k, item.q_row, row_in_block);
  val bh = udiv(k, item.index, ARG(q_blocks));
  val base = mul(k, widen(k, bh), widen(k, ARG(n_q)));
  val first_of_quad = is_eq(k, frag_lane_column(k, &a->lanes), i32(k, 0));
  val wanted = both(k, first_of_quad, bit_not(k, is_null_pointer(k, ARG(lse))));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val log2_sum = fused(k, m.r[r], ARG(scale_log2), log2_approx(k, l.r[r]));
    val r_row = add_const(k, row, 8 * r);
    val address = at(k, ARG(lse), mul_const(k, add(k, base, widen(k, r_row)), 4));
    val inside = is_lt(k, r_row, ARG(n_q));
    store_if(k, both(k, wanted, inside), mul(k, log2_sum, f32(k, ln2)), address);
  }
}

/* o / l through the item's own query buffer, whose last reader is done. */
static void store_output(struct ir *k, const struct attend *a, struct rows *x, struct item item,
                         struct slot query, struct rowval inverse) {
  struct tile tile = query_tile(k, a, query, x->group);
  frag_store_scaled(k, &x->o, inverse, &tile, &a->lanes);
  fence_async_proxy(k);
  group_sync(k, x->group);
  val warp_in_group = bit_and(k, a->lanes.warp, i32(k, 3));
  IF (k, is_eq(k, warp_in_group, i32(k, 0))) {
    ONE_THREAD (k) {
      val row = add(k, item.q_row, mul_const(k, x->group, GROUP_ROWS));
      tma_store_rows(k, &tile, ARG(o), place_row(item.q, row));
      tma_store_drain(k);
      ring_release(k, &a->queries, query);
    }
  }
}

/* g of the whole row, less the gain that h_sum carries in fp16 packs. */
static struct rowval tail_mass(struct ir *k, const struct attend *a, struct rowval g) {
  struct rowval mass = {{quad_sum(k, g.r[0]), quad_sum(k, g.r[1])}};
  if (a->plan->type != TYPE_FP16) {
    return mass;
  }
  val gain = f32(k, 1.0 / PISA_FP16_H_GAIN);
  return (struct rowval){{mul(k, mass.r[0], gain), mul(k, mass.r[1], gain)}};
}

/* The end of an item and the beginning of the next: the last p v and (g q) Hsum of this one are
   issued together with the first q k^T of the next (of stale memory, unused, when there is none).
 */
static void cross_to_next_item(struct ir *k, const struct attend *a, struct rows *x, val index) {
  struct item item = item_at(k, a, index);
  struct slot query = ring_slot(k, &x->query), next_query = ring_next(k, &a->queries, query);
  struct slot key = ring_slot(k, &x->key), value = ring_slot(k, &x->value);
  struct slot h = ring_next(k, &a->values, value);
  struct rowval m = rowvec_get(k, &x->m), l = rowvec_get(k, &x->l), g = rowvec_get(k, &x->g);
  const bool first_order = a->plan->first_order;
  if (first_order) {
    struct tile q = query_tile(k, a, query, x->group);
    frag_a_load(k, &x->gq, &q, &a->lanes);
    frag_a_scale_rows(k, &x->gq, tail_mass(k, a, g));
  }
  val after = add(k, index, cta_count(k)), last = add_const(k, ARG(items), -1);
  struct tile_mask mask = first_mask(k, a, smin(k, after, last));

  ring_wait(k, &a->queries, next_query);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  scores(k, a, x, next_query, key);
  ring_wait(k, &a->values, value);
  if (first_order) {
    ring_wait(k, &a->values, h);
  }
  wgmma_fence(k);
  accumulate(k, a, x, &x->p, value, a->plan->tile_k / K_STEP);
  if (first_order) {
    accumulate(k, a, x, &x->gq, h, a->plan->head_dim / K_STEP);
  }
  wgmma_commit(k);
  turn_pass(k, &x->turn);
  struct rowval sums = {{quad_sum(k, l.r[0]), quad_sum(k, l.r[1])}};
  struct rowval inverse = {{reciprocal_approx(k, sums.r[0]), reciprocal_approx(k, sums.r[1])}};
  store_lse(k, a, x, item, m, sums);

  wgmma_wait(k, 1, &x->s, 0, NULL);
  release(k, x, &a->keys, key);
  mask_first(k, a, x, &mask);
  softmax_first(k, x);

  const struct frag_a *kept[] = {&x->p, &x->gq};
  wgmma_wait(k, 0, &x->o, first_order ? 2 : 1, kept);
  release(k, x, &a->values, value);
  ring_advance(k, &a->values, &x->value);
  if (first_order) {
    release(k, x, &a->values, h);
    ring_advance(k, &a->values, &x->value);
  }
  frag_a_copy(k, &x->p, &x->p_next);
  store_output(k, a, x, item, query, inverse);
  ring_advance(k, &a->queries, &x->query);
  ring_advance(k, &a->keys, &x->key);
}

static struct rows rows_new(struct ir *k, const struct attend *a) {
  const struct plan_attend *plan = a->plan;
  val group = add_const(k, shift_right(k, a->lanes.warp, i32(k, 2)), -1);
  struct rows x = {
      .group = group,
      .is_lane_0 = is_eq(k, a->lanes.lane, i32(k, 0)),
      .turn = turn_open(k, group, true),
      .query = ring_start(k),
      .key = ring_start(k),
      .value = ring_start(k),
      .s = frag_new(k, plan->tile_k),
      .o = frag_new(k, plan->head_dim),
      .p = frag_a_new(k, plan->tile_k),
      .p_next = frag_a_new(k, plan->tile_k),
      .gq = frag_a_new(k, plan->head_dim),
      .m = rowvec_new(k),
      .l = rowvec_new(k),
      .g = rowvec_new(k),
  };
  return x;
}

static void consume(struct ir *k, const struct attend *a) {
  struct rows x = rows_new(k, a);
  open_first_item(k, a, &x);
  FOR_STEP(k, index, cta_index(k), ARG(items), cta_count(k)) {
    frag_clear(k, &x.o);
    rowvec_fill(k, &x.g, f32(k, 0));
    FOR (k, t, i32(k, 1), a->full_tiles) {
      tile_step(k, a, &x, index, t, false);
    }
    FOR (k, t, smax(k, a->full_tiles, i32(k, 1)), a->tiles) {
      tile_step(k, a, &x, index, t, true);
    }
    cross_to_next_item(k, a, &x, index);
  }
  turn_close(k, &x.turn, x.group);
}

/* ---- the kernel
 * -------------------------------------------------------------------------------------------- */

static void count_tiles(struct ir *k, struct attend *a) {
  const struct plan_attend *plan = a->plan;
  a->k_blocks = shift_right(k, add_const(k, ARG(n_k), 63), i32(k, 6));
  a->last_length = sub(k, ARG(n_k), mul_const(k, add_const(k, a->k_blocks, -1), plan->block));
  if (plan->dense) {
    a->exact_tiles = shift_right(k, add_const(k, ARG(n_k), 127), i32(k, 7));
    a->full_tiles = shift_right(k, ARG(n_k), i32(k, 7));
  } else {
    val ragged = widen_bool(k, is_ne(k, a->last_length, i32(k, plan->block)));
    a->exact_tiles = shift_right(k, add_const(k, ARG(keep), 1), i32(k, 1));
    a->full_tiles = shift_right(k, sub(k, ARG(keep), ragged), i32(k, 1));
  }
  a->tiles = a->exact_tiles;
  if (plan->means) {
    a->tiles = add(k, a->tiles, shift_right(k, add_const(k, a->k_blocks, 127), i32(k, 7)));
  }
}

static void lay_out_rings(struct attend *a) {
  const struct plan_attend *p = a->plan;
  a->columns = tile_columns(p->head_dim);
  int q_bytes = tile_bytes(p->tile_q, a->columns), kv_bytes = tile_bytes(p->tile_k, a->columns);
  int q_barriers = p->barrier_offset, k_barriers = q_barriers + ring_barrier_bytes(p->q_stages);
  int v_barriers = k_barriers + ring_barrier_bytes(p->k_stages);
  a->queries = (struct ring){p->q_stages, p->q_offset, q_bytes, q_barriers};
  a->keys = (struct ring){p->k_stages, p->k_offset, kv_bytes, k_barriers};
  a->values = (struct ring){p->v_stages, p->v_offset, kv_bytes, v_barriers};
  assert(v_barriers + ring_barrier_bytes(p->v_stages) <= p->kernel.smem_bytes);
}

void kernel_attend(struct ir *k, const struct plan_attend *plan) {
  assert(plan->tile_k == 128 && plan->tile_q == GROUPS * GROUP_ROWS && plan->block == 64);
  assert(plan->head_dim % K_STEP == 0 && plan->head_dim <= plan->tile_k);
  struct attend a = {.plan = plan};
  lay_out_rings(&a);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ATTEND_N_ARGS, attend_args);
  a.lanes = lanes_new(k);
  count_tiles(k, &a);
  IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
    ONE_THREAD (k) {
      ring_init(k, &a.queries, GROUPS);
      ring_init(k, &a.keys, CONSUMER_WARPS);
      ring_init(k, &a.values, CONSUMER_WARPS);
      mbarrier_init_done(k);
    }
  }
  cta_sync(k);
  launch_handover(k);
  IF (k, is_lt(k, a.lanes.warp, i32(k, 4))) {
    registers_shrink(k, plan->producer_registers);
    IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
      ONE_THREAD (k) {
        produce_queries_and_keys(k, &a);
      }
    }
    IF (k, is_eq(k, a.lanes.warp, i32(k, 1))) {
      ONE_THREAD (k) {
        produce_values(k, &a);
      }
    }
  }
  ELSE (k) {
    registers_grow(k, plan->consumer_registers);
    consume(k, &a);
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
