/* launch.c: one attention call -> up to three kernels on the caller's stream (docs/ABI.md section
   3). In: a call, checked here before anything is enqueued. Out: launches with programmatic
   dependence; every kernel waits for the one before it (griddepcontrol.wait) before it touches
   global memory. No allocation, no synchronisation, no host read of device memory. */
#include "runtime/launch.h"

#include <math.h>
#include <string.h>

#include "runtime/abi.def"
#include "runtime/size.h"
#include "runtime/tensor_map.h"

/* Parameters of each kernel, as abi.def lists them. */
#define FIELD(kind, name, meaning) FIELD_##kind(name)
#define FIELD_MAP(name) CUtensorMap name;
#define FIELD_PTR(name) CUdeviceptr name;
#define FIELD_I32(name) int32_t name;
#define FIELD_F32(name) float name;
struct statistics_args {
  PISA_STATISTICS_ARGS(FIELD)
};
struct route_args {
  PISA_ROUTE_ARGS(FIELD)
};
struct attend_args {
  PISA_ATTEND_ARGS(FIELD)
};

/* A call with everything derived from it. */
struct job {
  const pisa_module *module;
  const struct pisa_method *method;
  const pisa_attention *call;
  struct pisa_shape shape;
  struct pisa_workspace layout;
  char *workspace;
  CUstream stream;
  CUtensorMap q, k, v, o; /* the caller's arrays */
};

static CUdeviceptr address(const void *memory) {
  return (CUdeviceptr)(uintptr_t)memory;
}

/* NULL for a part that the method does not have. */
static const void *part(const struct job *job, enum pisa_workspace_id id) {
  return job->layout.parts[id].size ? job->workspace + job->layout.parts[id].offset : NULL;
}

static CUdeviceptr part_address(const struct job *job, enum pisa_workspace_id id) {
  return address(part(job, id));
}

static pisa_status encode_call(struct job *job, pisa_error *error) {
  const struct pisa_shape *s = &job->shape;
  const struct {
    const char *name;
    const pisa_tensor *tensor;
    int64_t heads, tokens;
    CUtensorMap *out;
  } arrays[] = {{"q", &job->call->q, s->heads, s->n_q, &job->q},
                {"k", &job->call->k, s->kv_heads, s->n_k, &job->k},
                {"v", &job->call->v, s->kv_heads, s->n_k, &job->v},
                {"o", &job->call->o, s->heads, s->n_q, &job->o}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !status; i++) {
    const int64_t *stride = arrays[i].tensor->stride;
    const struct pisa_map map = {
        arrays[i].name,
        arrays[i].tensor->data,
        job->method->type,
        {s->batch, arrays[i].heads, arrays[i].tokens, job->method->head_dim},
        {stride[0], stride[1], stride[2]}};
    status = pisa_map_encode(job->module->cuda, &map, arrays[i].out, error);
  }
  return status;
}

/* [B, Hk, |rows|, D] in the workspace; the map stays zero when the method has no such part. */
static pisa_status encode_part(const struct job *job, enum pisa_workspace_id id, int64_t rows,
                               CUtensorMap *out, pisa_error *error) {
  const int64_t extent[4] = {job->shape.batch, job->shape.kv_heads, rows, job->method->head_dim};
  if (!part(job, id))
    return PISA_OK;
  return pisa_map_contiguous(job->module->cuda, pisa_workspace_names[id], part(job, id),
                             job->method->type, extent, out, error);
}

static void fill_statistics(const struct job *job, struct statistics_args *args) {
  const struct pisa_shape *s = &job->shape;
  *args = (struct statistics_args){
      .q = job->q,
      .k = job->k,
      .v = job->v,
      .q_mean = part_address(job, PISA_WORKSPACE_Q_MEAN),
      .k_mean = part_address(job, PISA_WORKSPACE_K_MEAN),
      .v_mean = part_address(job, PISA_WORKSPACE_V_MEAN),
      .h_norm2 = part_address(job, PISA_WORKSPACE_H_NORM2),
      .h_part = part_address(job, PISA_WORKSPACE_H_PART),
      .total_heads = (int32_t)s->bh_k,
      .heads = (int32_t)s->kv_heads,
      .n_q = (int32_t)s->n_q,
      .n_k = (int32_t)s->n_k,
      .blocks = job->layout.stat_blocks,
      .k_variance = part_address(job, PISA_WORKSPACE_K_VARIANCE),
      .variance_scale = s->scale / 2,
  };
}

