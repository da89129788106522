/* tile.h: the inner loops of the fast executor, on float tiles.

   Written with the compiler's vector types; on x86-64 with glibc the AVX + FMA clone is picked
   when the program starts, everywhere else the portable one runs. No alignment is required. */
#ifndef PISA_CPU_TILE_H
#define PISA_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

enum { TILE_KEYS = 64 }; /* columns of a score tile */

/* C [rows, columns] += A [rows, depth] B [depth, columns]; lda, ldb, ldc are row strides in floats.
   rows % 4 == 0, columns % 16 == 0. */
void tile_multiply(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float *c, int64_t ldc);

/* One step of the online softmax in base 2. In: s [rows, 64] products q.k. Out: s = exp2(c s + bias
   - max), where a column of bias [64] = -inf is absent whatever its product. m, l [rows]: running
   maximum (of c s + bias) and sum; f [rows]: the factor by which what was accumulated before
   shrinks. */
void tile_softmax(int64_t rows, float c, const float *bias, float *s, float *m, float *l, float *f,
                  float *sum);

/* One block of |length| tokens to first order, in base 2 as above. In: s [rows, columns] products
   q.k, of which the first |length| count; columns % 64 == 0. With x = c s and its mean X over them,
   out: s = exp2(top - max) (1 + ln 2 (x - X)) and 0 behind them; top is X, or to second order what
   Gaussian x weigh, X + ln 2 / 2 var x. */
void tile_linear(int64_t rows, int64_t columns, int64_t length, float c, bool second_order,
                 float *s, float *m, float *l, float *f);

#endif
