/* attend_blocks_output.c: in go sums over what a query read; out go rows of o and lse. */
#include <math.h>

#include "compiler/kernels/attend_blocks.h"

enum { HALF = 2, F32 = 4, PIECE = 8 };

struct outputs outputs_of(struct ir *k, const struct blocks_query *query, val o, val batch_bytes,
                          val head_bytes, val token_bytes, val lse, int group) {
  const struct sequence *s = &query->sequence;
  struct outputs out = {.head_bytes = head_bytes, .lse = lse};
  val place = sequence_query_offset(k, s, query->query, batch_bytes, token_bytes);
  out.heads = mul_const(k, SEQUENCE_ARG(kv_heads), group);
  out.first_head = mul_const(k, query->kv_head, group);
  out.query = *query;
  out.base = at(k, o, place);
  return out;
}

void outputs_store(struct ir *k, const struct outputs *out, val head, val column, const val x[8],
                   val sum) {
  val empty = is_eq(k, sum, f32(k, 0)); /* NaN is not */
  val inverse = choose(k, empty, f32(k, 0), reciprocal_approx(k, sum));
  val pair[PIECE / 2];
  for (int i = 0; i < PIECE / 2; i++) {
    val lo = mul(k, x[2 * i], inverse), hi = mul(k, x[2 * i + 1], inverse);
    pair[i] = pack_half(k, lo, hi);
  }
  val head_of_all = widen(k, add(k, out->first_head, head));
  val row = at(k, out->base, mul(k, head_of_all, out->head_bytes));
  store(k, pack4(k, pair), at(k, row, mul_const(k, column, HALF)), PIECE * HALF);
}

void outputs_store_lse(struct ir *k, const struct outputs *out, val wanted, val head, val top,
                       val sum) {
  const double ln2 = 0.69314718055994530942;
  val empty = is_eq(k, sum, f32(k, 0));
  val both_parts = mul(k, add(k, top, log2_approx(k, sum)), f32(k, ln2));
  val lse = choose(k, empty, f32(k, -INFINITY), both_parts);
  val all_heads = add(k, out->first_head, head);
  val row = sequence_head_row(k, &out->query.sequence, out->query.query, all_heads, out->heads);
  val place = at(k, out->lse, mul_const(k, widen(k, row), F32));
  val asked = bit_not(k, is_null_pointer(k, out->lse));
  store_if(k, both(k, wanted, asked), lse, place);
}
