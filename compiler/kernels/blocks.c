/* A pass over blocks: its ring, its roles, what is whose; see blocks.h. */
#include "compiler/kernels/blocks.h"

#include <assert.h>

#include "compiler/sm90/ones.h"
#include "compiler/sm90/sync.h"

enum {
  MAX_GROUPS = 2,
  WORD = 4,
  ASK_ROWS = 128 /* what memory brings while one kernel ends and the next begins */
};

struct pass pass_open(struct ir *k, struct pass p, int smem_bytes) {
  p.lanes = lanes_new(k);
  p.columns = tile_columns(p.head_dim);
  p.groups = p.columns / PANEL_COLUMNS;
  assert(p.block % BOX_ROWS == 0 && p.groups <= MAX_GROUPS && p.inputs <= MAX_INPUTS);
  int stage_bytes = p.inputs * pass_input_bytes(&p);
  p.ring = (struct ring){p.stages, 0, stage_bytes, p.barrier_offset, {0}};
  assert(ring_bytes(&p.ring) <= p.ones_offset);
  assert(p.ones_offset + ONES_BYTES + p.stages * ONES_ROW_BYTES <= p.barrier_offset);
  assert(p.barrier_offset + ring_barrier_bytes(p.stages) <= smem_bytes);
  return p;
}

int pass_consumer_warps(const struct pass *p) {
  return WARPGROUP_WARPS * p->groups;
}

val pass_consumer_warp(struct ir *k, const struct pass *p) {
  return add_const(k, p->lanes.warp, -WARPGROUP_WARPS);
}

int pass_input_bytes(const struct pass *p) {
  return tile_bytes(p->block, p->columns);
}

struct tile pass_tile(struct ir *k, const struct pass *p, struct slot slot, enum input input) {
  val address = add_const(k, ring_address(k, &p->ring, slot), (int)input * pass_input_bytes(p));
  return tile_new(k, address, p->block, p->columns);
}

/* Rows [row, row + 64) of the tiles. */
static void load_boxes(struct ir *k, const struct pass *p, struct slot slot, unsigned inputs,
                       const val maps[MAX_INPUTS], const struct place4 from[MAX_INPUTS], val row) {
  for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
    if (has_input(inputs, i)) {
      struct tile tile = pass_tile(k, p, slot, i);
      struct place4 place = from[i];
      tile.address = add(k, tile.address, mul_const(k, row, PANEL_ROW_BYTES));
      place.row = add(k, place.row, row);
      tma_load_rows(k, &tile, 0, maps[i], place, ring_full(k, &p->ring, slot));
    }
  }
}

void pass_load(struct ir *k, const struct pass *p, struct slot slot, unsigned inputs,
               const val maps[MAX_INPUTS], const struct place4 from[MAX_INPUTS]) {
  int n = 0;
  for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
    n += has_input(inputs, i);
  }
  ring_expect(k, &p->ring, slot, n * pass_input_bytes(p));
  if (p->block == BOX_ROWS) {
    load_boxes(k, p, slot, inputs, maps, from, i32(k, 0));
    return;
  }
  /* unrolled, the boxes of two halves are too many for the producer's registers */
  FOR_STEP(k, row, i32(k, 0), i32(k, p->block), i32(k, BOX_ROWS)) {
    load_boxes(k, p, slot, inputs, maps, from, row);
  }
}

void pass_ask(struct ir *k, const struct pass *p, unsigned inputs, const val maps[MAX_INPUTS],
              const struct place4 from[MAX_INPUTS]) {
  for (int row = 0; row < ASK_ROWS; row += BOX_ROWS) {
    for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
      if (has_input(inputs, i)) {
        struct place4 place = from[i];
        place.row = add_const(k, place.row, row);
        tma_prefetch_rows(k, p->columns, maps[i], place);
      }
    }
  }
}

/* ---- roles ---- */

static void make_ready(struct ir *k, const struct pass *p, const val maps[MAX_INPUTS]) {
  IF (k, is_eq(k, p->lanes.warp, i32(k, 0))) {
    ONE_THREAD (k) {
      for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
        if (!is_null(maps[i])) {
          tma_prefetch(k, maps[i]);
        }
      }
      ring_init(k, &p->ring, pass_consumer_warps(p));
      mbarrier_init_done(k);
    }
  }
  ones_fill(k, p->ones_offset);
  fence_async_proxy(k);
  cta_sync(k);
  launch_next(k);
}

void pass_run(struct ir *k, const struct pass *p, const val maps[MAX_INPUTS],
              void (*produce)(struct ir *, const void *),
              void (*consume)(struct ir *, const void *), const void *kernel) {
  make_ready(k, p, maps);
  IF (k, is_eq(k, lanes_warpgroup(k, &p->lanes), i32(k, 0))) {
    registers_shrink(k, p->producer_registers);
    IF (k, is_eq(k, p->lanes.warp, i32(k, 0))) {
      ONE_THREAD (k) {
        produce(k, kernel);
      }
    }
  }
  ELSE (k) {
    val computes = is_le(k, lanes_warpgroup(k, &p->lanes), i32(k, p->groups));
    IF (k, p->groups == MAX_GROUPS ? is_eq(k, i32(k, 0), i32(k, 0)) : computes) {
      registers_grow(k, p->consumer_registers);
      consume(k, kernel);
    }
  }
}

