/* One tile: its scores, their softmax, and the product with the values of the tile before; and
   which stages of the rings are a warpgroup's. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/attend_rows.h"
#include "compiler/sm90/wgmma.h"

#define ARG ATTEND_ARG

bool attend_keeps_q(const struct attend *a) {
  return a->plan->streams > 1 || attend_reloads_q(a);
}

bool attend_reloads_q(const struct attend *a) {
  return plan_reloads_queries(a->plan);
}

val attend_last_is_own(struct ir *k, const struct attend *a) {
  return attend_is_own(k, a, add_const(k, a->tiles, -1));
}

val attend_end_is_own(struct ir *k, const struct attend *a) {
  return a->plan->pairs ? i32(k, 0) : (val){0};
}

/* Lane 0, and lane 1 too of an own one. */
static val releases(struct ir *k, const struct rows *x, val own) {
  return is_null(own) ? x->is_lane_0 : is_ge(k, own, x->lane);
}

void attend_release(struct ir *k, const struct rows *x, const struct ring *ring, struct slot slot,
                    val own) {
  ring_release_if(k, ring, slot, releases(k, x, own));
}

void attend_release_aside(struct ir *k, const struct attend *a, const struct rows *x,
                          const struct ring *ring, struct slot slot, val own) {
  if (a->plan->half_tile || a->plan->pairs || (a->plan->second_order && a->plan->streams == 1)) {
    ring_release_predicated(k, ring, slot, i32(k, 1), releases(k, x, own));
  } else {
    attend_release(k, x, ring, slot, own);
  }
}

void attend_order(struct ir *k, const struct attend *a, const struct rows *x, val positive) {
  if (!a->plan->narrow || a->plan->linear) { /* linear: p may be negative */
    return;
  }
  struct rowval l = rowvec_get(k, &x->l);
  val sum = add(k, l.r[0], l.r[1]);
  sum = is_null(positive) ? sum : add(k, sum, positive);
  ring_order(k, &a->keys, ring_slot(k, &x->key), sum);
}

struct slot attend_slot_after(struct ir *k, const struct rows *x, const struct ring *ring,
                              struct slot slot, val own, val next_own) {
  if (is_null(own)) {
    return ring_next(k, ring, slot);
  }
  val turn = mul(k, x->group, sub(k, next_own, own));
  return ring_after(k, ring, slot, add_const(k, add(k, own, turn), 1));
}

void attend_advance(struct ir *k, const struct rows *x, const struct ring *ring,
                    struct ring_place *place, val own, val next_own) {
  ring_go(k, place, attend_slot_after(k, x, ring, ring_slot(k, place), own, next_own));
}

void attend_enter(struct ir *k, const struct attend *a, const struct rows *x,
                  const struct ring *ring, struct ring_place *place) {
  val own = attend_is_own(k, a, i32(k, 0));
  if (!is_null(own)) {
    ring_go(k, place, ring_after(k, ring, ring_slot(k, place), mul(k, x->group, own)));
  }
}

void attend_take_queries(struct ir *k, const struct attend *a, struct rows *x, struct slot query) {
  if (attend_keeps_q(a)) {
    struct tile q = attend_query_tile(k, a, query, x->group);
    frag_a_load(k, &x->q, &q, &a->lanes);
  }
}

void attend_square_queries(struct ir *k, const struct attend *a, struct rows *x) {
  if (attend_keeps_q(a)) {
    frag_a_copy(k, &x->q_square, &x->q);
  } else {
    struct tile q = attend_query_tile(k, a, ring_slot(k, &x->query), x->group);
    frag_a_load(k, &x->q_square, &q, &a->lanes);
  }
  frag_a_square(k, &x->q_square, a->plan->type == TYPE_FP16 ? 1.0 / PISA_FP16_VARIANCE_GAIN : 1);
}

