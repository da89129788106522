/* Addresses and descriptors of shared-memory tiles; see the drawing in tile.h. */
#include "compiler/sm90/tile.h"

#include <assert.h>

enum { UNIT = 16 }; /* bytes per descriptor unit */

struct tile tile_new(struct ir *k, val address, int rows, int columns) {
  (void)k;
  assert(rows % 8 == 0 && columns % PANEL_COLUMNS == 0);
  return (struct tile){address, rows, columns};
}

int tile_bytes(int rows, int columns) {
  return rows * columns * 2;
}

int tile_columns(int columns) {
  return (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
}

static val descriptor(struct ir *k, val address, int leading) {
  const int64_t stride = 8 * PANEL_ROW_BYTES / UNIT;
  const int64_t fixed = (int64_t)1 << 62 | stride << 32 | (int64_t)leading << 16;
  val low = bit_and(k, shift_right(k, address, i32(k, 4)), i32(k, 0x3FFF));
  return bit_or(k, widen(k, low), i64(k, fixed));
}

struct operand tile_k_major(struct ir *k, const struct tile *tile) {
  return (struct operand){.descriptor = descriptor(k, tile->address, 1), .rows = tile->rows};
}

struct operand tile_mn_major_at(struct ir *k, const struct tile *tile, val first_panel) {
  int panel_bytes = tile->rows * PANEL_ROW_BYTES;
  val address = add(k, tile->address, mul_const(k, first_panel, panel_bytes));
  return (struct operand){.descriptor = descriptor(k, address, panel_bytes / UNIT),
                          .mn_major = true,
                          .rows = tile->rows};
}

struct operand tile_mn_major(struct ir *k, const struct tile *tile, int first_panel) {
  return tile_mn_major_at(k, tile, i32(k, first_panel));
}

val operand_step(struct ir *k, const struct operand *operand, int step) {
  if (operand->fixed) {
    return operand->descriptor;
  }
  const int per_panel = PANEL_COLUMNS / K_STEP;
  int bytes = operand->mn_major ? step * K_STEP * PANEL_ROW_BYTES
                                : step / per_panel * operand->rows * PANEL_ROW_BYTES +
                                      step % per_panel * K_STEP * 2;
  return add_const(k, operand->descriptor, bytes / UNIT);
}

struct tile_lane tile_lane_new(struct ir *k, const struct tile *tile, const struct lanes *lanes) {
  val warp = bit_and(k, lanes->warp, i32(k, 3));
  val row_of_warp = bit_and(k, lanes->lane, i32(k, 15));
  val row = add(k, mul_const(k, warp, 16), row_of_warp);
  return (struct tile_lane){
      .row_address = add(k, tile->address, mul_const(k, row, PANEL_ROW_BYTES)),
      .row_in_atom = bit_and(k, lanes->lane, i32(k, 7)),
      .half = shift_right(k, lanes->lane, i32(k, 4)),
      .rows = tile->rows,
  };
}

val tile_transposed_lane_address(struct ir *k, const struct tile *tile, val panel,
                                 const struct lanes *lanes) {
  val warp = bit_and(k, lanes->warp, i32(k, 3)), row_in_atom = bit_and(k, lanes->lane, i32(k, 7));
  val right = bit_and(k, shift_right(k, lanes->lane, i32(k, 3)), i32(k, 1));
  val lower = shift_right(k, lanes->lane, i32(k, 4));
  val row = add(k, mul_const(k, lower, 8), row_in_atom);
  val chunk = add(k, mul_const(k, warp, 2), right);
  val swizzled = shift_left(k, bit_xor(k, chunk, row_in_atom), i32(k, 4));
  val offset = add(k, mul_const(k, row, PANEL_ROW_BYTES), swizzled);
  return add(k, tile->address, add(k, mul_const(k, panel, tile->rows * PANEL_ROW_BYTES), offset));
}

val tile_lane_address(struct ir *k, const struct tile_lane *lane, int step) {
  const int per_panel = PANEL_COLUMNS / K_STEP;
  val chunk = add_const(k, lane->half, 2 * (step % per_panel));
  val swizzled = shift_left(k, bit_xor(k, chunk, lane->row_in_atom), i32(k, 4));
  int panel_offset = step / per_panel * lane->rows * PANEL_ROW_BYTES;
  return add(k, lane->row_address, add_const(k, swizzled, panel_offset));
}

val tile_chunk_address(struct ir *k, const struct tile *tile, val row, val chunk) {
  val panel = shift_right(k, chunk, i32(k, 3)), in_row = bit_and(k, chunk, i32(k, 7));
  val swizzled = bit_xor(k, in_row, bit_and(k, row, i32(k, 7)));
  val offset = add(k, mul_const(k, row, PANEL_ROW_BYTES), mul_const(k, swizzled, UNIT));
  val before = mul_const(k, panel, tile->rows * PANEL_ROW_BYTES);
  return add(k, tile->address, add(k, before, offset));
}

void tile_clear_rows(struct ir *k, const struct tile *tile, val first_row, val thread,
                     int threads) {
  const int panel_bytes = tile->rows * PANEL_ROW_BYTES;
  val zero = i32(k, 0), vector = pack4(k, (const val[]){zero, zero, zero, zero});
  val row = mul_const(k, first_row, PANEL_ROW_BYTES), mine = mul_const(k, thread, UNIT);
  val first = add(k, row, mine);
  for (int p = 0; p < tile->columns / PANEL_COLUMNS; p++) {
    val panel = shared_pointer(k, add_const(k, tile->address, p * panel_bytes));
    FOR_STEP(k, offset, first, i32(k, panel_bytes), i32(k, threads * UNIT)) {
      store(k, vector, at(k, panel, offset), UNIT);
    }
  }
}
