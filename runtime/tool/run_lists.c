/* run_lists.c: lengths and block lists as the command line and files give them in; checked against
   the call, as its arrays, out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/size.h"
#include "runtime/status.h"
#include "runtime/tool/run.h"

static pisa_status no_memory(pisa_error *error) {
  return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the arrays");
}

pisa_status run_read_int32(const char *path, struct array *out, pisa_error *error) {
  pisa_status status = array_read(path, out, error);
  if (status || out->type == ARRAY_I32)
    return status;
  array_free(out);
  return pisa_fail(error, PISA_INVALID_ARGUMENT, "'%s' has type %s, expected int32", path,
                   array_type_name(out->type));
}

/* ---- lists ---- */

/* |a| is [B, H, NTq, K], or [H, NTq, K] for all batches. */
static pisa_status check_lists(const struct run_call *c, const char *path, const struct array *a,
                               pisa_error *error) {
  const int64_t q_blocks = pisa_ceil_div(c->call.n_q, c->method->query);
  const int64_t wanted[] = {c->call.batch, c->call.heads, q_blocks};
  char shape[ARRAY_SHAPE_TEXT];
  bool ok = a->rank == 3 || a->rank == 4;
  for (int i = 0; ok && i < a->rank - 1; i++)
    ok = a->shape[i] == wanted[i + 4 - a->rank];
  if (ok && a->shape[a->rank - 1] > 0)
    return PISA_OK;
  array_shape_text(a, shape);
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "'%s' has shape %s, expected [%lld, %lld, %lld, K] or [%lld, %lld, K]: batches, "
                   "heads, query blocks of %d rows, K block ids, -1 where there are fewer",
                   path, shape, (long long)wanted[0], (long long)wanted[1], (long long)wanted[2],
                   (long long)wanted[1], (long long)wanted[2], c->method->query);
}

pisa_status run_add_lists(struct run_call *c, const struct run_wish *wish, pisa_error *error) {
  struct array a;
  if (!wish->lists)
    return PISA_OK;
  pisa_status status = run_read_int32(wish->lists, &a, error);
  if (status)
    return status;
  status = check_lists(c, wish->lists, &a, error);
  int64_t copies = a.rank == 3 ? c->call.batch : 1, n = array_elements(&a);
  if (!status && !(c->lists = malloc((size_t)(copies * n) * sizeof *c->lists)))
    status = no_memory(error);
  for (int64_t i = 0; !status && i < copies; i++)
    memcpy(c->lists + i * n, a.data, (size_t)n * sizeof *c->lists);
  array_free(&a);
  c->call.lists = c->lists;
  c->call.n_listed = a.shape[a.rank - 1];
  return status;
}

/* ---- lengths ---- */

/* "n,n,...", one per batch. */
static pisa_status parse_lengths(struct run_call *c, const char *text, pisa_error *error) {
  const char *at = text;
  for (int64_t b = 0; b < c->call.batch; b++) {
    char *end;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    bool last = b == c->call.batch - 1;
    if (end == at || errno || value > INT32_MAX || *end != (last ? '\0' : ','))
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "--k-lengths is '%s', expected %lld numbers, one per batch, with commas "
                       "between them, or a file",
                       text, (long long)c->call.batch);
    c->lengths[b] = (int32_t)value;
    at = end + 1;
  }
  return PISA_OK;
}

static pisa_status load_lengths(struct run_call *c, const char *path, pisa_error *error) {
  struct array a;
  char shape[ARRAY_SHAPE_TEXT];
  pisa_status status = run_read_int32(path, &a, error);
  if (status)
    return status;
  array_shape_text(&a, shape);
  if (a.rank == 1 && a.shape[0] == c->call.batch)
    memcpy(c->lengths, a.data, (size_t)c->call.batch * sizeof *c->lengths);
  else
    status = pisa_fail(error, PISA_INVALID_ARGUMENT, "'%s' has shape %s, expected [%lld]: batches",
                       path, shape, (long long)c->call.batch);
  array_free(&a);
  return status;
}

static pisa_status given_lengths(struct run_call *c, const char *text, pisa_error *error) {
  bool numbers = text[strspn(text, "0123456789,-+ ")] == '\0';
  return (numbers ? parse_lengths : load_lengths)(c, text, error);
}

pisa_status run_add_lengths(struct run_call *c, const struct run_wish *wish, pisa_error *error) {
  if (!wish->lengths && c->keys == c->call.n_k)
    return PISA_OK;
  c->call.k_lengths = c->lengths = malloc((size_t)c->call.batch * sizeof *c->lengths);
  if (!c->lengths)
    return no_memory(error);
  pisa_status status = wish->lengths ? given_lengths(c, wish->lengths, error) : PISA_OK;
  for (int64_t b = 0; !wish->lengths && b < c->call.batch; b++)
    c->lengths[b] = (int32_t)c->keys;
  for (int64_t b = 0; !status && b < c->call.batch; b++)
    if (c->lengths[b] < 0 || c->lengths[b] > c->keys)
      status = pisa_fail(error, PISA_INVALID_ARGUMENT,
                         "--k-lengths: batch %lld has %d keys, but must have 0 to %lld",
                         (long long)b, (int)c->lengths[b], (long long)c->keys);
  return status;
}
