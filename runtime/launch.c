/* launch.c: one attention call -> kernels on the caller's stream (docs/ABI.md section 3). In: a
   call, checked here before anything is enqueued. Out: up to four launches of piecewise attention;
   select_launch.c has those of block selection and of decoding. No allocation, no synchronisation,
   no host read of device memory. */
#include "runtime/launch.h"

#include "runtime/enqueue.h"
#include "runtime/select_args.h"
#include "runtime/select_launch.h"
#include "runtime/size.h"

enum pisa_kernel_id pisa_attend_kernel(const struct pisa_method *method,
                                       const struct pisa_shape *shape) {
  const int key = shape->dense ? pisa_dense_key(method) : method->key;
  bool plain = method->mask == PISA_MASK_NONE && shape->uniform && shape->n_k % key == 0 &&
               pisa_min(shape->kept, shape->n_k / key) >= 2;
  if (shape->dense && !method->dense)
    return plain ? PISA_KERNEL_DENSE : PISA_KERNEL_DENSE_EDGE;
  return plain ? PISA_KERNEL_ATTEND : PISA_KERNEL_ATTEND_EDGE;
}

#define ADDRESS(kind, name, meaning) &a->name,

static pisa_status enqueue_statistics(const struct pisa_job *job, pisa_error *error) {
  struct pisa_statistics_args args, *a = &args;
  void *list[] = {PISA_STATISTICS_ARGS(ADDRESS)};
  pisa_fill_statistics(job, a);
  return pisa_enqueue(job, PISA_KERNEL_STATISTICS, job->layout.stat_ctas,
                      job->module->kernels[PISA_KERNEL_STATISTICS].smem_bytes, list, error);
}

static pisa_status enqueue_residual(const struct pisa_job *job, pisa_error *error) {
  struct pisa_residual_args args, *a = &args;
  void *list[] = {PISA_RESIDUAL_ARGS(ADDRESS)};
  pisa_fill_residual(job, a);
  int64_t blocks = job->shape.bh_k * job->shape.nt;
  return pisa_enqueue(job, PISA_KERNEL_RESIDUAL, pisa_min(job->module->limits.sm_count, blocks),
                      job->module->kernels[PISA_KERNEL_RESIDUAL].smem_bytes, list, error);
}

static pisa_status enqueue_route(const struct pisa_job *job, pisa_error *error) {
  struct pisa_route_args args, *a = &args;
  void *list[] = {PISA_ROUTE_ARGS(ADDRESS)};
  pisa_fill_route(job, a);
  int smem_bytes = job->module->kernels[PISA_KERNEL_ROUTE].smem_bytes;
  if (smem_bytes == PISA_SMEM_DYNAMIC)
    smem_bytes = (int)pisa_route_smem(job->shape.nt);
  /* behind the routing CTAs come those that each reduce 32 rows of a key/value head's Hsum */
  int64_t reducers = pisa_wants_h_sum(job->method) ? job->method->head_dim / 32 : 0;
  return pisa_enqueue(job, PISA_KERNEL_ROUTE,
                      job->shape.bh * job->layout.row_tiles + job->shape.bh_k * reducers,
                      smem_bytes, list, error);
}

static pisa_status enqueue_attend(const struct pisa_job *job, enum pisa_kernel_id id,
                                  struct pisa_attend_args *a, pisa_error *error) {
  void *list[] = {PISA_ATTEND_ARGS(ADDRESS)};
  return pisa_enqueue(job, id, pisa_min(job->module->limits.sm_count, a->items),
                      job->module->kernels[id].smem_bytes, list, error);
}

static pisa_status check_context(const pisa_module *module, pisa_error *error) {
  CUcontext current = NULL;
  pisa_status status = pisa_cuda_check(module->cuda, module->cuda->cuCtxGetCurrent(&current), error,
                                       "current CUDA context");
  if (status || current == module->context)
    return status;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "the current CUDA context is not the one the module was loaded into");
}

