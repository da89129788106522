/* h_block.h: what a computing warpgroup makes of one block: sums of the columns of its tiles, and
   64 rows of

       H_j = sum_n (k_n - kbar_j)^T v_n = K^T V - kbar_j vsum_j^T

   by matrix products, the sums as X^T 1 (ones.h). For head_dim 64 there is one warpgroup, for 96
   the second has 32 rows of zeros. */
#ifndef PISA_KERNELS_H_BLOCK_H
#define PISA_KERNELS_H_BLOCK_H

#include "compiler/kernels/blocks.h"
#include "compiler/sm90/frag.h"

enum { GROUP_ROWS = 64, NORM_PARTS = 8 };

struct h_block {
  val group;    /* this warpgroup's 64 columns of the inputs = rows of H */
  val has_rows; /* of this warp's 16 rows of H: they are not past head_dim */
  struct operand ones;
  struct frag column[MAX_INPUTS]; /* sum over rows of each column, one per fragment row */
  struct frag v_row;              /* vsum_j, one per fragment column */
  struct frag h;                  /* K^T V, then H_j */
};
struct h_block h_block_new(struct ir *k, const struct pass *p, bool forms_h);

/* Issues the products: sums of the columns of |sums|, and K^T V where |with_h|. */
void h_block_multiply(struct ir *k, const struct pass *p, const struct h_block *x, struct slot slot,
                      unsigned sums, bool with_h);
/* Waits for the sums alone; K^T V may be in flight. */
void h_block_wait_sums(struct ir *k, const struct h_block *x, unsigned sums, bool with_h);
/* Hands the sums of V's columns to the warpgroups that want them as a row. */
void h_block_put_row(struct ir *k, const struct pass *p, const struct h_block *x, struct slot slot);
/* Takes them once all have, and waits for K^T V. */
void h_block_finish(struct ir *k, const struct pass *p, const struct h_block *x, struct slot slot);
/* By every lane of a warp that has done with the stage. */
void h_block_release(struct ir *k, const struct pass *p, struct slot slot);

/* Means of the columns, from their sums. */
struct rowval h_block_mean(struct ir *k, const struct h_block *x, enum input input, val inverse);
/* Rank-1 centring with the mean as it is in f32, before it was rounded for storing. */
void h_block_centre(struct ir *k, const struct h_block *x, struct rowval k_mean);

/* This warp's part of the sum of row |index| of h_norm2; a lone warpgroup writes all eight. */
void store_part(struct ir *k, const struct pass *p, val h_norm2, val index, val part);

#endif
