/* leaf_score: in go queries, images of leaves and the items of all segments; out come exact
   log-sum-exps of leaves (cluster.h).

       score = log2 sum over keys of a leaf of 2^(log2 e scale q . key), summed over heads

   Persistent: every warpgroup takes items round robin, all of them in step, so that the queries of
   a segment stay in L2. The keys of an item lie in shared memory, the next one's are on the way;
   queries come from global memory straight into registers. Of every tile the product with the
   first half of the keys is computed during the exponentials of the second half of the tile
   before, that with the second half during those of the first: one product is in flight at any
   time, and one accumulator is free for exponentials.

       product   A0 | B0 | A1 | B1 | A2 ...
       exp2           A0 | B0 | A1 | B1 ...

   No maximum is subtracted. Sums too small or too large are done again with it, by the warp
   (leaf_score_redo.c). */
#include "compiler/kernels/leaf_score.h"

#include <assert.h>
#include <math.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/frag_sum.h"
#include "compiler/sm90/key_image.h"
#include "compiler/sm90/scan.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/wgmma.h"

static const struct ir_arg leaf_score_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_LEAF_SCORE_ARGS(X)
#undef X
};

struct pipeline {
  struct item_cursor cursor;
  struct gather raw;
  struct frag_a queries;
  struct frag half[2];
  struct aim aims[2]; /* of the tile in work, of that in flight */
  struct var keys, n_items;
  struct var carry[MAX_PAIRS];
};

/* ---- tiles ---- */

/* Entry of the thread's row r in the cursor's tile. */
static val row_entry(struct ir *k, const struct leaf_score *a, const struct item_cursor *c, int r) {
  val row = add_const(k, shift_right(k, a->lanes.lane, i32(k, 2)), 8 * r);
  val in_warp = udiv(k, row, i32(k, a->head_rows));
  val tile = udiv(k, get(k, c->tile), i32(k, a->passes));
  return warp_read(k, get(k, c->entry), add(k, mul_const(k, tile, a->warp_members), in_warp));
}

/* Where the lane's scores of the cursor's tile go. */
static void aim_at(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                   const struct aim *to, const val entry[FRAG_ROWS]) {
  struct item item = {.word = {[3] = get(k, c->info)}};
  val kind = item_info(k, &item, ITEM_KIND_SHIFT, ITEM_KIND_MASK);
  val is_second = is_ne(k, bit_and(k, a->lanes.lane, i32(k, 1)), i32(k, 0));
  val lower = is_ne(k, bit_and(k, a->lanes.lane, i32(k, 2)), i32(k, 0));
  val mine = choose(k, lower, entry[1], entry[0]), second = widen_bool(k, is_second);
  val member = choose(k, lower, tile_member(k, a, get(k, c->tile), 1),
                      tile_member(k, a, get(k, c->tile), 0));
  val is_there = both(k, is_ne(k, get(k, c->live), i32(k, 0)),
                      is_lt(k, member, item_info(k, &item, 0, ITEM_MEMBERS_MASK)));
  val in_k = shift_right(k, mine, i32(k, ENTRY_SLOT_SHIFT));
  val slot = add(k, mul_const(k, in_k, a->plan->children), second);
  if (cluster_has_singles(a->plan)) {
    val other = item_info(k, &item, ITEM_SLOT_SHIFT, ITEM_SLOT_MASK);
    val is_single = is_eq(k, kind, i32(k, ITEM_SINGLE));
    slot = choose(k, is_single, choose(k, is_second, other, i32(k, 1)), slot);
    is_there = both(k, is_there, is_ne(k, slot, i32(k, ITEM_NO_SLOT)));
  }
  if (plan_is_mass(a->plan)) {
    val is_near = is_eq(k, kind, i32(k, ITEM_NEAR));
    val other = item_info(k, &item, ITEM_SLOT_SHIFT, ITEM_SLOT_MASK);
    slot = choose(k, is_near, add(k, other, second), slot);
    val past = add_const(k, item_info(k, &item, ITEM_PAST_SHIFT, ITEM_PAST_MASK), 1);
    val seen = choose(k, is_near, past, i32(k, 0));
    if (cluster_has_singles(a->plan)) /* only such items have ITEM_NO_SLOT */
      seen = choose(k, is_eq(k, other, i32(k, ITEM_NO_SLOT)), i32(k, -ITEM_MAX_MEMBERS), seen);
    set(k, to->near, seen);
  }
  val row = add(k, get(k, c->row), bit_and(k, mine, i32(k, ENTRY_QUERY_MASK)));
  val at = add(k, mul_const(k, row, a->slots), slot);
  set(k, to->at, choose(k, is_there, at, i32(k, -1)));
  val number = shift_left(k, get(k, c->number), i32(k, TILE_SHIFT));
  set(k, to->name, bit_or(k, number, get(k, c->tile)));
}

