/* attend_blocks_tile.c: in go queries that are neighbours, and the union of their lists; out come
   their rows of o and lse.

   What it costs, N 131072, 32/2 heads, D 64, C 64, K 8, three leaves of each list in common: 23 of
   32 leaves of four queries are read, 25 GB from L2, 3.0 ms at 8.2 TB/s. Per leaf 128 cycles of
   the tensor cores (0.8 ms), 128 to write and 128 to read shared memory (1.7 ms); exponentials 0.6
   ms, as without tiles. On text 9 to 13 leaves are read: 10 to 14 GB. Few heads: 16 queries of 4
   heads read 78 leaves of 128 where lists are random, 11 to 19 on text. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/attend_blocks_tile.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/tma.h"
#include "compiler/sm90/wgmma.h"

enum { HALF = 2, LANE_BYTES = 16 };

struct walk {
  const struct query_tile *tile;
  const struct leaf_union *leaves;
  int d, steps_of_leaf;
  val steps;            /* i32: of the union */
  val brings, releases; /* i1: one thread of the CTA, one of each warp */
  val log2_scale;       /* not negative: its sign is in q */
  val group_bits;       /* i32: the queries of the warpgroup, in masks */
  struct place4 place;  /* of the sequence's first token, in the maps */
  struct ring ring;     /* a step's keys and values each */
  struct frag s, o;
  struct frag_a q, p;
  struct rowvec offset, sum;      /* of 2^(c s + offset); sum: this lane's part */
  struct tile_row row[FRAG_ROWS]; /* the lane's */
  struct var step;
  struct ring_place turn;
};

/* ---- queries ---- */

/* The lane's words of q, negated where the scale is negative; rows behind the last head are its
   again. */
static void load_queries(struct ir *k, const struct walk *w) {
  const struct query_tile *t = w->tile;
  val sign = bit_and(k, bits_of(k, BLOCKS_ARG(scale)), i32(k, INT32_MIN));
  sign = bit_or(k, sign, shift_right(k, sign, i32(k, 16)));
  val first = mul_const(k, t->kv_head, t->plan->group);
  for (int r = 0; r < FRAG_ROWS; r++) {
    const struct tile_row *x = &w->row[r];
    val place =
        sequence_query_offset(k, &t->sequence, x->query, BLOCKS_ARG(q_batch), BLOCKS_ARG(q_token));
    val head = add(k, first, smin(k, x->head, i32(k, t->plan->group - 1)));
    val row = at(k, BLOCKS_ARG(q), add(k, place, mul(k, widen(k, head), BLOCKS_ARG(q_head))));
    row = at(k, row, mul_const(k, frag_lane_column(k, &t->lanes), HALF));
    for (int i = r; i < w->d / 4; i += FRAG_ROWS) {
      val pair = load(k, k->i32, at_const(k, row, i / 2 * 8 * HALF), 2 * HALF);
      set(k, w->q.r[i], bit_xor(k, pair, sign));
    }
  }
}

/* ---- keys and values on their way ---- */

/* First token of step |step|, and which queries read it. */
static val step_token(struct ir *k, const struct walk *w, val step, val *mask) {
  const int steps = w->steps_of_leaf;
  val id, entry = steps == 1 ? step : shift_right(k, step, i32(k, 1));
  leaf_union_entry(k, w->leaves, entry, &id, mask);
  val token = mul_const(k, id, w->tile->plan->leaf);
  if (steps == 1)
    return token;
  return add(k, token, mul_const(k, bit_and(k, step, i32(k, 1)), BLOCKS_STEP));
}

static struct tile key_tile(struct ir *k, const struct walk *w, struct slot slot) {
  return tile_new(k, ring_address(k, &w->ring, slot), BLOCKS_STEP, w->d);
}

static struct tile value_tile(struct ir *k, const struct walk *w, const struct tile *keys) {
  return tile_new(k, add_const(k, keys->address, tile_bytes(BLOCKS_STEP, w->d)), BLOCKS_STEP, w->d);
}

/* By one thread, once all warps are done with what lies in |slot|. */
static void bring(struct ir *k, const struct walk *w, val step, struct slot slot) {
  val mask;
  struct place4 from = w->place;
  from.row = add(k, from.row, step_token(k, w, step, &mask));
  struct tile keys = key_tile(k, w, slot), values = value_tile(k, w, &keys);
  ring_acquire(k, &w->ring, slot);
  ring_expect(k, &w->ring, slot, w->ring.stage_bytes);
  tma_load_rows(k, &keys, 0, BLOCKS_ARG(k_map), from, ring_full(k, &w->ring, slot));
  tma_load_rows(k, &values, 0, BLOCKS_ARG(v_map), from, ring_full(k, &w->ring, slot));
}

