/* limits.c: refuses by name what the kernels or the tensor maps cannot address. In: checked sizes
   and strides, and the device's figures. Out: PISA_OK, or the limit and the largest value allowed.
 */
#include "runtime/limits.h"

#include <inttypes.h>

#include "runtime/select.h"
#include "runtime/size.h"

enum { ROUTE_ROWS = 16, MEAN_TILE = 128, ROUTE_PAD = 4 };
static const int64_t max_stride_bytes = INT64_C(1) << 40; /* of a tensor map, exclusive */

int64_t pisa_route_smem(int64_t nt) {
  return ROUTE_ROWS * (pisa_round_up(nt, MEAN_TILE) + ROUTE_PAD) * (int64_t)sizeof(float);
}

static pisa_status check_route(const struct pisa_method *method, const struct pisa_shape *shape,
                               const struct pisa_limits *limits, pisa_error *error) {
  const int64_t mask_bits = 32 * PISA_MAX_MASK_WORDS; /* attend has room for no longer row */
  if (pisa_route_smem(shape->nt) <= limits->route_smem_bytes && shape->nt <= mask_bits)
    return PISA_OK;
  int64_t row = limits->route_smem_bytes / (ROUTE_ROWS * (int64_t)sizeof(float)) - ROUTE_PAD;
  int64_t most = pisa_min(row / MEAN_TILE * MEAN_TILE, mask_bits) * method->key;
  return pisa_fail(error, PISA_UNSUPPORTED,
                   "n_k is %" PRId64 ": the route kernel keeps a row of scores in shared memory, "
                   "which holds at most %" PRId64 " tokens on this device",
                   shape->n_k, most);
}

/* |heads| * |blocks| at most |most|. The product fits: it is at most 2^31 query heads times 2^24
   blocks. */
static pisa_status check_count(int64_t heads, const char *what, int64_t blocks, int64_t most,
                               pisa_error *error) {
  if (heads * blocks <= most)
    return PISA_OK;
  return pisa_fail(error, PISA_UNSUPPORTED,
                   "batch * %s is %" PRId64 " * %" PRId64 ", at most %" PRId64
                   " fit the 32-bit counters of this device's kernels",
                   what, heads, blocks, most);
}

/* Kernels count items, and (head, block) pairs times CTAs, in 32-bit integers. */
static pisa_status check_counts(const struct pisa_shape *shape, const struct pisa_limits *limits,
                                pisa_error *error) {
  pisa_status status =
      check_count(shape->bh, "heads * query blocks", shape->nt_q, INT32_MAX, error);
  if (status || shape->dense)
    return status;
  return check_count(shape->bh_k, "kv_heads * blocks", shape->vb, INT32_MAX / limits->sm_count,
                     error);
}

pisa_status pisa_limits_sizes(const struct pisa_method *method, const struct pisa_shape *shape,
                              const struct pisa_limits *limits, pisa_error *error) {
  if (method->family == PISA_PYRAMID || shape->is_decode)
    return pisa_select_limits(method, shape, limits, error);
  pisa_status status = shape->dense ? PISA_OK : check_route(method, shape, limits, error);
  return status ? status : check_counts(shape, limits, error);
}

static pisa_status check_strides(const char *name, const pisa_tensor *tensor,
                                 const int64_t extent[3], pisa_error *error) {
  static const char *const dimension[3] = {"batch", "heads", "tokens"};
  for (int i = 0; i < 3; i++)
    if (extent[i] > 1 && tensor->stride[i] >= max_stride_bytes / 2)
      return pisa_fail(error, PISA_UNSUPPORTED,
                       "%s.stride[%d] (%s) is %" PRId64
                       " elements, a tensor map takes less than 2^40 bytes",
                       name, i, dimension[i], tensor->stride[i]);
  return PISA_OK;
}

pisa_status pisa_limits_strides(const pisa_attention *call, const struct pisa_shape *shape,
                                pisa_error *error) {
  const int64_t of_q[3] = {shape->batch, shape->heads, shape->n_q};
  const int64_t of_k[3] = {shape->batch, shape->kv_heads, shape->n_k};
  pisa_status status = check_strides("q", &call->q, of_q, error);
  if (!status)
    status = check_strides("k", &call->k, of_k, error);
  if (!status)
    status = check_strides("v", &call->v, of_k, error);
  return status ? status : check_strides("o", &call->o, of_q, error);
}
