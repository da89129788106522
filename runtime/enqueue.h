/* enqueue.h: one kernel onto the stream of a call. */
#ifndef PISA_RUNTIME_ENQUEUE_H
#define PISA_RUNTIME_ENQUEUE_H

#include "runtime/args.h"

/* |grid| CTAs of the kernel |id|, whose parameters |args| points to in the order of abi.def, with
   programmatic dependence: it may begin while the kernel before it on the stream drains, and waits
   for it (griddepcontrol.wait) before it touches global memory. */
pisa_status pisa_enqueue(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                         int smem_bytes, void **args, pisa_error *error);

/* The same in clusters of |cluster| adjacent CTAs, of which |grid| is a multiple; 1: none. */
pisa_status pisa_enqueue_clusters(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                                  int64_t cluster, int smem_bytes, void **args, pisa_error *error);

#endif
