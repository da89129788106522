/* Where items begin and end: the first tile of the first one, and the last of each together with
   the first of the next. */
#include "compiler/kernels/attend_rows.h"
#include "compiler/sm90/wgmma.h"

#define ARG ATTEND_ARG

/* First tile of |item|, masked in edge kernels only: elsewhere it is full. */
static void mask_first(struct ir *k, const struct attend *a, struct rows *x,
                       const struct tile_mask *mask) {
  if (a->plan->edge) {
    attend_apply_mask(k, a, &x->s, mask);
  }
}

static struct tile_mask first_mask(struct ir *k, const struct attend *a, const struct rows *x,
                                   val item) {
  struct listed listed = {.row = item, .offset = x->row_offset};
  return a->plan->edge ? attend_mask(k, a, TILE_EXACT, listed, i32(k, 0)) : (struct tile_mask){0};
}

/* The keys of an item's first tile. */
static void release_first(struct ir *k, const struct attend *a, struct rows *x, struct slot key) {
  val own = attend_is_own(k, a, i32(k, 0));
  attend_release(k, x, &a->keys, key, own);
  attend_advance(k, x, &a->keys, &x->key, own, attend_is_own(k, a, i32(k, 1)));
}

/* All warps have their queries in registers. */
static void release_queries(struct ir *k, const struct attend *a, struct rows *x,
                            struct slot query) {
  group_sync(k, x->group);
  val first = is_eq(k, bit_and(k, a->lanes.warp, i32(k, STREAM_WARPS - 1)), i32(k, 0));
  ring_release_if(k, &a->queries, query, both(k, first, x->is_lane_0));
}

void attend_open(struct ir *k, const struct attend *a, struct rows *x) {
  attend_enter(k, a, x, &a->keys, &x->key);
  attend_enter(k, a, x, &a->values, &x->value);
  struct slot query = ring_slot(k, &x->query), key = ring_slot(k, &x->key);
  struct tile_mask mask = first_mask(k, a, x, a->first);
  ring_wait(k, &a->queries, query);
  attend_take_queries(k, a, x, query);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  attend_scores(k, a, x, &x->s, attend_keeps_q(a) ? (struct slot){0} : query, key, NULL);
  turn_pass(k, &x->turn);
  if (a->plan->q_stages == 1) { /* later its own o, stored from there, releases the stage */
    release_queries(k, a, x, query);
  }
  wgmma_wait(k, 0, &x->s, 0, NULL);
  release_first(k, a, x, key);
  mask_first(k, a, x, &mask);
  attend_softmax_first(k, a, x);
  frag_a_copy(k, &x->p, &x->p_next);
}

