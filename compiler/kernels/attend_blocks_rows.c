/* attend_blocks_rows.c: in goes the place of a tile; out come the queries and heads that its warps
   and rows stand for, and what they see. */
#include "compiler/kernels/attend_blocks_tile.h"

struct query_tile query_tile_new(struct ir *k, const struct plan_pyramid *plan,
                                 const struct lanes *lanes, val kv_head, val first) {
  const int threads = plan->attend_blocks.threads, rows = blocks_head_rows(plan);
  struct query_tile t = {.plan = plan, .lanes = *lanes, .kv_head = kv_head, .first = first};
  t.threads = threads;
  t.rows = rows;
  t.each = blocks_each(plan);
  t.queries = threads / 128 * BLOCKS_TILE_ROWS / rows;
  t.last = smin(k, add_const(k, first, t.queries - 1), add_const(k, SEQUENCE_ARG(queries), -1));
  t.sequence = sequence_of_query(k, first);
  t.is_whole = is_lt(k, t.last, add(k, t.sequence.q_begin, t.sequence.queries));
  const int shares = blocks_warps_of_query(plan);
  const val team = udiv(k, lanes->warp, i32(k, shares));
  t.place = mul_const(k, team, t.each);
  t.first_head = mul_const(k, sub(k, lanes->warp, mul_const(k, team, shares)), BLOCKS_HEADS);
  t.query = (struct blocks_query){.sequence = t.sequence, .kv_head = kv_head};
  t.query.query = smin(k, add(k, first, t.place), t.last);
  t.query.limit = t.sequence.keys;
  if (plan->causal)
    t.query.limit = add_const(k, sequence_token(k, &t.sequence, t.query.query), 1);
  return t;
}

struct tile_row query_tile_row(struct ir *k, const struct query_tile *t, val row) {
  struct tile_row x = {.place = t->place, .query = t->query.query, .limit = t->query.limit};
  val query = add(k, t->first, t->place), head = row;
  if (t->each > 1) {
    const val before = shift_right(k, row, i32(k, log2_from(t->rows)));
    x.place = add(k, t->place, before);
    head = bit_and(k, row, i32(k, t->rows - 1));
    query = add(k, t->first, x.place);
    x.query = smin(k, query, t->last);
    if (t->plan->causal)
      x.limit = add_const(k, sequence_token(k, &t->sequence, x.query), 1);
  }
  x.head = add(k, t->first_head, head);
  x.exists = both(k, is_le(k, query, t->last), is_lt(k, x.head, i32(k, t->plan->group)));
  return x;
}
