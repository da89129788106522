/* attend: o = softmax over exact tokens and block means, in one online softmax; arXiv 2602.01077,
   docs/DESIGN.md.

   An item is one query block of one head. Its tiles of tile_k columns are, in this order, exact
   (listed key blocks; every key when dense), then means (each standing for the len_j tokens of its
   block: bias log2 len_j, listed ones masked), then once the first-order term (g q) Hsum.
   Persistent CTAs walk the items head-major, so that one head's K and V stay in L2.

   Per row, in units where s = q k^T is unscaled and c = scale log2 e:
       m' = max(m, max s)    f = 2^(c m - c m')    p = 2^(c s - c m')
       l = l f + sum p       g = g f + (sum p of mean columns)       o = o f + p v
   at the end o = (o + (g q) Hsum) / l,  LSE = ln 2 (c m + log2 l).
   With a linear tail (attend_linear.c) the unlisted blocks follow in place of means.
   To second order in its mass, a mean's s is q kbar + q^2 var with var = scale/2 times the variance
   of its keys, column by column: e^(scale s) has the mean of e^(scale q k) over Gaussian keys.

   Two shapes of one text. One stream: query blocks of 128 rows, two consumer warpgroups of 64 share
   list, K and V, and take turns at the tensor cores. Two streams: query blocks of 64 rows, each
   warpgroup has its own items, lists and rings; Q stays in registers, since with 64-column tiles
   the reads of Q from shared memory would be the limit (128 bytes a clock).

   The pipeline runs on over items: the last p v of an item is issued together with the first q k^T
   of the next. After the last item the producer passes an empty stage, and that product, of stale
   memory, is not used: a branch around the waits would cost every tile of the kernel its uniform
   datapath. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/attend.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/wgmma.h"

static const struct ir_arg attend_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ATTEND_ARGS(X)
#undef X
};
#define ARG ATTEND_ARG

enum { MAX_H_STAGES = 2, STREAM_WARPS = 4 };

struct attend attend_stream(struct ir *k, const struct attend *a, val stream) {
  struct attend mine = *a;
  mine.first = cta_index(k);
  mine.step = cta_count(k);
  if (a->plan->streams > 1) {
    mine.queries.instance = mine.keys.instance = mine.values.instance = stream;
    mine.first = add(k, mul_const(k, mine.first, a->plan->streams), stream);
    mine.step = mul_const(k, mine.step, a->plan->streams);
  }
  return mine;
}

struct item attend_item(struct ir *k, const struct attend *a, val index) {
  val bh = udiv(k, index, ARG(q_blocks));
  val block = sub(k, index, mul(k, bh, ARG(q_blocks)));
  val batch = udiv(k, bh, ARG(heads));
  val row = mul_const(k, block, a->plan->tile_q), head = sub(k, bh, mul(k, batch, ARG(heads)));
  val kv_head = a->plan->group == 1 ? head : udiv(k, head, i32(k, a->plan->group));
  return (struct item){index, row, {row, head, batch}, {row, kv_head, batch}};
}

val attend_list_row(struct ir *k, const struct attend *a, val index, val group) {
  if (!a->plan->pairs) {
    return index;
  }
  val bh = udiv(k, index, ARG(q_blocks)), pair = sub(k, index, mul(k, bh, ARG(q_blocks)));
  val block_rows = i32(k, ATTEND_GROUP_ROWS);
  val blocks = udiv(k, add_const(k, ARG(n_q), ATTEND_GROUP_ROWS - 1), block_rows);
  val mine = smin(k, add(k, mul_const(k, pair, 2), group), add_const(k, blocks, -1));
  return add(k, mul(k, bh, blocks), mine);
}

val attend_list(struct ir *k, val row) {
  val entries = mul(k, widen(k, row), widen(k, ARG(list_stride)));
  return at(k, ARG(lists), mul_const(k, entries, 4));
}

/* ---- consumers ---- */

