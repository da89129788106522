/* tile.c: dense float tiles in, products and softmax weights out.
   Four rows by sixteen columns of C live in registers: eight accumulators of eight floats, as many
   as the latency of a fused multiply-add needs. */
#include "runtime/cpu/tile.h"

#include <math.h>
#include <string.h>

/* "fma" brings AVX with it; naming an architecture would choose by the processor's model. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_THREAD__)
#define CLONED __attribute__((target_clones("fma", "default")))
#else
#define CLONED
#endif

enum { LANES = 8, ROWS = 4, COLUMNS = 2 * LANES };
typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t uvec __attribute__((vector_size(LANES * sizeof(uint32_t))));

#define LOAD(v, p) memcpy(&(v), (p), sizeof(vec))
#define STORE(p, v) memcpy((p), &(v), sizeof(vec))
#define SELECT(mask, yes, no) ((vec)(((mask) & (ivec)(yes)) | (~(mask) & (ivec)(no))))

CLONED void tile_multiply(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float *c, int64_t ldc) {
  for (int64_t column = 0; column < columns; column += COLUMNS)
    for (int64_t row = 0; row < rows; row += ROWS) {
      const float *a0 = a + row * lda, *a1 = a0 + lda, *a2 = a1 + lda, *a3 = a2 + lda;
      const float *bp = b + column;
      vec c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};
      for (int64_t d = 0; d < depth; d++, bp += ldb) {
        vec b0, b1;
        LOAD(b0, bp);
        LOAD(b1, bp + LANES);
        c00 += a0[d] * b0, c01 += a0[d] * b1;
        c10 += a1[d] * b0, c11 += a1[d] * b1;
        c20 += a2[d] * b0, c21 += a2[d] * b1;
        c30 += a3[d] * b0, c31 += a3[d] * b1;
      }
      vec acc[ROWS][2] = {{c00, c01}, {c10, c11}, {c20, c21}, {c30, c31}};
      for (int r = 0; r < ROWS; r++)
        for (int half = 0; half < 2; half++) {
          float *out = c + (row + r) * ldc + column + half * LANES;
          vec old;
          LOAD(old, out);
          old += acc[r][half];
          STORE(out, old);
        }
    }
}

/* x = exp2(x) for x <= 0; 0 below 2^-126; NaN stays NaN.
   x = n + r with |r| <= 1/2: adding and subtracting 1.5 * 2^23 rounds to the integer n and leaves
   it in the low bits. 2^r by its Taylor series, sum (r ln 2)^i / i!, i <= 7: relative error 5e-9.
 */
#define EXP2(x)                                                                                    \
  do {                                                                                             \
    vec t = (x) + 12582912.0f, r = (x) - (t - 12582912.0f);                                        \
    vec y = r * 1.52527338e-5f + 1.54035304e-4f;                                                   \
    y = y * r + 1.33335581e-3f;                                                                    \
    y = y * r + 9.61812911e-3f;                                                                    \
    y = y * r + 5.55041087e-2f;                                                                    \
    y = y * r + 2.40226507e-1f;                                                                    \
    y = y * r + 6.93147181e-1f;                                                                    \
    y = y * r + 1.0f;                                                                              \
    vec power = (vec)(((uvec)t << 23) + 0x3f800000);                                               \
    ivec tiny = (x) < -126.0f;                                                                     \
    (x) = (vec)(~tiny & (ivec)(y * power));                                                        \
  } while (0)

CLONED void tile_softmax(int64_t rows, float c, const float *bias, float *s, float *m, float *l,
                         float *f, float *sum) {
  const vec absent = (vec){0} - INFINITY;
  for (int64_t row = 0; row < rows; row++, s += TILE_KEYS) {
    vec lane_max = absent, lane_sum = {0};
    for (int n = 0; n < TILE_KEYS; n += LANES) {
      vec x, b;
      LOAD(x, s + n);
      LOAD(b, bias + n);
      x = SELECT(b == absent, absent, x * c + b);
      lane_max = SELECT(x > lane_max, x, lane_max);
      STORE(s + n, x);
    }
    float max = m[row];
    for (int n = 0; n < LANES; n++)
      max = lane_max[n] > max ? lane_max[n] : max;
    /* Nothing finite yet: subtract 0, so that -inf weighs nothing and NaN stays NaN. */
    float origin = max == -INFINITY ? 0 : max;
    for (int n = 0; n < TILE_KEYS; n += LANES) {
      vec x;
      LOAD(x, s + n);
      x -= origin;
      EXP2(x);
      lane_sum += x;
      STORE(s + n, x);
    }
    sum[row] = 0;
    for (int n = 0; n < LANES; n++)
      sum[row] += lane_sum[n];
    f[row] = m[row] == max ? 1 : exp2f(m[row] - max);
    l[row] = l[row] * f[row] + sum[row];
    m[row] = max;
  }
}

static inline float add_lanes(const vec *x) {
  float sum = 0;
  for (int n = 0; n < LANES; n++)
    sum += (*x)[n];
  return sum;
}

#define LN2 0.693147181f

CLONED void tile_linear(int64_t rows, int64_t columns, int64_t length, float c, bool second_order,
                        float *s, float *m, float *l, float *f) {
  const ivec lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const vec none = {0};
  for (int64_t row = 0; row < rows; row++, s += columns) {
    vec sums = {0}, squares = {0};
    for (int64_t n = 0; n < columns; n += LANES) {
      vec x;
      LOAD(x, s + n);
      x = SELECT(lane + (int32_t)n < (int32_t)length, x * c, none);
      sums += x;
      STORE(s + n, x);
    }
    float mean = add_lanes(&sums) / (float)length;
    for (int64_t n = 0; n < columns; n += LANES) {
      vec x;
      LOAD(x, s + n);
      x = SELECT(lane + (int32_t)n < (int32_t)length, x - mean, none);
      squares += x * x;
      STORE(s + n, x);
    }
    float top = second_order ? mean + LN2 / 2 * add_lanes(&squares) / (float)length : mean;
    float max = top > m[row] ? top : m[row];
    float weight = top == -INFINITY ? 0 : exp2f(top - max);
    for (int64_t n = 0; n < columns; n += LANES) {
      vec x;
      LOAD(x, s + n);
      x = SELECT(lane + (int32_t)n < (int32_t)length, weight + weight * LN2 * x, none);
      if (weight == 0)
        x = none;
      STORE(s + n, x);
    }
    f[row] = m[row] == max ? 1 : exp2f(m[row] - max);
    l[row] = l[row] * f[row] + weight * (float)length;
    m[row] = max;
  }
}