void attend_scores(struct ir *k, const struct attend *a, struct rows *x, const struct frag *s,
                   struct slot query, struct slot key, const struct slot *variance) {
  const int steps = a->plan->head_dim / K_STEP;
  struct tile keys = attend_kv_tile(k, a, &a->keys, key);
  struct operand kb = tile_k_major(k, &keys);
  wgmma_fence(k);
  if (is_null(query.stage)) {
    wgmma_rs(k, s, WGMMA_FRESH, &x->q, 0, &kb, steps);
  } else {
    struct tile q = attend_query_tile(k, a, query, x->group);
    struct operand qa = tile_k_major(k, &q);
    wgmma_ss(k, s, WGMMA_FRESH, &qa, &kb, steps);
  }
  if (variance) {
    struct tile spread = attend_kv_tile(k, a, &a->keys, *variance);
    struct operand vb = tile_k_major(k, &spread);
    wgmma_rs(k, s, WGMMA_ACCUMULATE, &x->q_square, 0, &vb, steps);
  }
  wgmma_commit(k);
}

void attend_accumulate(struct ir *k, const struct attend *a, struct rows *x,
                       const struct frag_a *left, int first_step, struct slot slot) {
  struct tile tile = attend_kv_tile(k, a, &a->values, slot);
  struct operand b = tile_mn_major(k, &tile, 0);
  int steps = left->columns / K_STEP - first_step, most = a->plan->tile_k / K_STEP;
  wgmma_rs(k, &x->o, WGMMA_ACCUMULATE, left, first_step, &b, steps < most ? steps : most);
}

struct rowval attend_offset(struct ir *k, const struct rowval *m, bool may_be_empty) {
  struct rowval offset;
  for (int r = 0; r < FRAG_ROWS; r++) {
    offset.r[r] = negate(k, mul(k, m->r[r], ARG(scale_log2)));
    if (may_be_empty) {
      val empty = is_eq(k, m->r[r], f32(k, -INFINITY));
      offset.r[r] = choose(k, empty, f32(k, 0), offset.r[r]);
    }
  }
  return offset;
}

void attend_softmax_first(struct ir *k, const struct attend *a, struct rows *x) {
  struct rowval m = frag_row_max(k, &x->s), offset = attend_offset(k, &m, a->plan->edge);
  struct rowval sums = frag_exp2(k, &x->s, ARG(scale_log2), offset, a->plan->fma_exp2);
  rowvec_set(k, &x->m, m);
  rowvec_set(k, &x->l, sums);
  frag_to_a(k, &x->p_next, &x->s);
}

/* The scores of a tile other than an item's first: all of x->s, its left half, or both halves with
   a mask each. */
struct columns {
  struct frag s;
  struct frag_a p_next;
  struct frag part[2];
  struct tile_mask mask[2]; /* of each part */
  int parts;
  struct frag_blocks linear; /* of linear tiles, in place of masks */
};

static struct columns columns_of(struct ir *k, const struct attend *a, const struct rows *x,
                                 enum tile_kind kind, val row, val tile) {
  struct columns c = {.s = x->s, .p_next = x->p_next, .part = {x->s}, .parts = 1};
  val unit = mul_const(k, tile, 2);
  struct listed listed = {.row = row, .offset = x->row_offset};
  if (a->plan->means && kind != TILE_FULL) {
    listed.mask = attend_mask_row(k, a, ring_slot(k, &x->query), x->group);
  }
  if (kind == TILE_UNITS) {
    for (c.parts = 0; c.parts < 2; c.parts++) {
      c.part[c.parts] = frag_columns(&x->s, ATTEND_UNIT * c.parts, ATTEND_UNIT);
      val mine = add_const(k, unit, c.parts);
      c.mask[c.parts] = attend_unit_mask(k, a, listed, mine, c.parts == 0);
    }
  } else if (kind == TILE_HALF) {
    c.s = c.part[0] = x->s_half;
    c.p_next = x->p_next_half;
    if (a->plan->means) {
      c.mask[0] = attend_unit_mask(k, a, listed, unit, false);
    }
  } else if (kind == TILE_LINEAR) {
    c.linear = attend_linear_columns(k, a, row, tile);
  } else if (kind != TILE_FULL) {
    c.mask[0] = attend_mask(k, a, kind, listed, tile);
  }
  return c;
}

static bool is_masked(const struct attend *a, enum tile_kind kind) {
  return kind == TILE_HALF ? a->plan->means : kind != TILE_FULL && kind != TILE_LINEAR;
}