/* ---- a step ---- */

static void multiply_keys(struct ir *k, const struct walk *w, const struct tile *keys) {
  struct operand b = tile_k_major(k, keys);
  const struct frag_a *const kept[] = {&w->q};
  wgmma_fence(k);
  wgmma_rs(k, &w->s, WGMMA_FRESH, &w->q, 0, &b, w->d / K_STEP);
  wgmma_commit(k);
  wgmma_wait(k, 0, &w->s, 1, kept);
}

static void multiply_values(struct ir *k, const struct walk *w, const struct tile *values) {
  struct operand b = tile_mn_major(k, values, 0);
  const struct frag_a *const kept[] = {&w->p};
  wgmma_fence(k);
  wgmma_rs(k, &w->o, WGMMA_ACCUMULATE, &w->p, 0, &b, BLOCKS_STEP / K_STEP);
  wgmma_commit(k);
  wgmma_wait(k, 0, &w->o, 1, kept);
}

/* What lies behind the limits; a warp's first query has the least one. */
static void mask_step(struct ir *k, const struct walk *w, val token) {
  IF (k, is_lt(k, w->tile->query.limit, add_const(k, token, BLOCKS_STEP))) {
    struct rowval first;
    for (int r = 0; r < FRAG_ROWS; r++)
      first.r[r] = sub(k, sub(k, w->row[r].limit, token), frag_lane_column(k, &w->tile->lanes));
    frag_mask_behind(k, &w->s, first);
  }
}

/* Which of the lane's rows list the leaf; null vals: those of any query of the warp. */
static struct rowval listed_rows(struct ir *k, const struct walk *w, val mask) {
  struct rowval listed = {0};
  for (int r = 0; r < FRAG_ROWS && w->tile->each > 1; r++) {
    val bit = bit_and(k, shift_right(k, mask, w->row[r].place), i32(k, 1));
    listed.r[r] = is_ne(k, bit, i32(k, 0));
  }
  return listed;
}

static val where(struct ir *k, val listed, val x, val otherwise) {
  return is_null(listed) ? x : choose(k, listed, x, otherwise);
}

/* -inf in rows that do not list the leaf: 2^-inf = 0. */
static struct rowval offsets(struct ir *k, const struct walk *w, struct rowval listed) {
  struct rowval x = rowvec_get(k, &w->offset);
  for (int r = 0; r < FRAG_ROWS; r++)
    x.r[r] = where(k, listed.r[r], x.r[r], f32(k, -INFINITY));
  return x;
}

/* The lane's largest score of row r. */
static val lane_top(struct ir *k, const struct frag *s, int r) {
  val top[2] = {0};
  for (int i = 0; i < s->columns / 2; i++) {
    if (frag_row_of(i) == r) {
      val x = get(k, s->r[i]), *chain = &top[i & 1];
      *chain = is_null(*chain) ? x : maximum(k, *chain, x);
    }
  }
  return maximum(k, top[0], top[1]);
}

/* Larger offsets, and the sums so far in them. */
static void renew(struct ir *k, const struct walk *w, const val top[FRAG_ROWS],
                  struct rowval listed) {
  struct rowval factor;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val before = negate(k, get(k, w->offset.r[r]));
    val now = maximum(k, before, mul(k, quad_max(k, top[r]), w->log2_scale));
    now = where(k, listed.r[r], now, before);
    factor.r[r] = exp2_approx(k, sub(k, before, now));
    set(k, w->offset.r[r], negate(k, now));
    set(k, w->sum.r[r], mul(k, get(k, w->sum.r[r]), factor.r[r]));
  }
  frag_scale_rows(k, &w->o, factor);
}

static void weigh(struct ir *k, const struct walk *w, struct rowval listed) {
  val top[FRAG_ROWS], above = {0};
  struct rowval offset = offsets(k, w, listed);
  for (int r = 0; r < FRAG_ROWS; r++) {
    top[r] = lane_top(k, &w->s, r);
    val x = fused(k, top[r], w->log2_scale, offset.r[r]);
    val mine = is_lt(k, f32(k, BLOCKS_RENEW), x);
    above = r == 0 ? mine : either(k, above, mine);
  }
  IF (k, is_ne(k, warp_ballot(k, above), i32(k, 0))) {
    renew(k, w, top, listed);
  }
  struct rowval sum = frag_exp2(k, &w->s, w->log2_scale, offsets(k, w, listed), 0);
  for (int r = 0; r < FRAG_ROWS; r++)
    set(k, w->sum.r[r], add(k, get(k, w->sum.r[r]), sum.r[r]));
  frag_to_a(k, &w->p, &w->s);
}

