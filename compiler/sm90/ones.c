/* The operand that is all ones, and what becomes of its products; see ones.h. */
#include "compiler/sm90/ones.h"

enum { VECTOR_BYTES = 16, F32 = 4 }; /* one store */

void ones_fill(struct ir *k, int offset) {
  val thread = thread_index(k), one = pack_half(k, f32(k, 1), f32(k, 1));
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

void ones_row_put(struct ir *k, val row, struct rowval sums, val panel, const struct lanes *lanes) {
  val first = mul_const(k, panel, PANEL_COLUMNS), column = add(k, first, frag_lane_row(k, lanes));
  val mine = at(k, row, mul_const(k, column, F32));
  IF (k, is_eq(k, frag_lane_column(k, lanes), i32(k, 0))) {
    for (int r = 0; r < FRAG_ROWS; r++) {
      store(k, sums.r[r], at_const(k, mine, 8 * r * F32), F32);
    }
  }
}

struct frag ones_row_new(struct ir *k, int columns) {
  struct frag f = {.columns = columns};
  for (int i = 0; i < columns / 2; i++) {
    f.r[i] = frag_row_of(i) == 0 ? var_new(k, k->f32) : f.r[i - 2];
  }
  return f;
}

void ones_row_get(struct ir *k, const struct frag *f, val row, const struct lanes *lanes) {
  val mine = at(k, row, mul_const(k, frag_lane_column(k, lanes), F32));
  for (int i = 0; i < f->columns / 2; i += 4) {
    val two = load(k, k->f32x2, at_const(k, mine, frag_column_of(i) * F32), 2 * F32);
    for (int q = 0; q < 2; q++) {
      set(k, f->r[i + q], element(k, two, q, k->f32));
    }
  }
}