/* The rows of the cursor's tile on their way to registers, at one place of the code and whatever
   there is: a load within a branch waits where the branches meet. */
static void queries_load(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                         const struct gather *raw, const val entry[FRAG_ROWS]) {
  val base = at(k, a->q, item_cursor_offset(k, c)), token = narrow(k, ARG(q_token));
  for (int r = 0; r < FRAG_ROWS; r++) {
    val row = at_row(k, base, bit_and(k, entry[r], i32(k, ENTRY_QUERY_MASK)), token);
    if (a->head_rows == WARP_ROWS) {
      val head = add_const(k, a->head, 8 * r);
      if (a->passes == 2)
        head = add(k, head, mul_const(k, bit_and(k, get(k, c->tile), i32(k, 1)), WARP_ROWS));
      val last = i32(k, a->plan->group - 1), from = smin(k, head, last);
      if (a->plan->group == WARP_ROWS)
        row = r ? at(k, row, mul_const(k, ARG(q_head), 8)) : row;
      else
        row = at(k, row, mul(k, widen(k, sub(k, from, smin(k, a->head, last))), ARG(q_head)));
    }
    gather_load(k, raw, r, row);
  }
}

static void entries_of(struct ir *k, const struct leaf_score *a, const struct item_cursor *c,
                       val entry[FRAG_ROWS]) {
  for (int r = 0; r < FRAG_ROWS; r++)
    entry[r] = row_entry(k, a, c, r);
}

/* Moves to the next tile, if there is one, and loads its queries, or again the last one's. */
static void take(struct ir *k, const struct leaf_score *a, const struct pipeline *p) {
  const struct item_cursor *c = &p->cursor;
  set(k, c->tile, add_const(k, get(k, c->tile), 1));
  IF (k, is_ge(k, get(k, c->tile), get(k, c->tiles))) {
    IF (k, item_cursor_has_next(k, a, c)) {
      item_cursor_request_pending(k, a, c);
      item_cursor_enter(k, a, c, add(k, get(k, c->number), a->stride));
    }
    ELSE (k) {
      set(k, c->live, i32(k, 0));
      set(k, c->tile, add_const(k, get(k, c->tiles), -1));
    }
  }
  ELSE (k) {
    item_cursor_request_pending(k, a, c);
  }
  val entry[FRAG_ROWS];
  entries_of(k, a, c, entry);
  queries_load(k, a, c, &p->raw, entry);
}

/* The loaded tile is that of the next product. */
static void aim_next(struct ir *k, const struct leaf_score *a, const struct pipeline *p) {
  val entry[FRAG_ROWS];
  entries_of(k, a, &p->cursor, entry);
  aim_at(k, a, &p->cursor, &p->aims[1], entry);
}

/* The keys of the item that the loaded tile begins; the next one's follow into the other stage. */
static void enter_keys(struct ir *k, const struct leaf_score *a, const struct pipeline *p) {
  const struct item_cursor *c = &p->cursor;
  val n = get(k, p->n_items), stage = bit_and(k, n, i32(k, 1));
  IF (k, item_cursor_has_next(k, a, c)) {
    item_cursor_load_keys(k, a, c, bit_xor(k, stage, i32(k, 1)));
  }
  val parity = bit_and(k, shift_right(k, n, i32(k, 1)), i32(k, 1));
  mbarrier_wait(k, at(k, a->barriers, mul_const(k, stage, BARRIER_BYTES)), parity);
  set(k, p->keys, add(k, a->keys, mul_const(k, stage, a->stage_bytes)));
  set(k, p->n_items, add_const(k, n, 1));
}

