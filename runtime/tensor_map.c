/* tensor_map.c: encodes tensor maps. In: address, extents and strides in elements, checked before.
   Out: the 128 bytes a kernel takes by value. Encoding is host arithmetic; nothing reaches the
   device. */
#include "runtime/tensor_map.h"

#include <inttypes.h>

enum { BOX_COLUMNS = 64, BOX_ROWS = 64, ELEMENT_BYTES = 2 };

/* TMA multiplies a coordinate by its stride, so stride 0 repeats one slice for all heads or
   batches. A dimension of one element has no second coordinate: a row length stands in for whatever
   was given. */
static uint64_t stride_bytes(const struct pisa_map *map, int dimension) {
  int64_t elements = map->extent[dimension] == 1 ? map->extent[3] : map->stride[dimension];
  return (uint64_t)elements * ELEMENT_BYTES;
}

pisa_status pisa_map_encode(const struct pisa_cuda *cuda, const struct pisa_map *map,
                            CUtensorMap *out, pisa_error *error) {
  const uint64_t extents[4] = {(uint64_t)map->extent[3], (uint64_t)map->extent[2],
                               (uint64_t)map->extent[1], (uint64_t)map->extent[0]};
  const uint64_t strides[3] = {stride_bytes(map, 2), stride_bytes(map, 1), stride_bytes(map, 0)};
  const uint32_t box[4] = {BOX_COLUMNS, BOX_ROWS, 1, 1}, steps[4] = {1, 1, 1, 1};
  int type = map->type == PISA_BF16 ? CU_TENSOR_MAP_BFLOAT16 : CU_TENSOR_MAP_FLOAT16;
  CUresult result = cuda->cuTensorMapEncodeTiled(
      out, type, 4, (void *)(uintptr_t)map->data, extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_256B,
      CU_TENSOR_MAP_FILL_ZERO);
  return pisa_cuda_check(cuda, result, error,
                         "tensor map of %s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                         "], byte strides %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                         map->name, map->extent[0], map->extent[1], map->extent[2], map->extent[3],
                         strides[2], strides[1], strides[0]);
}

pisa_status pisa_map_contiguous(const struct pisa_cuda *cuda, const char *name, const void *data,
                                pisa_type type, const int64_t extent[4], CUtensorMap *out,
                                pisa_error *error) {
  const int64_t row = extent[3], head = row * extent[2], batch = head * extent[1];
  const struct pisa_map map = {
      name, data, type, {extent[0], extent[1], extent[2], extent[3]}, {batch, head, row}};
  return pisa_map_encode(cuda, &map, out, error);
}
