/* frag_block.h: a fragment (frag.h) whose columns are those of one or two blocks, of which the last
   columns may be absent. What is asked of a row is asked of each block by itself. */
#ifndef PISA_SM90_FRAG_BLOCK_H
#define PISA_SM90_FRAG_BLOCK_H

#include "compiler/sm90/frag.h"

enum { FRAG_MAX_BLOCKS = 2 };
struct frag_blocks {
  int n, columns;              /* blocks, columns of each */
  val end;                     /* columns below this one are present; less the lane's column */
  val length[FRAG_MAX_BLOCKS]; /* f32, columns of each block that are present; may be 0 */
};
/* The first |present| columns (i32; may be below 0 and past the end) of a tile of n blocks. */
struct frag_blocks frag_blocks_new(struct ir *k, int n, int columns, val present,
                                   const struct lanes *lanes);

/* Of the present columns of block |b|, over the whole row (quad-reduced); 0 where it has none. */
struct rowval frag_block_mean(struct ir *k, const struct frag *f, const struct frag_blocks *blocks,
                              int b);
struct rowval frag_block_variance(struct ir *k, const struct frag *f,
                                  const struct frag_blocks *blocks, int b, struct rowval mean);
/* f = f factor[row] + offset[row] in the present columns of block |b|, 0 in the absent ones. */
void frag_block_affine(struct ir *k, const struct frag *f, const struct frag_blocks *blocks, int b,
                       struct rowval factor, struct rowval offset);

#endif