static void multiply(struct ir *k, const struct leaf_score *a, const struct pipeline *p, int half) {
  const int d = a->plan->head_dim;
  struct operand keys = key_image_operand(k, get(k, p->keys), half * a->half_keys, d);
  wgmma_fence(k);
  wgmma_rs(k, &p->half[half], WGMMA_FRESH, &p->queries, 0, &keys, d / K_STEP);
  wgmma_commit(k);
}

static void wait_for(struct ir *k, const struct pipeline *p, int half) {
  const struct frag_a *const kept[] = {&p->queries};
  wgmma_wait(k, 0, &p->half[half], 1, kept);
}

/* Sum of the own leaf's keys up to the queries, some columns at a time: what all queries of the
   warp have behind them is left out. The first columns always count, so that no sum depends on its
   neighbours: 2^-inf, at most 2^-125, changes none. A half that nothing wants is 1, which is safe.
 */
static void near_sum(struct ir *k, const struct leaf_score *a, const struct frag *f,
                     const struct aim *aim, const struct rowvec *sum) {
  enum { COLUMNS = 16 };
  val tile = bit_and(k, get(k, aim->name), i32(k, (1 << TILE_SHIFT) - 1)), end[FRAG_ROWS];
  for (int r = 0; r < FRAG_ROWS; r++)
    end[r] = add(k, get(k, aim->near), tile_member(k, a, tile, r));
  val all = warp_read(k, end[1], i32(k, 31)), lane = frag_lane_column(k, &a->lanes);
  val wanted = is_lt(k, i32(k, 0), all);
  rowvec_fill(k, sum, choose(k, wanted, f32(k, 0), f32(k, 1)));
  for (int first = 0; first < a->plan->leaf; first += COLUMNS) {
    IF (k, is_lt(k, i32(k, first), all)) {
      const struct frag part = frag_columns(f, first, COLUMNS);
      for (int i = 0; i < COLUMNS / 2; i++) {
        val seen = is_lt(k, add_const(k, lane, first + frag_column_of(i)), end[frag_row_of(i)]);
        set(k, part.r[i], choose(k, seen, get(k, part.r[i]), f32(k, -INFINITY)));
      }
      struct rowval some = frag_exp2_sum(k, &part, 0, COLUMNS, a->log2_scale);
      for (int r = 0; r < FRAG_ROWS; r++)
        set(k, sum->r[r], add(k, get(k, sum->r[r]), some.r[r]));
    }
  }
}

static void leaf_sums(struct ir *k, const struct leaf_score *a, const struct frag *f,
                      struct rowval *out) {
  for (int i = 0; i < a->plan->children / 2; i++)
    out[i] = frag_exp2_sum(k, f, i * a->plan->leaf, a->plan->leaf, a->log2_scale);
}

/* Sums of the leaves of the second half, which may be the own leaf of the queries. */
static void near_sums(struct ir *k, const struct leaf_score *a, const struct frag *f,
                      const struct aim *aim, struct rowval *out) {
  const int leaves = a->plan->children / 2;
  struct rowvec sum[MAX_PAIRS];
  for (int i = 0; i < leaves; i++) {
    sum[i] = rowvec_new(k);
    rowvec_fill(k, &sum[i], f32(k, 1));
  }
  IF (k, is_ne(k, get(k, aim->near), i32(k, 0))) {
    near_sum(k, a, f, aim, &sum[0]);
  }
  ELSE (k) {
    leaf_sums(k, a, f, out);
    for (int i = 0; i < leaves; i++)
      for (int r = 0; r < FRAG_ROWS; r++)
        set(k, sum[i].r[r], out[i].r[r]);
  }
  for (int i = 0; i < leaves; i++)
    for (int r = 0; r < FRAG_ROWS; r++)
      out[i].r[r] = get(k, sum[i].r[r]);
}

