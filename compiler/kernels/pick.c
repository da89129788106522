/* pick: in go kept parents and the scores of their leaves; out come the lists of leaves that
   queries read, and what they are worth.

       forced leaves, then the best others by worth, equals by the smaller number; ascending, then
   -1

   Begins with the last queries, whose scores were written last: L2 still has those. Rows that see
   at most K leaves list them all. A CTA has adjacent queries of a key head: a row is a thread's
   where candidates are few and scores are of whole groups, else a warp's. */
#include "compiler/kernels/pick.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "compiler/kernels/best.h"
#include "compiler/kernels/cluster.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg pick_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_PICK_ARGS(X)
#undef X
};

static const double ln_2 = 0.69314718055994531;

struct pick_row pick_row_of(struct ir *k, const struct pick *a, val query) {
  struct sequence s = sequence_of_query(k, query);
  val t = sequence_token(k, &s, query), sees = is_ge(k, t, i32(k, 0));
  val leaf = udiv(k, smax(k, t, i32(k, 0)), i32(k, a->plan->leaf));
  struct pick_row row = {.keys = s.keys, .own = choose(k, sees, leaf, i32(k, -1))};
  row.row = sequence_row(k, query, a->kv_head);
  row.visible = add_const(k, row.own, 1);
  row.kept = at_row(k, ARG(kept), row.row, i32(k, a->plan->keep * WORD));
  pick_row_lists(k, a, &row, sequence_list_row(k, &s, query, a->kv_head));
  return row;
}

void pick_row_lists(struct ir *k, const struct pick *a, struct pick_row *row, val list) {
  val bytes = i32(k, a->plan->keep * WORD);
  row->list = list;
  row->ids = at_row(k, ARG(ids), list, bytes);
  row->worth = at_row(k, ARG(worth), list, bytes);
}

/* Whether the leaf has tokens of |range|. */
static val touches(struct ir *k, const struct pick *a, const struct pick_row *row, val leaf,
                   const struct always_tokens *range) {
  val begin = mul_const(k, leaf, a->plan->leaf);
  val end = smin(k, add_const(k, begin, a->plan->leaf), row->keys);
  val last = i32(k, range->end < INT32_MAX ? range->end : INT32_MAX);
  if (range->kind == ALWAYS_TOKENS_LAST)
    return is_lt(k, sub(k, row->keys, last), end);
  if (range->begin >= range->end || range->begin >= INT32_MAX)
    return is_lt(k, i32(k, 1), i32(k, 0));
  return both(k, is_lt(k, begin, last), is_lt(k, i32(k, range->begin), end));
}

val pick_is_forced(struct ir *k, const struct pick *a, const struct pick_row *row, val leaf) {
  val forced = is_eq(k, leaf, row->own);
  if (a->plan->previous)
    forced = either(k, forced, is_eq(k, leaf, add_const(k, row->own, -1)));
  for (int i = 0; i < a->plan->n_always; i++)
    forced = either(k, forced, touches(k, a, row, leaf, &a->plan->always[i]));
  return forced;
}

val pick_worth(struct ir *k, const struct pick *a, val key) {
  val worth = best_worth(k, key);
  if (!plan_is_mass(a->plan))
    worth = mul(k, worth, f32(k, ln_2));
  val finite = choose(k, is_lt(k, worth, f32(k, FLT_MAX)), worth, f32(k, FLT_MAX));
  return choose(k, is_eq(k, key, i32(k, BEST_FORCED)), f32(k, INFINITY), finite);
}

void pick_put(struct ir *k, const struct pick_row *row, val place, val leaf, val worth) {
  val offset = mul_const(k, place, WORD);
  store(k, leaf, at(k, row->ids, offset), WORD);
  IF (k, bit_not(k, is_null_pointer(k, ARG(worth)))) {
    store(k, worth, at(k, row->worth, offset), WORD);
  }
}

void pick_put_rest(struct ir *k, const struct pick *a, const struct pick_row *row, val count,
                   val visible, val lane, int lanes) {
  FOR_STEP(k, place, add(k, count, lane), i32(k, a->plan->keep), i32(k, lanes)) {
    val is_there = is_lt(k, place, visible);
    pick_put(k, row, place, choose(k, is_there, place, i32(k, -1)),
             choose(k, is_there, f32(k, INFINITY), f32(k, -INFINITY)));
  }
}

/* Who has a row: a thread; a warp, with its scores in registers; a warp. */
enum who { BY_THREAD, BY_HEADS, BY_WARP };

static enum who who_picks(const struct plan_pyramid *plan) {
  if (pisa_pick_by_thread(plan->keep, plan->children, plan_is_mass(plan)))
    return BY_THREAD;
  return pick_fits_heads(plan) ? BY_HEADS : BY_WARP;
}

/* What limits the registers of a thread: those of a row. */
static int ctas_per_sm(const struct pick *a, enum who who) {
  const int words = pick_heads_words(a->plan);
  if (who == BY_HEADS)
    return words <= 8 ? 4 : words <= 16 ? 3 : 2;
  return who == BY_WARP || a->candidates <= 16 ? 4 : 2;
}

static void pick_rows(struct ir *k, const struct pick *a, enum who who, int rows) {
  const int warps = a->plan->pick.threads / WARP;
  if (who == BY_HEADS) {
    assert(rows % warps == 0);
    pick_by_heads(k, a, rows / warps);
    return;
  }
  val mine = add(k, a->first, who == BY_THREAD ? thread_index(k) : a->lanes.warp);
  FOR_STEP(k, query, mine, a->end, i32(k, who == BY_THREAD ? a->plan->pick.threads : warps)) {
    if (who == BY_THREAD)
      pick_by_thread(k, a, query);
    else
      pick_by_warp(k, a, query);
  }
}

void kernel_pick(struct ir *k, const struct plan_pyramid *plan) {
  const enum who who = who_picks(plan);
  const int warps = plan->pick.threads / WARP;
  const int rows = pisa_pick_rows(plan->keep, plan->children, plan_is_mass(plan));
  assert(cluster_can(plan));
  assert(plan->pick.smem_bytes >=
         (who == BY_THREAD ? pick_thread_bytes(plan) : warps * pick_warp_bytes(plan)));
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_PICK_N_ARGS, pick_args);
  struct pick a = {.plan = plan, .lanes = lanes_new(k)};
  a.candidates = plan->keep * plan->children;
  a.slots = cluster_slots(plan);
  launch_handover(k);
  val from_last = sub(k, add_const(k, cta_count(k), -1), cta_index(k));
  val group = udiv(k, from_last, ARG(kv_heads));
  a.kv_head = sub(k, from_last, mul(k, group, ARG(kv_heads)));
  a.first = mul_const(k, group, rows);
  a.end = smin(k, add_const(k, a.first, rows), ARG(queries));
  pick_rows(k, &a, who, rows);
  kernel_end(k, plan->pick.entry, plan->pick.threads, ctas_per_sm(&a, who));
}
