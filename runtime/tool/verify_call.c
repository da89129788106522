/* verify_call.c: one call of pisa_launch on poisoned device memory; a case in, everything the
   kernels left behind out. All device memory that kernels write lies between guard zones. */
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/verify.h"

enum { GUARD = 4096, POISON = 0xff }; /* bytes on either side of lse, blocks and workspace */

/* ---- memory ---- */

static size_t lse_bytes(const struct verify_call *c) {
  return (size_t)(c->shape.bh * c->shape.n_q) * sizeof(float);
}

static size_t blocks_bytes(const struct verify_call *c) {
  return (size_t)(c->shape.bh * c->shape.nt_q * c->shape.kept) * sizeof(int32_t);
}

static size_t lengths_bytes(const struct verify_call *c) {
  return c->inputs.lengths ? (size_t)c->shape.batch * sizeof(int32_t) : 0;
}

static size_t given_bytes(const struct verify_call *c) {
  return (size_t)(c->shape.bh * c->shape.nt_q * c->request.n_listed) * sizeof(int32_t);
}

static size_t tensor_bytes(const struct verify_tensor *t) {
  return (size_t)t->device_elements * sizeof *t->image;
}

static void *inside(void *guarded) {
  return (uint8_t *)guarded + GUARD;
}

static size_t pages_bytes(const struct verify_call *c) {
  return (size_t)(c->shape.batch * c->request.page_columns) * sizeof(int32_t);
}

static pisa_status allocate(struct verify_call *c, pisa_error *error) {
  const struct {
    void **memory;
    size_t bytes;
  } wanted[] = {{&c->q, tensor_bytes(&c->inputs.q)},
                {&c->k, tensor_bytes(&c->inputs.k)},
                {&c->v, tensor_bytes(&c->inputs.v)},
                {&c->o_memory, tensor_bytes(&c->o)},
                {&c->lse, lse_bytes(c) + 2 * GUARD},
                {&c->blocks, blocks_bytes(c) + 2 * GUARD},
                {&c->workspace, c->layout.bytes + 2 * GUARD},
                {&c->lengths, lengths_bytes(c)},
                {&c->lists, given_bytes(c)},
                {&c->pages, pages_bytes(c)}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; !status && i < sizeof wanted / sizeof *wanted; i++)
    if (wanted[i].bytes)
      status = pisa_device_alloc(c->device, wanted[i].bytes, wanted[i].memory, error);
  return status;
}

/* The whole image, or head by head where the device's heads lie far apart. */
static pisa_status copy_tensor(const struct verify_call *c, const struct verify_tensor *t,
                               void *memory, bool up, pisa_error *error) {
  bool far = t->layout == VERIFY_FAR;
  int64_t pieces = far ? t->batch * t->heads : 1;
  size_t bytes = (size_t)(far ? t->n * t->d : t->elements) * sizeof *t->image;
  pisa_status status = PISA_OK;
  for (int64_t i = 0; !status && i < pieces; i++) {
    int64_t b = i / t->heads, h = i % t->heads;
    uint16_t *host = far ? verify_row(t, b, h, 0) : t->image;
    int64_t offset = far ? t->first + b * t->device_stride[0] + h * t->device_stride[1] : 0;
    uint16_t *there = (uint16_t *)memory + offset;
    status = up ? pisa_device_upload(c->device, there, host, bytes, error)
                : pisa_device_download(c->device, host, there, bytes, error);
  }
  return status;
}

/* Whole sequences are their pages, one behind the other. */
static pisa_status upload_pages(const struct verify_call *c, pisa_error *error) {
  int32_t *pages = malloc(pages_bytes(c));
  if (!pages)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for pages");
  for (int64_t i = 0; i < c->shape.batch * c->request.page_columns; i++)
    pages[i] = (int32_t)i;
  pisa_status status = pisa_device_upload(c->device, c->pages, pages, pages_bytes(c), error);
  free(pages);
  return status;
}

pisa_status verify_call_upload(const struct verify_call *c, pisa_error *error) {
  pisa_status status = copy_tensor(c, &c->inputs.q, c->q, true, error);
  if (!status)
    status = copy_tensor(c, &c->inputs.k, c->k, true, error);
  if (!status)
    status = copy_tensor(c, &c->inputs.v, c->v, true, error);
  if (!status && c->lengths)
    status = pisa_device_upload(c->device, c->lengths, c->inputs.lengths, lengths_bytes(c), error);
  if (!status && c->lists)
    status = pisa_device_upload(c->device, c->lists, c->given, given_bytes(c), error);
  if (!status && c->pages)
    status = upload_pages(c, error);
  return status;
}

