/* args.c: fills the parameters of the kernels (abi.def, docs/ABI.md section 3). In: a checked call,
   its sizes and its workspace. Out: one struct per kernel; what a method or a call does not use is
   zero. */
#include "runtime/args.h"

#include <math.h>

#include "runtime/size.h"
#include "runtime/tensor_map.h"

static CUdeviceptr address(const void *memory) {
  return (CUdeviceptr)(uintptr_t)memory;
}

/* NULL for a part that the method does not have. */
static const void *part(const struct pisa_job *job, enum pisa_workspace_id id) {
  return job->layout.parts[id].size ? job->workspace + job->layout.parts[id].offset : NULL;
}

static CUdeviceptr part_address(const struct pisa_job *job, enum pisa_workspace_id id) {
  return address(part(job, id));
}

pisa_status pisa_job_encode(struct pisa_job *job, pisa_error *error) {
  const struct pisa_shape *s = &job->shape;
  const struct {
    const char *name;
    const pisa_tensor *tensor;
    int64_t heads, tokens;
    CUtensorMap *out;
  } arrays[] = {{"q", &job->call.q, s->heads, s->n_q, &job->q},
                {"k", &job->call.k, s->kv_heads, s->n_k, &job->k},
                {"v", &job->call.v, s->kv_heads, s->n_k, &job->v},
                {"o", &job->call.o, s->heads, s->n_q, &job->o}};
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
static pisa_status encode_part(const struct pisa_job *job, enum pisa_workspace_id id, int64_t rows,
                               CUtensorMap *out, pisa_error *error) {
  const int64_t extent[4] = {job->shape.batch, job->shape.kv_heads, rows, job->method->head_dim};
  if (!part(job, id))
    return PISA_OK;
  return pisa_map_contiguous(job->module->cuda, pisa_workspace_names[id], part(job, id),
                             job->method->type, extent, out, error);
}

void pisa_fill_statistics(const struct pisa_job *job, struct pisa_statistics_args *args) {
  const struct pisa_shape *s = &job->shape;
  const bool writes_norms = !pisa_wants_residual(job->method); /* or the residual kernel does */
  *args = (struct pisa_statistics_args){
      .q = job->q,
      .k = job->k,
      .v = job->v,
      .q_mean = part_address(job, PISA_WORKSPACE_Q_MEAN),
      .k_mean = part_address(job, PISA_WORKSPACE_K_MEAN),
      .v_mean = part_address(job, PISA_WORKSPACE_V_MEAN),
      .h_norm2 = writes_norms ? part_address(job, PISA_WORKSPACE_H_NORM2) : 0,
      .h_part = part_address(job, PISA_WORKSPACE_H_PART),
      .total_heads = (int32_t)s->bh_k,
      .heads = (int32_t)s->kv_heads,
      .n_q = (int32_t)s->n_q,
      .n_k = (int32_t)s->n_k,
      .blocks = job->layout.stat_blocks,
      .k_variance = part_address(job, PISA_WORKSPACE_K_VARIANCE),
      .variance_scale = s->scale / 2 * (float)pisa_variance_gain(job->method->type),
      .lengths = address(job->call.k_lengths),
  };
}

void pisa_fill_residual(const struct pisa_job *job, struct pisa_residual_args *args) {
  const struct pisa_shape *s = &job->shape;
  *args = (struct pisa_residual_args){
      .k = job->k,
      .v = job->v,
      .h_part = part_address(job, PISA_WORKSPACE_H_PART),
      .h_norm2 = part_address(job, PISA_WORKSPACE_H_NORM2),
      .total_heads = (int32_t)s->bh_k,
      .heads = (int32_t)s->kv_heads,
      .n_k = (int32_t)s->n_k,
      .blocks = (int32_t)s->nt,
      .stat_ctas = job->layout.stat_ctas,
      .stat_blocks = job->layout.stat_blocks,
      .lengths = address(job->call.k_lengths),
  };
}

/* What Hsum is multiplied by before it is stored in the pack's type. */
static float h_scale(const struct pisa_job *job) {
  double plain = (double)job->shape.scale / (double)job->shape.n_k;
  return (float)(plain * pisa_h_gain(job->method->type));
}

/* Forced tokens: a sequence's own length decides where its last ones are. */
static void fill_always(const struct pisa_method *method, struct pisa_route_args *args) {
  struct {
    int32_t *begin, *end;
  } out[PISA_MAX_ALWAYS] = {{&args->always_0_begin, &args->always_0_end},
                            {&args->always_1_begin, &args->always_1_end},
                            {&args->always_2_begin, &args->always_2_end},
                            {&args->always_3_begin, &args->always_3_end}};
  for (int i = 0; i < method->n_always; i++) {
    const struct pisa_always *always = &method->always[i];
    bool last = always->kind == PISA_ALWAYS_LAST;
    *out[i].begin = (int32_t)(last ? -always->end : always->begin);
    *out[i].end = (int32_t)(last ? 0 : always->end);
  }
  args->window = method->has_window ? (int32_t)method->window : -1;
}

static void fill_budget(const struct pisa_job *job, struct pisa_route_args *args) {
  const struct pisa_quota *quota = &job->shape.quota;
  if (quota->num > 0 && !job->call.k_lengths) { /* spares the kernel a 64-bit division */
    args->budget = (int32_t)job->shape.k;
  } else {
    args->density_num = (int32_t)quota->num;
    args->density_den = (int32_t)quota->den;
    args->budget = (int32_t)pisa_min(quota->keep, job->shape.nt);
  }
  if (job->method->budget == PISA_BUDGET_THRESHOLD)
    args->threshold =
        (float)((double)job->method->threshold_num / (double)job->method->threshold_den);
}

void pisa_fill_route(const struct pisa_job *job, struct pisa_route_args *args) {
  const struct pisa_shape *s = &job->shape;
  const bool reduces_h = pisa_wants_h_sum(job->method);
  *args = (struct pisa_route_args){
      .q_mean = part_address(job, PISA_WORKSPACE_Q_MEAN),
      .k_mean = part_address(job, PISA_WORKSPACE_K_MEAN),
      .h_norm2 = part_address(job, PISA_WORKSPACE_H_NORM2),
      .h_part = reduces_h ? part_address(job, PISA_WORKSPACE_H_PART) : 0,
      .lists = part_address(job, PISA_WORKSPACE_LISTS),
      .masks = part_address(job, PISA_WORKSPACE_MASKS),
      .ids = address(job->call.blocks),
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
      .scale = s->scale,
      .h_scale = h_scale(job),
      .window = -1,
      .counts = part_address(job, PISA_WORKSPACE_COUNTS),
      .shared = part_address(job, PISA_WORKSPACE_SHARED),
      .lengths = address(job->call.k_lengths),
      .given = address(job->call.lists),
      .n_given = (int32_t)job->call.n_listed,
      .heads = (int32_t)s->heads,
      .density_den = 1,
  };
  if (job->call.lists) /* neither forced blocks nor a budget apply */
    return;
  fill_always(job->method, args);
  fill_budget(job, args);
}

static pisa_status encode_summaries(const struct pisa_job *job, struct pisa_attend_args *args,
                                    pisa_error *error) {
  int64_t nt = job->shape.nt;
  pisa_status status = encode_part(job, PISA_WORKSPACE_K_MEAN, nt, &args->k_mean, error);
  if (!status)
    status = encode_part(job, PISA_WORKSPACE_V_MEAN, nt, &args->v_mean, error);
  if (!status)
    status = encode_part(job, PISA_WORKSPACE_H_SUM, job->method->head_dim, &args->h_sum, error);
  return status ? status
                : encode_part(job, PISA_WORKSPACE_K_VARIANCE, nt, &args->k_variance, error);
}

/* Rows of q that an item is: the union walk takes two query blocks at a time. */
static int64_t item_rows(const struct pisa_method *method, enum pisa_kernel_id kernel) {
  if (kernel == PISA_KERNEL_DENSE || kernel == PISA_KERNEL_DENSE_EDGE)
    return PISA_DENSE_QUERY;
  return kernel == PISA_KERNEL_ATTEND && method->union_lists ? 2 * method->query : method->query;
}

pisa_status pisa_fill_attend(const struct pisa_job *job, enum pisa_kernel_id kernel,
                             struct pisa_attend_args *args, pisa_error *error) {
  const struct pisa_shape *s = &job->shape;
  const double log2_e = 1.4426950408889634;
  const int64_t q_blocks = pisa_ceil_div(s->n_q, item_rows(job->method, kernel));
  *args = (struct pisa_attend_args){
      .q = job->q,
      .k = job->k,
      .v = job->v,
      .o = job->o,
      .lists = part_address(job, PISA_WORKSPACE_LISTS),
      .masks = part_address(job, PISA_WORKSPACE_MASKS),
      .lse = address(job->call.lse),
      .items = (int32_t)(s->bh * q_blocks),
      .q_blocks = (int32_t)q_blocks,
      .heads = (int32_t)s->heads,
      .n_q = (int32_t)s->n_q,
      .n_k = (int32_t)s->n_k,
      .keep = (int32_t)(s->dense ? pisa_ceil_div(s->n_k, pisa_dense_key(job->method)) : s->kept),
      .list_stride = job->layout.list_stride,
      .mask_words = job->layout.mask_words,
      .scale_log2 = (float)((double)s->scale * log2_e),
      .mean_bias = (float)(log2(job->method->key) / ((double)s->scale * log2_e)),
      .counts = part_address(job, PISA_WORKSPACE_COUNTS),
      .lengths = address(job->call.k_lengths),
      .shared = part_address(job, PISA_WORKSPACE_SHARED),
  };
  return pisa_wants_v_mean(job->method) ? encode_summaries(job, args, error) : PISA_OK;
}
