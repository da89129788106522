/* numbers.c: see numbers.h. */
#include "tests/compiler/pair/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check(bool condition, const char *text, const char *file, int line) {
  if (condition)
    return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
  exit(1);
}

static double widen(uint16_t bits) {
  const uint32_t whole = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &whole, sizeof value);
  return (double)value;
}

static double uniform(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return ((double)(*seed >> 8) + 0.5) / 16777216.0;
}

uint16_t *noise(size_t n, uint32_t seed) {
  uint16_t *out = memory(n * 2);
  for (size_t i = 0; i < n; i++) {
    const double radius = sqrt(-2 * log(uniform(&seed))),
                 angle = 2 * 3.14159265358979 * uniform(&seed);
    const float value = (float)(radius * cos(angle));
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    out[i] = (uint16_t)(bits >> 16);
  }
  return out;
}

void *memory(size_t bytes) {
  void *out = aligned_alloc(256, (bytes / 256 + 1) * 256);
  CHECK(out);
  memset(out, 0, (bytes / 256 + 1) * 256);
  return out;
}

/* One row: sums of e^(s - 8) v over what it sees; logits of unit noise stay far below 700. */
static double row_error(const uint16_t *q, const uint16_t *k, const uint16_t *v, const uint16_t *o,
                        int64_t seen, int64_t d) {
  double sum = 0, error = 0;
  double *out = calloc((size_t)d, sizeof *out);
  CHECK(out);
  for (int64_t j = 0; j < seen; j++) {
    double logit = 0;
    for (int64_t c = 0; c < d; c++)
      logit += widen(q[c]) * widen(k[j * d + c]);
    const double weight = exp(logit / sqrt((double)d) - 8);
    sum += weight;
    for (int64_t c = 0; c < d; c++)
      out[c] += weight * widen(v[j * d + c]);
  }
  for (int64_t c = 0; c < d; c++)
    error = fmax(error, fabs(widen(o[c]) - out[c] / sum));
  free(out);
  return error;
}

double error_of(const struct sizes *s, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                const uint16_t *o) {
  double error = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    const int64_t n = s->lengths ? s->lengths[b] : s->n_k;
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t i = 0; i < s->n_q; i++) {
        const int64_t row = ((b * s->heads + h) * s->n_q + i) * s->d;
        const int64_t head = (b * s->kv_heads + h * s->kv_heads / s->heads) * s->n_k * s->d;
        const int64_t seen = s->causal ? n - s->n_q + i + 1 : n;
        error = fmax(error, row_error(q + row, k + head, v + head, o + row, seen, s->d));
      }
  }
  return error;
}
