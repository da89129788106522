/* size.h: arithmetic on sizes that says when it overflows, and rounding. All operands are >= 0. */
#ifndef PISA_RUNTIME_SIZE_H
#define PISA_RUNTIME_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* False when the result does not fit; |out| is then untouched. */
static inline bool pisa_multiply(int64_t a, int64_t b, int64_t *out) {
  if (a != 0 && b > INT64_MAX / a)
    return false;
  *out = a * b;
  return true;
}

static inline bool pisa_add(int64_t a, int64_t b, int64_t *out) {
  if (b > INT64_MAX - a)
    return false;
  *out = a + b;
  return true;
}

static inline int64_t pisa_ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

static inline int64_t pisa_round_up(int64_t a, int64_t multiple) {
  return pisa_ceil_div(a, multiple) * multiple;
}

static inline int64_t pisa_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t pisa_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

#endif
