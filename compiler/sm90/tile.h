/* clang-format off: drawings
   tile.h: a half matrix in shared memory, as the copy engine fills it and wgmma reads it.

   A tile of R rows x C columns (C a multiple of 64) is C/64 panels; a panel is R rows of 64
   columns, 128 bytes a row, cut in 8 chunks of 16 bytes:

       byte = panel * (R * 128) + row * 128 + (chunk ^ (row & 7)) * 16 + byte in the chunk

       row 0   | 0 1 2 3 4 5 6 7 |     which chunk lies where: the 128-byte swizzle;
       row 1   | 1 0 3 2 5 4 7 6 |     8 rows x 128 bytes = 1024 bytes are one atom
       row 2   | 2 3 0 1 6 7 4 5 |
        ...
       row 7   | 7 6 5 4 3 2 1 0 |

   Panels start at multiples of 1024 bytes. One copy box is 64 rows x 64 columns = 8192 bytes.

   wgmma descriptor, 64 bits, offsets in units of 16 bytes:

       bits 0..13 address    16..29 leading offset    32..45 stride offset    62: 128-byte swizzle

   There are two ways to read a tile:

                  rows are           columns are       leading offset     stride   next 16 of k
       K-major    the m or n index   the k index       unused (1)         64       + 32 B; a new
                  (Q, K of q k^T)                                                  panel: + R*128 B
       MN-major   the k index        the m or n index  R * 128 B:         64       + 2048 B
                  (V of p v)                           next 64 columns

   clang-format on */
#ifndef PISA_SM90_TILE_H
#define PISA_SM90_TILE_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"

enum { PANEL_COLUMNS = 64, PANEL_ROW_BYTES = 128, BOX_ROWS = 64, BOX_BYTES = 8192, K_STEP = 16 };

struct tile {
  val address; /* i32 shared-memory address of row 0 of panel 0, a multiple of 1024 */
  int rows, columns;
};
struct tile tile_new(struct ir *k, val address, int rows, int columns);
int tile_bytes(int rows, int columns);
/* Columns of the tile that holds |columns|: whole panels. The copy engine fills the rest with
 * zeros. */
int tile_columns(int columns);

/* A tile as an operand of wgmma. */
struct operand {
  val descriptor; /* of k step 0 */
  bool mn_major;
  int rows;
  bool fixed; /* every k step reads the same bytes (ones.h) */
};
struct operand tile_k_major(struct ir *k, const struct tile *tile);
/* From panel |first_panel| on. */
struct operand tile_mn_major(struct ir *k, const struct tile *tile, int first_panel);
/* The same with the panel chosen at run time. */
struct operand tile_mn_major_at(struct ir *k, const struct tile *tile, val first_panel);
val operand_step(struct ir *k, const struct operand *operand, int step);

/* Shared-memory address (i32) of this lane's 16 bytes when ldmatrix.x4 or stmatrix.x4 moves rows
   [16 w, 16 w + 16) and columns [16 step, 16 step + 16) of a tile, w = warp in its warpgroup: lanes
   0..15 give the 16 rows of the left 8 columns, lanes 16..31 those of the right 8. */
struct tile_lane {
  val row_address, row_in_atom, half;
  int rows;
};
struct tile_lane tile_lane_new(struct ir *k, const struct tile *tile, const struct lanes *lanes);
val tile_lane_address(struct ir *k, const struct tile_lane *lane, int step);

/* The same for the transposed move (ldmatrix.x4.trans), which makes A operands of X^T: 8 x 8 pieces

       columns  16 w + 0..7    16 w + 8..15      of a panel
       rows 0..7    lanes 0..7     8..15         their addresses, and in this order
       rows 8..15        16..23   24..31         the registers z = 0..3 (frag.h)

   of rows [0, 16); those of k step s are s * 16 rows further. */
val tile_transposed_lane_address(struct ir *k, const struct tile *tile, val panel,
                                 const struct lanes *lanes);

/* Shared-memory address (i32) of 16-byte chunk |chunk|, any of all panels, in row |row|. */
val tile_chunk_address(struct ir *k, const struct tile *tile, val row, val chunk);

/* Zeros in rows [first_row, rows) of |tile|, by |threads| threads of which this is |thread|. */
void tile_clear_rows(struct ir *k, const struct tile *tile, val first_row, val thread, int threads);

#endif
