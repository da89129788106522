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

/* ---- rows: query Hk + key head ---- */

struct row {
  val query, kv_head;
};
static struct row row_of(struct ir *k, val number) {
  val query = udiv(k, number, SEQUENCE_ARG(kv_heads));
  return (struct row){query, sub(k, number, mul(k, query, SEQUENCE_ARG(kv_heads)))};
}

/* The row |step| rows on: no division. */
static struct row row_after(struct ir *k, struct row row, struct row step) {
  val head = add(k, row.kv_head, step.kv_head), heads = SEQUENCE_ARG(kv_heads);
  val wraps = is_ge(k, head, heads), query = add(k, row.query, step.query);
  return (struct row){add(k, query, widen_bool(k, wraps)),
                      choose(k, wraps, sub(k, head, heads), head)};
}

struct row_vars {
  struct var query, kv_head;
};
static struct row row_get(struct ir *k, const struct row_vars *vars) {
  return (struct row){get(k, vars->query), get(k, vars->kv_head)};
}
static void row_set(struct ir *k, const struct row_vars *vars, struct row row) {
  set(k, vars->query, row.query);
  set(k, vars->kv_head, row.kv_head);
}

/* What a sequence's rows have in common, each in as few registers as can be. */
struct stay {
  val q;         /* where query number 0 were, of the sequence's entry */
  val first;     /* token of query number 0 */
  val end;       /* query numbers of the sequence end */
  val node_base; /* i32, less the key head's */
};

static struct stay stay_in(struct ir *k, struct walk *w, val query) {
  struct stay stay;
  w->s = sequence_of_query(k, query);
  val level = add_const(k, w->lanes.lane, 1);
  w->offsets = level_offset(k, w->s.room, w->plan->leaf, w->plan->children, level);
  val offset = sequence_query_offset(k, &w->s, i32(k, 0), WALK_ARG(q_batch), WALK_ARG(q_token));
  stay.q = at(k, WALK_ARG(q), offset);
  stay.first = sequence_token(k, &w->s, i32(k, 0));
  stay.end = add(k, w->s.q_begin, w->s.queries);
  stay.node_base = narrow(k, sequence_node_base(k, &w->s, w->plan->leaf, i32(k, 0)));
  int shift = log2_from(w->plan->leaf * w->plan->children);
  w->parent_base = add(k, narrow(k, shift_right(k, w->s.k_begin, i64(k, shift))), w->s.index);
  return stay;
}

static void load_query(struct ir *k, const struct walk *w, const struct stay *stay, struct row row,
                       const struct node_query_vars *to) {
  val head = mul(k, widen(k, mul_const(k, row.kv_head, w->plan->group)), WALK_ARG(q_head));
  val q = at(k, stay->q, add(k, mul(k, widen(k, row.query), WALK_ARG(q_token)), head));
  node_query_load(k, w->plan, &w->lanes, q, WALK_ARG(q_head), to);
}

/* ---- where a walk begins ---- */

val walk_start_depth(struct ir *k, const struct walk *w, int most, int least) {
  const int step = log2_from(w->plan->children), fits = log2_from(most + 1) - 1;
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

/* From |depth|, whose nodes are kept, on. */
static void go_down(struct ir *k, struct walk *w, struct var depth) {
  const int last = walk_last_depth(w->plan);
  WHILE (k, is_lt(k, i32(k, last), get(k, depth))) {
    set(k, depth, add_const(k, get(k, depth), -1));
    finish_level(k, w, get(k, depth), false);
  }
}

static void begin_dense(struct ir *k, struct walk *w, val depth) {
  const int step = log2_from(w->plan->children);
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
  go_down(k, w, depth);
}

static void clustered_row(struct ir *k, struct walk *w) {
  if (plan_is_mass(w->plan))
    walk_write_sink(k,
                    w); /* first: behind lanes that part it costs the walk its uniform registers */
  walk_down(k, w);
  val small = is_lt(k, w->last, i32(k, w->plan->keep));
  walk_write_parents(k, w, small);
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

/* Of a causal query the own leaf is the last one seen. */
static val last_seen(struct ir *k, const struct walk *w) {
  if (w->plan->causal)
    return w->own;
  return add_const(k, level_visible(k, w->plan, w->s.keys, w->t, i32(k, 1)), -1);
}

static void walk_row(struct ir *k, struct walk *w, const struct stay *stay, struct row row,
                     const struct node_query_vars *ahead, struct row next) {
  const struct plan_pyramid *plan = w->plan;
  w->query = row.query;
  w->kv_head = row.kv_head;
  if (!loads_ahead(plan))
    load_query(k, w, stay, row, ahead);
  w->q = node_query_get(k, ahead, w->zero);
  if (loads_ahead(plan))
    load_query(k, w, stay, next, ahead);
  w->t = add(k, w->query, stay->first);
  w->own = shift_right_signed(k, w->t, i32(k, log2_from(plan->leaf)));
  w->last = last_seen(k, w);
  val head = mul(k, widen(k, w->kv_head), widen(k, SEQUENCE_ARG(node_rows)));
  val node = add(k, head, widen(k, stay->node_base));
  w->rows = at(k, WALK_ARG(means), mul_const(k, node, (int64_t)plan->head_dim * WALK_HALF));
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

/* ---- all rows ---- */

/* The rows of |at|'s sequence from it on, every |step|th; leaves |at| behind them. */
static void walk_sequence(struct ir *k, struct walk *w, const struct row_vars *at_row,
                          struct row step, const struct node_query_vars *ahead) {
  struct row first = row_get(k, at_row);
  struct stay stay = stay_in(k, w, first.query);
  val exists = is_lt(k, first.query, stay.end);
  if (loads_ahead(w->plan)) {
    IF (k, exists) {
      load_query(k, w, &stay, first, ahead);
    }
  }
  IF (k, bit_not(k, exists)) { /* of no sequence */
    row_set(k, at_row, row_after(k, first, step));
  }
  WHILE (k, is_lt(k, get(k, at_row->query), stay.end)) {
    struct row now = row_get(k, at_row), next = row_after(k, now, step);
    val more = is_lt(k, next.query, stay.end);
    struct row loaded = {choose(k, more, next.query, now.query),
                         choose(k, more, next.kv_head, now.kv_head)};
    walk_row(k, w, &stay, now, ahead, loaded);
    row_set(k, at_row, next);
  }
}

void kernel_walk(struct ir *k, const struct plan_pyramid *plan) {
  assert(!plan->flat && plan->walk.threads % 32 == 0);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_WALK_N_ARGS, walk_args);
  struct walk w = walk_new(k, plan);
  struct node_query_vars ahead = node_query_vars_new(k, plan);
  launch_handover(k);
  val number = add(k, mul(k, w.lanes.warp, cta_count(k)), cta_index(k));
  struct row first = row_of(k, number);
  struct row step = row_of(k, mul_const(k, cta_count(k), plan->walk.threads / 32));
  struct row_vars at_row = {var_init(k, first.query), var_init(k, first.kv_head)};
  WHILE (k, is_lt(k, get(k, at_row.query), SEQUENCE_ARG(queries))) {
    walk_sequence(k, &w, &at_row, step, &ahead);
  }
  if (plan->clustered)
    walk_flush(k, &w);
  kernel_end(k, plan->walk.entry, plan->walk.threads, 1);
}
