/* decode: in go a query, keys, values and means of nodes; out come its ids and worth, and attention
   to what they name. A cluster has a query and a key head. Its first CTA selects: what takes long
   waits for memory, so all that may be read at once is.

       all warps   score the first level, where it has more nodes than are kept
       all warps   score some levels at once, one chooses level by level; and so on (decode_step.c)
       all warps   score the leaves, one each
       one warp    keeps the best
       cluster     attends (decode_attend.c)

   The selection is that of the walk which starts at as many nodes. Without a walk warps share the
   leaves instead: flat_decode.c. */
#include <assert.h>
#include <string.h>

#include "compiler/kernels/decode.h"
#include "compiler/kernels/decode_attend.h"
#include "compiler/kernels/flat.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/peers.h"
#include "compiler/sm90/scan.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

#define ARG(name) (k->arg[PISA_DECODE_##name])

enum { WARP = 32 };

static const struct ir_arg decode_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_ARGS(X)
#undef X
};

/* The words of the walk name its arguments: those of decode take their places. */
static void name_arguments(struct ir *k) {
  const val ids = ARG(ids), worth = ARG(worth), scale = ARG(scale);
  assert((int)PISA_WALK_means == (int)PISA_DECODE_means && (int)PISA_WALK_q == (int)PISA_DECODE_q);
  k->arg[PISA_WALK_ids] = ids;
  k->arg[PISA_WALK_worth] = worth;
  k->arg[PISA_WALK_scale] = scale;
}

static void share_memory(struct ir *k, struct decode *d) {
  struct walk *w = &d->w;
  w->room = walk_room_of(&d->plan);
  w->kept = k->smem;
  d->places = at_const(k, w->kept, (int64_t)WALK_WORD * d->room.kept);
  d->lanes = at_const(k, d->places, (int64_t)WALK_WORD * d->room.places);
  d->worths = at_const(k, d->lanes, WALK_WORD * DECODE_LANES);
  w->keys = at_const(k, d->worths, WALK_WORD * DECODE_LANES);
  w->scores = at_const(k, w->keys, (int64_t)WALK_WORD * d->room.candidates);
  d->ranks = at_const(k, w->scores, (int64_t)WALK_WORD * d->room.scores);
}

/* ---- the query ---- */

static void load_query(struct ir *k, const struct walk *w, const struct node_query_vars *vars) {
  val offset = sequence_query_offset(k, &w->s, w->query, WALK_ARG(q_batch), WALK_ARG(q_token));
  val head = widen(k, mul_const(k, w->kv_head, w->plan->group));
  val q = at(k, WALK_ARG(q), add(k, offset, mul(k, head, WALK_ARG(q_head))));
  node_query_load(k, w->plan, &w->lanes, q, WALK_ARG(q_head), vars);
}

/* off of level lane + 1. */
static val level_offsets(struct ir *k, const struct walk *w) {
  val shift = add_const(k, mul_const(k, w->lanes.lane, log2_from(w->plan->children)),
                        log2_from(w->plan->leaf));
  shift = smin(k, shift, i32(k, 31)); /* more than any sequence has */
  val nodes = add_const(k, shift_right_signed(k, add_const(k, w->s.room, -1), shift), 1);
  val rows = bit_and(k, add_const(k, nodes, 3), i32(k, -4));
  return sub(k, warp_running_sum(k, rows, &w->lanes), rows);
}

static void take_query(struct ir *k, struct walk *w, val query, val kv_head) {
  const struct plan_pyramid *plan = w->plan;
  struct node_query_vars vars = node_query_vars_new(k, plan);
  w->query = query;
  w->kv_head = kv_head;
  w->s = sequence_of_query(k, w->query);
  load_query(k, w, &vars);
  w->offsets = level_offsets(k, w);
  w->t = sequence_token(k, &w->s, w->query);
  w->own = shift_right_signed(k, w->t, i32(k, log2_from(plan->leaf)));
  w->last = add_const(k, level_visible(k, plan, w->s.keys, w->t, i32(k, 1)), -1);
  val node = sequence_node_base(k, &w->s, plan->leaf, w->kv_head);
  w->rows = at(k, WALK_ARG(means), mul_const(k, node, (int64_t)plan->head_dim * WALK_HALF));
  walk_ranges(k, w);
  w->q = node_query_get(k, &vars, w->zero);
}

/* ---- the first level ---- */