static pisa_status check_workspace(const struct pisa_job *job, size_t bytes, pisa_error *error) {
  if (job->layout.bytes == 0)
    return PISA_OK;
  if (!job->workspace)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "workspace is NULL, %zu bytes are needed",
                     job->layout.bytes);
  if (bytes < job->layout.bytes)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "workspace_bytes is %zu, must be at least %zu",
                     bytes, job->layout.bytes);
  return PISA_OK;
}

static pisa_status prepare(struct pisa_job *job, const pisa_attention *call, size_t workspace_bytes,
                           pisa_error *error) {
  pisa_status status = pisa_call_read(call, &job->call, error);
  if (!status)
    status = pisa_module_plan(job->module, &job->call, &job->shape, &job->layout, error);
  if (!status)
    status = check_workspace(job, workspace_bytes, error);
  if (!status)
    status =
        pisa_shape_tensors(job->method, &job->call, &job->shape,
                           job->layout.bytes ? job->workspace : NULL, job->layout.bytes, error);
  return status ? status : check_context(job->module, error);
}

/* What tensor maps can address. */
static pisa_status encode(struct pisa_job *job, pisa_error *error) {
  pisa_status status = pisa_limits_strides(&job->call, &job->shape, error);
  return status ? status : pisa_job_encode(job, error);
}

/* The maps of attend are made before anything is enqueued: they can fail. */
static pisa_status run(const struct pisa_job *job, unsigned kernels, pisa_error *error) {
  struct pisa_attend_args attend;
  enum pisa_kernel_id id = pisa_attend_kernel(job->method, &job->shape);
  bool routed = !job->shape.dense;
  pisa_status status = pisa_fill_attend(job, id, &attend, error);
  if (!status && routed && (kernels & PISA_LAUNCH_STATISTICS))
    status = enqueue_statistics(job, error);
  if (!status && routed && pisa_wants_residual(job->method) && (kernels & PISA_LAUNCH_RESIDUAL))
    status = enqueue_residual(job, error);
  if (!status && routed && (kernels & PISA_LAUNCH_ROUTE))
    status = enqueue_route(job, error);
  if (!status && (kernels & PISA_LAUNCH_ATTEND))
    status = enqueue_attend(job, id, &attend, error);
  return status;
}

/* A short call of a pack that selects blocks is dense; its pyramid is made all the same, where the
   call has one. */
static pisa_status run_selection(struct pisa_job *job, unsigned kernels, pisa_error *error) {
  struct pisa_attend_args attend;
  enum pisa_kernel_id id = pisa_attend_kernel(job->method, &job->shape);
  if (!job->shape.dense || job->shape.is_decode) {
    pisa_status status = pisa_select_encode(job, error);
    return status ? status : pisa_select_launch(job, kernels, error);
  }
  pisa_status status = encode(job, error);
  if (!status)
    status = pisa_fill_attend(job, id, &attend, error);
  if (!status)
    status = pisa_select_launch(job, kernels, error);
  if (!status && (kernels & PISA_LAUNCH_ATTEND))
    status = enqueue_attend(job, id, &attend, error);
  return status;
}

pisa_status pisa_launch_some(const pisa_module *module, const pisa_attention *call, void *workspace,
                             size_t workspace_bytes, void *stream, unsigned kernels,
                             pisa_error *error) {
  pisa_clear(error);
  if (!module)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "module is NULL");
  struct pisa_job job = {
      .module = module, .method = &module->method, .workspace = workspace, .stream = stream};
  pisa_status status = prepare(&job, call, workspace_bytes, error);
  if (status)
    return status;
  if (job.method->family == PISA_PYRAMID || job.shape.is_decode)
    return run_selection(&job, kernels, error);
  status = encode(&job, error);
  return status ? status : run(&job, kernels, error);
}

pisa_status pisa_launch(const pisa_module *module, const pisa_attention *call, void *workspace,
                        size_t workspace_bytes, void *stream, pisa_error *error) {
  return pisa_launch_some(module, call, workspace, workspace_bytes, stream, PISA_LAUNCH_ALL, error);
}
