/* run_pages.c: keys and values in one piece in; the same as pages, with a table of them in order,
   out. Or a table from a file, whose pages the arrays already are. */
#include <stdlib.h>
#include <string.h>

#include "runtime/shape.h"
#include "runtime/size.h"
#include "runtime/tool/run.h"

static pisa_status no_memory(pisa_error *error) {
  return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the pages");
}

/* The key heads of batch |b|, each with call.n_k rows, behind the last of which the pages keep
   their zeros. */
static void lay_batch(const struct run_call *c, const pisa_tensor *from, int64_t b, uint16_t *out) {
  const int64_t page = c->method->page, row = c->method->head_dim, heads = c->call.kv_heads;
  const uint16_t *rows = (const uint16_t *)from->data + b * from->stride[0];
  for (int64_t h = 0; h < heads; h++)
    for (int64_t n = 0; n < c->call.n_k; n++) {
      int64_t in_pool = b * c->call.page_columns + n / page;
      memcpy(out + ((in_pool * heads + h) * page + n % page) * row,
             rows + h * from->stride[1] + n * from->stride[2], (size_t)row * sizeof *out);
    }
}

/* |tensor| as pages; NULL: no memory. */
static uint16_t *lay(const struct run_call *c, pisa_tensor *tensor) {
  const int64_t rows = c->method->page, row = c->method->head_dim, heads = c->call.kv_heads;
  const int64_t pages = c->call.batch * c->call.page_columns;
  uint16_t *out = calloc((size_t)(pages * heads * rows * row), sizeof *out);
  for (int64_t b = 0; out && b < c->call.batch; b++)
    lay_batch(c, tensor, b, out);
  *tensor = (pisa_tensor){.data = out, .stride = {heads * rows * row, rows * row, row, 1}};
  return out;
}

pisa_status run_lay_pages(struct run_call *c, pisa_error *error) {
  const int64_t page = c->method->page, columns = pisa_ceil_div(c->call.n_k, page);
  const int64_t entries = c->call.batch * columns;
  if (entries > INT32_MAX)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "k has more pages of %lld tokens than a table",
                     (long long)page);
  c->call.page_columns = columns;
  c->k = lay(c, &c->call.k);
  if (c->v)
    c->v = lay(c, &c->call.v);
  c->call.pages = c->pages = malloc((size_t)entries * sizeof *c->pages);
  if (!c->k || (c->call.v.data && !c->v) || !c->pages)
    return no_memory(error);
  for (int64_t e = 0; e < entries; e++)
    c->pages[e] = (int32_t)e;
  c->k_size = entries * c->call.kv_heads * page * c->method->head_dim;
  c->call.n_k = columns * page;
  return PISA_OK;
}

/* ---- a table from a file ---- */

pisa_status run_read_pages(struct run_call *c, const char *path, pisa_error *error) {
  struct array a;
  char shape[ARRAY_SHAPE_TEXT];
  pisa_status status = run_read_int32(path, &a, error);
  if (status)
    return status;
  array_shape_text(&a, shape);
  if (a.rank != 2 || a.shape[0] != c->call.batch || a.shape[1] < 1 ||
      a.shape[1] > PISA_MAX_TOKENS / c->method->page) {
    array_free(&a);
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "'%s' has shape %s, expected [%lld, columns]: batches, pages of each", path,
                     shape, (long long)c->call.batch);
  }
  c->call.pages = c->pages = a.data;
  c->call.page_columns = a.shape[1];
  c->call.n_k = c->keys = a.shape[1] * c->method->page;
  return PISA_OK;
}

pisa_status run_check_pages(const struct run_call *c, int64_t pages, pisa_error *error) {
  for (int64_t b = 0; b < c->call.batch; b++) {
    int64_t keys = c->lengths ? c->lengths[b] : c->call.n_k;
    for (int64_t i = 0; i * c->method->page < keys; i++) {
      int32_t id = c->pages[b * c->call.page_columns + i];
      if (id < 0 || id >= pages)
        return pisa_fail(error, PISA_INVALID_ARGUMENT,
                         "--pages: entry [%lld, %lld] is %d, but k has pages 0 to %lld",
                         (long long)b, (long long)i, (int)id, (long long)(pages - 1));
    }
  }
  return PISA_OK;
}
