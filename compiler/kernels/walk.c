/* walk: in go queries, keys and means of nodes; out comes what each query and key head keeps of the
   pyramid: parents and their clusters, or where leaves are scored here too, leaves.

   Warps take rows in turn, queries of all key heads before the next query's, so that all are done
   with early and late ones at once. A warp stays with a sequence for as many rows as that has;
   there the next row's query is loaded while the row at hand goes down. */
#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/kernels/walk.h"
#include "compiler/sm90/sync.h"
#include "runtime/abi.def"

static const struct ir_arg walk_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_WALK_ARGS(X)
#undef X
};

enum { MAX_AHEAD_WORDS = 32 }; /* registers that a query loaded ahead may take */

static bool loads_ahead(const struct plan_pyramid *plan) {
  return node_slots(plan) * plan->head_dim / 8 <= MAX_AHEAD_WORDS;
}

static struct walk walk_new(struct ir *k, const struct plan_pyramid *plan) {
  struct walk w = {.plan = plan, .room = walk_room_of(plan), .lanes = lanes_new(k)};
  assert(plan->walk.smem_bytes >= plan->walk.threads / 32 * w.room.bytes);
  w.kept = at(k, k->smem, mul_const(k, w.lanes.warp, w.room.bytes));
  w.next = at_const(k, w.kept, (int64_t)WALK_WORD * w.room.kept);
  w.keys = at_const(k, w.next, (int64_t)WALK_WORD * w.room.next);
  w.scores = at_const(k, w.keys, (int64_t)WALK_WORD * w.room.candidates);
  w.zero = shift_right(k, SEQUENCE_ARG(queries), i32(k, 31));
  w.k =
      (struct sequence_array){WALK_ARG(k), WALK_ARG(k_batch), WALK_ARG(k_head), WALK_ARG(k_token)};
  w.parents = var_new(k, k->i32);
  w.pending = var_init(k, i32(k, -1));
  w.pending_row = var_init(k, i32(k, -1));
  return w;
}

/* ---- a row's queries ---- */

struct row { /* number query Hk + key head */
  val query, kv_head;
};
static struct row row_of(struct ir *k, val number) {
  val query = udiv(k, number, SEQUENCE_ARG(kv_heads));
  return (struct row){query, sub(k, number, mul(k, query, SEQUENCE_ARG(kv_heads)))};
}

static void load_query(struct ir *k, const struct walk *w, val number,
                       const struct node_query_vars *to) {
  struct row row = row_of(k, number);
  val offset = sequence_query_offset(k, &w->s, row.query, WALK_ARG(q_batch), WALK_ARG(q_token));
  val head = widen(k, mul_const(k, row.kv_head, w->plan->group));
  val q = at(k, WALK_ARG(q), add(k, offset, mul(k, head, WALK_ARG(q_head))));
  node_query_load(k, w->plan, &w->lanes, q, WALK_ARG(q_head), to);
}

/* ---- where a walk begins ---- */

val walk_start_depth(struct ir *k, const struct walk *w, int most, int least) {
  const int step = walk_log2(w->plan->children), fits = walk_log2(most + 1) - 1;
  /* of |fits| bits all numbers are below |most|; of one bit more some are */
  val bits = sub(k, i32(k, 32), count_leading_zeros(k, w->last));
  val excess = smax(k, add_const(k, bits, -(fits + 1)), i32(k, 0));
  val depth = step == 1 ? excess : udiv(k, add_const(k, excess, step - 1), i32(k, step));
  val seen = shift_right(k, w->last, walk_shift(k, w, depth));
  depth = add(k, depth, widen_bool(k, is_ge(k, seen, i32(k, most))));
  return smax(k, depth, i32(k, least));
}

/* At least 1. */
val walk_seen_at(struct ir *k, const struct walk *w, val depth) {
  return add_const(k, shift_right(k, w->last, walk_shift(k, w, depth)), 1);
}

/* ---- a row ---- */

int walk_last_depth(const struct plan_pyramid *plan) {
  return plan->clustered || walk_reads_keys(plan) ? 1 : 0;
}

static void finish_level(struct ir *k, struct walk *w, val depth, bool dense) {
  if (walk_last_depth(w->plan) == 1) {
    walk_level(k, w, depth, dense, NULL, NULL);
    return;
  }
  IF (k, is_eq(k, depth, i32(k, 0))) {
    walk_write_rest(k, w, walk_level(k, w, depth, dense, walk_write_leaf, w));
  }
  ELSE (k) {
    walk_level(k, w, depth, dense, NULL, NULL);
  }
}

void walk_go_down(struct ir *k, struct walk *w, struct var depth) {
  const int last = walk_last_depth(w->plan);
  WHILE (k, is_lt(k, i32(k, last), get(k, depth))) {
    set(k, depth, add_const(k, get(k, depth), -1));
    finish_level(k, w, get(k, depth), false);
  }
}

