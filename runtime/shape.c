/* shape.c: checks the sizes of a call and derives block counts. In: a method and a pisa_attention
   as the caller wrote it. Out: struct pisa_shape, or the field that is wrong, its value and what is
   allowed. */
#include "runtime/shape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/select.h"
#include "runtime/size.h"

enum { MAX_STRUCT_SIZE = 4096 };

/* The struct as it was before k_lengths, worth and csr_offsets is still taken. A caller built
   against a newer pisa.h may pass a longer one, if what we do not know is zero. */
pisa_status pisa_call_read(const pisa_attention *call, pisa_attention *out, pisa_error *error) {
  const size_t first_size = offsetof(pisa_attention, k_lengths);
  const size_t second_size = offsetof(pisa_attention, worth);
  const size_t third_size = offsetof(pisa_attention, csr_offsets);
  if (!call)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "call is NULL");
  size_t size = call->struct_size;
  bool is_older = size == first_size || size == second_size || size == third_size;
  if ((size < sizeof *call && !is_older) || size > MAX_STRUCT_SIZE)
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
  *out = (pisa_attention){0};
  memcpy(out, call, size < sizeof *out ? size : sizeof *out);
  out->struct_size = sizeof *out;
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
  if (call->keep == 0 && call->density <= 0)
    return PISA_OK;
  const char *set = call->keep > 0 ? "keep" : "density";
  if (method->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s is set, but the pack is dense: it reads every block exactly", set);
  if (method->budget == PISA_BUDGET_THRESHOLD)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s is set, but the pack's budget is a threshold", set);
  if (call->lists)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is set, but lists say what is read", set);
  return PISA_OK;
}

static pisa_status check_scale(const pisa_attention *call, pisa_error *error) {
  if (call->scale >= 0 && !isinf(call->scale)) /* NaN is not >= 0 */
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "scale is %g, must be positive and finite, or 0 for 1/sqrt(D)",
                   (double)call->scale);
}

static pisa_status check_lists(const struct pisa_method *method, const pisa_attention *call,
                               const struct pisa_shape *shape, pisa_error *error) {
  if (!call->lists && call->n_listed == 0)
    return PISA_OK;
  if (!call->lists)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "n_listed is %" PRId64 ", but lists is NULL: it must be 0", call->n_listed);
  if (method->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "lists must be NULL: the pack is dense, it reads every block exactly");
  if (shape->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "lists must be NULL: below %" PRId64
                     " tokens this pack reads every block exactly, n_k is %" PRId64,
                     method->dense_below, call->n_k);
  return check_range("n_listed", call->n_listed, shape->nt, error);
}

static struct pisa_shape derive(const struct pisa_method *method, const pisa_attention *call) {
  struct pisa_shape s = {.batch = call->batch,
                         .heads = call->heads,
                         .kv_heads = call->kv_heads,
                         .n_q = call->n_q,
                         .n_k = call->n_k,
                         .bh = call->batch * call->heads,
                         .bh_k = call->batch * call->kv_heads,
                         .nt = pisa_ceil_div(call->n_k, method->key),
                         .nt_q = pisa_ceil_div(call->n_q, method->query),
                         .nq_s = pisa_ceil_div(call->n_q, method->key),
                         .dense = method->dense || call->n_k < method->dense_below,
                         .queries = call->batch * call->n_q,
                         .keys = call->batch * call->n_k};
  s.vb = pisa_max(s.nt, pisa_method_group(method) * s.nq_s);
  s.scale = call->scale > 0 ? call->scale : (float)(1 / sqrt(method->head_dim));
  return s;
}

/* How long lists are. */
static void derive_lists(const struct pisa_method *method, const pisa_attention *call,
                         struct pisa_shape *s) {
  if (s->dense || call->lists) {
    s->k = s->kept = s->dense ? s->nt : call->n_listed;
    s->uniform = s->dense && !call->k_lengths;
    return;
  }
  s->k = pisa_quota_blocks(&s->quota, s->nt);
  s->kept = pisa_kept(method, &s->quota, s->n_q, s->n_k, call->k_lengths != NULL);
  s->uniform = !call->k_lengths && s->kept == s->k;
}

static pisa_status piecewise_sizes(const struct pisa_method *method, const pisa_attention *call,
                                   struct pisa_shape *shape, pisa_error *error) {
  pisa_status status = pisa_select_unused(method, call, error);
  if (!status)
    status = check_budget(method, call, error);
  if (!status)
    status = check_lists(method, call, shape, error);
  if (status)
    return status;
  shape->is_decode = call->phase == PISA_DECODE;
  shape->attends = true;
  shape->quota = pisa_quota(method, call->density, call->keep);
  derive_lists(method, call, shape);
  return PISA_OK;
}

pisa_status pisa_shape_sizes(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error) {
  pisa_status status = check_sizes(method, call, error);
  if (!status)
    status = check_scale(call, error);
  if (status)
    return status;
  struct pisa_shape shape = derive(method, call);
  status = method->family == PISA_PYRAMID ? pisa_select_sizes(method, call, &shape, error)
                                          : piecewise_sizes(method, call, &shape, error);
  if (!status)
    *out = shape;
  return status;
}

pisa_status pisa_shape_check(const struct pisa_method *method, const pisa_attention *call,
                             struct pisa_shape *out, pisa_error *error) {
  pisa_status status = pisa_shape_sizes(method, call, out, error);
  return status ? status : pisa_shape_tensors(method, call, out, NULL, 0, error);
}
