/* mma.h: scores of one warp, 16 rows x 8 columns, A and B rows read straight from memory
   (mma.m16n8k16, half in, f32 out).

   A row of D half is cut in chunks of 32; in each, lane t of a quad reads the 16 bytes of elements
   8t .. 8t + 7 and takes them as its part of two k steps:

       chunk:  |8t, 8t+1|8t+2, 8t+3|8t+4, 8t+5|8t+6, 8t+7|
                 step 0, k low       step 1, k low
                            step 0, k high        step 1, k high

   which permutes k within the chunk, alike in A and B: their product does not notice. Of A a lane
   holds rows t / 4 and t / 4 + 8, of B the row (column of the product) t / 4. The product is laid
   out as in frag.h, one warp of it: s[r][q] is row t / 4 + 8 r, column frag_lane_column + q. */
#ifndef PISA_SM90_MMA_H
#define PISA_SM90_MMA_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"

enum { MMA_ROWS = 16, MMA_COLUMNS = 8, MMA_MAX_WORDS = 32 };

struct mma_row { /* this lane's part of one row: D / 8 words of two half */
  int head_dim;
  val word[MMA_MAX_WORDS];
};
struct mma_row_vars { /* the same as variables: loaded ahead of its use */
  int head_dim;
  struct var word[MMA_MAX_WORDS];
};
struct mma_rows { /* an A operand: the lane's two rows */
  struct mma_row r[FRAG_ROWS];
};

val mma_lane_row(struct ir *k, const struct lanes *lanes); /* t / 4 */

/* Sixteen rows in shared memory in the order of an A operand: for every k step the 16 bytes of each
   lane, {row t / 4, row t / 4 + 8} of its low half of k, then of its high half, so that a load
   needs no moves. Where word |word| (two half) of row |row| is: byte offsets. */
val mma_rows_place(struct ir *k, val row, val word);
struct mma_rows mma_rows_load(struct ir *k, val rows, int head_dim, const struct lanes *lanes);
/* |row|: pointer to this lane's row, 16-byte aligned. */
struct mma_row mma_row_load(struct ir *k, val row, int head_dim, const struct lanes *lanes);

/* The same with |mine| = row + mma_lane_bytes. */
val mma_lane_bytes(struct ir *k, const struct lanes *lanes);
struct mma_row mma_row_load_mine(struct ir *k, val mine, int head_dim);
/* The same of a row whose chunks lie |apart| bytes from each other, 64 or more. */
struct mma_row mma_row_load_apart(struct ir *k, val mine, int head_dim, int apart);

struct mma_row_vars mma_row_vars_new(struct ir *k, int head_dim);
struct mma_row mma_row_vars_get(struct ir *k, const struct mma_row_vars *vars);
void mma_row_vars_set(struct ir *k, const struct mma_row_vars *vars, const struct mma_row *x);

struct mma_scores {
  val s[FRAG_ROWS][2];
};
struct mma_scores mma_multiply(struct ir *k, const struct mma_rows *a, const struct mma_row *b);
/* Several at once, one chain each: out[i] = a b[i]^T. */
void mma_multiply_each(struct ir *k, const struct mma_rows *a, int n, const struct mma_row *b,
                       struct mma_scores *out);

/* One m16n8k16: c += a b, a as A register z of frag.h, c[2 r + q]. */
void mma_product(struct ir *k, val c[4], const val a[4], const val b[2]);

#endif
