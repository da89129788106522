/* Box copies between global arrays and shared tiles; see tma.h. */
#include "compiler/sm90/tma.h"

#include <assert.h>

static int panels(const struct tile *tile) {
  return tile->columns / PANEL_COLUMNS;
}

void tma_prefetch(struct ir *k, val map) {
  ir_asm(k, "prefetch.tensormap [$0];", "l,~{memory}", NO_TYPE, 0, NULL, 1, &map);
}

void tma_load_rows(struct ir *k, const struct tile *tile, int tile_row, val map, struct place4 from,
                   val full) {
  assert(tile_row % BOX_ROWS == 0 && tile_row + BOX_ROWS <= tile->rows);
  for (int p = 0; p < panels(tile); p++) {
    int offset = (p * tile->rows + tile_row) * PANEL_ROW_BYTES;
    val destination = shared_pointer(k, add_const(k, tile->address, offset));
    OP(k, "nvvm.cp.async.bulk.tensor.shared.cluster.global", NO_TYPE,
       "operandSegmentSizes = array<i32: 1, 1, 4, 1, 0, 0, 0, 0>, isCTAOnly = true", destination,
       map, i32(k, p * PANEL_COLUMNS), from.row, from.head, from.batch, full);
  }
}

void tma_prefetch_rows(struct ir *k, int columns, val map, struct place4 from) {
  for (int c = 0; c < columns; c += PANEL_COLUMNS) {
    const val operands[] = {map, i32(k, c), from.row, from.head, from.batch};
    ir_asm(k, "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [$0, {$1, $2, $3, $4}];",
           "l,r,r,r,r,~{memory}", NO_TYPE, 0, NULL, 5, operands);
  }
}

void tma_load_bytes(struct ir *k, val to, val from, val bytes, val full) {
  val to_address = shared_address(k, to), full_address = shared_address(k, full);
  val operands[] = {to_address, from, bytes, full_address};
  ir_asm(k, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
         "r,l,r,r,~{memory}", NO_TYPE, 0, NULL, 4, operands);
}

void tma_store_rows(struct ir *k, const struct tile *tile, val map, struct place4 to) {
  assert(tile->rows == BOX_ROWS);
  for (int p = 0; p < panels(tile); p++) {
    val operands[] = {map,      i32(k, p * PANEL_COLUMNS),
                      to.row,   to.head,
                      to.batch, add_const(k, tile->address, p * BOX_BYTES)};
    ir_asm(k, "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [$0, {$1, $2, $3, $4}], [$5];",
           "l,r,r,r,r,r,~{memory}", NO_TYPE, 0, NULL, 6, operands);
  }
}

void tma_store_drain(struct ir *k) {
  ir_asm(k, "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", "~{memory}", NO_TYPE, 0,
         NULL, 0, NULL);
}
