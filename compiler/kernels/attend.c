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

   Pairs (lists union) are one stream whose two warpgroups have query blocks and lists of their own.
   What both lists begin with goes through the rings once for both, then a tile of the first list
   and one of the second in turn, then means and Hsum for both:

       ring          S0 S1 .. | A0 B0 A1 B1 .. | M0 .. | H
       warpgroup 0   S0 S1      A0    A1         M0      H     a stage of its own is released with
       warpgroup 1   S0 S1         B0    B1      M0      H     double arrivals, the other's skipped

   Both do equally many tiles, so they take turns as ever. Their Q is in registers too where those
   suffice (plan_reloads_queries): g q takes the place of q at the end of an item, and the first
   tile of the next one, issued before, reads Q from shared memory. Their o leaves through warps of
   the producers.

   Narrow (lists of 64-row query blocks): one stage of Q is enough where Q moves on to registers. It
   holds the next item's Q until that is there, then o of this one until that is stored.

   Causal (dense, edge): an item has the tiles that its last row sees; those that not all rows see
   whole are masked row by row. Blocks of a head go from the last one, the longest, to the first.

   Half tiles: exact blocks and means are units of 64 columns, two a tile, in one tile an exact one
   and means; of an odd number the last is a tile of 64 columns.

   The pipeline runs on over items: the last p v of an item is issued together with the first q k^T
   of the next. After the last item the producer passes an empty stage, and that product, of stale
   memory, is not used: a branch around the waits would cost every tile of the kernel its uniform
   datapath. */
#include <assert.h>

#include "compiler/kernels/attend_rows.h"
#include "compiler/kernels/kernels.h"

static const struct ir_arg attend_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_ATTEND_ARGS(X)
#undef X
};
#define ARG ATTEND_ARG

/* ---- consumers ---- */

/* Known to be alike in all lanes, so that loop bounds and masks can be uniform. */
static struct extent uniform(struct ir *k, struct extent extent) {
  val *part[] = {&extent.length, &extent.count, &extent.diagonal, &extent.shared};
  for (int i = 0; i < 4; i++) {
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
  if (a->plan->causal) {
    extent.diagonal = get(k, x->diagonal);
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
  if (!is_null(extent.diagonal)) {
    set(k, x->diagonal, extent.diagonal);
  }
  if (!is_null(extent.shared)) {
    set(k, x->shared, extent.shared);
  }
}

static struct rows rows_new(struct ir *k, const struct attend *a, val group) {
  const struct plan_attend *plan = a->plan;
  struct rows x = {
      .group = group,
      .row_offset = plan->streams > 1 ? i32(k, 0) : mul_const(k, group, ATTEND_GROUP_ROWS),
      .lane = a->lanes.lane,
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
      .diagonal = var_new(k, k->i32),
      .shared = var_new(k, k->i32),
  };
  if (attend_reloads_q(a)) {
    x.gq = x.q;
  }
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
    attend_tile(k, a, x, TILE_FULL, item, t);
  }
}

/* The others. The short loops of masked exact tiles and of means share a body where they can: a
   third one costs the long loop its registers. */
static void walk_masked_tiles(struct ir *k, const struct attend *a, struct rows *x, val item) {
  if (a->plan->linear) {
    FOR (k, t, i32(k, 1), a->exact_tiles) {
      attend_tile(k, a, x, TILE_EXACT, item, t);
    }
    FOR (k, t, a->exact_tiles, a->tiles) {
      attend_tile(k, a, x, TILE_LINEAR, item, t);
    }
    return;
  }
  val masked = smax(k, a->full_tiles, i32(k, 1));
  if (!a->plan->second_order) {
    FOR (k, t, masked, a->tiles) {
      attend_tile(k, a, x, TILE_EITHER, item, t);
    }
    return;
  }
  FOR (k, t, masked, a->exact_tiles) {
    attend_tile(k, a, x, TILE_EXACT, item, t);
  }
  attend_square_queries(k, a, x);
  FOR (k, t, a->exact_tiles, a->tiles) {
    attend_tile(k, a, x, TILE_MEANS, item, t);
  }
}

/* Whole tiles with means, then the half one of an odd number of units. */
static void walk_units(struct ir *k, const struct attend *a, struct rows *x, bool half, val row) {
  val whole = half ? add_const(k, a->tiles, -1) : a->tiles;
  if (a->plan->means) {
    FOR (k, t, a->full_tiles, whole) {
      attend_tile(k, a, x, TILE_UNITS, row, t);
    }
  }
  if (half) {
    attend_tile(k, a, x, TILE_HALF, row, whole);
  }
}

/* The extent of the next item is loaded behind the long loop, which has no register for it, and
   before the short one, which hides the time that takes. */
static void consume_items(struct ir *k, const struct attend *a, struct rows *x, bool half) {
  struct extent first = uniform(k, attend_extent(k, a, a->first));
  struct attend sized = attend_sized(k, a, first);
  set_extent(k, x, first);
  attend_open(k, &sized, x);
  FOR_STEP(k, index, a->first, ARG(items), a->step) {
    frag_clear(k, &x->o);
    rowvec_fill(k, &x->g, f32(k, 0));
    sized = attend_sized(k, a, get_extent(k, a, x));
    val row = attend_list_row(k, a, index, x->group);
    walk_full_tiles(k, &sized, x, row);
    struct extent next = attend_extent(k, a, attend_next_item(k, a, index));
    if (a->plan->half_tile) {
      walk_units(k, &sized, x, half, row);
    } else {
      walk_masked_tiles(k, &sized, x, row);
    }
    next = uniform(k, next);
    struct attend next_sized = attend_sized(k, a, next);
    attend_cross(k, &sized, x, half, index, &next_sized);
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
  int o_barriers = v_barriers + p->streams * ring_barrier_bytes(p->v_stages), end = o_barriers;
  if (p->pairs) {
    a->outputs = (struct ring){p->q_stages, p->q_offset, q_bytes, o_barriers, {0}};
    end += ATTEND_GROUPS * ring_barrier_bytes(p->q_stages);
  }
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
  for (int g = 0; a->plan->pairs && g < ATTEND_GROUPS; g++) {
    struct ring outputs = attend_outputs(a, i32(k, g));
    for (int s = 0; s < outputs.stages; s++) {
      mbarrier_init(k, ring_full(k, &outputs, (struct slot){i32(k, s), i32(k, 0)}), STREAM_WARPS);
    }
  }
  mbarrier_init_done(k);
}

/* Warps of the producer warpgroup: the streams' first, then their second producers; of pairs then
   those that store. */
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
  if (a->plan->pairs) {
    val group = add_const(k, a->lanes.warp, -2);
    IF (k, is_ge(k, group, i32(k, 0))) {
      ONE_THREAD (k) {
        struct attend mine = attend_stream(k, a, i32(k, 0));
        attend_store_outputs(k, &mine, group);
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
  assert(!plan->pairs || (plan->tile_q == 128 && plan->block == 64 && !plan->edge));
  assert(!plan->half_tile || (plan->tile_q == 128 && plan->block == 64 && !plan->edge));
  assert(!(plan->pairs || plan->half_tile) || !(plan->linear || plan->dense));
  assert(!(plan->half_tile && (plan->pairs || plan->second_order)));
  assert(!plan->narrow || !plan->dense);
  assert(!plan->pairs || plan->narrow);
  assert(!plan->causal || (plan->edge && plan->dense));
  assert(plan->v_stages > attend_h_stages(plan) && attend_h_stages(plan) <= ATTEND_MAX_H_STAGES);
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
      if (plan->narrow) {
        attend_prefetch_maps(k, &a);
      }
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
