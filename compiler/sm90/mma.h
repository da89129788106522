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
struct mma_rows { /* an A operand: the lane's two rows */
  struct mma_row r[FRAG_ROWS];
};

val mma_lane_row(struct ir *k, const struct lanes *lanes); /* t / 4 */

/* From row to row in shared memory: half of the 128 bytes of all banks past a whole number of them,
   so that the two rows that are read together (64 bytes of each) meet no common bank. */
static inline int mma_shared_row_bytes(int head_dim) {
  return 2 * head_dim % 128 == 64 ? 2 * head_dim : 2 * head_dim + 64;
}
/* |row|: pointer to this lane's row, 16-byte aligned. */
struct mma_row mma_row_load(struct ir *k, val row, int head_dim, const struct lanes *lanes);

struct mma_scores {
  val s[FRAG_ROWS][2];
};
struct mma_scores mma_multiply(struct ir *k, const struct mma_rows *a, const struct mma_row *b);
/* |v| holds a value of column t / 4 in each lane; returns those of the lane's two product columns.
 */
struct mma_pair {
  val q[2];
} mma_columns(struct ir *k, val v, const struct lanes *lanes);

#endif