struct rows {     /* the state of a warpgroup's 64 query rows */
  val group;      /* 0 or 1 */
  val row_offset; /* of its rows in the query block */
  val is_lane_0;
  struct turn turn;
  struct ring_place query, key, value;
  struct frag s, o;
  struct frag_a q; /* two streams: the query rows */
  struct frag_a p, p_next, gq, q_square;
  struct frag s_half; /* left half of s, and of p below */
  struct frag_a p_half, p_next_half;
  struct rowvec m, l, g;
  struct var length, count, shared; /* extent of the item at hand */
};

static bool keeps_q(const struct attend *a) {
  return a->plan->streams > 1;
}

/* Whether the last tile of an item, and what follows it (Hsum, the next item), is in a stage of the
   warpgroup's own. */
static val last_is_own(struct ir *k, const struct attend *a) {
  return attend_is_own(k, a, add_const(k, a->tiles, -1));
}

static val end_is_own(struct ir *k, const struct attend *a) {
  return a->plan->pairs ? i32(k, 0) : (val){0};
}

/* One arrival per consumer warp, or two for the warpgroup that has no use for the stage: |own| is
   1. The number varies and nothing branches. */
static void release(struct ir *k, const struct rows *x, const struct ring *ring, struct slot slot,
                    val own) {
  if (is_null(own)) {
    ring_release_if(k, ring, slot, x->is_lane_0);
  } else {
    ring_release_times_if(k, ring, slot, add_const(k, own, 1), x->is_lane_0);
  }
}

/* The same beside another one. LLVM may make a branch of the two, which in these kernels takes all
   tiles off the uniform datapath. Not for the values of a tile: the copies of p behind them would
   move before the wait (C7513). */
static void release_aside(struct ir *k, const struct attend *a, const struct rows *x,
                          const struct ring *ring, struct slot slot, val own) {
  if (a->plan->half_tile || (a->plan->second_order && a->plan->streams == 1)) {
    val times = is_null(own) ? i32(k, 1) : add_const(k, own, 1);
    ring_release_predicated(k, ring, slot, times, x->is_lane_0);
  } else {
    release(k, x, ring, slot, own);
  }
}

/* From the stage of a tile, |own| or not, to that of the next one: past the other's behind an own
   one; the second warpgroup steps over a first own one of the other, and is not behind by it at the
   end. */
static struct slot slot_after(struct ir *k, const struct rows *x, const struct ring *ring,
                              struct slot slot, val own, val next_own) {
  if (is_null(own)) {
    return ring_next(k, ring, slot);
  }
  val turn = mul(k, x->group, sub(k, next_own, own));
  return ring_after(k, ring, slot, add_const(k, add(k, own, turn), 1));
}

static void advance(struct ir *k, const struct rows *x, const struct ring *ring,
                    struct ring_place *place, val own, val next_own) {
  ring_go(k, place, slot_after(k, x, ring, ring_slot(k, place), own, next_own));
}

/* To the stage of an item's first tile. */
static void enter_item(struct ir *k, const struct attend *a, const struct rows *x,
                       const struct ring *ring, struct ring_place *place) {
  val own = attend_is_own(k, a, i32(k, 0));
  if (!is_null(own)) {
    ring_go(k, place, ring_after(k, ring, ring_slot(k, place), mul(k, x->group, own)));
  }
}

/* The query rows that the scores to come are of; they are in shared memory. */
static void take_queries(struct ir *k, const struct attend *a, struct rows *x, struct slot query) {
  if (keeps_q(a)) {
    struct tile q = attend_query_tile(k, a, query, x->group);
    frag_a_load(k, &x->q, &q, &a->lanes);
  }
}

/* q^2, less the gain that k_variance carries in fp16 packs, for the mean tiles of the item. */
static void square_queries(struct ir *k, const struct attend *a, struct rows *x) {
  if (keeps_q(a)) {
    frag_a_copy(k, &x->q_square, &x->q);
  } else {
    struct tile q = attend_query_tile(k, a, ring_slot(k, &x->query), x->group);
    frag_a_load(k, &x->q_square, &q, &a->lanes);
  }
  frag_a_square(k, &x->q_square, a->plan->type == TYPE_FP16 ? 1.0 / PISA_FP16_VARIANCE_GAIN : 1);
}

