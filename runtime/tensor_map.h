/* tensor_map.h: a [B, H, N, D] array as the 4-dimensional tensor map {D, N, H, B} of abi.def. */
#ifndef PISA_RUNTIME_TENSOR_MAP_H
#define PISA_RUNTIME_TENSOR_MAP_H

#include "runtime/cuda.h"

struct pisa_map {
  const char *name; /* for messages */
  const void *data; /* 16-byte aligned */
  pisa_type type;
  int64_t extent[4]; /* B, H, N, D */
  int64_t stride[3]; /* b, h, n in elements: multiples of 8; ignored where the extent is 1 */
};

/* Boxes of {64 columns, 64 rows, 1, 1}, 128-byte swizzle, zeros outside. */
pisa_status pisa_map_encode(const struct pisa_cuda *cuda, const struct pisa_map *map,
                            CUtensorMap *out, pisa_error *error);

/* The same for a contiguous array. */
pisa_status pisa_map_contiguous(const struct pisa_cuda *cuda, const char *name, const void *data,
                                pisa_type type, const int64_t extent[4], CUtensorMap *out,
                                pisa_error *error);

#endif