void *verify_call_workspace(const struct verify_call *c) {
  return c->layout.bytes ? inside(c->workspace) : NULL;
}

/* ---- open and close ---- */

static pisa_attention sizes_of(const struct verify_case *test, const struct pisa_method *method) {
  int64_t kv_heads = test->kv_heads ? test->kv_heads : method->kv_heads;
  int64_t blocks = (test->n_k + method->key - 1) / method->key;
  int64_t n_listed = test->n_listed && test->n_listed < blocks ? test->n_listed : blocks;
  static const int32_t there; /* until the arrays are made: only tested for NULL */
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = test->batch,
                          .heads = kv_heads * pisa_method_group(method),
                          .kv_heads = kv_heads,
                          .n_q = test->n_q,
                          .n_k = test->n_k,
                          .density = test->density,
                          .keep = test->keep,
                          .scale = test->scale,
                          .k_lengths = test->lengths ? &there : NULL,
                          .lists = test->given ? &there : NULL,
                          .n_listed = test->given ? n_listed : 0,
                          .pages = method->page ? &there : NULL,
                          .page_columns = method->page ? test->n_k / method->page : 0,
                          .phase = test->decode ? PISA_DECODE : PISA_PREFILL};
}

/* Outputs cannot share memory. */
static enum verify_layout output_layout(enum verify_layout layout) {
  return layout == VERIFY_SHARED ? VERIFY_BHND : layout;
}

static bool make_tensors(struct verify_call *c, const struct verify_case *test, int64_t d) {
  const pisa_attention *r = &c->request;
  return verify_tensor_init(&c->inputs.q, test->layout, r->batch, r->heads, r->n_q, d) &&
         verify_tensor_init(&c->inputs.k, test->layout, r->batch, r->kv_heads, r->n_k, d) &&
         verify_tensor_init(&c->inputs.v, test->layout, r->batch, r->kv_heads, r->n_k, d) &&
         verify_tensor_init(&c->o, output_layout(test->layout), r->batch, r->heads, r->n_q, d);
}

void verify_call_bind(struct verify_call *c, bool optional) {
  c->request.q = verify_tensor_device(&c->inputs.q, c->q);
  c->request.k = verify_tensor_device(&c->inputs.k, c->k);
  c->request.v = verify_tensor_device(&c->inputs.v, c->v);
  c->request.o = verify_tensor_device(&c->o, c->o_memory);
  c->request.lse = optional ? inside(c->lse) : NULL;
  c->request.blocks = optional && !c->shape.dense ? inside(c->blocks) : NULL;
  c->request.k_lengths = c->lengths;
  c->request.lists = c->lists;
  c->request.pages = c->pages;
  if (c->pages) /* verify.c takes arrays with tokens first alone */
    c->request.k.stride[0] = c->request.v.stride[0] =
        c->module->method.page * c->request.k.stride[2];
}

/* The lists that the call gives; false when memory ran out. */
static bool make_lists(struct verify_call *c, const struct verify_case *test, uint64_t seed) {
  if (!test->given)
    return true;
  c->given = malloc(given_bytes(c));
  if (c->given)
    verify_fill_lists(test->given, c->shape.bh * c->shape.nt_q, c->request.n_listed, c->shape.nt,
                      seed, c->given);
  return c->given != NULL;
}

pisa_status verify_call_open(struct verify_call *c, const struct verify_case *test,
                             const struct pisa_method *method, uint64_t seed, pisa_error *error) {
  c->request = sizes_of(test, method);
  pisa_status status = pisa_module_plan(c->module, &c->request, &c->shape, &c->layout, error);
  if (status)
    return status;
  if (!make_tensors(c, test, method->head_dim) || !make_lists(c, test, seed))
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for this case");
  c->inputs.key = method->key;
  c->inputs.lengths = test->lengths;
  verify_fill(&c->inputs, test->input, method->type, seed);
  status = allocate(c, error);
  return status ? status : verify_call_upload(c, error);
}

