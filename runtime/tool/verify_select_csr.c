/* verify_select_csr.c: a call in; that the queries of each leaf, asked for with the lists and
   without them, are those that list it, out. */
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/verify_select.h"

struct turned { /* a call that asks for them too, with memory of its own */
  struct select_call call;
  struct select_buffer offsets, queries;
  int64_t leaves, entries; /* NL; of a key head */
};

struct found {      /* what came back; or what the lists say */
  int32_t *offsets; /* [Hk, NL + 1] */
  int32_t *queries; /* [Hk, T, kept], poison behind the last */
};

static int64_t leaves_of(const struct select_call *c) {
  return c->shape.keys / c->module->method.key + c->request.batch;
}

static void found_free(struct found *found) {
  free(found->offsets);
  free(found->queries);
  *found = (struct found){0};
}

/* ---- what the lists say ---- */

/* Counts with |queries| NULL, else puts each query to its leaf's next place. */
static void each_pair(const struct turned *t, const int32_t *lists, int64_t hk, int32_t *at,
                      int32_t *queries) {
  const struct select_call *c = &t->call;
  const int64_t kept = c->shape.kept;
  for (int64_t b = 0; b < c->arrays.batch; b++) {
    const struct verify_sequence *s = &c->arrays.sequence[b];
    const int64_t first = c->arrays.packed ? s->first : b * s->n_q;
    const int64_t leaf = s->k_begin / c->module->method.key + b;
    const int32_t *list = lists + select_row(c, b, hk, 0) * kept;
    for (int64_t e = 0; e < s->n_q * kept; e++) {
      if (list[e] < 0)
        continue;
      if (queries)
        queries[at[leaf + list[e]]] = (int32_t)(first + e / kept);
      at[leaf + list[e]]++;
    }
  }
}

/* Sound lists, whose leaves all exist. False: no memory. */
static bool turn(const struct turned *t, const int32_t *lists, struct found *out) {
  const int64_t heads = t->call.request.kv_heads, n = t->leaves + 1;
  int32_t *at = malloc((size_t)n * sizeof *at);
  out->offsets = calloc((size_t)(heads * n), sizeof *out->offsets);
  out->queries = malloc(t->queries.bytes + 1);
  bool ok = at && out->offsets && out->queries;
  if (ok)
    memset(out->queries, 0xff, t->queries.bytes);
  for (int64_t hk = 0; ok && hk < heads; hk++) {
    int32_t *offsets = out->offsets + hk * n;
    each_pair(t, lists, hk, offsets + 1, NULL);
    for (int64_t leaf = 0; leaf < t->leaves; leaf++)
      offsets[leaf + 1] += offsets[leaf];
    memcpy(at, offsets, (size_t)n * sizeof *at);
    each_pair(t, lists, hk, at, out->queries + hk * t->entries);
  }
  free(at);
  return ok;
}

/* ---- the call ---- */

pisa_status select_csr_open(const struct select_call *c, struct select_buffer *offsets,
                            struct select_buffer *queries, pisa_error *error) {
  const int64_t heads = c->request.kv_heads, entries = c->shape.queries * c->shape.kept;
  pisa_status status =
      select_buffer_open(c->device, (size_t)(heads * (leaves_of(c) + 1)) * 4, offsets, error);
  return status ? status
                : select_buffer_open(c->device, (size_t)(heads * entries) * 4, queries, error);
}

pisa_status select_csr_bind(struct select_call *c, const struct select_buffer *offsets,
                            const struct select_buffer *queries, pisa_error *error) {
  c->request.csr_offsets = select_buffer_inside(offsets);
  c->request.csr_queries = select_buffer_inside(queries);
  return pisa_module_plan(c->module, &c->request, &c->shape, &c->layout, error);
}

static pisa_status launch(struct turned *t, pisa_error *error) {
  struct select_call *c = &t->call;
  pisa_status status = select_call_poison(c, true, error);
  if (!status)
    status = select_buffer_poison(c->device, &t->offsets, true, error);
  if (!status)
    status = select_buffer_poison(c->device, &t->queries, true, error);
  if (!status)
    status = select_call_enqueue(c, error);
  return status ? status : pisa_device_wait(c->device, error);
}

static pisa_status fetch(const struct turned *t, struct found *out, struct verify_result *result,
                         pisa_error *error) {
  const struct pisa_device *device = t->call.device;
  void *offsets = NULL, *queries = NULL, *none = NULL;
  pisa_status status = select_buffer_fetch(device, &t->offsets, "csr_offsets", 0, t->offsets.bytes,
                                           &offsets, result, error);
  if (!status)
    status = select_buffer_fetch(device, &t->queries, "csr_queries", 0, t->queries.bytes, &queries,
                                 result, error);
  out->offsets = offsets;
  out->queries = queries;
  if (!status) /* nothing but its guards */
    status =
        select_buffer_fetch(device, &t->call.workspace, "workspace", 0, 0, &none, result, error);
  free(none);
  return status;
}

static pisa_status run(struct turned *t, enum select_mode mode, struct found *out,
                       struct verify_result *result, pisa_error *error) {
  pisa_status status = select_call_bind(&t->call, mode, error);
  if (!status)
    status = select_csr_bind(&t->call, &t->offsets, &t->queries, error);
  if (!status)
    status = launch(t, error);
  return status ? status : fetch(t, out, result, error);
}

/* ---- comparison ---- */

static void compare(const struct turned *t, const struct found *want, const struct found *got,
                    const char *how, struct verify_result *result) {
  for (int64_t i = 0; i < t->call.request.kv_heads * (t->leaves + 1); i++)
    if (got->offsets[i] != want->offsets[i]) {
      verify_fail(result, "csr_offsets, %s: %d instead of %d for leaf %lld of key head %lld", how,
                  (int)got->offsets[i], (int)want->offsets[i], (long long)(i % (t->leaves + 1)),
                  (long long)(i / (t->leaves + 1)));
      return;
    }
  for (int64_t i = 0; i < t->call.request.kv_heads * t->entries; i++)
    if (got->queries[i] != want->queries[i]) {
      verify_fail(result, "csr_queries, %s: %d instead of %d in place %lld of key head %lld", how,
                  (int)got->queries[i], (int)want->queries[i], (long long)(i % t->entries),
                  (long long)(i / t->entries));
      return;
    }
}

static pisa_status run_and_compare(struct turned *t, const struct found *want,
                                   struct verify_result *result, pisa_error *error) {
  static const struct {
    enum select_mode mode;
    const char *how;
  } ways[] = {{SELECT_ALONE, "selection alone"}, {SELECT_BARE, "attention without lists"}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; !status && i < sizeof ways / sizeof *ways; i++) {
    struct found got = {0};
    status = run(t, ways[i].mode, &got, result, error);
    if (!status)
      compare(t, want, &got, ways[i].how, result);
    found_free(&got);
  }
  return status;
}

pisa_status select_compare_csr(const struct select_call *call, const int32_t *lists,
                               struct verify_result *result, pisa_error *error) {
  struct turned t = {
      .call = *call, .leaves = leaves_of(call), .entries = call->shape.queries * call->shape.kept};
  struct found want = {0};
  pisa_status status = select_csr_open(call, &t.offsets, &t.queries, error);
  if (!status && !turn(&t, lists, &want))
    status = pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory to turn lists around");
  if (!status)
    status = run_and_compare(&t, &want, result, error);
  found_free(&want);
  select_buffer_close(call->device, &t.offsets);
  select_buffer_close(call->device, &t.queries);
  return status;
}