/* What Hsum is multiplied by before it is stored in the pack's type. */
static float h_scale(const struct job *job) {
  double plain = (double)job->shape.scale / (double)job->shape.n_k;
  return (float)(plain * pisa_h_gain(job->method->type));
}

static void fill_route(const struct job *job, struct route_args *args) {
  const struct pisa_shape *s = &job->shape;
  *args = (struct route_args){
      .q_mean = part_address(job, PISA_WORKSPACE_Q_MEAN),
      .k_mean = part_address(job, PISA_WORKSPACE_K_MEAN),
      .h_norm2 = part_address(job, PISA_WORKSPACE_H_NORM2),
      .h_part = part_address(job, PISA_WORKSPACE_H_PART),
      .lists = part_address(job, PISA_WORKSPACE_LISTS),
      .masks = part_address(job, PISA_WORKSPACE_MASKS),
      .ids = address(job->call->blocks),
      .h_sum = part_address(job, PISA_WORKSPACE_H_SUM),
      .total_heads = (int32_t)s->bh,
      .n_q = (int32_t)s->n_q,
      .n_k = (int32_t)s->n_k,
      .keep = (int32_t)s->kept,
      .list_stride = job->layout.list_stride,
      .mask_words = job->layout.mask_words,
      .row_tiles = job->layout.row_tiles,
      .stat_ctas = job->layout.stat_ctas,
      .stat_blocks = job->layout.stat_blocks,
      .always_0_begin = (int32_t)s->always[0].begin,
      .always_0_end = (int32_t)s->always[0].end,
      .always_1_begin = (int32_t)s->always[1].begin,
      .always_1_end = (int32_t)s->always[1].end,
      .always_2_begin = (int32_t)s->always[2].begin,
      .always_2_end = (int32_t)s->always[2].end,
      .always_3_begin = (int32_t)s->always[3].begin,
      .always_3_end = (int32_t)s->always[3].end,
      .scale = s->scale,
      .h_scale = h_scale(job),
      .window = job->method->has_window ? (int32_t)job->method->window : -1,
  };
}

static pisa_status fill_attend(const struct job *job, struct attend_args *args, pisa_error *error) {
  const struct pisa_shape *s = &job->shape;
  const double log2_e = 1.4426950408889634;
  *args = (struct attend_args){
      .q = job->q,
      .k = job->k,
      .v = job->v,
      .o = job->o,
      .lists = part_address(job, PISA_WORKSPACE_LISTS),
      .masks = part_address(job, PISA_WORKSPACE_MASKS),
      .lse = address(job->call->lse),
      .items = (int32_t)(s->bh * s->nt_q),
      .q_blocks = (int32_t)s->nt_q,
      .heads = (int32_t)s->heads,
      .n_q = (int32_t)s->n_q,
      .n_k = (int32_t)s->n_k,
      .keep = (int32_t)s->kept,
      .list_stride = job->layout.list_stride,
      .mask_words = job->layout.mask_words,
      .scale_log2 = (float)((double)s->scale * log2_e),
  };
  if (!pisa_wants_v_mean(job->method))
    return PISA_OK;
  pisa_status status = encode_part(job, PISA_WORKSPACE_K_MEAN, s->nt, &args->k_mean, error);
  if (!status)
    status = encode_part(job, PISA_WORKSPACE_V_MEAN, s->nt, &args->v_mean, error);
  if (!status)
    status = encode_part(job, PISA_WORKSPACE_H_SUM, job->method->head_dim, &args->h_sum, error);
  return status ? status
                : encode_part(job, PISA_WORKSPACE_K_VARIANCE, s->nt, &args->k_variance, error);
}

enum pisa_kernel_id pisa_attend_kernel(const struct pisa_method *method,
                                       const struct pisa_shape *shape) {
  bool whole = shape->n_k % method->key == 0;
  return whole && shape->kept >= 2 ? PISA_KERNEL_ATTEND : PISA_KERNEL_ATTEND_EDGE;
}

