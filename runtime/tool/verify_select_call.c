/* verify_select_call.c: one call that selects blocks, on poisoned device memory; a case in,
   everything that counts of what the kernels left behind out. */
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/random.h"
#include "runtime/tool/verify_select.h"

enum { POISON = 0xff, STREAM_PAGES = 200, SPARE_PAGES = 3 };

/* ---- sizes ---- */

static int64_t clamp(int64_t x, int64_t most) {
  return x < 0 ? 0 : x < most ? x : most;
}

/* The keys of sequence |b| once all have come. */
static int64_t last_keys(const struct select_case *test, int64_t b, int64_t room) {
  return test->lengths ? clamp(test->lengths[b], room) : clamp(test->n_k, room);
}

static void place_sequences(struct select_call *c) {
  const struct select_case *test = c->test;
  struct select_arrays *a = &c->arrays;
  a->packed = test->q_starts != NULL;
  a->batch = test->batch;
  for (int64_t b = 0; b < test->batch; b++) {
    struct verify_sequence *s = &a->sequence[b];
    if (a->packed) {
      *s = (struct verify_sequence){.first = test->q_starts[b],
                                    .n_q = test->q_starts[b + 1] - test->q_starts[b],
                                    .k_first = test->k_starts[b],
                                    .k_begin = test->k_starts[b],
                                    .room = test->k_starts[b + 1] - test->k_starts[b]};
      s->keys = s->room;
    } else {
      *s = (struct verify_sequence){.n_q = test->n_q,
                                    .k_begin = b * c->request.n_k,
                                    .room = c->request.n_k,
                                    .keys = last_keys(test, b, c->request.n_k)};
    }
  }
}

static bool wants_lengths(const struct select_call *c) {
  return c->test->lengths || c->test->steps || c->request.n_k != c->test->n_k;
}

static pisa_attention sizes_of(const struct select_case *test, const struct pisa_method *method) {
  static const int32_t there; /* until the arrays are made: only tested for NULL */
  int64_t kv_heads = test->kv_heads ? test->kv_heads : method->kv_heads < 2 ? method->kv_heads : 2;
  int64_t page = method->page ? method->page : 1, columns = (test->n_k + page - 1) / page;
  bool kept = test->pyramid || test->steps || (test->below && method->dense_below);
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = test->batch,
                          .heads = kv_heads * pisa_method_group(method),
                          .kv_heads = kv_heads,
                          .n_q = test->n_q,
                          .n_k = columns * page,
                          .scale = test->scale,
                          .o.data = (void *)(uintptr_t)&there,
                          .blocks = (int32_t *)(uintptr_t)&there,
                          .q_starts = test->q_starts,
                          .k_starts = test->k_starts,
                          .pages = method->page ? &there : NULL,
                          .page_columns = method->page ? columns : 0,
                          .pyramid = kept ? (void *)(uintptr_t)&there : NULL};
}

/* ---- arrays ---- */

/* Every sequence's pages anywhere among all of them. */
static bool make_pages(struct select_call *c) {
  struct select_arrays *a = &c->arrays;
  int64_t n = c->request.batch * c->request.page_columns;
  struct random random = random_at(c->seed, STREAM_PAGES, 0);
  a->page = c->module->method.page;
  a->page_columns = c->request.page_columns;
  if (!a->page)
    return true;
  a->pages = malloc((size_t)n * sizeof *a->pages);
  for (int64_t i = 0; a->pages && i < n; i++) {
    int64_t j = random_below(&random, i + 1);
    a->pages[i] = a->pages[j];
    a->pages[j] = (int32_t)(i + SPARE_PAGES);
  }
  return a->pages != NULL;
}

