/* ones.h: sums over rows as matrix products. For a tile X of rows x C columns,
       X^T 1   (1: rows x 8, all ones)    has sum over rows of X[:, c] in row c, in each of 8
   columns 1^T X   (1: rows x 64, all ones)   has the same sums as columns, in each of 64 rows so
   they come out one value a row, or one a column, of an accumulator fragment: whichever is needed,
   without a shuffle. 1.0 and the products are exact; the sum is f32. */
#ifndef PISA_SM90_ONES_H
#define PISA_SM90_ONES_H

#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/tile.h"

/* Shared memory for the operand of X^T 1: one swizzle atom (8 rows x 128 bytes). */
enum { ONES_BYTES = 1024, ONES_COLUMNS = 8 };

/* Fills it, at |offset| of dynamic shared memory; by the whole CTA, before fence_async_proxy and
   cta_sync. */
void ones_fill(struct ir *k, int offset);
struct operand ones_operand(struct ir *k, int offset); /* B of X^T 1: every k step is the same */
struct frag_a ones_frag(struct ir *k, int rows);       /* A of 1^T X, in registers */
/* The same in four registers, which every k step reads, where rows / 4 are too many: read from
   shared memory after the CTA has met, as ptxas gives each use of a constant registers of its own.
 */
struct frag_a ones_frag_shared(struct ir *k, int offset);

#endif
