/* run_device.c: a call on host arrays in; the same call on a GPU, its outputs copied back. */
#include <stdbool.h>
#include <stdlib.h>

#include "runtime/device.h"
#include "runtime/tool/run.h"

struct buffer { /* a host array and its twin on the device */
  void *host, *device;
  size_t bytes;
  bool is_output;
};

enum {
  Q,
  K,
  V,
  O,
  LSE,
  BLOCKS,
  WORTH,
  OFFSETS,
  QUERIES,
  LISTS,
  LENGTHS,
  PAGES,
  PYRAMID,
  N_BUFFERS
};

/* An array that the call has, or none. */
static struct buffer buffer_of(void *host, size_t bytes, bool is_output) {
  return (struct buffer){.host = host, .bytes = host ? bytes : 0, .is_output = is_output};
}

static void list_buffers(const struct run_call *c, struct buffer buffers[N_BUFFERS]) {
  const size_t rows = (size_t)(c->call.batch * c->call.heads);
  const size_t list_rows = (size_t)(c->call.batch * c->list_heads * c->q_blocks);
  const size_t q = (size_t)c->q_size * sizeof(uint16_t), k = (size_t)c->k_size * sizeof(uint16_t);
  const size_t blocks = list_rows * (size_t)c->kept * sizeof(int32_t);
  const size_t lists = list_rows * (size_t)c->call.n_listed * sizeof(int32_t);
  buffers[Q] = buffer_of(c->q, q, false);
  buffers[K] = buffer_of(c->k, k, false);
  buffers[V] = buffer_of(c->v, k, false);
  buffers[O] = buffer_of(c->o, q, true);
  buffers[LSE] = buffer_of(c->lse, rows * (size_t)c->call.n_q * sizeof(float), true);
  buffers[BLOCKS] = buffer_of(c->blocks, blocks, true);
  buffers[WORTH] = buffer_of(c->worth, blocks, true);
  const size_t offsets = (size_t)(c->list_heads * (c->leaves + 1)) * sizeof(int32_t);
  buffers[OFFSETS] = buffer_of(c->csr_offsets, offsets, true);
  buffers[QUERIES] = buffer_of(c->csr_queries, blocks, true);
  buffers[LISTS] = buffer_of(c->lists, lists, false);
  const size_t pages = (size_t)(c->call.batch * c->call.page_columns) * sizeof(int32_t);
  buffers[LENGTHS] = buffer_of(c->lengths, (size_t)c->call.batch * sizeof(int32_t), false);
  buffers[PAGES] = buffer_of(c->pages, pages, false);
  buffers[PYRAMID] = buffer_of(NULL, 0, false);
}

static pisa_status upload(const struct pisa_device *device, struct buffer *buffers,
                          pisa_error *error) {
  pisa_status status = PISA_OK;
  for (struct buffer *b = buffers; !status && b < buffers + N_BUFFERS; b++) {
    if (!b->bytes)
      continue;
    status = pisa_device_alloc(device, b->bytes, &b->device, error);
    if (!status && (!b->is_output || b == &buffers[QUERIES])) /* -1 where nothing is written */
      status = pisa_device_upload(device, b->device, b->host, b->bytes, error);
  }
  return status;
}

static pisa_status download(const struct pisa_device *device, const struct buffer *buffers,
                            pisa_error *error) {
  pisa_status status = pisa_device_wait(device, error);
  for (const struct buffer *b = buffers; !status && b < buffers + N_BUFFERS; b++)
    if (b->bytes && b->is_output)
      status = pisa_device_download(device, b->host, b->device, b->bytes, error);
  return status;
}

static pisa_status launch(const struct pisa_device *device, const struct run_call *c,
                          const struct buffer *buffers, pisa_module *module, pisa_error *error) {
  pisa_attention call = c->call;
  void *workspace = NULL;
  size_t bytes = 0;
  call.q.data = buffers[Q].device;
  call.k.data = buffers[K].device;
  call.v.data = buffers[V].device;
  call.o.data = buffers[O].device;
  call.lse = buffers[LSE].device;
  call.blocks = buffers[BLOCKS].device;
  call.worth = buffers[WORTH].device;
  call.csr_offsets = buffers[OFFSETS].device;
  call.csr_queries = buffers[QUERIES].device;
  call.lists = buffers[LISTS].device;
  call.k_lengths = buffers[LENGTHS].device;
  call.pages = buffers[PAGES].device;
  call.pyramid = buffers[PYRAMID].device;
  pisa_status status = pisa_workspace_size(module, &call, &bytes, error);
  if (!status && bytes)
    status = pisa_device_alloc(device, bytes, &workspace, error);
  if (!status)
    status = pisa_launch(module, &call, workspace, bytes, NULL, error);
  if (!status)
    status = download(device, buffers, error);
  pisa_device_free(device, workspace);
  return status;
}

pisa_status run_on_device(const struct run_call *c, int ordinal, pisa_error *error) {
  struct pisa_device device;
  struct buffer buffers[N_BUFFERS];
  pisa_module *module = NULL;
  pisa_status status = pisa_device_open(ordinal, &device, error);
  if (status)
    return status;
  list_buffers(c, buffers);
  if (c->method->family == PISA_PYRAMID && c->call.phase == PISA_DECODE)
    status = run_make_pyramid(c, &buffers[PYRAMID].host, &buffers[PYRAMID].bytes, error);
  if (!status)
    status = pisa_module_load(c->pack, c->variant, 0, &module, error);
  if (!status)
    status = upload(&device, buffers, error);
  if (!status)
    status = launch(&device, c, buffers, module, error);
  for (int i = 0; i < N_BUFFERS; i++)
    pisa_device_free(&device, buffers[i].device);
  free(buffers[PYRAMID].host);
  pisa_module_unload(module);
  pisa_device_close(&device);
  return status;
}