static void begin_dense(struct ir *k, struct walk *w, val depth) {
  const int step = walk_log2(w->plan->children);
  val seen = walk_seen_at(k, w, depth);
  IF (k, is_lt(k, i32(k, w->plan->keep), seen)) {
    walk_begin(k, w, add_const(k, shift_right(k, add_const(k, seen, -1), i32(k, step)), 1));
    if (walk_reads_keys(w->plan)) {
      IF (k, is_lt(k, i32(k, 0), depth)) {
        walk_level(k, w, depth, true, NULL, NULL);
      }
    } else {
      finish_level(k, w, depth, true);
    }
  }
  ELSE (k) {
    walk_begin(k, w, seen);
  }
}

/* Rows that see more leaves than they keep. */
static void walk_down(struct ir *k, struct walk *w) {
  const struct plan_pyramid *plan = w->plan;
  const bool dense = walk_starts_dense(plan);
  const int most = dense ? plan->start_nodes : plan->keep;
  struct var depth = var_init(k, walk_start_depth(k, w, most, plan->clustered ? 1 : 0));
  if (dense)
    begin_dense(k, w, get(k, depth));
  else
    walk_begin(k, w, walk_seen_at(k, w, get(k, depth)));
  walk_go_down(k, w, depth);
}

static void clustered_row(struct ir *k, struct walk *w) {
  walk_down(k, w);
  val small = is_lt(k, w->last, i32(k, w->plan->keep));
  walk_write_parents(k, w, small);
  if (plan_is_mass(w->plan))
    walk_write_sink(k, w);
}

static void fused_row(struct ir *k, struct walk *w) {
  IF (k, is_lt(k, w->last, i32(k, w->plan->keep))) {
    walk_write_all(k, w);
  }
  ELSE (k) {
    walk_down(k, w);
    if (walk_reads_keys(w->plan))
      walk_leaves(k, w);
  }
}

/* A query that sees nothing keeps nothing. */
static void unseen_row(struct ir *k, struct walk *w) {
  if (w->plan->clustered) {
    walk_begin(k, w, i32(k, 0));
    walk_write_parents(k, w, is_eq(k, w->last, w->last));
  } else {
    walk_write_all(k, w);
  }
}

static void walk_row(struct ir *k, struct walk *w, val number, const struct node_query_vars *ahead,
                     val next) {
  const struct plan_pyramid *plan = w->plan;
  struct row row = row_of(k, number);
  w->query = row.query;
  w->kv_head = row.kv_head;
  if (!loads_ahead(plan))
    load_query(k, w, number, ahead);
  w->q = node_query_get(k, ahead, w->zero);
  if (loads_ahead(plan))
    load_query(k, w, next, ahead);
  w->t = sequence_token(k, &w->s, w->query);
  w->own = shift_right_signed(k, w->t, i32(k, walk_log2(plan->leaf)));
  w->last = add_const(k, level_visible(k, plan, w->s.keys, w->t, i32(k, 1)), -1);
  val node = sequence_node_base(k, &w->s, plan->leaf, w->kv_head);
  w->rows = at(k, WALK_ARG(means), mul_const(k, node, plan->head_dim * WALK_HALF));
  walk_ranges(k, w);
  IF (k, is_ge(k, w->last, i32(k, 0))) {
    if (plan->clustered)
      clustered_row(k, w);
    else
      fused_row(k, w);
  }
  ELSE (k) {
    unseen_row(k, w);
  }
}

/* ---- rows ---- */

/* Rows of the sequence of row |first| in steps of |step|; returns the first one behind. */
static void walk_sequence(struct ir *k, struct walk *w, struct var number, val step,
                          const struct node_query_vars *ahead) {
  val first = get(k, number);
  w->s = sequence_of_query(k, row_of(k, first).query);
  val level = add_const(k, w->lanes.lane, 1);
  w->offsets = level_offset(k, w->s.room, w->plan->leaf, w->plan->children, level);
  val end = mul(k, add(k, w->s.q_begin, w->s.queries), SEQUENCE_ARG(kv_heads));
  if (loads_ahead(w->plan)) {
    IF (k, is_lt(k, first, end)) {
      load_query(k, w, first, ahead);
    }
  }
  IF (k, is_ge(k, first, end)) { /* of no sequence */
    set(k, number, add(k, first, step));
  }
  WHILE (k, is_lt(k, get(k, number), end)) {
    val now = get(k, number), next = add(k, now, step);
    walk_row(k, w, now, ahead, choose(k, is_lt(k, next, end), next, now));
    set(k, number, next);
  }
}

void kernel_walk(struct ir *k, const struct plan_pyramid *plan) {
  assert(!plan->flat && plan->walk.threads % 32 == 0);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_WALK_N_ARGS, walk_args);
  struct walk w = walk_new(k, plan);
  struct node_query_vars ahead = node_query_vars_new(k, plan);
  launch_handover(k);
  val first = add(k, mul(k, w.lanes.warp, cta_count(k)), cta_index(k));
  val step = mul_const(k, cta_count(k), plan->walk.threads / 32);
  val rows = mul(k, SEQUENCE_ARG(queries), SEQUENCE_ARG(kv_heads));
  struct var number = var_init(k, first);
  WHILE (k, is_lt(k, get(k, number), rows)) {
    walk_sequence(k, &w, number, step, &ahead);
  }
  if (plan->clustered)
    walk_flush(k, &w);
  kernel_end(k, plan->walk.entry, plan->walk.threads, 1);
}
