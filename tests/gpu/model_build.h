/* model_build.h: what the kernels of the model driver share: what the running one was compiled for,
   and access to its parameters and arrays. */
#ifndef PISA_TESTS_GPU_MODEL_BUILD_H
#define PISA_TESTS_GPU_MODEL_BUILD_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.def"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "tests/gpu/model_kernels.h"

enum { MAX_D = 128, MAX_ROWS = 128, PARTS = 8 };

/* The running kernel's: one runs at a time. */
extern struct model_build model_now;
/* The first of |grid| CTAs that works on head |bh|: they take equal ranges of the |blocks| blocks
   of each of |heads| heads. */
int64_t model_first_cta(int64_t bh, int64_t blocks, int64_t heads, int64_t grid);
#define D (model_now.head_dim)
#define GROUP (model_now.group)
#define QUERY (model_now.query)
#define KEY (model_now.key)

static inline float widen(uint16_t bits) {
  return cpu_widen(model_now.type, bits);
}

static inline uint16_t narrow(float value) {
  return cpu_narrow(model_now.type, value);
}

static inline int32_t integer(const union model_value *args, int index) {
  return args[index].integer;
}

static inline void *pointer(const union model_value *args, int index) {
  return (void *)(uintptr_t)args[index].pointer;
}

static inline const struct model_map *map_of(const union model_value *args, int index) {
  return args[index].map.data ? &args[index].map : NULL;
}

static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Keys of the sequence that batch |b| holds: arguments |lengths| and |n_k| of the running kernel,
   which forgets lengths with |fault| switched on. */
static inline int64_t keys_of(const union model_value *args, int lengths, int n_k, int64_t b,
                              const char *fault) {
  const int32_t *length = pointer(args, lengths);
  int64_t all = integer(args, n_k);
  return length && !model_fault(fault) ? most(0, least(length[b], all)) : all;
}

static inline int64_t blocks_of(int64_t rows, int64_t block) {
  return (rows + block - 1) / block;
}

/* Row |n| of head |bh|; rows behind the last one are zero, as TMA fills them. */
static inline void load_row(const struct model_map *map, int64_t bh, int64_t n, float *row) {
  int64_t b = bh / map->extent[2], h = bh % map->extent[2];
  const uint16_t *in = map->data + b * map->stride[3] + h * map->stride[2] + n * map->stride[1];
  for (int d = 0; d < D; d++)
    row[d] = n < map->extent[1] ? widen(in[d]) : 0;
}

#endif
