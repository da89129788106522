/* decode: in go a query, keys and means of nodes; out come its ids and worth. A CTA has a query and
   a key head: what takes long waits for memory, so all that may be read at once is.

       all warps   score the first level, where it has more nodes than are kept
       one warp    goes down from level to level (walk.h)
       all warps   score the leaves, one each
       one warp    keeps the best

   The selection is that of the walk which starts at as many nodes. Without a walk warps share the
   leaves instead: flat_decode.c. */
#include <assert.h>

#include "compiler/kernels/flat.h"
#include "compiler/kernels/kernels.h"
#include "compiler/kernels/walk.h"
#include "compiler/plan/decode.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

#define ARG(name) (k->arg[PISA_DECODE_##name])

static const struct ir_arg decode_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_ARGS(X)
#undef X
};

struct decode {
  struct plan_pyramid plan; /* as a walk's */
  struct walk w;
  val words; /* shared: what one warp tells the others */
  val one;   /* i1: this is the warp that does alone what one does */
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
  w->next = at_const(k, w->kept, (int64_t)WALK_WORD * w->room.kept);
  w->keys = at_const(k, w->next, (int64_t)WALK_WORD * w->room.next);
  w->scores = at_const(k, w->keys, (int64_t)WALK_WORD * w->room.candidates);
  d->words = at_const(k, k->smem, w->room.bytes);
}

/* ---- the query ---- */

static void load_query(struct ir *k, struct walk *w) {
  struct node_query_vars vars = node_query_vars_new(k, w->plan);
  val offset = sequence_query_offset(k, &w->s, w->query, WALK_ARG(q_batch), WALK_ARG(q_token));
  val head = widen(k, mul_const(k, w->kv_head, w->plan->group));
  val q = at(k, WALK_ARG(q), add(k, offset, mul(k, head, WALK_ARG(q_head))));
  node_query_load(k, w->plan, &w->lanes, q, WALK_ARG(q_head), &vars);
  w->q = node_query_get(k, &vars, w->zero);
}

static void take_query(struct ir *k, struct walk *w) {
  const struct plan_pyramid *plan = w->plan;
  val number = cta_index(k), kv_heads = SEQUENCE_ARG(kv_heads);
  w->query = udiv(k, number, kv_heads);
  w->kv_head = sub(k, number, mul(k, w->query, kv_heads));
  w->s = sequence_of_query(k, w->query);
  val level = add_const(k, w->lanes.lane, 1);
  w->offsets = level_offset(k, w->s.room, plan->leaf, plan->children, level);
  load_query(k, w);
  w->t = sequence_token(k, &w->s, w->query);
  w->own = shift_right_signed(k, w->t, i32(k, walk_log2(plan->leaf)));
  w->last = add_const(k, level_visible(k, plan, w->s.keys, w->t, i32(k, 1)), -1);
  val node = sequence_node_base(k, &w->s, plan->leaf, w->kv_head);
  w->rows = at(k, WALK_ARG(means), mul_const(k, node, (int64_t)plan->head_dim * WALK_HALF));
  walk_ranges(k, w);
}

/* ---- the first level ---- */

/* The one warp keeps the best of the candidates that all have scored: the list, where they are
   leaves. */
static void keep_first(struct ir *k, struct walk *w, val depth) {
  if (walk_last_depth(w->plan) == 1) {
    walk_keep_many(k, w, depth, NULL, NULL);
    return;
  }
  IF (k, is_eq(k, depth, i32(k, 0))) {
    walk_write_rest(k, w, walk_keep_many(k, w, depth, walk_write_leaf, w));
  }
  ELSE (k) {
    walk_keep_many(k, w, depth, NULL, NULL);
  }
}

static void score_first(struct ir *k, struct decode *d, val depth) {
  walk_score_many(k, &d->w, depth, d->w.lanes.warp, decode_warps(&d->plan));
  cta_sync(k);
  IF (k, d->one) {
    keep_first(k, &d->w, depth);
  }
}

