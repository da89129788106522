/* The producers of attend: one thread brings Q and K, another V and Hsum; with a single one, the
   next item's Q would queue behind this item's V. Of pairs two more take o to memory, a thread for
   each warpgroup. */
#include <assert.h>

#include "compiler/kernels/attend.h"

#define ARG ATTEND_ARG

static struct place4 place_row(struct place4 place, val row) {
  place.row = row;
  return place;
}

static int boxes(const struct attend *a) {
  return a->plan->tile_k / BOX_ROWS;
}

static int entries(const struct attend *a) { /* of a list, per tile */
  return a->plan->tile_k / a->plan->block;
}

/* The list of an item, read one tile ahead of its use. Rows are padded, so that what follows the
   last tile's entries is readable. */
struct cursor {
  val list;  /* null when dense: tile t is rows [tile_k t, tile_k (t + 1)) */
  val other; /* pairs: entries from the list of the first query block to that of the second */
  struct var next[ATTEND_MAX_BOXES];
};

/* The entries of tile |tile|. What is not listed (taylor 1) begins with a new tile, but right
   behind the last listed entry. Pairs: behind the shared tiles a tile of the first list, one of the
   second, and so on. */
static void cursor_read(struct ir *k, const struct attend *a, const struct cursor *c, val tile) {
  val unused = {0}, first = mul_const(k, tile, entries(a));
  if (a->plan->linear) {
    unused = sub(k, mul_const(k, a->exact_tiles, entries(a)), a->count);
    unused = choose(k, is_ge(k, tile, a->exact_tiles), unused, i32(k, 0));
  }
  if (a->plan->pairs) {
    val own = smax(k, sub(k, tile, a->shared_tiles), i32(k, 0));
    val behind = shift_right(k, add_const(k, own, 1), i32(k, 1));
    val second = mul(k, bit_and(k, own, i32(k, 1)), c->other);
    first = add(k, mul_const(k, sub(k, tile, behind), entries(a)), second);
  }
  for (int i = 0; i < entries(a); i++) {
    val position = add_const(k, first, i);
    if (a->plan->linear) {
      position = sub(k, position, unused);
    }
    set(k, c->next[i], load(k, k->i32, at(k, c->list, mul_const(k, position, 4)), 4));
  }
}

static struct cursor cursor_new(struct ir *k, const struct attend *a) {
  struct cursor c = {0};
  for (int i = 0; !a->plan->dense && i < entries(a); i++) {
    c.next[i] = var_new(k, k->i32);
  }
  return c;
}

static void cursor_open(struct ir *k, const struct attend *a, struct cursor *c, val item) {
  if (a->plan->dense) {
    return;
  }
  val row = attend_list_row(k, a, item, i32(k, 0));
  c->list = attend_list(k, row);
  if (a->plan->pairs) {
    val rows = sub(k, attend_list_row(k, a, item, i32(k, 1)), row);
    c->other = mul(k, rows, ARG(list_stride));
  }
  cursor_read(k, a, c, i32(k, 0));
}

struct tile_rows { /* where the boxes of a tile come from */
  val is_mean;     /* null: never */
  val row[ATTEND_MAX_BOXES];
};

static val listed_row(struct ir *k, const struct attend *a, const struct cursor *c, int box) {
  int first = box * BOX_ROWS, entry = first / a->plan->block;
  val block_row = mul_const(k, get(k, c->next[entry]), a->plan->block);
  return add_const(k, block_row, first % a->plan->block);
}

void attend_prefetch_maps(struct ir *k, const struct attend *a) {
  const struct plan_attend *plan = a->plan;
  tma_prefetch(k, ARG(q));
  tma_prefetch(k, ARG(k));
  tma_prefetch(k, ARG(v));
  if (plan->means) {
    tma_prefetch(k, ARG(k_mean));
    tma_prefetch(k, ARG(v_mean));
  }
  if (plan->means && plan->second_order) {
    tma_prefetch(k, ARG(k_variance));
  }
  if (plan->first_order) {
    tma_prefetch(k, ARG(h_sum));
  }
  tma_prefetch(k, ARG(o));
}

