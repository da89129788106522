/* shape.c: checks the sizes of a call and derives block counts. In: a method and a pisa_attention
   as the caller wrote it. Out: struct pisa_shape, or the field that is wrong, its value and what is
   allowed. */
#include "runtime/shape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/size.h"

enum { MAX_STRUCT_SIZE = 4096 };

/* A caller built against a newer pisa.h may pass a longer struct, if what we do not know is zero.
 */
static pisa_status check_struct(const pisa_attention *call, pisa_error *error) {
  if (!call)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "call is NULL");
  size_t size = call->struct_size;
  if (size < sizeof *call || size > MAX_STRUCT_SIZE)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "struct_size is %zu, must be sizeof(pisa_attention) = %zu", size,
                     sizeof *call);
  const unsigned char *bytes = (const unsigned char *)call;
  for (size_t i = sizeof *call; i < size; i++)
    if (bytes[i])
      return pisa_fail(
          error, PISA_UNSUPPORTED,
          "byte %zu of the call is set, which libpisa %s does not know: update libpisa", i,
          PISA_VERSION);
  return PISA_OK;
}

static pisa_status check_range(const char *name, int64_t value, int64_t high, pisa_error *error) {
  if (value >= 1 && value <= high)
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is %" PRId64 ", must be from 1 to %" PRId64,
                   name, value, high);
}

static pisa_status check_sizes(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error) {
  pisa_status status = check_range("batch", call->batch, INT32_MAX, error);
  if (!status)
    status = check_range("heads", call->heads, INT32_MAX / call->batch, error);
  if (!status)
    status = check_range("kv_heads", call->kv_heads, call->heads, error);
  if (!status)
    status = check_range("n_q", call->n_q, PISA_MAX_TOKENS, error);
  if (!status)
    status = check_range("n_k", call->n_k, PISA_MAX_TOKENS, error);
  if (status)
    return status;
  int group = pisa_method_group(method);
  if (call->heads % call->kv_heads || call->heads / call->kv_heads != group)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "heads / kv_heads is %" PRId64 " / %" PRId64 ", must be the spec's %d",
                     call->heads, call->kv_heads, group);
  return PISA_OK;
}

static pisa_status check_budget(const struct pisa_method *method, const pisa_attention *call,
                                pisa_error *error) {
  if (!(call->density >= 0 && call->density <= 1)) /* also refuses NaN */
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "density is %g, must be in (0, 1], or 0 for the spec's budget", call->density);
  if (call->keep < 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "keep is %" PRId64 ", must be at least 1, or 0 for the spec's budget",
                     call->keep);
  if (call->keep > 0 && call->density > 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "density and keep are both set: choose one");
  if (method->dense && (call->keep > 0 || call->density > 0))
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s is set, but the pack is dense: it reads every block exactly",
                     call->keep > 0 ? "keep" : "density");
  if (!(call->scale >= 0) || isinf(call->scale))
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "scale is %g, must be positive and finite, or 0 for 1/sqrt(D)",
                     (double)call->scale);
  return PISA_OK;
}

pisa_status pisa_shape_sizes(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error) {
  pisa_status status = check_struct(call, error);
  if (!status)
    status = check_sizes(method, call, error);
  if (!status)
    status = check_budget(method, call, error);
  if (status)
    return status;
  *out = (struct pisa_shape){
      .batch = call->batch,
      .heads = call->heads,
      .kv_heads = call->kv_heads,
      .n_q = call->n_q,
      .n_k = call->n_k,
      .bh = call->batch * call->heads,
      .bh_k = call->batch * call->kv_heads,
      .nt = pisa_ceil_div(call->n_k, method->key),
      .nt_q = pisa_ceil_div(call->n_q, method->query),
      .nq_s = pisa_ceil_div(call->n_q, method->key),
      .kept = pisa_kept(method, call->n_q, call->n_k, call->density, call->keep)};
  out->vb = pisa_max(out->nt, pisa_method_group(method) * out->nq_s);
  pisa_always_blocks(method, call->n_k, out->always);
  out->scale = call->scale > 0 ? call->scale : (float)(1 / sqrt(method->head_dim));
  return PISA_OK;
}

pisa_status pisa_shape_check(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error) {
  pisa_status status = pisa_shape_sizes(method, call, out, error);
  return status ? status : pisa_shape_tensors(method, call, out, NULL, 0, error);
}
