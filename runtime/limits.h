/* limits.h: what a device can serve of a valid call: index widths, shared memory, tensor maps. */
#ifndef PISA_RUNTIME_LIMITS_H
#define PISA_RUNTIME_LIMITS_H

#include "runtime/shape.h"

struct pisa_limits {    /* of a loaded module */
  int sm_count;         /* multiprocessors */
  int route_smem_bytes; /* dynamic shared memory that one CTA of the route kernel may have */
};

/* Dynamic shared memory of the route kernel: scores of 16 rows, fp32, NT padded to 128, and 4 more.
 */
int64_t pisa_route_smem(int64_t nt);

/* PISA_UNSUPPORTED naming the limit, for the sizes and for the strides of a call. */
pisa_status pisa_limits_sizes(const struct pisa_method *method, const struct pisa_shape *shape,
                              const struct pisa_limits *limits, pisa_error *error);
pisa_status pisa_limits_strides(const pisa_attention *call, const struct pisa_shape *shape,
                                pisa_error *error);

#endif
