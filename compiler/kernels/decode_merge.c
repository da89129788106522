/* decode_merge: in go the partial results of decode_attend's splits; out come o and lse.

   A CTA has a query and a key head, CTA = query Hk + hk; a thread eight columns of a query head,
   merged in the order of the splits. */
#include "compiler/kernels/attend_blocks.h"
#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg decode_merge_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_DECODE_MERGE_ARGS(X)
#undef X
};
#define ARG(name) (k->arg[PISA_DECODE_MERGE_##name])

enum { WORD = 4, PIECE = 8 };

/* The two f32 at |place|. */
static void load_two(struct ir *k, val place, val x[2]) {
  val two = load(k, k->f32x2, place, 2 * WORD);
  for (int i = 0; i < 2; i++)
    x[i] = element(k, two, i, k->f32);
}

/* All splits' rows of a head: |first| that of split 0. */
static void merge_piece(struct ir *k, const struct plan_pyramid *plan, val first, val piece,
                        const struct outputs *out, val head) {
  const int step = plan->group * partial_row_bytes(plan), ends = plan->head_dim * WORD;
  val place = mul_const(k, piece, PIECE * WORD);
  struct var top = var_init(k, load(k, k->f32, at_const(k, first, ends), WORD));
  FOR (k, s, i32(k, 1), ARG(splits)) {
    val row = at_row(k, first, s, i32(k, step));
    set(k, top, maximum(k, get(k, top), load(k, k->f32, at_const(k, row, ends), WORD)));
  }
  struct var sum = var_init(k, f32(k, 0)), x[PIECE];
  for (int i = 0; i < PIECE; i++)
    x[i] = var_init(k, f32(k, 0));
  FOR (k, s, i32(k, 0), ARG(splits)) {
    val row = at_row(k, first, s, i32(k, step)), o[PIECE], end[2];
    load_two(k, at_const(k, row, ends), end);
    for (int i = 0; i < PIECE; i += 2)
      load_two(k, at_const(k, at(k, row, place), i * WORD), o + i);
    val factor = exp2_approx(k, sub(k, end[0], get(k, top)));
    set(k, sum, fused(k, end[1], factor, get(k, sum)));
    for (int i = 0; i < PIECE; i++)
      set(k, x[i], fused(k, o[i], factor, get(k, x[i])));
  }
  val all[PIECE];
  for (int i = 0; i < PIECE; i++)
    all[i] = get(k, x[i]);
  outputs_store(k, out, head, mul_const(k, piece, PIECE), all, get(k, sum));
  outputs_store_lse(k, out, is_eq(k, piece, i32(k, 0)), head, get(k, top), get(k, sum));
}

void kernel_decode_merge(struct ir *k, const struct plan_pyramid *plan) {
  const int pieces = plan->head_dim / PIECE, threads = plan->decode_merge.threads;
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_DECODE_MERGE_N_ARGS, decode_merge_args);
  launch_handover(k);
  val query = udiv(k, cta_index(k), SEQUENCE_ARG(kv_heads));
  val kv_head = sub(k, cta_index(k), mul(k, query, SEQUENCE_ARG(kv_heads)));
  struct blocks_query x = {.query = query, .kv_head = kv_head};
  x.sequence = sequence_of_query(k, query);
  struct outputs out =
      outputs_of(k, &x, ARG(o), ARG(o_batch), ARG(o_head), ARG(o_token), ARG(lse), plan->group);
  val part = mul(k, widen(k, sequence_row(k, query, kv_head)), widen(k, ARG(splits)));
  val rows = at(k, ARG(partial), mul_const(k, part, plan->group * partial_row_bytes(plan)));
  FOR_STEP(k, item, thread_index(k), i32(k, plan->group * pieces), i32(k, threads)) {
    val head = udiv(k, item, i32(k, pieces)), piece = sub(k, item, mul_const(k, head, pieces));
    val first = at_row(k, rows, head, i32(k, partial_row_bytes(plan)));
    merge_piece(k, plan, first, piece, &out, head);
  }
  kernel_end(k, plan->decode_merge.entry, threads, 1);
}