/* Warps of which no query lists the leaf of the step weigh its values with zeros. */
static void attend_step(struct ir *k, const struct walk *w, val token, val mask,
                        const struct tile *keys) {
  struct tile values = value_tile(k, w, keys);
  multiply_keys(k, w, keys);
  const int queries = (1 << w->tile->each) - 1;
  val bits = bit_and(k, shift_right(k, mask, w->tile->place), i32(k, queries));
  IF (k, is_ne(k, bits, i32(k, 0))) {
    mask_step(k, w, token);
    weigh(k, w, listed_rows(k, w, mask));
  }
  ELSE (k) {
    for (int i = 0; i < BLOCKS_STEP / 4; i++)
      set(k, w->p.r[i], i32(k, 0));
  }
  multiply_values(k, w, &values);
}

/* Several warpgroups: one may be a step behind another, and passes what none of its queries lists.
 */
static void step(struct ir *k, const struct walk *w) {
  const int groups = w->tile->threads / 128, ahead = w->ring.stages - groups;
  val number = get(k, w->step), mask, token = step_token(k, w, number, &mask);
  mask = warp_read(k, mask, i32(k, 0)); /* known to be the same for the whole warp */
  struct slot slot = ring_slot(k, &w->turn);
  val later = add_const(k, number, ahead);
  IF (k, both(k, w->brings, is_lt(k, later, w->steps))) {
    bring(k, w, later, ring_after(k, &w->ring, slot, i32(k, ahead)));
  }
  struct tile keys = key_tile(k, w, slot);
  ring_wait(k, &w->ring, slot);
  if (groups == 1) {
    attend_step(k, w, token, mask, &keys);
  } else {
    IF (k, is_ne(k, bit_and(k, mask, w->group_bits), i32(k, 0))) {
      attend_step(k, w, token, mask, &keys);
    }
  }
  ring_release_if(k, &w->ring, slot, w->releases);
  set(k, w->step, add_const(k, number, 1));
  struct ring_place turn = w->turn;
  ring_advance(k, &w->ring, &turn);
}

/* ---- rows of o and lse ---- */

/* Whether all sums of the warp are finite. */
static val is_finite(struct ir *k, const struct walk *w) {
  val all = add(k, get(k, w->sum.r[0]), get(k, w->sum.r[1]));
  for (int i = 0; i < w->d / 2; i++)
    all = add(k, all, get(k, w->o.r[i]));
  val mine = is_eq(k, sub(k, all, all), f32(k, 0));
  return is_eq(k, warp_ballot(k, bit_not(k, mine)), i32(k, 0));
}

static struct outputs row_outputs(struct ir *k, const struct query_tile *t,
                                  const struct tile_row *row) {
  struct blocks_query query = t->query;
  query.query = row->query;
  return outputs_of(k, &query, BLOCKS_ARG(o), BLOCKS_ARG(o_batch), BLOCKS_ARG(o_head),
                    BLOCKS_ARG(o_token), BLOCKS_ARG(lse), t->plan->group);
}

static void store_lse(struct ir *k, const struct walk *w) {
  const struct query_tile *t = w->tile;
  val first_of_quad = is_eq(k, frag_lane_column(k, &t->lanes), i32(k, 0));
  for (int r = 0; r < FRAG_ROWS; r++) {
    const struct tile_row *row = &w->row[r];
    struct outputs out = row_outputs(k, t, row);
    val top = negate(k, get(k, w->offset.r[r])), wanted = both(k, row->exists, first_of_quad);
    outputs_store_lse(k, &out, wanted, row->head, top, get(k, w->sum.r[r]));
  }
}

/* By way of a tile of shared memory: whole rows go out. */
static void store_o(struct ir *k, const struct walk *w) {
  const struct query_tile *t = w->tile;
  const int chunks = w->d * HALF / LANE_BYTES, rows = 32 / chunks;
  val group = lanes_warpgroup(k, &t->lanes);
  val address =
      add(k, shared_address(k, k->smem), mul_const(k, group, tile_bytes(BLOCKS_TILE_ROWS, w->d)));
  struct tile tile = tile_new(k, address, BLOCKS_TILE_ROWS, w->d);
  struct rowval inverse;
  for (int r = 0; r < FRAG_ROWS; r++) {
    val sum = get(k, w->sum.r[r]), is_empty = is_eq(k, sum, f32(k, 0));
    inverse.r[r] = choose(k, is_empty, f32(k, 0), reciprocal_approx(k, sum));
  }
  frag_store_scaled(k, &w->o, inverse, &tile, &t->lanes);
  warp_sync(k);
  val chunk = bit_and(k, t->lanes.lane, i32(k, chunks - 1));
  val row = udiv(k, t->lanes.lane, i32(k, chunks));
  val first = mul_const(k, bit_and(k, t->lanes.warp, i32(k, WARPGROUP_WARPS - 1)), BLOCKS_HEADS);
  for (int i = 0; i < BLOCKS_HEADS; i += rows) {
    val mine = add_const(k, row, i);
    struct tile_row x_row = query_tile_row(k, t, mine);
    IF (k, x_row.exists) {
      val from = tile_chunk_address(k, &tile, add(k, first, mine), chunk);
      val x = load(k, k->i32x4, shared_pointer(k, from), LANE_BYTES);
      struct outputs out = row_outputs(k, t, &x_row);
      val head = widen(k, add(k, out.first_head, x_row.head));
      val to = at(k, out.base, mul(k, head, out.head_bytes));
      store(k, x, at(k, to, mul_const(k, chunk, LANE_BYTES)), LANE_BYTES);
    }
  }
}