/* Sums -> scores of a tile. */
static void finish(struct ir *k, const struct leaf_score *a, const struct pipeline *p,
                   const struct rowval *sum) {
  struct var score[MAX_PAIRS];
  val is_safe[MAX_PAIRS], safe = {0};
  for (int i = 0; i < a->pairs; i++) {
    const struct rowval *x = sum + 2 * i;
    val each[4] = {x[0].r[0], x[1].r[0], x[0].r[1], x[1].r[1]};
    val mine = quad_sum_each(k, each, &a->lanes);
    is_safe[i] = frag_sum_is_safe(k, mine);
    safe = i ? both(k, safe, is_safe[i]) : is_safe[i];
    score[i] = var_init(k, log2_approx(k, mine));
  }
  IF (k, is_ne(k, warp_ballot(k, bit_not(k, safe)), i32(k, 0))) {
    leaf_score_redo(k, a, get(k, p->aims[0].name), score, is_safe);
  }
  val value[MAX_PAIRS];
  for (int i = 0; i < a->pairs; i++) /* nan: no score */
    value[i] = maximum(k, get(k, score[i]), f32(k, -INFINITY));
  aim_write(k, a, &p->aims[0], value, p->carry);
}

/* One tile: its second half is multiplied, the next one's first half too. */
static void pass(struct ir *k, const struct leaf_score *a, const struct pipeline *p) {
  struct rowval sum[MAX_LEAVES];
  wait_for(k, p, 0);
  multiply(k, a, p, 1);
  leaf_sums(k, a, &p->half[0], sum);
  wait_for(k, p, 1);
  const struct item_cursor *c = &p->cursor;
  val is_first = is_eq(k, get(k, c->tile), i32(k, 0));
  IF (k, both(k, is_first, is_ne(k, get(k, c->live), i32(k, 0)))) {
    group_sync(k, a->group); /* all warps have read the stage that is written next */
    enter_keys(k, a, p);
  }
  aim_copy(k, a, &p->aims[0], &p->aims[1]);
  aim_next(k, a, p);
  gather_fragment(k, &p->queries, &p->raw, a->zero);
  multiply(k, a, p, 0); /* past the last tile that one again: nothing is stored */
  take(k, a, p);
  struct rowval *second = sum + a->plan->children / 2;
  if (plan_is_mass(a->plan))
    near_sums(k, a, &p->half[1], &p->aims[0], second);
  else
    leaf_sums(k, a, &p->half[1], second);
  finish(k, a, p, sum);
}

static struct pipeline pipeline_new(struct ir *k, const struct leaf_score *a) {
  struct pipeline p = {.cursor = item_cursor_new(k),
                       .raw = gather_new(k, a->plan->head_dim),
                       .queries = frag_a_new(k, a->plan->head_dim),
                       .keys = var_init(k, a->keys),
                       .n_items = var_init(k, i32(k, 0))};
  for (int i = 0; i < 2; i++)
    p.half[i] = frag_new(k, a->half_keys);
  for (int i = 0; i < 2; i++)
    p.aims[i] = aim_new(k, a);
  for (int i = 0; i < a->pairs; i++)
    p.carry[i] = var_init(k, f32(k, 0));
  return p;
}

/* All items of this warpgroup, from |first| on; there is one. */
static void work(struct ir *k, const struct leaf_score *a, val first) {
  struct pipeline p = pipeline_new(k, a);
  struct var running = var_init(k, i32(k, 1));
  item_cursor_request(k, a, &p.cursor, first);
  item_cursor_request_entries(k, a, &p.cursor);
  item_cursor_load_keys(k, a, &p.cursor, i32(k, 0));
  item_cursor_enter(k, a, &p.cursor, first);
  val entry[FRAG_ROWS];
  entries_of(k, a, &p.cursor, entry);
  queries_load(k, a, &p.cursor, &p.raw, entry);
  enter_keys(k, a, &p);
  aim_next(k, a, &p);
  gather_fragment(k, &p.queries, &p.raw, a->zero);
  multiply(k, a, &p, 0);
  take(k, a, &p);
  WHILE (k, is_ne(k, get(k, running), i32(k, 0))) {
    set(k, running, get(k, p.cursor.live));
    pass(k, a, &p);
  }
  wait_for(k, &p, 0);
}

/* ---- the kernel ---- */

