/* enqueue.c: a kernel's grid and parameters in, a launch out. */
#include "runtime/enqueue.h"

pisa_status pisa_enqueue_clusters(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                                  int64_t cluster, int smem_bytes, void **args, pisa_error *error) {
  const struct pisa_loaded_kernel *kernel = &job->module->kernels[id];
  CUlaunchAttribute attributes[] = {
      {.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
       .value.programmatic_serialization_allowed = 1},
      {.id = CU_LAUNCH_CLUSTER_DIMENSION, .value.cluster = {(uint32_t)cluster, 1, 1}}};
  const CUlaunchConfig config = {.grid = {(uint32_t)grid, 1, 1},
                                 .block = {(uint32_t)kernel->threads, 1, 1},
                                 .shared_bytes = (uint32_t)smem_bytes,
                                 .stream = job->stream,
                                 .attributes = attributes,
                                 .n_attributes = cluster > 1 ? 2 : 1};
  return pisa_cuda_check(job->module->cuda,
                         job->module->cuda->cuLaunchKernelEx(&config, kernel->function, args, NULL),
                         error, "launching %s", pisa_kernel_names[id]);
}

pisa_status pisa_enqueue(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                         int smem_bytes, void **args, pisa_error *error) {
  return pisa_enqueue_clusters(job, id, grid, 1, smem_bytes, args, error);
}