static bool make_tensors(struct select_call *c) {
  const pisa_attention *r = &c->request;
  struct select_arrays *a = &c->arrays;
  enum verify_layout layout = c->test->layout;
  int64_t d = c->module->method.head_dim, entries = a->packed ? 1 : r->batch;
  int64_t k_entries = a->page ? r->batch * a->page_columns + SPARE_PAGES : entries;
  int64_t k_rows = a->page ? a->page : r->n_k;
  return verify_tensor_init(&a->q, layout, entries, r->heads, r->n_q, d) &&
         verify_tensor_init(&a->k, layout, k_entries, r->kv_heads, k_rows, d) &&
         verify_tensor_init(&a->v, layout, k_entries, r->kv_heads, k_rows, d) &&
         verify_tensor_init(&c->o, layout, entries, r->heads, r->n_q, d);
}

int64_t select_rows(const struct select_call *c) {
  return c->shape.queries * c->request.kv_heads;
}

int64_t select_row(const struct select_call *c, int64_t b, int64_t hk, int64_t n) {
  return c->arrays.packed ? hk * c->request.n_q + c->arrays.sequence[b].first + n
                          : (b * c->request.kv_heads + hk) * c->request.n_q + n;
}

int64_t select_o_row(const struct select_call *c, int64_t b, int64_t h, int64_t n) {
  return c->arrays.packed ? h * c->request.n_q + c->arrays.sequence[b].first + n
                          : (b * c->request.heads + h) * c->request.n_q + n;
}

static int64_t o_rows(const struct select_call *c) {
  return c->shape.queries * c->request.heads;
}

int64_t select_node(const struct select_call *c, int64_t b, int64_t hk, int level, int64_t node) {
  const struct pisa_method *m = &c->module->method;
  int64_t size = m->key, row = 4 * (c->arrays.sequence[b].k_begin / (2 * m->key)) + 128 * b + node;
  for (int l = 1; l < level; l++, size *= m->group)
    row += (((c->arrays.sequence[b].room + size - 1) / size + 3) / 4) * 4;
  return (hk * c->node_rows + row) * m->head_dim;
}

bool select_call_attends(const struct select_call *c) {
  return c->request.o.data != NULL;
}

/* ---- open and close ---- */

static size_t tensor_bytes(const struct verify_tensor *t) {
  return (size_t)t->device_elements * sizeof *t->image;
}

/* What every way to call that this case has can do with. */
static pisa_status most_workspace(const struct select_call *c, size_t *most, pisa_error *error) {
  static int32_t there; /* only tested for NULL */
  pisa_status status = PISA_OK;
  for (int way = 0; !status && way < 6; way++) {
    pisa_attention request = c->request;
    size_t bytes = 0;
    request.phase = way / 3 ? PISA_DECODE : PISA_PREFILL;
    request.n_new = way / 3 ? c->test->n_new : 0;
    request.csr_offsets = request.csr_queries = way / 3 ? NULL : &there;
    if (request.phase == PISA_DECODE && !c->test->steps)
      break;
    if (way % 3 == 1)
      request.blocks = NULL;
    if (way % 3 == 2)
      request.o.data = NULL;
    status = pisa_workspace_size(c->module, &request, &bytes, error);
    *most = bytes > *most ? bytes : *most;
  }
  return status;
}

static pisa_status allocate(struct select_call *c, pisa_error *error) {
  const pisa_attention *r = &c->request;
  size_t lists = (size_t)(select_rows(c) * c->shape.kept) * 4, starts = (size_t)r->batch * 4 + 4;
  size_t pyramid = 0, workspace = 0;
  pisa_status status = most_workspace(c, &workspace, error);
  if (!status && r->pyramid)
    status = pisa_pyramid_bytes(&c->module->method, r, &pyramid, error);
  const struct {
    void **memory;
    size_t bytes;
  } plain[] = {{&c->q, tensor_bytes(&c->arrays.q)},
               {&c->k, tensor_bytes(&c->arrays.k)},
               {&c->v, tensor_bytes(&c->arrays.v)},
               {&c->o_memory, tensor_bytes(&c->o)},
               {&c->lengths, wants_lengths(c) ? starts : 0},
               {&c->q_starts, c->arrays.packed ? starts : 0},
               {&c->k_starts, c->arrays.packed ? starts : 0},
               {&c->pages, (size_t)(r->batch * r->page_columns) * 4}};
  const struct {
    struct select_buffer *buffer;
    size_t bytes;
  } guarded[] = {{&c->lse, (size_t)o_rows(c) * 4},
                 {&c->blocks, lists},
                 {&c->worth, lists},
                 {&c->workspace, workspace},
                 {&c->pyramid, pyramid}};
  for (size_t i = 0; !status && i < sizeof plain / sizeof *plain; i++)
    if (plain[i].bytes)
      status = pisa_device_alloc(c->device, plain[i].bytes, plain[i].memory, error);
  for (size_t i = 0; !status && i < sizeof guarded / sizeof *guarded; i++)
    status = select_buffer_open(c->device, guarded[i].bytes, guarded[i].buffer, error);
  return status;
}