/* Items before each segment, and of all, to shared memory; by all threads. */
static val count_items(struct ir *k, const struct leaf_score *a, val scratch) {
  const int threads = a->plan->leaf_score.threads;
  struct var sum = var_init(k, i32(k, 0));
  FOR_STEP(k, base, i32(k, 0), ARG(segments), i32(k, threads)) {
    val segment = add(k, base, thread_index(k)), is_there = is_lt(k, segment, ARG(segments));
    val n = load_if(k, is_there, at_row(k, ARG(n_items), segment, i32(k, WORD)), i32(k, 0));
    val before, total;
    cta_scan(k, 1, &n, &before, &total, scratch, threads / 32, &a->lanes);
    IF (k, is_there) {
      store(k, add(k, get(k, sum), before), at(k, a->prefix, mul_const(k, segment, WORD)), WORD);
    }
    set(k, sum, add(k, get(k, sum), total));
  }
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    store(k, get(k, sum), at(k, a->prefix, mul_const(k, ARG(segments), WORD)), WORD);
  }
  return get(k, sum);
}

/* The thread's head in a first tile, and where its rows of q begin. */
static void find_head(struct ir *k, struct leaf_score *a) {
  val row = shift_right(k, a->lanes.lane, i32(k, 2));
  a->head = bit_and(k, row, i32(k, a->head_rows - 1));
  val from = smin(k, a->head, i32(k, a->plan->group - 1));
  val lane = widen(k, gather_lane_offset(k, &a->lanes));
  a->q = at(k, ARG(q), add(k, mul(k, widen(k, from), ARG(q_head)), lane));
}

/* Shared memory: stages of all warpgroups, their barriers, running sums, prefix. */
static struct leaf_score leaf_score_new(struct ir *k, const struct plan_pyramid *plan) {
  const int groups = plan->leaf_score.threads / 128, keys = plan->leaf * plan->children;
  struct leaf_score a = {.plan = plan, .lanes = lanes_new(k)};
  a.head_rows = cluster_head_rows(plan);
  a.passes = cluster_passes(plan);
  a.pairs = plan->children / 2;
  a.half_keys = keys / 2;
  a.slots = cluster_slots(plan);
  a.warp_members = WARP_ROWS / a.head_rows;
  a.stage_bytes = key_image_bytes(keys, plan->head_dim);
  a.group = lanes_warpgroup(k, &a.lanes);
  a.warp = bit_and(k, a.lanes.warp, i32(k, WARPGROUP_WARPS - 1));
  a.leader = is_eq(k, bit_and(k, thread_index(k), i32(k, 127)), i32(k, 0));
  a.log2_scale = log2_units(k, ARG(scale));
  a.zero = gather_zero(k, ARG(q));
  const int stages = groups * STAGES * a.stage_bytes, barriers = groups * STAGES * BARRIER_BYTES;
  val mine = mul_const(k, a.group, STAGES * a.stage_bytes);
  a.keys = add(k, shared_address(k, k->smem), mine);
  a.barriers = at(k, at_const(k, k->smem, stages), mul_const(k, a.group, STAGES * BARRIER_BYTES));
  a.prefix = at_const(k, k->smem, stages + barriers + scan_bytes(1));
  assert(plan->leaf_score.smem_bytes >=
         stages + barriers + scan_bytes(1) + (CLUSTER_MAX_SEGMENTS + 1) * WORD);
  return a;
}

void kernel_leaf_score(struct ir *k, const struct plan_pyramid *plan) {
  assert(cluster_can(plan));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_LEAF_SCORE_N_ARGS, leaf_score_args);
  struct leaf_score a = leaf_score_new(k, plan);
  const int groups = plan->leaf_score.threads / 128;
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    for (int i = 0; i < groups * STAGES; i++)
      mbarrier_init(k, at_const(k, k->smem, groups * STAGES * a.stage_bytes + i * BARRIER_BYTES),
                    1);
    mbarrier_init_done(k);
  }
  launch_handover(k);
  find_head(k, &a);
  a.total = count_items(k, &a, at_const(k, a.prefix, -scan_bytes(1)));
  a.stride = mul_const(k, cta_count(k), groups);
  cta_sync(k);
  val first = add(k, mul(k, a.group, cta_count(k)), cta_index(k));
  IF (k, is_lt(k, first, a.total)) {
    work(k, &a, first);
  }
  kernel_end(k, plan->leaf_score.entry, plan->leaf_score.threads, 1);
}
