/* decode: in go a query, keys, values and means of nodes; out come its ids and worth, and attention
   to what they name. A cluster has a query and a key head. Its first CTA selects: what takes long
   waits for memory, so all that may be read at once is.

       all warps   score the first level, where it has more nodes than are kept
       all warps   score some levels at once, one chooses level by level; and so on (decode_step.c)
       all warps   score the leaves, one each (decode_leaves.c)
       one warp    keeps the best
       cluster     attends (decode_attend.c)

   Meanwhile its peers fetch what it will read to L2 (decode_ahead.c). Where candidates are few, the
   cluster shares the leaves instead: decode_share.c. The selection is that of the walk which starts
   at as many nodes. Without a walk warps share the leaves instead: flat_decode.c. */
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
void decode_name_walk(struct ir *k, const val *args) {
  assert((int)PISA_WALK_means == (int)PISA_DECODE_means && (int)PISA_WALK_q == (int)PISA_DECODE_q);
  memcpy(k->arg, args, PISA_DECODE_N_ARGS * sizeof *args);
  k->arg[PISA_WALK_ids] = args[PISA_DECODE_ids];
  k->arg[PISA_WALK_worth] = args[PISA_DECODE_worth];
  k->arg[PISA_WALK_scale] = args[PISA_DECODE_scale];
}