void verify_call_close(struct verify_call *c) {
  void *memory[] = {c->q,      c->k,         c->v,       c->o_memory, c->lse,
                    c->blocks, c->workspace, c->lengths, c->lists,    c->pages};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    pisa_device_free(c->device, memory[i]);
  verify_tensor_free(&c->inputs.q);
  verify_tensor_free(&c->inputs.k);
  verify_tensor_free(&c->inputs.v);
  verify_tensor_free(&c->o);
  free(c->given);
}

/* ---- launch ---- */

/* Far tensors are poisoned where they are written alone: the rest is gigabytes. */
static pisa_status poison_o(struct verify_call *c, pisa_error *error) {
  memset(c->o.image, POISON, (size_t)c->o.elements * sizeof *c->o.image);
  return copy_tensor(c, &c->o, c->o_memory, true, error);
}

static pisa_status poison_workspace(const struct verify_call *c, pisa_error *error) {
  uint8_t *memory = c->workspace;
  if (c->poison)
    return pisa_device_fill(c->device, memory, POISON, c->layout.bytes + 2 * GUARD, error);
  pisa_status status = pisa_device_fill(c->device, memory, POISON, GUARD, error);
  return status
             ? status
             : pisa_device_fill(c->device, memory + GUARD + c->layout.bytes, POISON, GUARD, error);
}

static pisa_status poison(struct verify_call *c, pisa_error *error) {
  pisa_status status = poison_o(c, error);
  if (!status)
    status = pisa_device_fill(c->device, c->lse, POISON, lse_bytes(c) + 2 * GUARD, error);
  if (!status)
    status = pisa_device_fill(c->device, c->blocks, POISON, blocks_bytes(c) + 2 * GUARD, error);
  return status ? status : poison_workspace(c, error);
}

static pisa_status enqueue(const void *call, pisa_error *error) {
  const struct verify_call *c = call;
  return pisa_launch(c->module, &c->request, verify_call_workspace(c), c->layout.bytes, c->stream,
                     error);
}

static pisa_status launch(struct verify_call *c, enum verify_mode mode, pisa_error *error) {
  verify_call_bind(c, mode != VERIFY_BARE);
  pisa_status status = poison(c, error);
  if (!status)
    status = mode == VERIFY_GRAPH ? verify_graph_run(c->device, c->stream, enqueue, c, error)
                                  : enqueue(c, error);
  if (!status)
    status = pisa_stream_wait(c->device, c->stream, error);
  return status;
}

/* ---- what came back ---- */

static bool all_poison(const uint8_t *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (bytes[i] != POISON)
      return false;
  return true;
}

static pisa_status check_guards(const struct verify_call *c, const char *name, const void *memory,
                                size_t bytes, struct verify_result *result, pisa_error *error) {
  uint8_t guards[2][GUARD];
  const uint8_t *first = memory, *second = first + GUARD + bytes;
  pisa_status status = pisa_device_download(c->device, guards[0], first, GUARD, error);
  if (!status)
    status = pisa_device_download(c->device, guards[1], second, GUARD, error);
  if (!status && !all_poison(guards[0], sizeof guards))
    verify_fail(result, "%s: something was written outside of it", name);
  return status;
}

/* *out = malloc'ed copy of the |bytes| between the guard zones. */
static pisa_status fetch(const struct verify_call *c, const char *name, void *memory, size_t bytes,
                         void **out, struct verify_result *result, pisa_error *error) {
  *out = malloc(bytes ? bytes : 1);
  if (!*out)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the results");
  pisa_status status = check_guards(c, name, memory, bytes, result, error);
  return status ? status : pisa_device_download(c->device, *out, inside(memory), bytes, error);
}

/* Part by part, without h_part: some of its slots belong to no head and are never written. */
static pisa_status fetch_workspace(const struct verify_call *c, struct verify_outputs *outputs,
                                   struct verify_result *result, pisa_error *error) {
  const struct pisa_workspace *layout = &c->layout;
  outputs->workspace = calloc(1, layout->bytes ? layout->bytes : 1);
  if (!outputs->workspace)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the workspace");
  pisa_status status = check_guards(c, "workspace", c->workspace, layout->bytes, result, error);
  for (int id = 0; !status && id < PISA_N_WORKSPACE_PARTS; id++) {
    size_t offset = layout->parts[id].offset, size = layout->parts[id].size;
    if (id != PISA_WORKSPACE_H_PART)
      status = pisa_device_download(c->device, outputs->workspace + offset,
                                    (uint8_t *)inside(c->workspace) + offset, size, error);
  }
  return status;
}

