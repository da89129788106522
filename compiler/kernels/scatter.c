/* scatter: in go kept parents and the places of rows in their clusters; out come the clusters'
   entries (cluster.h), query number and slot of each. A CTA has some adjacent query numbers of a
   key head, a thread four slots at a time where they come as 16 bytes. */
#include <assert.h>

#include "compiler/kernels/cluster.h"
#include "compiler/kernels/kernels.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/sync.h"

#define ARG(name) (k->arg[PISA_SCATTER_##name])

static const struct ir_arg scatter_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_SCATTER_ARGS(X)
#undef X
};

enum { WORD = 4, VECTOR = 4 };

/* Slots [slot, slot + n) of a row; n adjacent words of each array. */
static void scatter_slots(struct ir *k, const struct plan_pyramid *plan, val query, val kv_head,
                          val slot, int n) {
  val row = sequence_row(k, query, kv_head);
  val offset = mul_const(k, slot, WORD), row_bytes = i32(k, plan->keep * WORD);
  val kept = at(k, at_row(k, ARG(kept), row, row_bytes), offset);
  val positions = at(k, at_row(k, ARG(positions), row, row_bytes), offset);
  type t = n == VECTOR ? k->i32x4 : k->i32;
  val parent = load(k, t, kept, n * WORD), position = load(k, t, positions, n * WORD);
  val group = udiv(k, query, ARG(chunk)), place = sub(k, query, mul(k, group, ARG(chunk)));
  val segment = add(k, mul(k, group, ARG(kv_heads)), kv_head);
  val offsets = at_row(k, ARG(offsets), segment, mul_const(k, ARG(parents), WORD));
  val entry_bytes = mul_const(k, ARG(chunk), plan->keep * WORD);
  val entries = at_row(k, ARG(entries), segment, entry_bytes);
  struct sequence s = sequence_of_query(k, query);
  val first = narrow(k, udiv(k, s.k_begin, i64(k, plan->leaf * plan->children)));
  val base = add(k, first, s.index);
  for (int i = 0; i < n; i++) {
    val at_place = n == 1 ? position : element(k, position, i, k->i32);
    IF (k, is_ge(k, at_place, i32(k, 0))) {
      val number = add(k, base, n == 1 ? parent : element(k, parent, i, k->i32));
      val begin = load(k, k->i32, at_row(k, offsets, number, i32(k, WORD)), WORD);
      val in_k = shift_left(k, add_const(k, slot, i), i32(k, ENTRY_SLOT_SHIFT));
      val to = at_row(k, entries, add(k, begin, at_place), i32(k, WORD));
      store(k, bit_or(k, place, in_k), to, WORD);
    }
  }
}

void kernel_scatter(struct ir *k, const struct plan_pyramid *plan) {
  assert(cluster_can(plan));
  const int n = plan->keep % VECTOR == 0 ? VECTOR : 1, parts = plan->keep / n;
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_SCATTER_N_ARGS, scatter_args);
  launch_handover(k);
  val group = udiv(k, cta_index(k), ARG(kv_heads));
  val kv_head = sub(k, cta_index(k), mul(k, group, ARG(kv_heads)));
  val first = mul_const(k, group, PISA_SCATTER_ROWS);
  FOR_STEP(k, i, thread_index(k), i32(k, PISA_SCATTER_ROWS * parts),
           i32(k, plan->scatter.threads)) {
    val row = udiv(k, i, i32(k, parts)), part = sub(k, i, mul_const(k, row, parts));
    val query = add(k, first, row);
    IF (k, is_lt(k, query, ARG(queries))) {
      scatter_slots(k, plan, query, kv_head, mul_const(k, part, n), n);
    }
  }
  kernel_end(k, plan->scatter.entry, plan->scatter.threads, 2);
}
