/* tensors.c: checks the arrays of a call. In: sizes that shape.c has checked. Out: PISA_OK, or the
   array, the dimension and the rule it breaks: pointers, alignment, strides, addresses, overlaps.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/shape.h"
#include "runtime/size.h"
#include "runtime/workspace.h"

enum {
  ELEMENT_BYTES = 2, /* bf16 and fp16 */
  ALIGNMENT = 16     /* bytes: of data and of strides, as TMA asks */
};
static const char *const dimension[4] = {"batch", "heads", "tokens", "head_dim"};

struct array {
  const char *name;
  const pisa_tensor *tensor;
  int64_t extent[4];
  bool is_output;
  bool is_pool; /* its first extent is any number of pages, not known here */
};

struct region { /* bytes [begin, end) of an argument */
  const char *name;
  uintptr_t begin, end;
  bool is_written;
};

/* q, k, v, o, lse, blocks, k_lengths, lists or worth, workspace; q_starts, k_starts or pages;
   pyramid; csr_offsets, csr_queries */
enum { MAX_REGIONS = 14 };
struct regions {
  struct region list[MAX_REGIONS];
  int n;
};

static pisa_status check_data(const char *name, const char *field, const void *data, size_t align,
                              pisa_error *error) {
  if (!data)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s%s is NULL", name, field);
  if ((uintptr_t)data % align)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s%s is %p, must be aligned to %zu bytes", name,
                     field, data, align);
  return PISA_OK;
}

/* A stride along a dimension of one element is never used, so any value is right there. */
static pisa_status check_strides(const struct array *a, pisa_error *error) {
  const int64_t *stride = a->tensor->stride;
  if (stride[3] != 1)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s.stride[3] (head_dim) is %" PRId64 ", must be 1: rows must be contiguous",
                     a->name, stride[3]);
  for (int i = 0; i < 3; i++) {
    if (a->extent[i] == 1 && !(a->is_pool && i == 0))
      continue;
    if (stride[i] < 0)
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "%s.stride[%d] (%s) is %" PRId64 ", must not be negative", a->name, i,
                       dimension[i], stride[i]);
    if (stride[i] % (ALIGNMENT / ELEMENT_BYTES))
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "%s.stride[%d] (%s) is %" PRId64
                       " elements, must be a multiple of 8 elements (16 bytes)",
                       a->name, i, dimension[i], stride[i]);
    if (stride[i] == 0 && (a->is_output || i == 2))
      return pisa_fail(
          error, PISA_INVALID_ARGUMENT,
          "%s.stride[%d] (%s) is 0, which is allowed only along batch and heads of inputs", a->name,
          i, dimension[i]);
  }
  return PISA_OK;
}

/* Walks the dimensions from the shortest stride to the longest: each step must clear what lies
 * within. */
static pisa_status check_distinct(const struct array *a, pisa_error *error) {
  bool done[3] = {false, false, false};
  int64_t span = a->extent[3];
  for (int step = 0; step < 3; step++) {
    int next = -1;
    for (int i = 0; i < 3; i++)
      if (!done[i] && (next < 0 || a->tensor->stride[i] < a->tensor->stride[next]))
        next = i;
    done[next] = true;
    if (a->extent[next] == 1)
      continue;
    if (a->tensor->stride[next] < span)
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "%s.stride[%d] (%s) is %" PRId64 ", must be at least %" PRId64
                       ": its elements would overlap",
                       a->name, next, dimension[next], a->tensor->stride[next], span);
    span += (a->extent[next] - 1) * a->tensor->stride[next];
  }
  return PISA_OK;
}

/* Elements from the first to behind the last one; false when that is no address range. */
static bool tensor_bytes(const struct array *a, int64_t *out) {
  int64_t span = a->extent[3], step;
  for (int i = 0; i < 3; i++)
    if (a->extent[i] > 1 && (!pisa_multiply(a->extent[i] - 1, a->tensor->stride[i], &step) ||
                             !pisa_add(span, step, &span)))
      return false;
  return pisa_multiply(span, ELEMENT_BYTES, out);
}

static pisa_status add_region(struct regions *regions, const char *name, const void *data,
                              uint64_t bytes, bool is_written, pisa_error *error) {
  uintptr_t begin = (uintptr_t)data;
  if (bytes > UINTPTR_MAX - begin)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s reaches beyond the address space", name);
  regions->list[regions->n++] = (struct region){name, begin, begin + (uintptr_t)bytes, is_written};
  return PISA_OK;
}