static pisa_status copy(const struct select_call *c, const struct verify_tensor *t, void *memory,
                        pisa_error *error) {
  return pisa_device_upload(c->device, memory, t->image, tensor_bytes(t), error);
}

pisa_status select_call_upload_queries(const struct select_call *c, pisa_error *error) {
  return copy(c, &c->arrays.q, c->q, error);
}

static pisa_status upload(const struct select_call *c, pisa_error *error) {
  const struct select_case *test = c->test;
  size_t starts = (size_t)test->batch * 4 + 4;
  pisa_status status = select_call_upload_queries(c, error);
  if (!status)
    status = copy(c, &c->arrays.k, c->k, error);
  if (!status)
    status = copy(c, &c->arrays.v, c->v, error);
  if (!status && c->q_starts)
    status = pisa_device_upload(c->device, c->q_starts, test->q_starts, starts, error);
  if (!status && c->k_starts)
    status = pisa_device_upload(c->device, c->k_starts, test->k_starts, starts, error);
  if (!status && c->pages)
    status = pisa_device_upload(c->device, c->pages, c->arrays.pages,
                                (size_t)(test->batch * c->arrays.page_columns) * 4, error);
  return status;
}

pisa_status select_call_set_lengths(struct select_call *c, const int64_t *keys, pisa_error *error) {
  int32_t lengths[SELECT_MAX_BATCH];
  for (int64_t b = 0; b < c->arrays.batch; b++) {
    lengths[b] = (int32_t)keys[b];
    c->arrays.sequence[b].keys = clamp(keys[b], c->arrays.sequence[b].room);
  }
  return c->lengths ? pisa_device_upload(c->device, c->lengths, lengths,
                                         (size_t)c->arrays.batch * sizeof *lengths, error)
                    : PISA_OK;
}

static pisa_status plan(struct select_call *c, pisa_error *error) {
  static const int32_t there;
  c->request = sizes_of(c->test, &c->module->method);
  place_sequences(c);
  c->request.k_lengths = wants_lengths(c) ? &there : NULL;
  pisa_status status = pisa_module_plan(c->module, &c->request, &c->shape, &c->layout, error);
  if (!status)
    c->node_rows = pisa_node_rows(&c->module->method, c->request.batch, c->shape.keys);
  return status;
}

pisa_status select_call_open(struct select_call *c, pisa_error *error) {
  pisa_status status = plan(c, error);
  int64_t keys[SELECT_MAX_BATCH];
  if (status)
    return status;
  if (!make_pages(c) || !make_tensors(c))
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for this case");
  select_fill(&c->arrays, c->test->input, c->module->method.type, c->seed);
  status = allocate(c, error);
  if (!status)
    status = upload(c, error);
  for (int64_t b = 0; b < c->arrays.batch; b++) /* as given: kernels clamp them */
    keys[b] = c->test->lengths ? c->test->lengths[b] : c->arrays.sequence[b].keys;
  return status ? status : select_call_set_lengths(c, keys, error);
}

void select_call_close(struct select_call *c) {
  void *plain[] = {c->q, c->k, c->v, c->o_memory, c->lengths, c->q_starts, c->k_starts, c->pages};
  struct select_buffer *guarded[] = {&c->lse, &c->blocks, &c->worth, &c->workspace, &c->pyramid};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    pisa_device_free(c->device, plain[i]);
  for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++)
    select_buffer_close(c->device, guarded[i]);
  verify_tensor_free(&c->arrays.q);
  verify_tensor_free(&c->arrays.k);
  verify_tensor_free(&c->arrays.v);
  verify_tensor_free(&c->o);
  free(c->arrays.pages);
}

