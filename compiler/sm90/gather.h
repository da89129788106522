/* clang-format off: drawings
   gather.h: rows of half from anywhere in global memory as the A operand of a warpgroup: from there
   to registers, not through shared memory. Any row of the 64 may lie anywhere.

   Of each 64 bytes of a row lane t of a quad loads the 16 bytes 8t .. 8t + 7 and takes their words
   as its part of two k steps, as mma.h draws it; B has its k in the same order (key_image.h). A
   thread has rows frag_lane_row + 8 r, r = 0, 1, of frag.h: word 2 s + i of row r is register
   4 s + r + 2 i of the operand.

   The four registers of a product must be neighbours; a load fills four words of one row. Words are
   loaded early and brought into the order of the operand just before the product, by operations
   that no compiler takes back to the loads (where every warp would wait for them): an exclusive or
   with a zero that is known at run time only.
   clang-format on */
#ifndef PISA_SM90_GATHER_H
#define PISA_SM90_GATHER_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"

struct gather { /* words of the two rows */
  int head_dim;
  struct var word[FRAG_ROWS][FRAG_A_MAX / FRAG_ROWS];
};
struct gather gather_new(struct ir *k, int head_dim);
/* Byte offset (i32) of this lane's first 16 bytes in a row. */
val gather_lane_offset(struct ir *k, const struct lanes *lanes);
/* Loads row r from |row|, to which the lane's offset has been added; not kept in L1. */
void gather_load(struct ir *k, const struct gather *g, int r, val row);
/* The operand; |zero| (i32) is 0. Before the wgmma_fence of the product. */
void gather_fragment(struct ir *k, const struct frag_a *a, const struct gather *g, val zero);
/* 0 (i32), made of the address of an array that is 16-byte aligned. */
val gather_zero(struct ir *k, val aligned_pointer);

#endif