static struct tile_rows cursor_take(struct ir *k, const struct attend *a, const struct cursor *c,
                                    val tile) {
  struct tile_rows s = {0};
  if (a->plan->means) {
    s.is_mean = is_ge(k, tile, a->exact_tiles);
  }
  for (int i = 0; i < boxes(a); i++) {
    val dense_row = add_const(k, mul_const(k, tile, a->plan->tile_k), BOX_ROWS * i);
    s.row[i] = a->plan->dense ? dense_row : listed_row(k, a, c, i);
    if (a->plan->means) {
      val mean_row = sub(k, dense_row, mul_const(k, a->exact_tiles, a->plan->tile_k));
      s.row[i] = choose(k, s.is_mean, mean_row, s.row[i]);
    }
  }
  if (!a->plan->dense) {
    val next = add_const(k, tile, 1);
    cursor_read(k, a, c, a->plan->linear ? next : smin(k, next, a->exact_tiles));
  }
  return s;
}

struct tile attend_kv_tile(struct ir *k, const struct attend *a, const struct ring *ring,
                           struct slot slot) {
  return tile_new(k, ring_address(k, ring, slot), a->plan->tile_k, a->columns);
}

static void load_stage(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, val map, struct place4 place, const val *row) {
  struct slot slot = ring_slot(k, where);
  ring_acquire(k, ring, slot);
  ring_expect(k, ring, slot, ring->stage_bytes);
  struct tile tile = attend_kv_tile(k, a, ring, slot);
  for (int i = 0; i < boxes(a); i++) {
    tma_load_rows(k, &tile, BOX_ROWS * i, map, place_row(place, row[i]), ring_full(k, ring, slot));
  }
  ring_advance(k, ring, where);
}

/* Tiles 0 to |tiles| of listed blocks alone. */
static void load_listed(struct ir *k, const struct attend *a, const struct ring *ring,
                        struct ring_place *where, const struct cursor *cursor, struct item item,
                        val map, val tiles) {
  val row[ATTEND_MAX_BOXES];
  FOR (k, t, i32(k, 0), tiles) {
    for (int i = 0; i < boxes(a); i++) {
      row[i] = listed_row(k, a, cursor, i);
    }
    cursor_read(k, a, cursor, add_const(k, t, 1));
    load_stage(k, a, ring, where, map, item.kv, row);
  }
}

/* The tiles of a pair, each kind in a loop of its own: its list leaves no registers for both. */
static void load_pairs(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, const struct cursor *cursor, struct item item,
                       val exact_map, val mean_map, val variance_map) {
  val row[ATTEND_MAX_BOXES];
  load_listed(k, a, ring, where, cursor, item, exact_map, a->exact_tiles);
  if (!a->plan->means) {
    return;
  }
  FOR (k, t, i32(k, 0), sub(k, a->tiles, a->exact_tiles)) {
    for (int i = 0; i < boxes(a); i++) {
      row[i] = add_const(k, mul_const(k, t, a->plan->tile_k), BOX_ROWS * i);
    }
    load_stage(k, a, ring, where, mean_map, item.kv, row);
    if (!is_null(variance_map)) {
      load_stage(k, a, ring, where, variance_map, item.kv, row);
    }
  }
}

