/* verify_select_decode.c: a decode case in, errors out. Sequences begin with a prefill and grow by
   n_new keys a call, to their last key. After every step

       lists and attention are compared with the oracle on the means in the pyramid,
       a call that appends nothing gives the same bits,
       one captured graph, launched step after step on a pyramid of its own, does,
       and so do the means of a pyramid that a prefill makes anew of all keys. */
#include <string.h>

#include "runtime/tool/verify_select.h"

struct growth {
  const struct verify_session *session;
  struct select_call *call;
  struct verify_result *result;
  struct select_buffer grown, graphs, rebuilt; /* pyramids; call->pyramid is one of them */
  CUgraphExec graph;
  int64_t last[SELECT_MAX_BATCH]; /* keys in the end */
};

static void aim(struct growth *g, const struct select_buffer *pyramid, int phase, int64_t n_new) {
  g->call->pyramid = *pyramid;
  g->call->request.phase = phase;
  g->call->request.n_new = n_new;
  g->call->request.append_completed = phase == PISA_DECODE && g->call->test->completed;
}

static pisa_status prefill(struct growth *g, const struct select_buffer *pyramid,
                           struct select_outputs *outputs, pisa_error *error) {
  aim(g, pyramid, PISA_PREFILL, 0);
  verify_watch(g->session);
  pisa_status status = select_call_run(g->call, SELECT_DIRECT, outputs, g->result, error);
  verify_unwatch();
  return status;
}

static pisa_status capture(struct growth *g, pisa_error *error) {
  struct select_call *c = g->call;
  pisa_error ignored;
  pisa_status status = pisa_capture_begin(c->device, c->stream, error);
  if (status)
    return status;
  status = select_call_enqueue(c, error);
  pisa_status ended = pisa_capture_end(c->device, c->stream, &g->graph, status ? &ignored : error);
  return status ? status : ended;
}

static pisa_status enqueue(struct growth *g, bool graph, pisa_error *error) {
  if (!graph)
    return select_call_enqueue(g->call, error);
  pisa_status status = g->graph ? PISA_OK : capture(g, error);
  return status ? status : pisa_graph_launch(g->call->device, g->graph, g->call->stream, error);
}

/* One launch of phase decode on |pyramid|, which stays. */
static pisa_status decode(struct growth *g, const struct select_buffer *pyramid, int64_t n_new,
                          enum select_mode mode, struct select_outputs *outputs,
                          pisa_error *error) {
  bool graph = mode == SELECT_GRAPH;
  *outputs = (struct select_outputs){0};
  aim(g, pyramid, PISA_DECODE, n_new);
  pisa_status status = select_call_bind(g->call, mode, error);
  if (!status)
    status = select_call_poison(g->call, false, error);
  verify_watch(g->session);
  if (!status)
    status = enqueue(g, graph, error);
  if (!status)
    status = select_call_fetch(g->call, outputs, g->result, error);
  verify_unwatch();
  return status;
}

static void same_bits(struct growth *g, const struct select_outputs *a,
                      const struct select_outputs *b, enum select_mode mode, int64_t step,
                      const char *what) {
  const char *where = select_difference(g->call, a, b, mode);
  if (where)
    verify_fail(g->result, "step %lld: %s gave other bits in %s", (long long)step, what, where);
}

/* Another launch, whose bits must be those of |first|. */
static pisa_status again(struct growth *g, const struct select_outputs *first,
                         const struct select_buffer *pyramid, int64_t n_new, enum select_mode mode,
                         int64_t step, const char *what, pisa_error *error) {
  struct select_outputs outputs;
  pisa_status status = decode(g, pyramid, n_new, mode, &outputs, error);
  if (!status)
    same_bits(g, first, &outputs, mode, step, what);
  select_outputs_free(&outputs);
  return status;
}

static pisa_status rebuild(struct growth *g, const struct select_outputs *grown, int64_t step,
                           pisa_error *error) {
  struct select_outputs outputs;
  pisa_status status = prefill(g, &g->rebuilt, &outputs, error);
  int64_t nodes =
      status ? 0 : select_means_differ(g->call, grown, &outputs, g->call->test->completed);
  if (nodes)
    verify_fail(g->result, "step %lld: the means of %lld nodes differ from those made anew",
                (long long)step, (long long)nodes);
  select_outputs_free(&outputs);
  return status;
}

