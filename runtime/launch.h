/* launch.h: launching part of the pipeline, for timing and verifying kernel by kernel. */
#ifndef PISA_RUNTIME_LAUNCH_H
#define PISA_RUNTIME_LAUNCH_H

#include "runtime/module.h"

enum { /* kernels of a call, in their order on the stream */
       PISA_LAUNCH_STATISTICS = 1,
       PISA_LAUNCH_RESIDUAL = 2, /* log residual alone */
       PISA_LAUNCH_ROUTE = 4,
       PISA_LAUNCH_ATTEND = 8, /* pisa_attend_kernel; of block selection below its limit, last */
       /* block selection, prefill */
       PISA_LAUNCH_PYRAMID = 1 << 4,
       PISA_LAUNCH_PYRAMID_TOP = 1 << 5,
       PISA_LAUNCH_WALK = 1 << 6, /* clustered: only behind pyramid, which zeroes its counters */
       PISA_LAUNCH_CLUSTER = 1 << 7,
       PISA_LAUNCH_SCATTER = 1 << 8,
       PISA_LAUNCH_LEAF_SCORE = 1 << 9,
       PISA_LAUNCH_PICK = 1 << 10,
       PISA_LAUNCH_FLAT = 1 << 11,
       PISA_LAUNCH_ATTEND_BLOCKS = 1 << 12,
       /* decode, which without the third only selects; of dense packs the last two */
       PISA_LAUNCH_APPEND = 1 << 13,
       PISA_LAUNCH_DECODE = 1 << 14,
       PISA_LAUNCH_DECODE_ATTEND = 1 << 15,
       PISA_LAUNCH_DECODE_MERGE = 1 << 16,
       /* prefill, between pick or flat and attend_blocks */
       PISA_LAUNCH_CSR_COUNT = 1 << 17,
       PISA_LAUNCH_CSR_SCAN = 1 << 18,
       PISA_LAUNCH_CSR_FILL = 1 << 19,
       PISA_LAUNCH_ALL = (1 << 20) - 1
};

/* pisa_launch with only the kernels whose bit is set in |kernels|; the workspace must hold what the
   left-out ones would have written. A dense call has only the last one. */
pisa_status pisa_launch_some(const pisa_module *module, const pisa_attention *call, void *workspace,
                             size_t workspace_bytes, void *stream, unsigned kernels,
                             pisa_error *error);

/* Which of attend, attend_edge, dense and dense_edge serves the call: the plain ones need whole
   blocks, the same number in every list, and a full first tile. */
enum pisa_kernel_id pisa_attend_kernel(const struct pisa_method *method,
                                       const struct pisa_shape *shape);

#endif
