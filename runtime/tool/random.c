/* random.c: splitmix64 (Steele, Lea, Flood 2014) and the Box-Muller transform. */
#include "runtime/tool/random.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

struct random random_at(uint64_t seed, uint64_t stream, uint64_t index) {
  return (struct random){mix(seed ^ mix(stream ^ mix(index)))};
}

static uint64_t random_bits(struct random *random) {
  random->state += 0x9e3779b97f4a7c15ULL;
  return mix(random->state);
}

int64_t random_below(struct random *random, int64_t n) {
  return (int64_t)(random_bits(random) % (uint64_t)n);
}

void random_normals(struct random *random, int64_t n, float *out) {
  for (int64_t i = 0; i < n; i += 2) {
    uint64_t bits = random_bits(random);
    float u = ((float)(bits >> 40) + 0.5F) * 0x1p-24F; /* in (0, 1) */
    float angle = (float)(bits & 0xffffff) * (float)(6.283185307179586 * 0x1p-24);
    float radius = sqrtf(-2 * logf(u));
    out[i] = radius * cosf(angle);
    out[i + 1] = radius * sinf(angle);
  }
}

uint64_t random_fresh_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return mix((uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec) ^ (uint64_t)getpid();
}