/* Softmax of such a tile; returns f, the factor of everything summed before. */
static struct rowval softmax_step(struct ir *k, const struct attend *a, struct rows *x,
                                  const struct columns *columns, bool may_be_empty) {
  val c = ARG(scale_log2);
  struct rowval before = rowvec_get(k, &x->m), l = rowvec_get(k, &x->l), g = rowvec_get(k, &x->g);
  struct rowval m = frag_row_max(k, &columns->s), f;
  for (int r = 0; r < FRAG_ROWS; r++) {
    m.r[r] = maximum(k, m.r[r], before.r[r]);
  }
  struct rowval offset = attend_offset(k, &m, may_be_empty);
  for (int r = 0; r < FRAG_ROWS; r++) {
    f.r[r] = exp2_approx(k, fused(k, before.r[r], c, offset.r[r]));
  }
  for (int part = 0; part < columns->parts; part++) {
    const struct tile_mask *mask = &columns->mask[part];
    struct rowval sums = frag_exp2(k, &columns->part[part], c, offset, a->plan->fma_exp2);
    for (int r = 0; r < FRAG_ROWS; r++) {
      l.r[r] = part == 0 ? fused(k, l.r[r], f.r[r], sums.r[r]) : add(k, l.r[r], sums.r[r]);
      if (mask->counts_as_tail) {
        val tail =
            is_null(mask->is_mean) ? sums.r[r] : choose(k, mask->is_mean, sums.r[r], f32(k, 0));
        g.r[r] = part == 0 ? fused(k, g.r[r], f.r[r], tail) : add(k, g.r[r], tail);
      }
    }
  }
  rowvec_set(k, &x->m, m);
  rowvec_set(k, &x->l, l);
  rowvec_set(k, &x->g, g);
  frag_to_a(k, &columns->p_next, &columns->s);
  return f;
}

/* From scores to p; returns f. */
static struct rowval probabilities(struct ir *k, const struct attend *a, struct rows *x,
                                   enum tile_kind kind, const struct columns *columns) {
  if (kind == TILE_LINEAR) {
    struct rowval f = attend_linear(k, a, &x->s, &x->m, &x->l, &columns->linear);
    frag_to_a(k, &x->p_next, &x->s);
    return f;
  }
  const bool masked = is_masked(a, kind);
  for (int part = 0; masked && part < columns->parts; part++) {
    attend_apply_mask(k, a, &columns->part[part], &columns->mask[part]);
  }
  return softmax_step(k, a, x, columns, a->plan->edge && masked);
}

void attend_tile(struct ir *k, const struct attend *a, struct rows *x, enum tile_kind kind, val row,
                 val tile) {
  const bool spread = a->plan->second_order && kind == TILE_MEANS;
  val own_before = attend_is_own(k, a, add_const(k, tile, -1)), own = attend_is_own(k, a, tile);
  struct columns columns = columns_of(k, a, x, kind, row, tile);
  struct slot key = ring_slot(k, &x->key), value = ring_slot(k, &x->value);
  struct slot variance = ring_next(k, &a->keys, key);
  ring_wait(k, &a->keys, key);
  if (spread) {
    ring_wait(k, &a->keys, variance);
  }
  turn_take(k, &x->turn);
  struct slot query = attend_keeps_q(a) ? (struct slot){0} : ring_slot(k, &x->query);
  attend_scores(k, a, x, &columns.s, query, key, spread ? &variance : NULL);
  ring_wait(k, &a->values, value);
  wgmma_fence(k);
  attend_accumulate(k, a, x, &x->p, 0, value);
  wgmma_commit(k);
  turn_pass(k, &x->turn);

  wgmma_wait(k, 1, &columns.s, 0, NULL);
  attend_release_aside(k, a, x, &a->keys, key, own);
  attend_advance(k, x, &a->keys, &x->key, own, attend_is_own(k, a, add_const(k, tile, 1)));
  if (spread) {
    attend_release_aside(k, a, x, &a->keys, variance, attend_end_is_own(k, a));
    ring_advance(k, &a->keys, &x->key);
  }
  struct rowval f = probabilities(k, a, x, kind, &columns);
  if (plan_exps_beside(a->plan)) {
    attend_order(k, a, x, (val){0});
  }

  const struct frag_a *kept[] = {&x->p};
  wgmma_wait(k, 0, &x->o, 1, kept);
  attend_release(k, x, &a->values, value, own_before);
  frag_scale_rows(k, &x->o, f);
  frag_a_copy(k, kind == TILE_HALF ? &x->p_half : &x->p, &columns.p_next);
  attend_advance(k, x, &a->values, &x->value, own_before, own);
}
