/* ones.h: sums over rows as matrix products. For a tile X of rows x C columns,
       X^T 1   (1: rows x 8, all ones)    has sum over rows of X[:, c] in row c, in each of 8
   columns so that they come out one value a row of an accumulator fragment, without a shuffle. 1.0
   and the products are exact; the sum is f32. Where they are wanted one value a column they pass
   through shared memory: 64 rows of 1^T X, all alike, would cost as much as any product of X. */
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

/* The sums of up to 128 columns in shared memory, f32. */
enum { ONES_ROW_BYTES = 512 };
/* Those of the 64 columns in |panel|, by the warpgroup that has them a value a row; consumers_sync
   comes before the row is read. */
void ones_row_put(struct ir *k, val row, struct rowval sums, val panel, const struct lanes *lanes);
/* A fragment whose rows are all alike, C/4 registers a thread, and its values from shared memory.
 */
struct frag ones_row_new(struct ir *k, int columns);
void ones_row_get(struct ir *k, const struct frag *f, val row, const struct lanes *lanes);

#endif