static pisa_status check_tensor(const struct array *a, struct regions *regions, pisa_error *error) {
  int64_t bytes;
  pisa_status status = check_data(a->name, ".data", a->tensor->data, ALIGNMENT, error);
  if (!status)
    status = check_strides(a, error);
  if (status)
    return status;
  if (!tensor_bytes(a, &bytes))
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s reaches beyond the address space", a->name);
  if (a->is_output)
    status = check_distinct(a, error);
  return status
             ? status
             : add_region(regions, a->name, a->tensor->data, (uint64_t)bytes, a->is_output, error);
}

/* A contiguous array of 4-byte elements, |rows| x |columns|; NULL is allowed. */
static pisa_status check_words(const char *name, const void *data, int64_t rows, int64_t columns,
                               bool is_written, struct regions *regions, pisa_error *error) {
  int64_t count, bytes;
  if (!data)
    return PISA_OK;
  pisa_status status = check_data(name, "", data, 4, error);
  if (status)
    return status;
  if (!pisa_multiply(rows, columns, &count) || !pisa_multiply(count, 4, &bytes))
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s reaches beyond the address space", name);
  return add_region(regions, name, data, (uint64_t)bytes, is_written, error);
}

static pisa_status check_overlaps(const struct regions *regions, pisa_error *error) {
  for (int i = 0; i < regions->n; i++) {
    for (int j = 0; j < regions->n; j++) {
      const struct region *a = &regions->list[i], *b = &regions->list[j];
      if (i != j && a->is_written && a->begin < b->end && b->begin < a->end)
        return pisa_fail(error, PISA_INVALID_ARGUMENT,
                         "%s overlaps %s in memory: outputs must be apart from all else", a->name,
                         b->name);
    }
  }
  return PISA_OK;
}

/* A call that is dense for its length alone makes no lists. */
static pisa_status check_short(const char *name, const struct pisa_method *method,
                               const struct pisa_shape *s, pisa_error *error) {
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "%s must be NULL: below %" PRId64
                   " tokens this pack makes no block lists, n_k is %" PRId64,
                   name, method->dense_below, s->n_k);
}

static pisa_status check_blocks(const struct pisa_method *method, const pisa_attention *call,
                                const struct pisa_shape *s, struct regions *regions,
                                pisa_error *error) {
  int64_t entries = 0;
  if (call->blocks && method->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "blocks must be NULL: the pack is dense and has no block lists");
  if (call->blocks && s->dense)
    return check_short("blocks", method, s, error);
  if (call->blocks && !pisa_multiply(s->nt_q, s->kept, &entries))
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "blocks reaches beyond the address space");
  return check_words("blocks", call->blocks, s->bh, entries, true, regions, error);
}

/* The arrays of 4-byte elements: lse, blocks, k_lengths, pages, lists. */
static pisa_status check_words_piecewise(const struct pisa_method *method,
                                         const pisa_attention *call, const struct pisa_shape *s,
                                         struct regions *regions, pisa_error *error) {
  int64_t entries = 0;
  pisa_status status = check_words("lse", call->lse, s->bh, s->n_q, true, regions, error);
  if (!status)
    status = check_blocks(method, call, s, regions, error);
  if (!status)
    status = check_words("k_lengths", call->k_lengths, s->batch, 1, false, regions, error);
  if (!status)
    status = check_words("pages", call->pages, s->batch, call->page_columns, false, regions, error);
  if (!status && call->lists && !pisa_multiply(s->nt_q, call->n_listed, &entries))
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "lists reaches beyond the address space");
  return status ? status : check_words("lists", call->lists, s->bh, entries, false, regions, error);
}

static pisa_status check_pyramid(const struct pisa_method *method, const pisa_attention *call,
                                 struct regions *regions, pisa_error *error) {
  size_t bytes = 0;
  if (!call->pyramid)
    return PISA_OK;
  pisa_status status = check_data("pyramid", "", call->pyramid, PISA_WORKSPACE_ALIGN, error);
  if (!status)
    status = pisa_pyramid_bytes(method, call, &bytes, error);
  return status ? status : add_region(regions, "pyramid", call->pyramid, bytes, true, error);
}