/* |s|, all of x->s or its left half, = q k^T (+ q^2 |variance|^T, NULL: not) */
static void scores(struct ir *k, const struct attend *a, struct rows *x, const struct frag *s,
                   struct slot query, struct slot key, const struct slot *variance) {
  const int steps = a->plan->head_dim / K_STEP;
  struct tile keys = attend_kv_tile(k, a, &a->keys, key);
  struct operand kb = tile_k_major(k, &keys);
  wgmma_fence(k);
  if (keeps_q(a)) {
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

/* o += left[:, 16 first_step ...] * the rows in |slot| of the value ring */
static void accumulate(struct ir *k, const struct attend *a, struct rows *x,
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

/* First tile of an item: m = max s, l = sum p, p in p_next. */
static void softmax_first(struct ir *k, const struct attend *a, struct rows *x) {
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
  if (kind == TILE_UNITS) {
    for (c.parts = 0; c.parts < 2; c.parts++) {
      c.part[c.parts] = frag_columns(&x->s, ATTEND_UNIT * c.parts, ATTEND_UNIT);
      val mine = add_const(k, unit, c.parts);
      c.mask[c.parts] = attend_unit_mask(k, a, row, mine, c.parts == 0);
    }
  } else if (kind == TILE_HALF) {
    c.s = c.part[0] = x->s_half;
    c.p_next = x->p_next_half;
    if (a->plan->means) {
      c.mask[0] = attend_unit_mask(k, a, row, unit, false);
    }
  } else if (kind == TILE_LINEAR) {
    c.linear = attend_linear_columns(k, a, row, tile);
  } else if (kind != TILE_FULL) {
    c.mask[0] = attend_mask(k, a, kind, row, tile);
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

/* Tile t: its scores while the values of tile t - 1 are accumulated. */
static void tile_step(struct ir *k, const struct attend *a, struct rows *x, enum tile_kind kind,
                      val row, val tile) {
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
  scores(k, a, x, &columns.s, ring_slot(k, &x->query), key, spread ? &variance : NULL);
  ring_wait(k, &a->values, value);
  wgmma_fence(k);
  accumulate(k, a, x, &x->p, 0, value);
  wgmma_commit(k);
  turn_pass(k, &x->turn);

  wgmma_wait(k, 1, &columns.s, 0, NULL);
  release_aside(k, a, x, &a->keys, key, own);
  advance(k, x, &a->keys, &x->key, own, attend_is_own(k, a, add_const(k, tile, 1)));
  if (spread) {
    release_aside(k, a, x, &a->keys, variance, end_is_own(k, a));
    ring_advance(k, &a->keys, &x->key);
  }
  struct rowval f = probabilities(k, a, x, kind, &columns);

  const struct frag_a *kept[] = {&x->p};
  wgmma_wait(k, 0, &x->o, 1, kept);
  release(k, x, &a->values, value, own_before);
  frag_scale_rows(k, &x->o, f);
  frag_a_copy(k, kind == TILE_HALF ? &x->p_half : &x->p, &columns.p_next);
  advance(k, x, &a->values, &x->value, own_before, own);
}

/* First tile of |item|, masked in edge kernels only: elsewhere it is full. */
static void mask_first(struct ir *k, const struct attend *a, struct rows *x,
                       const struct tile_mask *mask) {
  if (a->plan->edge) {
    attend_apply_mask(k, a, &x->s, mask);
  }
}

static struct tile_mask first_mask(struct ir *k, const struct attend *a, val item) {
  return a->plan->edge ? attend_mask(k, a, TILE_EXACT, item, i32(k, 0)) : (struct tile_mask){0};
}

/* Known to be alike in all lanes, so that loop bounds and masks can be uniform. */
static struct extent uniform(struct ir *k, struct extent extent) {
  val *part[] = {&extent.length, &extent.count, &extent.shared};
  for (int i = 0; i < 3; i++) {
    if (!is_null(*part[i])) {
      *part[i] = warp_read(k, *part[i], i32(k, 0));
    }
  }
  return extent;
}

static struct extent get_extent(struct ir *k, const struct attend *a, const struct rows *x) {
  struct extent extent = {0};
  if (a->plan->edge) {
    extent.length = get(k, x->length);
    extent.count = a->plan->dense ? (val){0} : get(k, x->count);
  }
  if (a->plan->pairs) {
    extent.shared = get(k, x->shared);
  }
  return extent;
}

static void set_extent(struct ir *k, struct rows *x, struct extent extent) {
  if (!is_null(extent.length)) {
    set(k, x->length, extent.length);
  }
  if (!is_null(extent.count)) {
    set(k, x->count, extent.count);
  }
  if (!is_null(extent.shared)) {
    set(k, x->shared, extent.shared);
  }
}

/* The keys of an item's first tile. */
static void release_first(struct ir *k, const struct attend *a, struct rows *x, struct slot key) {
  val own = attend_is_own(k, a, i32(k, 0));
  release(k, x, &a->keys, key, own);
  advance(k, x, &a->keys, &x->key, own, attend_is_own(k, a, i32(k, 1)));
}

static void open_first_item(struct ir *k, const struct attend *a, struct rows *x) {
  enter_item(k, a, x, &a->keys, &x->key);
  enter_item(k, a, x, &a->values, &x->value);
  struct slot query = ring_slot(k, &x->query), key = ring_slot(k, &x->key);
  struct tile_mask mask = first_mask(k, a, a->first);
  ring_wait(k, &a->queries, query);
  take_queries(k, a, x, query);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  scores(k, a, x, &x->s, query, key, NULL);
  turn_pass(k, &x->turn);
  wgmma_wait(k, 0, &x->s, 0, NULL);
  release_first(k, a, x, key);
  mask_first(k, a, x, &mask);
  softmax_first(k, a, x);
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

/* o / l through the item's own query buffer, whose last reader is done. */
static void store_output(struct ir *k, const struct attend *a, struct rows *x, struct item item,
                         struct slot query, struct rowval inverse) {
  struct tile tile = attend_query_tile(k, a, query, x->group);
  frag_store_scaled(k, &x->o, inverse, &tile, &a->lanes);
  fence_async_proxy(k);
  group_sync(k, x->group);
  val warp_in_group = bit_and(k, a->lanes.warp, i32(k, 3));
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
  if (keeps_q(a)) {
    frag_a_copy(k, &x->gq, &x->q);
  } else {
    struct tile q = attend_query_tile(k, a, query, x->group);
    frag_a_load(k, &x->gq, &q, &a->lanes);
  }
  frag_a_scale_rows(k, &x->gq, tail_mass(k, a, rowvec_get(k, &x->g)));
}

/* The stages that the end of an item reads of the value ring: its last tile, then Hsum. */
static void last_values(struct ir *k, const struct attend *a, const struct rows *x,
                        struct slot *value) {
  val own = last_is_own(k, a);
  value[0] = ring_slot(k, &x->value);
  for (int i = 0; i < attend_h_stages(a->plan); i++) {
    value[1 + i] = slot_after(k, x, &a->values, value[i], own, end_is_own(k, a));
    own = end_is_own(k, a);
  }
}

/* o += p v + (g q) Hsum; |value| holds v, the stages after it Hsum. */
static void accumulate_last(struct ir *k, const struct attend *a, struct rows *x,
                            const struct frag_a *p, const struct slot *value) {
  const int h_stages = attend_h_stages(a->plan);
  for (int i = 0; i <= h_stages; i++) {
    ring_wait(k, &a->values, value[i]);
  }
  wgmma_fence(k);
  accumulate(k, a, x, p, 0, value[0]);
  for (int i = 0; i < h_stages; i++) {
    accumulate(k, a, x, &x->gq, i * a->plan->tile_k / K_STEP, value[1 + i]);
  }
  wgmma_commit(k);
}

static void finish_last(struct ir *k, const struct attend *a, struct rows *x,
                        const struct frag_a *p, const struct slot *value) {
  const int h_stages = attend_h_stages(a->plan);
  const struct frag_a *kept[] = {p, &x->gq};
  wgmma_wait(k, 0, &x->o, h_stages > 0 ? 2 : 1, kept);
  val own = last_is_own(k, a);
  for (int i = 0; i <= h_stages; i++) {
    release_aside(k, a, x, &a->values, value[i], own);
    advance(k, x, &a->values, &x->value, own, end_is_own(k, a));
    own = end_is_own(k, a);
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

/* The item after |index| in this stream, or the last one there is. */
static val next_item(struct ir *k, const struct attend *a, val index) {
  val after = add(k, index, a->step), last = add_const(k, ARG(items), -1);
  return smin(k, after, last);
}

/* The end of an item, whose last tile may be a half one, and the beginning of the next, which is of
   |next|'s size. */
static void cross_to_next_item(struct ir *k, const struct attend *a, struct rows *x, bool half,
                               val index, const struct attend *next) {
  const struct frag_a *p = half ? &x->p_half : &x->p;
  struct item item = attend_item(k, a, index);
  struct slot query = ring_slot(k, &x->query), next_query = ring_next(k, &a->queries, query);
  enter_item(k, next, x, &a->keys, &x->key);
  struct slot key = ring_slot(k, &x->key), value[1 + MAX_H_STAGES];
  last_values(k, a, x, value);
  struct rowval m = rowvec_get(k, &x->m), l = rowvec_get(k, &x->l);
  if (a->plan->first_order) {
    weigh_queries(k, a, x, query);
  }
  struct tile_mask mask = first_mask(k, next, next_item(k, a, index));

  ring_wait(k, &a->queries, next_query);
  take_queries(k, a, x, next_query);
  ring_wait(k, &a->keys, key);
  turn_take(k, &x->turn);
  scores(k, a, x, &x->s, next_query, key, NULL);
  accumulate_last(k, a, x, p, value);
  turn_pass(k, &x->turn);
  struct rowval sums = {{quad_sum(k, l.r[0]), quad_sum(k, l.r[1])}};
  struct rowval inverse = inverse_sums(k, a, sums);
  store_lse(k, a, x, item, m, sums);

  wgmma_wait(k, 1, &x->s, 0, NULL);
  val own = attend_is_own(k, next, i32(k, 0));
  release(k, x, &a->keys, key, own);
  mask_first(k, a, x, &mask);
  softmax_first(k, a, x);

  finish_last(k, a, x, p, value);
  enter_item(k, next, x, &a->values, &x->value);
  frag_a_copy(k, &x->p, &x->p_next);
  store_output(k, a, x, item, query, inverse);
  ring_advance(k, &a->queries, &x->query);
  advance(k, x, &a->keys, &x->key, own, attend_is_own(k, next, i32(k, 1)));
}

static struct rows rows_new(struct ir *k, const struct attend *a, val group) {
  const struct plan_attend *plan = a->plan;
  struct rows x = {
      .group = group,
      .row_offset = plan->streams > 1 ? i32(k, 0) : mul_const(k, group, ATTEND_GROUP_ROWS),
      .is_lane_0 = is_eq(k, a->lanes.lane, i32(k, 0)),
      .turn = turn_open(k, group, plan->streams == 1),
      .query = ring_start(k),
      .key = ring_start(k),
      .value = ring_start(k),
      .s = frag_new(k, plan->tile_k),
      .o = frag_new(k, plan->head_dim),
      .q = frag_a_new(k, plan->head_dim),
      .p = frag_a_new(k, plan->tile_k),
      .p_next = frag_a_new(k, plan->tile_k),
      .gq = frag_a_new(k, plan->head_dim),
      .q_square = frag_a_new(k, plan->head_dim),
      .m = rowvec_new(k),
      .l = rowvec_new(k),
      .g = rowvec_new(k),
      .length = var_new(k, k->i32),
      .count = var_new(k, k->i32),
      .shared = var_new(k, k->i32),
  };
  if (plan->half_tile) {
    x.s_half = frag_columns(&x.s, 0, ATTEND_UNIT);
    x.p_half = frag_a_columns(&x.p, 0, ATTEND_UNIT);
    x.p_next_half = frag_a_columns(&x.p_next, 0, ATTEND_UNIT);
  }
  return x;
}

/* Tiles 1 and on of an item: those without a mask. With a linear tail they are few: all exact tiles
   share the body with a mask. */
static void walk_full_tiles(struct ir *k, const struct attend *a, struct rows *x, val item) {
  if (a->plan->linear) {
    return;
  }
  FOR (k, t, i32(k, 1), a->full_tiles) {
    tile_step(k, a, x, TILE_FULL, item, t);
  }
}

/* The others. The short loops of masked exact tiles and of means share a body where they can: a
   third one costs the long loop its registers. */
static void walk_masked_tiles(struct ir *k, const struct attend *a, struct rows *x, val item) {
  if (a->plan->linear) {
    FOR (k, t, i32(k, 1), a->exact_tiles) {
      tile_step(k, a, x, TILE_EXACT, item, t);
    }
    FOR (k, t, a->exact_tiles, a->tiles) {
      tile_step(k, a, x, TILE_LINEAR, item, t);
    }
    return;
  }
  val masked = smax(k, a->full_tiles, i32(k, 1));
  if (!a->plan->second_order) {
    FOR (k, t, masked, a->tiles) {
      tile_step(k, a, x, TILE_EITHER, item, t);
    }
    return;
  }
  FOR (k, t, masked, a->exact_tiles) {
    tile_step(k, a, x, TILE_EXACT, item, t);
  }
  square_queries(k, a, x);
  FOR (k, t, a->exact_tiles, a->tiles) {
    tile_step(k, a, x, TILE_MEANS, item, t);
  }
}

/* Whole tiles with means, then the half one of an odd number of units. */
static void walk_units(struct ir *k, const struct attend *a, struct rows *x, bool half, val row) {
  val whole = half ? add_const(k, a->tiles, -1) : a->tiles;
  if (a->plan->means) {
    FOR (k, t, a->full_tiles, whole) {
      tile_step(k, a, x, TILE_UNITS, row, t);
    }
  }
  if (half) {
    tile_step(k, a, x, TILE_HALF, row, whole);
  }
}

/* The extent of the next item is loaded behind the long loop, which has no register for it, and
   before the short one, which hides the time that takes. */
static void consume_items(struct ir *k, const struct attend *a, struct rows *x, bool half) {
  struct extent first = uniform(k, attend_extent(k, a, a->first));
  struct attend sized = attend_sized(k, a, first);
  set_extent(k, x, first);
  open_first_item(k, &sized, x);
  FOR_STEP(k, index, a->first, ARG(items), a->step) {
    frag_clear(k, &x->o);
    rowvec_fill(k, &x->g, f32(k, 0));
    sized = attend_sized(k, a, get_extent(k, a, x));
    val row = attend_list_row(k, a, index, x->group);
    walk_full_tiles(k, &sized, x, row);
    struct extent next = attend_extent(k, a, next_item(k, a, index));
    if (a->plan->half_tile) {
      walk_units(k, &sized, x, half, row);
    } else {
      walk_masked_tiles(k, &sized, x, row);
    }
    next = uniform(k, next);
    struct attend next_sized = attend_sized(k, a, next);
    cross_to_next_item(k, &sized, x, half, index, &next_sized);
    set_extent(k, x, next);
  }
}

static void consume(struct ir *k, const struct attend *a) {
  val group = add_const(k, lanes_warpgroup(k, &a->lanes), -1);
  struct attend mine = attend_stream(k, a, group);
  struct rows x = rows_new(k, &mine, group);
  if (a->plan->half_tile) { /* two loops, whose bodies do not share registers; a condition that is
                               not known to be alike in all lanes costs the uniform datapath */
    val odd = warp_read(k, bit_and(k, a->units, i32(k, 1)), i32(k, 0));
    IF (k, is_eq(k, odd, i32(k, 1))) {
      consume_items(k, &mine, &x, true);
    }
    ELSE (k) {
      consume_items(k, &mine, &x, false);
    }
  } else if (a->plan->streams == 1) { /* the grid has no more CTAs than items */
    consume_items(k, &mine, &x, false);
  } else {
    IF (k, is_lt(k, mine.first, ARG(items))) {
      consume_items(k, &mine, &x, false);
    }
  }
  turn_close(k, &x.turn, group);
}

/* ---- the kernel ---- */

static void lay_out_rings(struct attend *a) {
  const struct plan_attend *p = a->plan;
  a->columns = tile_columns(p->head_dim);
  int q_bytes = tile_bytes(p->tile_q, a->columns), kv_bytes = tile_bytes(p->tile_k, a->columns);
  int q_barriers = p->barrier_offset;
  int k_barriers = q_barriers + p->streams * ring_barrier_bytes(p->q_stages);
  int v_barriers = k_barriers + p->streams * ring_barrier_bytes(p->k_stages);
  a->queries = (struct ring){p->q_stages, p->q_offset, q_bytes, q_barriers, {0}};
  a->keys = (struct ring){p->k_stages, p->k_offset, kv_bytes, k_barriers, {0}};
  a->values = (struct ring){p->v_stages, p->v_offset, kv_bytes, v_barriers, {0}};
  int end = v_barriers + p->streams * ring_barrier_bytes(p->v_stages);
  assert(p->q_offset + p->streams * ring_bytes(&a->queries) <= p->k_offset);
  assert(p->k_offset + p->streams * ring_bytes(&a->keys) <= p->v_offset);
  assert(p->v_offset + p->streams * ring_bytes(&a->values) <= q_barriers);
  assert(end <= p->kernel.smem_bytes);
  (void)end;
}

static void init_rings(struct ir *k, const struct attend *a) {
  const int groups = a->plan->tile_q / ATTEND_GROUP_ROWS; /* that share a stream */
  for (int s = 0; s < a->plan->streams; s++) {
    struct attend stream = attend_stream(k, a, i32(k, s));
    ring_init(k, &stream.queries, groups);
    ring_init(k, &stream.keys, groups * STREAM_WARPS);
    ring_init(k, &stream.values, groups * STREAM_WARPS);
  }
  mbarrier_init_done(k);
}

/* Warps of the producer warpgroup: the streams' first, then their second producers. */
static void produce(struct ir *k, const struct attend *a) {
  const int streams = a->plan->streams;
  for (int role = 0; role < 2; role++) {
    val stream = add_const(k, a->lanes.warp, -role * streams);
    IF (k, both(k, is_ge(k, stream, i32(k, 0)), is_lt(k, stream, i32(k, streams)))) {
      ONE_THREAD (k) {
        struct attend mine = attend_stream(k, a, stream);
        if (role == 0) {
          attend_produce_queries_and_keys(k, &mine);
        } else {
          attend_produce_values(k, &mine);
        }
      }
    }
  }
}

static void check_plan(const struct plan_attend *plan) {
  assert(plan->streams * plan->tile_q == ATTEND_GROUPS * ATTEND_GROUP_ROWS);
  assert(plan->tile_k == 64 || plan->tile_k == 128);
  assert(plan->block % BOX_ROWS == 0 && plan->tile_k % plan->block == 0);
  assert(plan->head_dim % K_STEP == 0 && plan->head_dim <= 128);
  assert(!plan->second_order || plan->linear || (plan->means && plan->k_stages >= 2));
  assert(!plan->linear || !(plan->means || plan->dense));
  assert(plan->v_stages > attend_h_stages(plan) && attend_h_stages(plan) <= MAX_H_STAGES);
  (void)plan;
}

void kernel_attend(struct ir *k, const struct plan_attend *plan) {
  check_plan(plan);
  struct attend a = {.plan = plan};
  lay_out_rings(&a);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_ATTEND_N_ARGS, attend_args);
  a.lanes = lanes_new(k);
  attend_size_all(k, &a);
  IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
    ONE_THREAD (k) {
      init_rings(k, &a);
    }
  }
  cta_sync(k);
  launch_handover(k);
  IF (k, is_eq(k, lanes_warpgroup(k, &a.lanes), i32(k, 0))) {
    registers_shrink(k, plan->producer_registers);
    produce(k, &a);
  }
  ELSE (k) {
    registers_grow(k, plan->consumer_registers);
    consume(k, &a);
  }
  kernel_end(k, plan->kernel.entry, plan->kernel.threads, 1);
}
