/* csr.c: in goes the number of a CTA; out come its segment of queries and the pairs it has. */
#include "compiler/kernels/csr.h"

#include "compiler/kernels/sequence.h"

enum { WORD = 4 };

static val first_leaf(struct ir *k, const struct csr_segment *a, const struct sequence *s) {
  return add(k, narrow(k, udiv(k, s->k_begin, i64(k, a->plan->leaf))), s->index);
}

struct csr_segment csr_segment_new(struct ir *k, const struct plan_pyramid *plan, val ids,
                                   val chunk) {
  struct csr_segment a = {.plan = plan, .ids = ids, .number = cta_index(k)};
  val group = udiv(k, a.number, SEQUENCE_ARG(kv_heads));
  a.kv_head = sub(k, a.number, mul(k, group, SEQUENCE_ARG(kv_heads)));
  a.first = mul(k, group, chunk);
  a.end = smin(k, add(k, a.first, chunk), SEQUENCE_ARG(queries));
  struct sequence s = sequence_of_query(k, a.first);
  struct sequence last = sequence_of_query(k, add_const(k, a.end, -1));
  val leaves = level_nodes(k, last.keys, plan->leaf, plan->children, i32(k, 1));
  a.leaf_begin = first_leaf(k, &a, &s);
  a.leaf_end = add(k, first_leaf(k, &a, &last), leaves);
  return a;
}

struct csr_pair csr_pair_at(struct ir *k, const struct csr_segment *a, val query, val slot) {
  val is_there = is_lt(k, query, a->end);
  val number = choose(k, is_there, query, a->first);
  struct sequence s = sequence_of_query(k, number);
  val row = sequence_list_row(k, &s, number, a->kv_head);
  val list = at_row(k, a->ids, row, i32(k, a->plan->keep * WORD));
  val entry = at(k, list, mul_const(k, slot, WORD));
  return (struct csr_pair){load_if(k, is_there, entry, i32(k, -1)), first_leaf(k, a, &s)};
}

val csr_place(struct ir *k, const struct csr_pair *pair, val begin, val n) {
  val place = sub(k, add(k, pair->base, pair->leaf), begin);
  val is_in = both(k, is_ge(k, pair->leaf, i32(k, 0)), is_ugt(k, n, place));
  return choose(k, is_in, place, i32(k, -1));
}

val csr_may_list(struct ir *k, const struct csr_segment *a, val begin, val n) {
  return both(k, is_lt(k, begin, a->leaf_end), is_lt(k, a->leaf_begin, add(k, begin, n)));
}
