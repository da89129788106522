/* random.h: seeded random numbers whose value depends on a key only, so that any thread may draw
 * any row. */
#ifndef PISA_TOOL_RANDOM_H
#define PISA_TOOL_RANDOM_H

#include <stdint.h>

struct random {
  uint64_t state;
};

/* A generator for one row of one array: |stream| and |index| name it. */
struct random random_at(uint64_t seed, uint64_t stream, uint64_t index);
/* In [0, n). */
int64_t random_below(struct random *random, int64_t n);
/* out[i], i < n: independent standard normal numbers. n is even. */
void random_normals(struct random *random, int64_t n, float *out);
/* A seed that differs from run to run. */
uint64_t random_fresh_seed(void);

#endif