/* The words of attention name the arguments of decode_attend: those of decode take their places. */
void decode_name_attend(struct ir *k, const val *args, int keep) {
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

static void share_memory(struct ir *k, struct decode *d) {
  struct walk *w = &d->w;
  w->room = walk_room_of(&d->plan);
  w->kept = k->smem;
  if (decode_shares(&d->plan)) {
    d->arrived = at_const(k, k->smem, decode_attend_bytes(&d->plan, d->warps));
    d->warp_lanes = at_const(k, d->arrived, DECODE_SHARE_ARRIVED_BYTES);
    w->kept = at_const(k, d->warp_lanes, (int64_t)decode_share_warp_bytes(&d->plan) * d->warps);
  }
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

/* Its place; the query itself is on its way. */
static struct node_query_vars find_query(struct ir *k, struct walk *w, val query, val kv_head) {
  const struct plan_pyramid *plan = w->plan;
  struct node_query_vars vars = node_query_vars_new(k, plan);
  w->query = query;
  w->kv_head = kv_head;
  w->s = sequence_of_step(k, w->query);
  load_query(k, w, &vars);
  w->offsets = level_offsets(k, w);
  w->t = sequence_token(k, &w->s, w->query);
  w->own = shift_right_signed(k, w->t, i32(k, log2_from(plan->leaf)));
  w->last = add_const(k, level_visible(k, plan, w->s.keys, w->t, i32(k, 1)), -1);
  val node = sequence_node_base(k, &w->s, plan->leaf, w->kv_head);
  w->rows = at(k, WALK_ARG(means), mul_const(k, node, (int64_t)plan->head_dim * WALK_HALF));
  walk_ranges(k, w);
  return vars;
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

/* ---- the kernel ---- */

static struct sequence_array values_of(const val *args) {
  return (struct sequence_array){args[PISA_DECODE_v], args[PISA_DECODE_v_batch],
                                 args[PISA_DECODE_v_head], args[PISA_DECODE_v_token]};
}

static val sees_few(struct ir *k, const struct decode *d) {
  return is_lt(k, d->w.last, i32(k, d->plan.keep));
}

/* From the root to leaves, or to parents whose leaves need their keys. */
static void go_down(struct ir *k, struct decode *d) {
  const struct plan_pyramid *plan = &d->plan;
  const int most = walk_starts_dense(plan) ? plan->start_nodes : plan->keep;
  struct var depth = var_init(k, walk_start_depth(k, &d->w, most, 0));
  begin(k, d, get(k, depth));
  decode_go_down(k, d, depth, walk_last_depth(plan));
}

static void list_all(struct ir *k, const struct decode *d) {
  IF (k, d->one) {
    walk_write_all(k, &d->w);
  }
}

static void new_walk(struct ir *k, struct decode *d, const val *args) {
  decode_name_walk(k, args);
  d->room = decode_room_of(&d->plan);
  d->w = (struct walk){.plan = &d->plan, .lanes = lanes_new(k), .parents = var_new(k, k->i32)};
  d->w.k =
      (struct sequence_array){WALK_ARG(k), WALK_ARG(k_batch), WALK_ARG(k_head), WALK_ARG(k_token)};
  d->w.zero = shift_right(k, SEQUENCE_ARG(queries), i32(k, 31));
  d->w.tiles = d->room.first_tiles;
  d->one = is_eq(k, d->w.lanes.warp, i32(k, 0));
  share_memory(k, d);
}

/* Of all peers but the first: what that will read. */
static void fetch_as_peer(struct ir *k, const struct decode *d, const val *args, val split) {
  const struct sequence_array values = values_of(args);
  val peers = add_const(k, args[PISA_DECODE_splits], -1);
  decode_fetch(k, d, &values, add_const(k, split, -1), peers);
}

/* A walk beside an append of the same call, which has waited, begins at once. */
static void begin_launch(struct ir *k, const struct plan_pyramid *plan, const val *args) {
  launch_next(k);
  if (!decode_begins_early(plan)) {
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

/* Before means are read that append may write: those of a walk, or all. */
static void wait_for_walk(struct ir *k, const struct decode *d) {
  if (!decode_overlaps(&d->plan))
    launch_wait(k);
}
static void wait_for_leaves(struct ir *k, const struct decode *d) {
  if (!decode_forces_new(&d->plan))
    launch_wait(k);
}

struct blocks_query decode_query(struct ir *k, const struct walk *w) {
  val limit = w->plan->causal ? add_const(k, w->t, 1) : w->s.keys;
  return (struct blocks_query){.sequence = w->s,
                               .query = w->query,
                               .kv_head = w->kv_head,
                               .limit = warp_read(k, limit, i32(k, 0))};
}

/* The cluster's barrier is that of the CTA too: the list is there, and shared memory is free. */
static void attend_list(struct ir *k, const struct plan_pyramid *plan, const val *args, val query,
                        val kv_head, val split) {
  if (!plan->attends)
    return;
  decode_name_attend(k, args, plan->keep);
  IF (k, bit_not(k, is_null_pointer(k, args[PISA_DECODE_o]))) {
    const struct blocks_query x = blocks_query(k, plan, query, kv_head);
    peers_arrive(k);
    peers_wait(k);
    decode_attend_list(k, plan, plan->decode_select.threads, &x, split);
  }
}

/* By one CTA, whose query |vars| is on its way. */
static void select_leaves(struct ir *k, struct decode *d, const val *args,
                          const struct node_query_vars *vars) {
  IF (k, is_lt(k, i32(k, 1), args[PISA_DECODE_splits])) {
    decode_fetch_first(k, d);
  }
  d->w.q = node_query_get(k, vars, d->w.zero);
  wait_for_walk(k, d);
  IF (k, sees_few(k, d)) {
    list_all(k, d);
  }
  ELSE (k) {
    go_down(k, d);
    if (walk_reads_keys(&d->plan))
      decode_leaves(k, d);
  }
}

/* One CTA of the cluster selects, then all attend: nothing of the walk takes registers there. */
static void decode_in_turn(struct ir *k, const struct plan_pyramid *plan, struct decode *d,
                           const val *args, val query, val kv_head, val split) {
  IF (k, is_eq(k, split, i32(k, 0))) {
    const struct node_query_vars vars = find_query(k, &d->w, query, kv_head);
    select_leaves(k, d, args, &vars);
  }
  if (plan->attends) {
    ELSE (k) {
      find_query(k, &d->w, query, kv_head);
      fetch_as_peer(k, d, args, split);
      wait_for_leaves(k, d);
    }
  }
  attend_list(k, plan, args, query, kv_head, split);
}

static void fetch_for_walk(struct ir *k, const struct decode *d, const val *args, val split) {
  IF (k, is_eq(k, split, i32(k, 0))) {
    decode_fetch_first(k, d);
  }
  ELSE (k) {
    fetch_as_peer(k, d, args, split);
  }
}

/* The first CTA of the cluster walks, if it must; what will be read the others fetch meanwhile. */
static void walk_and_share(struct ir *k, const struct plan_pyramid *plan, struct decode *d,
                           const val *args, const struct node_query_vars *vars, val split) {
  const struct sequence_array values = values_of(args);
  val walks = is_eq(k, split, i32(k, 0)), scans = {0};
  decode_share_begin(k, d, args, split);
  if (decode_may_scan(d)) {
    scans = decode_scans(k, d);
    walks = both(k, walks, bit_not(k, scans));
    IF (k, scans) {
      decode_share_fetch(k, d, &values, args, split);
    }
    ELSE (k) {
      fetch_for_walk(k, d, args, split);
    }
  } else {
    fetch_for_walk(k, d, args, split);
  }
  d->w.q = node_query_get(k, vars, d->w.zero); /* waits for it */
  wait_for_leaves(k, d);
  IF (k, walks) {
    wait_for_walk(k, d);
    go_down(k, d);
  }
  peers_wait(k);
  decode_share(k, d, plan, args, split, scans);
}

/* Two ways of their own, also to walk: the code of either lies together. */
static void share_or_select(struct ir *k, const struct plan_pyramid *plan, struct decode *d,
                            const val *args, val query, val kv_head, val split) {
  const struct node_query_vars vars = find_query(k, &d->w, query, kv_head);
  val shares = decode_shares_now(k, plan, args[PISA_DECODE_splits]);
  IF (k, both(k, shares, bit_not(k, sees_few(k, d)))) {
    walk_and_share(k, plan, d, args, &vars, split);
  }
  ELSE (k) {
    decode_name_walk(k, args);
    IF (k, is_eq(k, split, i32(k, 0))) {
      select_leaves(k, d, args, &vars);
    }
    ELSE (k) {
      fetch_as_peer(k, d, args, split);
      wait_for_leaves(k, d);
    }
    attend_list(k, plan, args, query, kv_head, split);
  }
}

static void decode_by_walk(struct ir *k, const struct plan_pyramid *plan, const val *args,
                           val query, val kv_head, val split) {
  struct decode d = {.plan = decode_walk(plan), .warps = decode_warps(plan)};
  new_walk(k, &d, args);
  if (decode_shares(plan))
    share_or_select(k, plan, &d, args, query, kv_head, split);
  else
    decode_in_turn(k, plan, &d, args, query, kv_head, split);
}

static void decode_flat(struct ir *k, const struct plan_pyramid *plan, const val *args, val query,
                        val kv_head, val split) {
  IF (k, is_eq(k, split, i32(k, 0))) {
    flat_decode(k, plan, query, kv_head);
  }
  attend_list(k, plan, args, query, kv_head, split);
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
  if (plan->flat)
    decode_flat(k, plan, args, query, kv_head, split);
  else
    decode_by_walk(k, plan, args, query, kv_head, split);
  if (decode_forces_new(plan))
    launch_wait(k);
  kernel_end(k, launch->entry, launch->threads, 1);
}