/* Keys, here and on the device, with |steps| steps to go. */
static pisa_status set_keys(struct growth *g, int64_t steps, pisa_error *error) {
  int64_t keys[SELECT_MAX_BATCH];
  for (int64_t b = 0; b < g->call->arrays.batch; b++)
    keys[b] = g->last[b] - steps * g->call->test->n_new;
  return select_call_set_lengths(g->call, keys, error);
}

static pisa_status compare(struct growth *g, const struct select_outputs *outputs,
                           pisa_error *error) {
  if (select_compare(g->call, outputs, g->result))
    return PISA_OK;
  return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the oracle");
}

static pisa_status grow(struct growth *g, int64_t step, pisa_error *error) {
  const struct select_case *test = g->call->test;
  struct select_outputs outputs = {0};
  select_fill_queries(&g->call->arrays, test->input, g->call->module->method.type, g->call->seed,
                      step);
  pisa_status status = select_call_upload_queries(g->call, error);
  if (!status)
    status = set_keys(g, test->steps - step, error);
  if (!status)
    status = decode(g, &g->grown, test->n_new, SELECT_DIRECT, &outputs, error);
  if (!status)
    status = compare(g, &outputs, error);
  if (!status)
    status = again(g, &outputs, &g->grown, 0, SELECT_DIRECT, step, "a launch that appends nothing",
                   error);
  if (!status)
    status =
        again(g, &outputs, &g->graphs, test->n_new, SELECT_GRAPH, step, "a graph launch", error);
  if (!status && step == test->steps)
    status = again(g, &outputs, &g->grown, 0, SELECT_BARE, step, "attention without lists", error);
  if (!status && step == test->steps)
    status =
        again(g, &outputs, &g->grown, 0, SELECT_ALONE, step, "selection without attention", error);
  if (!status)
    status = rebuild(g, &outputs, step, error);
  select_outputs_free(&outputs);
  return status;
}

static pisa_status begin(struct growth *g, pisa_error *error) {
  struct select_outputs outputs = {0}, other = {0};
  size_t bytes = g->call->pyramid.bytes;
  pisa_status status = select_buffer_open(g->call->device, bytes, &g->graphs, error);
  if (!status)
    status = select_buffer_open(g->call->device, bytes, &g->rebuilt, error);
  if (!status)
    status = set_keys(g, g->call->test->steps, error);
  if (!status)
    status = prefill(g, &g->graphs, &other, error);
  if (!status)
    status = prefill(g, &g->grown, &outputs, error);
  if (!status)
    same_bits(g, &other, &outputs, SELECT_DIRECT, 0, "a second prefill");
  if (!status)
    status = compare(g, &outputs, error);
  select_outputs_free(&outputs);
  select_outputs_free(&other);
  return status;
}

pisa_status select_decode(const struct verify_session *session, struct select_call *call,
                          struct verify_result *result, pisa_error *error) {
  struct growth g = {.session = session, .call = call, .result = result, .grown = call->pyramid};
  for (int64_t b = 0; b < call->arrays.batch; b++)
    g.last[b] = call->arrays.sequence[b].keys;
  pisa_status status = begin(&g, error);
  for (int64_t step = 1; !status && step <= call->test->steps; step++)
    status = grow(&g, step, error);
  if (g.graph)
    pisa_graph_destroy(call->device, g.graph);
  select_buffer_close(call->device, &g.graphs);
  select_buffer_close(call->device, &g.rebuilt);
  aim(&g, &g.grown, PISA_PREFILL, 0);
  for (int64_t b = 0; b < call->arrays.batch; b++)
    call->arrays.sequence[b].keys = g.last[b];
  pisa_error ignored;
  pisa_status restored = set_keys(&g, 0, status ? &ignored : error);
  select_fill_queries(&call->arrays, call->test->input, call->module->method.type, call->seed, 0);
  if (!restored)
    restored = select_call_upload_queries(call, status ? &ignored : error);
  return status ? status : restored;
}
