/* enqueue.c: a kernel's grid and parameters in, a launch out. */
#include "runtime/enqueue.h"

struct shape {
  int64_t grid, cluster, threads; /* CTAs, those of a cluster, threads of a CTA */
  int smem_bytes;
};

static pisa_status launch(const struct pisa_job *job, enum pisa_kernel_id id,
                          const struct shape *shape, void **args, pisa_error *error) {
  CUlaunchAttribute attributes[] = {
      {.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
       .value.programmatic_serialization_allowed = 1},
      {.id = CU_LAUNCH_CLUSTER_DIMENSION, .value.cluster = {(uint32_t)shape->cluster, 1, 1}}};
  const CUlaunchConfig config = {.grid = {(uint32_t)shape->grid, 1, 1},
                                 .block = {(uint32_t)shape->threads, 1, 1},
                                 .shared_bytes = (uint32_t)shape->smem_bytes,
                                 .stream = job->stream,
                                 .attributes = attributes,
                                 .n_attributes = shape->cluster > 1 ? 2 : 1};
  const struct pisa_cuda *cuda = job->module->cuda;
  CUfunction function = job->module->kernels[id].function;
  return pisa_cuda_check(cuda, cuda->cuLaunchKernelEx(&config, function, args, NULL), error,
                         "launching %s", pisa_kernel_names[id]);
}

pisa_status pisa_enqueue_clusters(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                                  int64_t cluster, int smem_bytes, void **args, pisa_error *error) {
  const struct shape shape = {grid, cluster, job->module->kernels[id].threads, smem_bytes};
  return launch(job, id, &shape, args, error);
}

pisa_status pisa_enqueue_threads(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                                 int64_t threads, int smem_bytes, void **args, pisa_error *error) {
  const struct shape shape = {grid, 1, threads, smem_bytes};
  return launch(job, id, &shape, args, error);
}

pisa_status pisa_enqueue(const struct pisa_job *job, enum pisa_kernel_id id, int64_t grid,
                         int smem_bytes, void **args, pisa_error *error) {
  return pisa_enqueue_clusters(job, id, grid, 1, smem_bytes, args, error);
}
