/* tma.h: the copy engine. Tensor maps are 4-dimensional {D, rows, heads, batch} with boxes of 64
   rows x 64 columns (runtime/abi.def); rows outside the array read as zero and are not written. */
#ifndef PISA_SM90_TMA_H
#define PISA_SM90_TMA_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/tile.h"

struct place4 { /* where a box lies: first row, head, batch */
  val row, head, batch;
};

/* Brings a tensor map into the copy engine's cache; before the launch_handover, by one thread. */
void tma_prefetch(struct ir *k, val map);
/* Loads rows [row, row + 64) of all columns of |tile| into the tile's rows [tile_row, tile_row +
   64); completes tile->columns / 64 * BOX_BYTES bytes on |full|. */
void tma_load_rows(struct ir *k, const struct tile *tile, int tile_row, val map, struct place4 from,
                   val full);
/* Asks for the same box rows in L2 and changes nothing that can be seen: also right before what
   lies there has been written. */
void tma_prefetch_rows(struct ir *k, int columns, val map, struct place4 from);
/* Copies |bytes|, a multiple of 16, from global to shared memory, both at multiples of 16;
   completes them on |full|. */
void tma_load_bytes(struct ir *k, val to, val from, val bytes, val full);
/* Stores a 64-row tile to rows [row, row + 64). Commit and wait before the tile is written again.
 */
void tma_store_rows(struct ir *k, const struct tile *tile, val map, struct place4 to);
/* Closes the stores issued so far and waits until they have read shared memory. */
void tma_store_drain(struct ir *k);

#endif