/* |seen| nodes of |depth|, more than are kept: leaves by their keys are scored later. */
static void begin_dense(struct ir *k, struct decode *d, val depth, val seen) {
  struct walk *w = &d->w;
  const int step = walk_log2(w->plan->children);
  val parents = add_const(k, shift_right(k, add_const(k, seen, -1), i32(k, step)), 1);
  IF (k, d->one) {
    walk_begin(k, w, parents);
  }
  set(k, w->parents, parents);
  cta_sync(k);
  if (walk_reads_keys(w->plan)) {
    IF (k, is_lt(k, i32(k, 0), depth)) {
      score_first(k, d, depth);
    }
  } else {
    score_first(k, d, depth);
  }
}

static void begin(struct ir *k, struct decode *d, val depth) {
  val seen = walk_seen_at(k, &d->w, depth);
  if (!walk_starts_dense(&d->plan)) {
    IF (k, d->one) {
      walk_begin(k, &d->w, seen);
    }
    return;
  }
  IF (k, is_lt(k, i32(k, d->plan.keep), seen)) {
    begin_dense(k, d, depth, seen);
  }
  ELSE (k) {
    IF (k, d->one) {
      walk_begin(k, &d->w, seen);
    }
  }
}

/* ---- leaves by their keys ---- */

static val said(struct ir *k, const struct decode *d, int word) {
  return load(k, k->i32, at_const(k, d->words, (int64_t)word * WALK_WORD), WALK_WORD);
}
static void say(struct ir *k, const struct decode *d, int word, val x) {
  ONE_THREAD (k) {
    store(k, x, at_const(k, d->words, (int64_t)word * WALK_WORD), WALK_WORD);
  }
}

enum { PARENTS, SEEN };

static void leaves(struct ir *k, struct decode *d) {
  struct walk *w = &d->w;
  IF (k, d->one) {
    say(k, d, PARENTS, get(k, w->parents));
    say(k, d, SEEN, walk_leaf_keys(k, w));
  }
  cta_sync(k);
  set(k, w->parents, said(k, d, PARENTS));
  val seen = said(k, d, SEEN);
  IF (k, is_lt(k, i32(k, d->plan.keep), seen)) {
    walk_score_leaves(k, w, seen, w->lanes.warp, decode_warps(w->plan));
  }
  cta_sync(k);
  IF (k, d->one) {
    walk_keep_leaves(k, w, seen);
  }
}

/* ---- the kernel ---- */

/* Of a query that sees more leaves than it keeps. */
static void select_leaves(struct ir *k, struct decode *d) {
  const struct plan_pyramid *plan = &d->plan;
  const int most = walk_starts_dense(plan) ? plan->start_nodes : plan->keep;
  struct var depth = var_init(k, walk_start_depth(k, &d->w, most, 0));
  begin(k, d, get(k, depth));
  IF (k, d->one) {
    walk_go_down(k, &d->w, depth);
  }
  if (walk_reads_keys(plan))
    leaves(k, d);
}

static void walk_decode(struct ir *k, const struct plan_pyramid *plan) {
  name_arguments(k);
  struct decode d = {.plan = decode_walk(plan)};
  d.w = (struct walk){.plan = &d.plan, .lanes = lanes_new(k), .parents = var_new(k, k->i32)};
  d.w.k =
      (struct sequence_array){WALK_ARG(k), WALK_ARG(k_batch), WALK_ARG(k_head), WALK_ARG(k_token)};
  d.w.zero = shift_right(k, SEQUENCE_ARG(queries), i32(k, 31));
  d.one = is_eq(k, d.w.lanes.warp, i32(k, 0));
  share_memory(k, &d);
  take_query(k, &d.w);
  IF (k, is_lt(k, d.w.last, i32(k, plan->keep))) {
    IF (k, d.one) {
      walk_write_all(k, &d.w);
    }
  }
  ELSE (k) {
    select_leaves(k, &d);
  }
}

void kernel_decode(struct ir *k, const struct plan_pyramid *plan) {
  assert(plan->decode_select.threads == 32 * decode_warps(plan));
  assert(plan->decode_select.smem_bytes >= decode_bytes(plan));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_N_ARGS, decode_args);
  launch_handover(k);
  if (plan->flat)
    flat_decode(k, plan);
  else
    walk_decode(k, plan);
  kernel_end(k, plan->decode_select.entry, plan->decode_select.threads, 1);
}