/* ---- launch ---- */

pisa_status select_call_bind(struct select_call *c, enum select_mode mode, pisa_error *error) {
  pisa_attention *r = &c->request;
  bool alone = mode == SELECT_ALONE, bare = mode == SELECT_BARE, lists = !bare && !c->shape.dense;
  r->q = verify_tensor_device(&c->arrays.q, c->q);
  r->k = verify_tensor_device(&c->arrays.k, c->k);
  r->v = verify_tensor_device(&c->arrays.v, c->v);
  r->o = verify_tensor_device(&c->o, c->o_memory);
  if (alone) {
    r->v = (pisa_tensor){.data = NULL};
    r->o = r->v;
  }
  r->lse = bare || alone ? NULL : select_buffer_inside(&c->lse);
  r->blocks = lists ? select_buffer_inside(&c->blocks) : NULL;
  r->worth = !lists || alone ? NULL : select_buffer_inside(&c->worth);
  r->k_lengths = c->lengths;
  r->q_starts = c->q_starts;
  r->k_starts = c->k_starts;
  r->pages = c->pages;
  r->pyramid = select_buffer_inside(&c->pyramid);
  return pisa_module_plan(c->module, r, &c->shape, &c->layout, error);
}

void *select_call_workspace(const struct select_call *c) {
  size_t all = c->workspace.bytes, bytes = c->layout.bytes;
  return bytes ? (uint8_t *)select_buffer_inside(&c->workspace) + all - bytes : NULL;
}

/* Without |poison| just the means: rows behind a level are read, but count for nothing. */
static pisa_status poison_workspace(const struct select_call *c, pisa_error *error) {
  size_t means = c->layout.parts[PISA_WORKSPACE_MEANS].size;
  uint8_t *at = select_call_workspace(c);
  pisa_status status = select_buffer_poison(c->device, &c->workspace, c->poison, error);
  return status || c->poison || !means
             ? status
             : pisa_device_fill(c->device, at + c->layout.parts[PISA_WORKSPACE_MEANS].offset,
                                POISON, means, error);
}

pisa_status select_call_poison(struct select_call *c, bool pyramid, pisa_error *error) {
  memset(c->o.image, POISON, (size_t)c->o.elements * sizeof *c->o.image);
  pisa_status status = copy(c, &c->o, c->o_memory, error);
  if (!status)
    status = select_buffer_poison(c->device, &c->lse, true, error);
  if (!status)
    status = select_buffer_poison(c->device, &c->blocks, true, error);
  if (!status) /* an id that nobody writes: -1 is padding */
    status = pisa_device_fill(c->device, select_buffer_inside(&c->blocks), SELECT_NO_ID,
                              c->blocks.bytes, error);
  if (!status)
    status = select_buffer_poison(c->device, &c->worth, true, error);
  if (!status)
    status = poison_workspace(c, error);
  return status || !pyramid ? status : select_buffer_poison(c->device, &c->pyramid, true, error);
}

pisa_status select_call_enqueue(const struct select_call *c, pisa_error *error) {
  return pisa_launch(c->module, &c->request, select_call_workspace(c), c->layout.bytes, c->stream,
                     error);
}

static pisa_status enqueue(const void *call, pisa_error *error) {
  return select_call_enqueue(call, error);
}

pisa_status select_call_run(struct select_call *c, enum select_mode mode,
                            struct select_outputs *outputs, struct verify_result *result,
                            pisa_error *error) {
  *outputs = (struct select_outputs){0};
  pisa_status status = select_call_bind(c, mode, error);
  if (!status)
    status = select_call_poison(c, true, error);
  if (!status)
    status = mode == SELECT_GRAPH ? verify_graph_run(c->device, c->stream, enqueue, c, error)
                                  : select_call_enqueue(c, error);
  return status ? status : select_call_fetch(c, outputs, result, error);
}
