/* clang-format off: drawings
   key_image.h: a leaf's keys in global memory as wgmma reads them, so that one plain copy brings
   them to shared memory. Written by the kernel pyramid, read by leaf_score. In go rows of half, out
   come the image and, once copied, the B operand of q k^T.

   The image of C rows of D = 64 or 128 half (C a multiple of 8) is C D 2 bytes, in atoms of 1024:
   for every 8 rows one atom of each 64 columns, so that images of adjacent leaves are one of more
   rows.

       byte = (row / 8) * (D / 64 * 1024) + column / 64 * 1024
            + row % 8 * 128 + (chunk ^ (row & 7)) * 16 + byte in the chunk     the 128-byte swizzle

   Inside of 32 columns, 64 bytes, words (of two half) are transposed 4 x 4: word 4 c + r of a row
   of keys is word 4 r + c of its image,

       keys   0  1  2  3 | 4  5  6  7 | 8  9 10 11 |12 13 14 15      chunks c, words r
       image  0  4  8 12 | 1  5  9 13 | 2  6 10 14 | 3  7 11 15

   so that the 16 bytes which lane t of a quad loads of a row of q, words 4 t .. 4 t + 3 (gather.h,
   mma.h), are its part of two k steps: chunks 0, 1 of the image are the two halves of step 0,
   chunks 2, 3 of step 1.
   clang-format on */
#ifndef PISA_SM90_KEY_IMAGE_H
#define PISA_SM90_KEY_IMAGE_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/tile.h"

static inline int key_image_bytes(int rows, int head_dim) {
  return rows * head_dim * 2;
}

/* Writes one chunk of 16 bytes of a row, held as four words: chunk |chunk| (i32, 0 .. D / 8 - 1) of
   row |row| (i32). The four lanes of a quad hold adjacent chunks of one row, lane t chunk 4 i + t;
   all lanes of the warp take part. */
void key_image_store(struct ir *k, val image, val row, val chunk, const val word[4], int head_dim,
                     const struct lanes *lanes);

/* Images at |address| (i32, a multiple of 1024) of shared memory, from row |first_row|, a multiple
   of 8, on: the B operand of products with n columns, whatever n. */
struct operand key_image_operand(struct ir *k, val address, int first_row, int head_dim);

/* Byte offset (i32) of the 16 bytes of |row| that are chunk |chunk| of the image itself: the word
   of lane t of a quad, 4 t bytes further, is its part of a half k step. */
val key_image_chunk(struct ir *k, val row, int chunk, int head_dim);

#endif