/* ---- what is whose ---- */

/* T x / C without 64-bit division: (T / C) x + (T mod C) x / C, for x <= C < 2^16. */
static val share(struct ir *k, val total, val x) {
  val ctas = cta_count(k), each = udiv(k, total, ctas), rest = sub(k, total, mul(k, each, ctas));
  return add(k, mul(k, each, x), udiv(k, mul(k, rest, x), ctas));
}

struct range cta_range(struct ir *k, val total) {
  struct range range = {.first = share(k, total, cta_index(k))};
  range.end = share(k, total, add_const(k, cta_index(k), 1));
  return range;
}

val blocks_in(struct ir *k, val n, int rows) {
  return udiv(k, add_const(k, n, rows - 1), i32(k, rows));
}

val inverse_rows(struct ir *k, val n, val j, int rows) {
  val rest = sub(k, n, mul_const(k, j, rows));
  return reciprocal_approx(k, to_float(k, smax(k, smin(k, rest, i32(k, rows)), i32(k, 1))));
}

/* ---- the walk ---- */

static val keys_of(struct ir *k, const struct sequences *s, val batch) {
  struct var keys = var_init(k, s->n_k);
  IF (k, bit_not(k, is_null_pointer(k, s->lengths))) {
    val length = load(k, k->i32, at_row(k, s->lengths, batch, i32(k, WORD)), WORD);
    set(k, keys, smin(k, smax(k, length, i32(k, 0)), s->n_k));
  }
  return get(k, keys);
}

struct walk walk_start(struct ir *k, const struct sequences *s, val first) {
  val head = udiv(k, first, s->blocks), batch = udiv(k, head, s->heads);
  struct walk w = {.head = var_init(k, head)};
  w.j = var_init(k, sub(k, first, mul(k, head, s->blocks)));
  w.batch = var_init(k, batch);
  w.inner = var_init(k, sub(k, head, mul(k, batch, s->heads)));
  w.keys = var_init(k, s->n_k);
  return w;
}

void walk_enter(struct ir *k, const struct sequences *s, const struct walk *w) {
  launch_wait(k);
  set(k, w->keys, keys_of(k, s, get(k, w->batch)));
}

/* Behind the last head the walk ends. */
val walk_on(struct ir *k, const struct sequences *s, const struct walk *w) {
  val j = add_const(k, get(k, w->j), 1), ends = is_eq(k, j, s->blocks);
  val head = add_const(k, get(k, w->head), 1), goes_on = is_lt(k, head, s->total_heads);
  set(k, w->j, choose(k, ends, i32(k, 0), j));
  IF (k, both(k, ends, goes_on)) {
    val inner = add_const(k, get(k, w->inner), 1), turns = is_eq(k, inner, s->heads);
    val batch = add(k, get(k, w->batch), widen_bool(k, turns));
    set(k, w->head, head);
    set(k, w->batch, batch);
    set(k, w->inner, choose(k, turns, i32(k, 0), inner));
    set(k, w->keys, keys_of(k, s, batch));
  }
  return ends;
}

val walk_has_keys(struct ir *k, const struct sequences *s, const struct walk *w) {
  val first = mul_const(k, get(k, w->j), s->block);
  return is_lt(k, first, get(k, w->keys));
}

struct place4 walk_place(struct ir *k, const struct sequences *s, const struct walk *w) {
  struct place4 place = {.row = mul_const(k, get(k, w->j), s->block)};
  place.head = get(k, w->inner);
  place.batch = get(k, w->batch);
  return place;
}

/* Rows from the array's end on are zeros already. */
void pass_cut(struct ir *k, const struct pass *p, struct slot slot, val keys, val n_k, val j) {
  const int threads = pass_consumer_warps(p) * 32;
  val rest = sub(k, keys, mul_const(k, j, p->block));
  val is_cut = is_lt(k, keys, n_k);
  IF (k, both(k, is_cut, is_lt(k, rest, i32(k, p->block)))) {
    val thread = add_const(k, thread_index(k), -32 * WARPGROUP_WARPS);
    for (enum input i = INPUT_K; i <= INPUT_V; i++) {
      struct tile tile = pass_tile(k, p, slot, i);
      tile_clear_rows(k, &tile, rest, thread, threads);
    }
    fence_async_proxy(k);
    consumers_sync(k, p->groups);
  }
}

/* ---- partial sums ---- */

/* The CTA that had block |index| (i64): CTA c of C had [T c / C, T (c + 1) / C). */
static val cta_of_block(struct ir *k, const struct parts *parts, val index) {
  val heads = widen(k, parts->total_heads), blocks = widen(k, parts->blocks);
  val ctas = widen(k, parts->ctas), total = mul(k, heads, blocks);
  val end = mul(k, add_const(k, index, 1), ctas);
  return narrow(k, udiv(k, add_const(k, end, -1), total));
}

struct range parts_of_head(struct ir *k, const struct parts *parts, val head) {
  val blocks = widen(k, parts->blocks), first = mul(k, widen(k, head), blocks);
  val last = add_const(k, add(k, first, blocks), -1);
  struct range range = {.first = add(k, head, cta_of_block(k, parts, first))};
  range.end = add_const(k, add(k, head, cta_of_block(k, parts, last)), 1);
  return range;
}