/* The tiles of units: whole exact ones; then up to two units each, every unit of its own kind. */
static void load_units(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, const struct cursor *cursor, struct item item,
                       val exact_map, val mean_map) {
  val row[ATTEND_MAX_BOXES];
  load_listed(k, a, ring, where, cursor, item, exact_map, a->full_tiles);
  FOR_STEP(k, unit, mul_const(k, a->full_tiles, 2), a->units, i32(k, 2)) {
    struct slot slot = ring_slot(k, where);
    val has_second = is_lt(k, add_const(k, unit, 1), a->units);
    val bytes = choose(k, has_second, i32(k, ring->stage_bytes), i32(k, ring->stage_bytes / 2));
    ring_acquire(k, ring, slot);
    ring_expect_bytes(k, ring, slot, bytes);
    val is_exact = is_lt(k, unit, a->count), map = exact_map;
    val first_mean = mul_const(k, sub(k, unit, a->count), ATTEND_UNIT);
    row[0] = listed_row(k, a, cursor, 0);
    row[1] = add_const(k, first_mean, ATTEND_UNIT);
    if (a->plan->means) {
      row[0] = choose(k, is_exact, row[0], first_mean);
      map = choose(k, is_exact, exact_map, mean_map);
    }
    struct tile tile = attend_kv_tile(k, a, ring, slot);
    tma_load_rows(k, &tile, 0, map, place_row(item.kv, row[0]), ring_full(k, ring, slot));
    if (a->plan->means) {
      IF (k, has_second) {
        struct place4 second = place_row(item.kv, row[1]);
        tma_load_rows(k, &tile, BOX_ROWS, mean_map, second, ring_full(k, ring, slot));
      }
    }
    ring_advance(k, ring, where);
  }
}

/* |variance_map|: null, or what follows every stage of means. */
static void load_tiles(struct ir *k, const struct attend *a, const struct ring *ring,
                       struct ring_place *where, const struct cursor *cursor, struct item item,
                       val exact_map, val mean_map, val variance_map) {
  if (a->plan->half_tile) {
    load_units(k, a, ring, where, cursor, item, exact_map, mean_map);
    return;
  }
  if (a->plan->pairs) {
    load_pairs(k, a, ring, where, cursor, item, exact_map, mean_map, variance_map);
    return;
  }
  FOR (k, t, i32(k, 0), a->tiles) {
    struct tile_rows rows = cursor_take(k, a, cursor, t);
    val map = is_null(rows.is_mean) ? exact_map : choose(k, rows.is_mean, mean_map, exact_map);
    load_stage(k, a, ring, where, map, item.kv, rows.row);
    if (!is_null(variance_map)) {
      IF (k, rows.is_mean) {
        load_stage(k, a, ring, where, variance_map, item.kv, rows.row);
      }
    }
  }
}

struct tile attend_query_tile(struct ir *k, const struct attend *a, struct slot slot, val group) {
  val address = ring_address(k, &a->queries, slot);
  if (a->plan->streams == 1) {
    int bytes = tile_bytes(ATTEND_GROUP_ROWS, a->columns);
    address = add(k, address, mul_const(k, group, bytes));
  }
  return tile_new(k, address, ATTEND_GROUP_ROWS, a->columns);
}

val attend_mask_row(struct ir *k, const struct attend *a, struct slot query, val group) {
  const int stage_bytes = plan_mask_bytes(a->plan);
  val stage = a->plan->q_stages == 1 ? query.phase : query.stage;
  val offset = add_const(k, mul_const(k, stage, stage_bytes), a->plan->mask_offset);
  if (!is_null(a->queries.instance)) {
    offset = add(k, offset, mul_const(k, a->queries.instance, stage_bytes * PLAN_MASK_STAGES));
  }
  if (a->plan->pairs) {
    offset = add(k, offset, mul_const(k, group, stage_bytes / 2));
  }
  return at(k, k->smem, offset);
}

/* The mask rows of an item's query blocks, |bytes| each. */
static void load_masks(struct ir *k, const struct attend *a, struct slot slot, struct item item,
                       val bytes) {
  for (int g = 0; g < (a->plan->pairs ? ATTEND_GROUPS : 1); g++) {
    val group = i32(k, g), to = attend_mask_row(k, a, slot, group);
    val row = attend_list_row(k, a, item.index, group);
    val first = mul(k, widen(k, row), widen(k, ARG(mask_words)));
    val from = at(k, ARG(masks), mul_const(k, first, 4));
    val full = ring_full(k, &a->queries, slot);
    tma_load_bytes(k, to, from, bytes, full);
  }
}