/* LSE = ln 2 (c m + log2 l), natural logarithm, by one lane of each quad, where it is asked for. */
static void store_lse(struct ir *k, const struct attend *a, struct rows *x, struct item item,
                      struct rowval m, struct rowval l) {
  const double ln2 = 0.69314718055994530942;
  val row = add(k, add(k, item.q_row, x->row_offset), frag_lane_row(k, &a->lanes));
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

/* o / l through the item's own query buffer, whose last reader is done. Of pairs a producer warp
   takes it from there. */
static void store_output(struct ir *k, const struct attend *a, struct rows *x, struct item item,
                         struct slot query, struct rowval inverse) {
  struct tile tile = attend_query_tile(k, a, query, x->group);
  frag_store_scaled(k, &x->o, inverse, &tile, &a->lanes);
  fence_async_proxy(k);
  if (a->plan->pairs) {
    struct ring outputs = attend_outputs(a, x->group);
    warp_sync(k);
    mbarrier_arrive_if(k, ring_full(k, &outputs, query), x->is_lane_0);
    return;
  }
  group_sync(k, x->group);
  val warp_in_group = bit_and(k, a->lanes.warp, i32(k, STREAM_WARPS - 1));
  IF (k, is_eq(k, warp_in_group, i32(k, 0))) {
    ONE_THREAD (k) {
      struct place4 to = item.q;
      to.row = add(k, item.q_row, x->row_offset);
      tma_store_rows(k, &tile, ARG(o), to);
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

/* g q, of the item that ends: from the registers or the tile that its q is in. */
static void weigh_queries(struct ir *k, const struct attend *a, struct rows *x, struct slot query) {
  if (attend_keeps_q(a)) {
    if (!attend_reloads_q(a)) {
      frag_a_copy(k, &x->gq, &x->q);
    }
  } else {
    struct tile q = attend_query_tile(k, a, query, x->group);
    frag_a_load(k, &x->gq, &q, &a->lanes);
  }
  frag_a_scale_rows(k, &x->gq, tail_mass(k, a, rowvec_get(k, &x->g)));
}

/* The stages that the end of an item reads of the value ring: its last tile, then Hsum. */
static void last_values(struct ir *k, const struct attend *a, const struct rows *x,
                        struct slot *value) {
  val own = attend_last_is_own(k, a);
  value[0] = ring_slot(k, &x->value);
  for (int i = 0; i < attend_h_stages(a->plan); i++) {
    value[1 + i] = attend_slot_after(k, x, &a->values, value[i], own, attend_end_is_own(k, a));
    own = attend_end_is_own(k, a);
  }
}

static void wait_sums(struct ir *k, const struct attend *a, const struct slot *value) {
  for (int i = 1; i <= attend_h_stages(a->plan); i++) {
    ring_wait(k, &a->values, value[i]);
  }
}

/* Whether an item's q is weighed while its last products run: nothing overwrites it before. */
static bool weighs_beside(const struct attend *a) {
  return a->plan->pairs;
}

/* o += p v + (g q) Hsum; |value| holds v, the stages after it Hsum. */
static void accumulate_last(struct ir *k, const struct attend *a, struct rows *x,
                            const struct frag_a *p, const struct slot *value, struct slot query) {
  const int h_stages = attend_h_stages(a->plan);
  const bool beside = a->plan->narrow && h_stages > 0;
  ring_wait(k, &a->values, value[0]);
  if (!beside) {
    wait_sums(k, a, value);
  }
  wgmma_fence(k);
  attend_accumulate(k, a, x, p, 0, value[0]);
  if (beside) {
    if (weighs_beside(a)) {
      weigh_queries(k, a, x, query);
    }
    wait_sums(k, a, value);
    wgmma_fence(k);
  }
  for (int i = 0; i < h_stages; i++) {
    attend_accumulate(k, a, x, &x->gq, i * a->plan->tile_k / K_STEP, value[1 + i]);
  }
  wgmma_commit(k);
}

static void finish_last(struct ir *k, const struct attend *a, struct rows *x,
                        const struct frag_a *p, const struct slot *value) {
  const int h_stages = attend_h_stages(a->plan);
  const struct frag_a *kept[] = {p, &x->gq};
  wgmma_wait(k, 0, &x->o, h_stages > 0 ? 2 : 1, kept);
  val own = attend_last_is_own(k, a);
  for (int i = 0; i <= h_stages; i++) {
    attend_release_aside(k, a, x, &a->values, value[i], own);
    attend_advance(k, x, &a->values, &x->value, own, attend_end_is_own(k, a));
    own = attend_end_is_own(k, a);
  }
}

/* 1 / l, 0 of a row without any column. */
static struct rowval inverse_sums(struct ir *k, const struct attend *a, struct rowval sums) {
  struct rowval inverse = {{reciprocal_approx(k, sums.r[0]), reciprocal_approx(k, sums.r[1])}};
  for (int r = 0; a->plan->edge && r < FRAG_ROWS; r++) {
    val empty = is_eq(k, sums.r[r], f32(k, 0));
    inverse.r[r] = choose(k, empty, f32(k, 0), inverse.r[r]);
  }
  return inverse;
}

void attend_cross(struct ir *k, const struct attend *a, struct rows *x, bool half, val index,
                  const struct attend *next) {
  const struct frag_a *p = half ? &x->p_half : &x->p;
  struct item item = attend_item(k, a, index);
  struct slot query = ring_slot(k, &x->query), next_query = ring_next(k, &a->queries, query);
  attend_enter(k, next, x, &a->keys, &x->key);
  struct slot key = ring_slot(k, &x->key), value[1 + ATTEND_MAX_H_STAGES];
  last_values(k, a, x, value);
  struct rowval m = rowvec_get(k, &x->m), l = rowvec_get(k, &x->l);
  if (a->plan->first_order && !weighs_beside(a)) {
    weigh_queries(k, a, x, query);
  }
  struct tile_mask mask = first_mask(k, next, x, attend_next_item(k, a, index));

  ring_wait(k, &a->queries, next_query);
  if (!attend_reloads_q(a)) {
    attend_take_queries(k, a, x, next_query);
  }
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  struct slot from = a->plan->streams > 1 ? (struct slot){0} : next_query;
  attend_scores(k, a, x, &x->s, from, key, NULL);
  accumulate_last(k, a, x, p, value, query);
  turn_pass(k, &x->turn);
  struct rowval sums = {{quad_sum(k, l.r[0]), quad_sum(k, l.r[1])}};
  struct rowval inverse = inverse_sums(k, a, sums);
  store_lse(k, a, x, item, m, sums);

  wgmma_wait(k, 1, &x->s, 0, NULL);
  val own = attend_is_own(k, next, i32(k, 0));
  attend_release(k, x, &a->keys, key, own);
  mask_first(k, a, x, &mask);
  attend_softmax_first(k, a, x);
  attend_order(k, a, x, l.r[0]);

  finish_last(k, a, x, p, value);
  attend_enter(k, next, x, &a->values, &x->value);
  frag_a_copy(k, &x->p, &x->p_next);
  if (attend_reloads_q(a)) {
    attend_take_queries(k, a, x, next_query);
  }
  store_output(k, a, x, item, query, inverse);
  ring_advance(k, &a->queries, &x->query);
  attend_advance(k, x, &a->keys, &x->key, own, attend_is_own(k, next, i32(k, 1)));
}
