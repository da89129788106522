/* numbers.h: noise, attention worked out in double, and how far results are from it. Arrays are
   contiguous [B, H, N, D] in bfloat16, masks aligned at the end. */
#ifndef PISA_TESTS_PAIR_NUMBERS_H
#define PISA_TESTS_PAIR_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prints file, line and |text| and ends the test unless |condition| holds. */
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
void check(bool condition, const char *text, const char *file, int line);

/* |n| normal numbers; freed by the caller. */
uint16_t *noise(size_t n, uint32_t seed);
/* Zeroed, 256-byte aligned; freed by the caller. */
void *memory(size_t bytes);

struct sizes {
  int64_t batch, heads, kv_heads, n_q, n_k, d;
  const int32_t *lengths; /* [B] or NULL: n_k */
  bool causal;
};
/* The largest error of |o| against exact attention. */
double error_of(const struct sizes *s, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                const uint16_t *o);

#endif