static void begin_at(struct ir *k, struct decode *d, val seen) {
  IF (k, d->one) {
    walk_begin(k, &d->w, seen);
  }
  set(k, d->w.parents, seen);
  cta_sync(k);
}

/* The best of |seen| nodes of |depth|: the list, where they are leaves. */
static void score_first(struct ir *k, struct decode *d, val depth, val seen) {
  const val no = {0};
  walk_score_many(k, &d->w, depth, d->w.lanes.warp, d->warps);
  if (walk_last_depth(&d->plan) == 1) {
    decode_keep_many(k, d, depth, seen, no, NULL, NULL);
  } else {
    IF (k, is_eq(k, depth, i32(k, 0))) {
      decode_keep_many(k, d, depth, seen, no, walk_write_leaf, &d->w);
    }
    ELSE (k) {
      decode_keep_many(k, d, depth, seen, no, NULL, NULL);
    }
  }
  set(k, d->w.parents, i32(k, d->plan.keep));
  cta_sync(k);
}

/* |seen| nodes of |depth|, more than are kept: leaves by their keys are scored later. */
static void begin_dense(struct ir *k, struct decode *d, val depth, val seen) {
  const int step = log2_from(d->plan.children);
  begin_at(k, d, add_const(k, shift_right(k, add_const(k, seen, -1), i32(k, step)), 1));
  if (walk_reads_keys(&d->plan)) {
    IF (k, is_lt(k, i32(k, 0), depth)) {
      score_first(k, d, depth, seen);
    }
  } else {
    score_first(k, d, depth, seen);
  }
}

static void begin(struct ir *k, struct decode *d, val depth) {
  val seen = walk_seen_at(k, &d->w, depth);
  if (!walk_starts_dense(&d->plan)) {
    begin_at(k, d, seen);
    return;
  }
  IF (k, is_lt(k, i32(k, d->plan.keep), seen)) {
    begin_dense(k, d, depth, seen);
  }
  ELSE (k) {
    begin_at(k, d, seen);
  }
}

/* ---- leaves by their keys ---- */

/* Of one warp's candidates, a lane each. */
static void keep_few_leaves(struct ir *k, struct decode *d, val all) {
  const struct decode_lanes x = decode_lanes_of(k, d);
  val slot = smin(k, x.candidate, i32(k, x.n - 1)), leaf, key;
  cta_sync(k);
  IF (k, d->one) {
    struct best best = decode_best(k, d, &d->w, &x, slot, i32(k, 0), all, &leaf, &key);
    IF (k, best.kept) {
      walk_write_leaf(k, &d->w, leaf, key, best.place);
    }
    walk_write_rest(k, &d->w, best.count);
  }
}

static void keep_leaves(struct ir *k, struct decode *d, val seen, val all) {
  const bool more = d->w.room.parents > d->plan.keep;
  if (decode_has_few(&d->plan) && !more) {
    keep_few_leaves(k, d, all);
    return;
  }
  if (!decode_has_few(&d->plan)) {
    decode_keep_many(k, d, i32(k, 0), seen, all, walk_write_leaf, &d->w);
    return;
  }
  IF (k, is_le(k, get(k, d->w.parents), i32(k, d->plan.keep))) {
    keep_few_leaves(k, d, all);
  }
  ELSE (k) {
    decode_keep_many(k, d, i32(k, 0), seen, all, walk_write_leaf, &d->w);
  }
}

static void leaves(struct ir *k, struct decode *d) {
  struct walk *w = &d->w;
  val parents = get(k, w->parents), last = add_const(k, parents, -1);
  val node = load(k, k->i32, walk_kept_at(k, w, last), WALK_WORD);
  val behind = add_const(k, sub(k, w->last, mul_const(k, node, d->plan.children)), 1);
  behind = smin(k, behind, i32(k, d->plan.children)); /* leaves of the last parent */
  val seen = add(k, mul_const(k, last, d->plan.children), behind);
  val all = is_le(k, seen, i32(k, d->plan.keep));
  IF (k, bit_not(k, all)) {
    walk_score_leaves(k, w, seen, w->lanes.warp, d->warps);
  }
  keep_leaves(k, d, seen, all);
}

/* ---- the kernel ---- */

