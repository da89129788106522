/* Operands that are all ones; see ones.h. */
#include "compiler/sm90/ones.h"

enum { VECTOR_BYTES = 16 }; /* one store */

static val one_one(struct ir *k) {
  return pack_half(k, f32(k, 1), f32(k, 1));
}

void ones_fill(struct ir *k, int offset) {
  val thread = thread_index(k), one = one_one(k);
  IF (k, is_lt(k, thread, i32(k, ONES_BYTES / VECTOR_BYTES))) {
    val mine = at(k, k->smem, add_const(k, mul_const(k, thread, VECTOR_BYTES), offset));
    store(k, pack4(k, (const val[]){one, one, one, one}), mine, VECTOR_BYTES);
  }
}

struct operand ones_operand(struct ir *k, int offset) {
  val address = add_const(k, shared_address(k, k->smem), offset);
  struct tile tile = tile_new(k, address, ONES_COLUMNS, PANEL_COLUMNS);
  struct operand operand = tile_k_major(k, &tile);
  operand.fixed = true;
  return operand;
}

struct frag_a ones_frag(struct ir *k, int rows) {
  struct frag_a a = frag_a_new(k, rows);
  for (int i = 0; i < a.columns / 4; i++) {
    set(k, a.r[i], one_one(k));
  }
  return a;
}

struct frag_a ones_frag_shared(struct ir *k, int offset) {
  struct frag_a a = frag_a_new(k, K_STEP);
  a.fixed = true;
  val four = load(k, k->i32x4, at_const(k, k->smem, offset), VECTOR_BYTES);
  for (int i = 0; i < 4; i++) {
    set(k, a.r[i], element(k, four, i, k->i32));
  }
  return a;
}