/* May begin while the kernel before it on the stream drains. */
static pisa_status enqueue(const struct job *job, enum pisa_kernel_id id, int64_t grid,
                           int smem_bytes, void **args, pisa_error *error) {
  const struct pisa_loaded_kernel *kernel = &job->module->kernels[id];
  CUlaunchAttribute overlap = {.id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmatic_serialization_allowed = 1};
  const CUlaunchConfig config = {.grid = {(uint32_t)grid, 1, 1},
                                 .block = {(uint32_t)kernel->threads, 1, 1},
                                 .shared_bytes = (uint32_t)smem_bytes,
                                 .stream = job->stream,
                                 .attributes = &overlap,
                                 .n_attributes = 1};
  return pisa_cuda_check(job->module->cuda,
                         job->module->cuda->cuLaunchKernelEx(&config, kernel->function, args, NULL),
                         error, "launching %s", pisa_kernel_names[id]);
}

#define ADDRESS(kind, name, meaning) &args->name,

static pisa_status enqueue_statistics(const struct job *job, struct statistics_args *args,
                                      pisa_error *error) {
  void *list[] = {PISA_STATISTICS_ARGS(ADDRESS)};
  return enqueue(job, PISA_KERNEL_STATISTICS, job->layout.stat_ctas,
                 job->module->kernels[PISA_KERNEL_STATISTICS].smem_bytes, list, error);
}

static pisa_status enqueue_route(const struct job *job, struct route_args *args,
                                 pisa_error *error) {
  void *list[] = {PISA_ROUTE_ARGS(ADDRESS)};
  int smem_bytes = job->module->kernels[PISA_KERNEL_ROUTE].smem_bytes;
  if (smem_bytes == PISA_SMEM_DYNAMIC)
    smem_bytes = (int)pisa_route_smem(job->shape.nt);
  /* behind the routing CTAs come those that each reduce 32 rows of a key/value head's Hsum */
  int64_t reducers = pisa_wants_h_sum(job->method) ? job->method->head_dim / 32 : 0;
  return enqueue(job, PISA_KERNEL_ROUTE,
                 job->shape.bh * job->layout.row_tiles + job->shape.bh_k * reducers, smem_bytes,
                 list, error);
}

static pisa_status enqueue_attend(const struct job *job, struct attend_args *args,
                                  pisa_error *error) {
  void *list[] = {PISA_ATTEND_ARGS(ADDRESS)};
  enum pisa_kernel_id id = pisa_attend_kernel(job->method, &job->shape);
  return enqueue(job, id, pisa_min(job->module->limits.sm_count, args->items),
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

static pisa_status check_workspace(const struct job *job, size_t bytes, pisa_error *error) {
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

static pisa_status prepare(struct job *job, size_t workspace_bytes, pisa_error *error) {
  pisa_status status = pisa_module_plan(job->module, job->call, &job->shape, &job->layout, error);
  if (!status)
    status = check_workspace(job, workspace_bytes, error);
  if (!status)
    status =
        pisa_shape_tensors(job->method, job->call, &job->shape,
                           job->layout.bytes ? job->workspace : NULL, job->layout.bytes, error);
  if (!status)
    status = pisa_limits_strides(job->call, &job->shape, error);
  if (!status)
    status = check_context(job->module, error);
  return status ? status : encode_call(job, error);
}

static pisa_status run(const struct job *job, unsigned kernels, pisa_error *error) {
  struct statistics_args statistics;
  struct route_args route;
  struct attend_args attend;
  fill_statistics(job, &statistics);
  fill_route(job, &route);
  pisa_status status = fill_attend(job, &attend, error);
  if (!status && !job->method->dense && (kernels & PISA_LAUNCH_STATISTICS))
    status = enqueue_statistics(job, &statistics, error);
  if (!status && !job->method->dense && (kernels & PISA_LAUNCH_ROUTE))
    status = enqueue_route(job, &route, error);
  if (!status && (kernels & PISA_LAUNCH_ATTEND))
    status = enqueue_attend(job, &attend, error);
  return status;
}

pisa_status pisa_launch_some(const pisa_module *module, const pisa_attention *call, void *workspace,
                             size_t workspace_bytes, void *stream, unsigned kernels,
                             pisa_error *error) {
  pisa_clear(error);
  if (!module)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "module is NULL");
  struct job job = {.module = module,
                    .method = &module->method,
                    .call = call,
                    .workspace = workspace,
                    .stream = stream};
  pisa_status status = prepare(&job, workspace_bytes, error);
  return status ? status : run(&job, kernels, error);
}

pisa_status pisa_launch(const pisa_module *module, const pisa_attention *call, void *workspace,
                        size_t workspace_bytes, void *stream, pisa_error *error) {
  return pisa_launch_some(module, call, workspace, workspace_bytes, stream, PISA_LAUNCH_ALL, error);
}
