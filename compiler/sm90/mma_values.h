/* clang-format off: drawings
   mma_values.h: weighted sums of 16 rows of values by one warp, the values read straight from
   memory (mma.m16n8k16): o [16, D] += p [16, 16] v [16, D], p in registers as an A operand.

   The B operand has pairs of rows in a register, so a lane reads pieces of two adjacent rows and
   swaps their halves. Lane t = 4 g + c reads of rows 2c, 2c + 1, 2c + 8, 2c + 9

       columns    64 p + 8 g ... 64 p + 8 g + 7     of each whole 64 columns p       (16 bytes)
                  64 + 4 g   ... 64 + 4 g + 3       of the last 32 of 96 columns      (8 bytes)

   so that eight lanes read a whole line. Column j of g's piece is column g of the product's tile j:
   which permutes the columns of o, and leaves a lane with pieces of 8 adjacent ones of its rows:

       o, tile 8 p + j, rows t / 4 + 8 r, q = 0, 1:    column 64 p + 16 c + 8 q + j    j = 0..7
       of the last 32, tile 8 + j                      column 64 + 8 c + 4 q + j       j = 0..3
   clang-format on */
#ifndef PISA_SM90_MMA_VALUES_H
#define PISA_SM90_MMA_VALUES_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/mma.h"

enum { VALUES_LANE_ROWS = 4, VALUES_MAX_WORDS = 8, VALUES_MAX_TILES = 16 };

/* This lane's part of 16 rows. */
struct mma_values {
  int head_dim;
  struct var word[VALUES_LANE_ROWS][VALUES_MAX_WORDS];
};
struct mma_values mma_values_new(struct ir *k, int head_dim);
/* Which of the 16 rows is this lane's |i|-th. */
val mma_values_row(struct ir *k, const struct lanes *lanes, int i);
/* |mine|: pointer to that row + mma_values_lane_bytes. */
val mma_values_lane_bytes(struct ir *k, const struct lanes *lanes);
void mma_values_load(struct ir *k, const struct mma_values *v, int i, val mine,
                     const struct lanes *lanes);

struct mma_sums { /* o */
  int head_dim;
  struct var r[VALUES_MAX_TILES][FRAG_ROWS][2];
};
struct mma_sums mma_sums_new(struct ir *k, int head_dim); /* zeros */
/* o += p v */
void mma_sums_add(struct ir *k, const struct mma_sums *o, const val p[4],
                  const struct mma_values *v);
void mma_sums_scale(struct ir *k, const struct mma_sums *o, int r, val factor); /* row r of lanes */

/* A row of o in pieces of 8 adjacent columns: so many a lane, */
static inline int mma_sums_pieces(int head_dim) {
  return head_dim / 32;
}
/* the first column (i32) of this lane's |piece|, and its values. */
val mma_sums_column(struct ir *k, const struct mma_sums *o, int piece, const struct lanes *lanes);
void mma_sums_piece(struct ir *k, const struct mma_sums *o, int r, int piece, val x[8]);

#endif