/* Of a query that sees more leaves than it keeps. */
static void select_leaves(struct ir *k, struct decode *d) {
  const struct plan_pyramid *plan = &d->plan;
  const int most = walk_starts_dense(plan) ? plan->start_nodes : plan->keep;
  struct var depth = var_init(k, walk_start_depth(k, &d->w, most, 0));
  begin(k, d, get(k, depth));
  decode_go_down(k, d, depth, walk_last_depth(plan));
  if (walk_reads_keys(plan))
    leaves(k, d);
}

static void walk_decode(struct ir *k, const struct plan_pyramid *plan, val query, val kv_head) {
  name_arguments(k);
  struct decode d = {.plan = decode_walk(plan), .warps = decode_warps(plan)};
  d.room = decode_room_of(&d.plan);
  d.w = (struct walk){.plan = &d.plan, .lanes = lanes_new(k), .parents = var_new(k, k->i32)};
  d.w.k =
      (struct sequence_array){WALK_ARG(k), WALK_ARG(k_batch), WALK_ARG(k_head), WALK_ARG(k_token)};
  d.w.zero = shift_right(k, SEQUENCE_ARG(queries), i32(k, 31));
  d.w.tiles = d.room.first_tiles;
  d.one = is_eq(k, d.w.lanes.warp, i32(k, 0));
  share_memory(k, &d);
  take_query(k, &d.w, query, kv_head);
  IF (k, is_lt(k, d.w.last, i32(k, plan->keep))) {
    IF (k, d.one) {
      walk_write_all(k, &d.w);
    }
  }
  ELSE (k) {
    select_leaves(k, &d);
  }
}

/* The words of attention name the arguments of decode_attend: those of decode take their places. */
static void name_attend_arguments(struct ir *k, const val *args, int keep) {
#define MOVE(kind, name, meaning) k->arg[PISA_DECODE_ATTEND_##name] = args[PISA_DECODE_##name];
  PISA_SEQUENCE_ARGS(MOVE)
  PISA_STRIDES(MOVE, q)
  PISA_STRIDES(MOVE, k)
  PISA_STRIDES(MOVE, v)
  PISA_STRIDES(MOVE, o)
  MOVE(PTR, lse, )
  MOVE(I32, splits, )
  MOVE(F32, scale, )
#undef MOVE
  k->arg[PISA_DECODE_ATTEND_lists] = args[PISA_DECODE_ids];
  k->arg[PISA_DECODE_ATTEND_width] = i32(k, keep);
}

/* The cluster's barrier is that of the CTA too: the list is there, and shared memory is free. */
static void attend(struct ir *k, const struct plan_pyramid *plan, const val *args, val query,
                   val kv_head, val split) {
  name_attend_arguments(k, args, plan->keep);
  IF (k, bit_not(k, is_null_pointer(k, args[PISA_DECODE_o]))) {
    peers_arrive(k);
    peers_wait(k);
    decode_attend_list(k, plan, plan->decode_select.threads, query, kv_head, split);
  }
}

/* Beside an append of the same call, which has waited: see decode_overlaps. */
static void begin_launch(struct ir *k, const struct plan_pyramid *plan, const val *args) {
  launch_next(k);
  if (!decode_overlaps(plan)) {
    launch_wait(k);
    return;
  }
  IF (k, is_eq(k, args[PISA_DECODE_beside], i32(k, 0))) {
    launch_wait(k);
  }
  ELSE (k) {
    launch_acquire(k, args[PISA_DECODE_q]);
  }
}

void kernel_decode(struct ir *k, const struct plan_pyramid *plan) {
  const struct plan_kernel *launch = &plan->decode_select;
  assert(launch->threads == WARP * decode_warps(plan));
  assert(launch->smem_bytes >= decode_bytes(plan));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_N_ARGS, decode_args);
  val args[PISA_DECODE_N_ARGS];
  memcpy(args, k->arg, sizeof args);
  val number = udiv(k, cta_index(k), ARG(splits)), query = udiv(k, number, SEQUENCE_ARG(kv_heads));
  val kv_head = sub(k, number, mul(k, query, SEQUENCE_ARG(kv_heads)));
  val split = sub(k, cta_index(k), mul(k, number, ARG(splits)));
  begin_launch(k, plan, args);
  IF (k, is_eq(k, split, i32(k, 0))) {
    if (plan->flat)
      flat_decode(k, plan, query, kv_head);
    else
      walk_decode(k, plan, query, kv_head);
  }
  if (plan->attends)
    attend(k, plan, args, query, kv_head, split);
  if (decode_overlaps(plan))
    launch_wait(k);
  kernel_end(k, launch->entry, launch->threads, 1);
}