/* Moves o's rows from the image to |out|; what stays must be poison. */
static void extract_o(struct verify_call *c, uint16_t *out, struct verify_result *result) {
  int64_t missing = 0;
  size_t row_bytes = (size_t)c->o.d * sizeof *out;
  for (int64_t row = 0; row < c->shape.bh * c->o.n; row++, out += c->o.d) {
    int64_t bh = row / c->o.n;
    uint16_t *in = verify_row(&c->o, bh / c->o.heads, bh % c->o.heads, row % c->o.n);
    memcpy(out, in, row_bytes);
    memset(in, POISON, row_bytes);
    for (int64_t d = 0; d < c->o.d; d++)
      missing += out[d] == VERIFY_POISON;
  }
  if (missing)
    verify_fail(result, "o: %lld elements were never written", (long long)missing);
  if (!all_poison((const uint8_t *)c->o.image, (size_t)c->o.elements * sizeof *c->o.image))
    verify_fail(result, "o: something was written outside of it");
}

static pisa_status fetch_o(struct verify_call *c, struct verify_outputs *outputs,
                           struct verify_result *result, pisa_error *error) {
  outputs->o = malloc((size_t)(c->shape.bh * c->o.n * c->o.d) * sizeof *outputs->o);
  if (!outputs->o)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for o");
  pisa_status status = copy_tensor(c, &c->o, c->o_memory, false, error);
  if (!status)
    extract_o(c, outputs->o, result);
  return status;
}

/* Optional outputs nobody asked for must be untouched. */
static void check_bare(const struct verify_call *c, const struct verify_outputs *outputs,
                       struct verify_result *result) {
  if (!c->request.lse && !all_poison((const uint8_t *)outputs->lse, lse_bytes(c)))
    verify_fail(result, "lse was written though not asked for");
  if (!c->request.blocks && !all_poison((const uint8_t *)outputs->blocks, blocks_bytes(c)))
    verify_fail(result, "blocks were written though not asked for");
}

pisa_status verify_call_run(struct verify_call *c, enum verify_mode mode,
                            struct verify_outputs *outputs, struct verify_result *result,
                            pisa_error *error) {
  *outputs = (struct verify_outputs){.layout = c->layout};
  void *lse = NULL, *blocks = NULL;
  pisa_status status = launch(c, mode, error);
  if (!status)
    status = fetch_o(c, outputs, result, error);
  if (!status)
    status = fetch(c, "lse", c->lse, lse_bytes(c), &lse, result, error);
  if (!status)
    status = fetch(c, "blocks", c->blocks, blocks_bytes(c), &blocks, result, error);
  outputs->lse = lse;
  outputs->blocks = blocks;
  if (!status)
    status = fetch_workspace(c, outputs, result, error);
  if (!status)
    check_bare(c, outputs, result);
  return status;
}

const void *verify_part(const struct verify_outputs *outputs, enum pisa_workspace_id id) {
  return outputs->layout.parts[id].size ? outputs->workspace + outputs->layout.parts[id].offset
                                        : NULL;
}

void verify_outputs_free(struct verify_outputs *outputs) {
  free(outputs->o);
  free(outputs->lse);
  free(outputs->blocks);
  free(outputs->workspace);
  *outputs = (struct verify_outputs){0};
}

const char *verify_difference(const struct verify_call *c, const struct verify_outputs *a,
                              const struct verify_outputs *b, bool optional) {
  if (memcmp(a->o, b->o, (size_t)(c->shape.bh * c->o.n * c->o.d) * sizeof *a->o) != 0)
    return "o";
  if (optional && memcmp(a->lse, b->lse, lse_bytes(c)) != 0)
    return "lse";
  if (optional && memcmp(a->blocks, b->blocks, blocks_bytes(c)) != 0)
    return "blocks";
  for (int id = 0; id < PISA_N_WORKSPACE_PARTS; id++) {
    const void *x = verify_part(a, (enum pisa_workspace_id)id),
               *y = verify_part(b, (enum pisa_workspace_id)id);
    if (x && memcmp(x, y, c->layout.parts[id].size) != 0)
      return pisa_workspace_names[id];
  }
  return NULL;
}