static void load_queries(struct ir *k, const struct attend *a, struct ring_place *where,
                         struct item item) {
  struct slot slot = ring_slot(k, where);
  ring_acquire(k, &a->queries, slot);
  if (a->plan->means) {
    val bytes = mul_const(k, ARG(mask_words), 4);
    val all = mul_const(k, bytes, a->plan->pairs ? ATTEND_GROUPS : 1);
    ring_expect_bytes(k, &a->queries, slot, add_const(k, all, a->queries.stage_bytes));
    load_masks(k, a, slot, item, bytes);
  } else {
    ring_expect(k, &a->queries, slot, a->queries.stage_bytes);
  }
  for (int g = 0; g < a->plan->tile_q / ATTEND_GROUP_ROWS; g++) {
    struct tile tile = attend_query_tile(k, a, slot, i32(k, g));
    val row = add_const(k, item.q_row, ATTEND_GROUP_ROWS * g);
    tma_load_rows(k, &tile, 0, ARG(q), place_row(item.q, row), ring_full(k, &a->queries, slot));
  }
  ring_advance(k, &a->queries, where);
}

void attend_produce_queries_and_keys(struct ir *k, const struct attend *a) {
  struct ring_place query = ring_start(k), key = ring_start(k);
  struct cursor cursor = cursor_new(k, a);
  val variance = a->plan->means && a->plan->second_order ? ARG(k_variance) : (val){0};
  FOR_STEP(k, index, a->first, ARG(items), a->step) {
    struct item item = attend_item(k, a, index);
    struct attend sized = attend_sized(k, a, attend_extent(k, a, index));
    sized = attend_in_rings(k, &sized);
    cursor_open(k, &sized, &cursor, index);
    load_queries(k, a, &query, item);
    load_tiles(k, &sized, &a->keys, &key, &cursor, item, ARG(k), ARG(k_mean), variance);
  }
  ring_pass_empty(k, &a->queries, &query);
  ring_pass_empty(k, &a->keys, &key);
  if (a->plan->pairs) { /* each warpgroup may expect one of its own */
    ring_pass_empty(k, &a->keys, &key);
  }
}

struct ring attend_outputs(const struct attend *a, val group) {
  struct ring outputs = a->outputs;
  outputs.instance = group;
  return outputs;
}

void attend_store_outputs(struct ir *k, const struct attend *a, val group) {
  struct ring_place query = ring_start(k);
  struct ring outputs = attend_outputs(a, group);
  FOR_STEP(k, index, a->first, ARG(items), a->step) {
    struct place4 to = attend_item(k, a, index).q;
    to.row = add(k, to.row, mul_const(k, group, ATTEND_GROUP_ROWS));
    struct slot slot = ring_slot(k, &query);
    struct tile tile = attend_query_tile(k, a, slot, group);
    ring_wait(k, &outputs, slot);
    tma_store_rows(k, &tile, ARG(o), to);
    tma_store_drain(k);
    ring_release(k, &a->queries, slot);
    ring_advance(k, &a->queries, &query);
  }
}

int attend_h_stages(const struct plan_attend *plan) {
  return plan->first_order ? (plan->head_dim + plan->tile_k - 1) / plan->tile_k : 0;
}

/* Rows past D of the last stage are zeros. */
static void load_h(struct ir *k, const struct attend *a, struct ring_place *where,
                   struct item item) {
  for (int stage = 0; stage < attend_h_stages(a->plan); stage++) {
    val row[ATTEND_MAX_BOXES];
    for (int i = 0; i < boxes(a); i++) {
      row[i] = i32(k, stage * a->plan->tile_k + i * BOX_ROWS);
    }
    load_stage(k, a, &a->values, where, ARG(h_sum), item.kv, row);
  }
}

void attend_produce_values(struct ir *k, const struct attend *a) {
  struct ring_place value = ring_start(k);
  struct cursor cursor = cursor_new(k, a);
  FOR_STEP(k, index, a->first, ARG(items), a->step) {
    struct item item = attend_item(k, a, index);
    struct attend sized = attend_sized(k, a, attend_extent(k, a, index));
    sized = attend_in_rings(k, &sized);
    cursor_open(k, &sized, &cursor, index);
    load_tiles(k, &sized, &a->values, &value, &cursor, item, ARG(v), ARG(v_mean), (val){0});
    load_h(k, a, &value, item);
  }
}