/* What a call that selects blocks asks for. */
static pisa_status check_wishes(const struct pisa_method *method, const pisa_attention *call,
                                const struct pisa_shape *s, pisa_error *error) {
  const char *lists = call->blocks  ? "blocks"
                      : call->worth ? "worth"
                      : s->has_csr  ? "csr_offsets"
                                    : NULL;
  if (s->dense && lists)
    return check_short(lists, method, s, error);
  if (s->dense && !s->attends)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "o.data is NULL, but below %" PRId64
                     " tokens this pack selects nothing, n_k is %" PRId64,
                     method->dense_below, s->n_k);
  if (!s->attends && !call->blocks)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "o.data and blocks are both NULL: nothing is asked for");
  if (!s->attends && call->lse)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "lse is set, but o.data is NULL: a call that only selects has no softmax");
  return PISA_OK;
}

/* The lists turned around. */
static pisa_status check_csr(const struct pisa_method *method, const pisa_attention *call,
                             const struct pisa_shape *s, struct regions *r, pisa_error *error) {
  const int64_t leaves = s->keys / method->key + s->batch;
  pisa_status status =
      check_words("csr_offsets", call->csr_offsets, s->kv_heads, leaves + 1, true, r, error);
  return status ? status
                : check_words("csr_queries", call->csr_queries, s->kv_heads * s->queries, s->kept,
                              true, r, error);
}

/* The same of block selection: a list per query and key/value head. */
static pisa_status check_words_select(const struct pisa_method *method, const pisa_attention *call,
                                      const struct pisa_shape *s, struct regions *r,
                                      pisa_error *error) {
  const int64_t rows = s->kv_heads * s->queries, ends = s->batch + 1;
  pisa_status status = check_wishes(method, call, s, error);
  if (!status)
    status = check_words("lse", call->lse, s->heads, s->queries, true, r, error);
  if (!status)
    status = check_words("blocks", call->blocks, rows, s->kept, true, r, error);
  if (!status)
    status = check_words("worth", call->worth, rows, s->kept, true, r, error);
  if (!status)
    status = check_words("k_lengths", call->k_lengths, s->batch, 1, false, r, error);
  if (!status)
    status = check_words("q_starts", call->q_starts, ends, 1, false, r, error);
  if (!status)
    status = check_words("k_starts", call->k_starts, ends, 1, false, r, error);
  if (!status)
    status = check_csr(method, call, s, r, error);
  return status ? status
                : check_words("pages", call->pages, s->batch, call->page_columns, false, r, error);
}

static pisa_status check_small(const struct pisa_method *method, const pisa_attention *call,
                               const struct pisa_shape *s, struct regions *regions,
                               pisa_error *error) {
  if (method->family != PISA_PYRAMID)
    return check_words_piecewise(method, call, s, regions, error);
  pisa_status status = check_words_select(method, call, s, regions, error);
  return status ? status : check_pyramid(method, call, regions, error);
}

/* q, k, v, o; sequences that are packed are one batch entry, and of pages one is sure to be there.
 */
static pisa_status check_tensors(const struct pisa_method *method, const pisa_attention *call,
                                 const struct pisa_shape *s, struct regions *regions,
                                 pisa_error *error) {
  const int64_t d = method->head_dim, batch = s->is_packed ? 1 : s->batch;
  const int64_t k_batch = method->page ? 1 : batch, k_rows = method->page ? method->page : s->n_k;
  const bool attends = method->family != PISA_PYRAMID || s->attends, is_pool = method->page > 0;
  const struct array arrays[4] = {
      {"q", &call->q, {batch, s->heads, s->n_q, d}, false, false},
      {"k", &call->k, {k_batch, s->kv_heads, k_rows, d}, false, is_pool},
      {"v", &call->v, {k_batch, s->kv_heads, k_rows, d}, false, is_pool},
      {"o", &call->o, {batch, s->heads, s->n_q, d}, true, false},
  };
  pisa_status status = PISA_OK;
  for (int i = 0; i < (attends ? 4 : 2) && !status; i++)
    status = check_tensor(&arrays[i], regions, error);
  return status;
}

pisa_status pisa_shape_tensors(const struct pisa_method *method, const pisa_attention *call,
                               const struct pisa_shape *s, const void *workspace,
                               size_t workspace_bytes, pisa_error *error) {
  struct regions regions = {.n = 0};
  pisa_status status = check_tensors(method, call, s, &regions, error);
  if (!status)
    status = check_small(method, call, s, &regions, error);
  if (!status && workspace)
    status = check_data("workspace", "", workspace, PISA_WORKSPACE_ALIGN, error);
  if (!status && workspace)
    status = add_region(&regions, "workspace", workspace, workspace_bytes, true, error);
  return status ? status : check_overlaps(&regions, error);
}