/* ---- the tile ---- */

static struct ring ring_of(struct ir *k, const struct query_tile *t) {
  struct ring ring = {.stages = blocks_stages(t->plan, t->threads)};
  ring.stage_bytes = blocks_stage_bytes(t->plan);
  ring.barrier_offset = ring.stages * ring.stage_bytes;
  IF (k, is_eq(k, thread_index(k), i32(k, 0))) {
    ring_init(k, &ring, t->threads / 32);
    mbarrier_init_done(k);
  }
  return ring; /* the union's barriers follow */
}

static struct walk walk_new(struct ir *k, const struct query_tile *t, const struct ring *ring,
                            const struct leaf_union *u) {
  const struct plan_pyramid *plan = t->plan;
  struct walk w = {.tile = t, .leaves = u, .d = plan->head_dim};
  w.steps_of_leaf = plan->leaf / BLOCKS_STEP;
  assert(ring->stages >= 2 && w.steps_of_leaf <= 2);
  w.steps = mul_const(k, u->n, w.steps_of_leaf);
  w.ring = *ring;
  const struct sequence *s = &t->sequence;
  w.place.row = choose(k, s->packed, narrow(k, s->k_begin), i32(k, 0));
  w.place.batch = choose(k, s->packed, i32(k, 0), s->index);
  w.place.head = t->kv_head;
  val lane_0 = is_eq(k, t->lanes.lane, i32(k, 0));
  w.brings = is_eq(k, thread_index(k), i32(k, 0));
  w.releases = lane_0;
  const int of_group = t->queries / (t->threads / 128);
  val first = mul_const(k, lanes_warpgroup(k, &t->lanes), of_group);
  w.group_bits = shift_left(k, i32(k, (1 << of_group) - 1), first);
  val row = shift_right(k, t->lanes.lane, i32(k, 2));
  for (int r = 0; r < FRAG_ROWS; r++)
    w.row[r] = query_tile_row(k, t, add_const(k, row, 8 * r));
  w.turn = ring_start(k);
  val scale = float_of(k, bit_and(k, bits_of(k, BLOCKS_ARG(scale)), i32(k, INT32_MAX)));
  w.log2_scale = log2_units(k, scale);
  w.s = frag_new(k, BLOCKS_STEP);
  w.o = frag_new(k, w.d);
  w.q = frag_a_new(k, w.d);
  w.p = frag_a_new(k, BLOCKS_STEP);
  w.offset = rowvec_new(k);
  w.sum = rowvec_new(k);
  w.step = var_init(k, i32(k, 0));
  frag_clear(k, &w.o);
  rowvec_fill(k, &w.offset, f32(k, BLOCKS_UNSEEN));
  rowvec_fill(k, &w.sum, f32(k, 0));
  return w;
}

val query_tile_attend(struct ir *k, const struct query_tile *t, val lists, val width) {
  struct ring ring = ring_of(k, t);
  struct leaf_union leaves = leaf_union_new(k, t, lists, width);
  struct walk w = walk_new(k, t, &ring, &leaves);
  IF (k, w.brings) {
    for (int i = 0; i < w.ring.stages - t->threads / 128; i++) {
      IF (k, is_lt(k, i32(k, i), w.steps)) {
        bring(k, &w, i32(k, i), (struct slot){i32(k, i), i32(k, 0)});
      }
    }
  }
  load_queries(k, &w);
  WHILE (k, is_lt(k, get(k, w.step), w.steps)) {
    step(k, &w);
  }
  cta_sync(k); /* the last step has been read: its stage may be that of o */
  for (int r = 0; r < FRAG_ROWS; r++)
    set(k, w.sum.r[r], quad_sum(k, get(k, w.sum.r[r])));
  val finite = is_finite(k, &w);
  val exists = is_le(k, add(k, t->first, t->place), t->last);
  IF (k, both(k, finite, exists)) {
    store_o(k, &w);
    store_lse(k, &w);
  }
  return finite;
}
