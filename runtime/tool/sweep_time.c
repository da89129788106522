/* sweep_time.c: a scene and a point in; milliseconds of the whole call on the GPU out, by the
   schedule that PACK.tune knows best.

   A scene may be a few heads of a model: they are repeated along the batch, by a stride of 0, until
   there are as many as the spec has, so that the device is as full as it will be. */
#include <stdlib.h>
#include <time.h>

#include "runtime/tool/bench.h"
#include "runtime/tool/sweep.h"

enum { ROUNDS = 7, MAX_CALLS = 10, PAUSE_MS = 50, BURST_MS = 200 };

struct sweep_clock {
  const struct sweep *sweep;
  pisa_attention call;
  void *memory[5]; /* q, k, v, o, blocks */
  void *workspace;
  size_t bytes;
};

static pisa_status put(const struct sweep *s, const uint16_t *from, int64_t elements, void **out,
                       pisa_error *error) {
  size_t bytes = (size_t)elements * sizeof *from;
  pisa_status status = from ? pisa_device_alloc(&s->on.device, bytes, out, error) : PISA_OK;
  return status || !from ? status : pisa_device_upload(&s->on.device, *out, from, bytes, error);
}

/* The most entries that a list of any point has, where only selections are asked for. */
static int64_t longest_list(const struct sweep *s) {
  int64_t most = 1;
  for (int p = 0; p < s->packs.n; p++)
    if (s->packs.items[p].chosen->method.keep > most)
      most = s->packs.items[p].chosen->method.keep;
  return most;
}

static pisa_status fill(struct sweep_clock *c, pisa_error *error) {
  const struct sweep *s = c->sweep;
  const struct quality_scene *scene = &s->scene;
  const struct pisa_device *device = &s->on.device;
  int64_t d = scene->head_dim, batch = s->times_heads / scene->heads;
  int64_t q = scene->heads * scene->n_q * d, k = scene->kv_heads * scene->n_k * d;
  size_t o = (size_t)(batch * q) * sizeof(uint16_t);
  size_t blocks = (size_t)(batch * scene->kv_heads * scene->n_q * longest_list(s)) * 4;
  pisa_status status = put(s, scene->q, q, &c->memory[0], error);
  if (!status)
    status = put(s, scene->k, k, &c->memory[1], error);
  if (!status)
    status = put(s, scene->v, k, &c->memory[2], error);
  if (!status)
    status = scene->v ? pisa_device_alloc(device, o, &c->memory[3], error)
                      : pisa_device_alloc(device, blocks, &c->memory[4], error);
  c->call = (pisa_attention){.struct_size = sizeof c->call,
                             .batch = batch,
                             .heads = scene->heads,
                             .kv_heads = scene->kv_heads,
                             .n_q = scene->n_q,
                             .n_k = scene->n_k,
                             .q = quality_tensor(c->memory[0], scene->n_q, d),
                             .k = quality_tensor(c->memory[1], scene->n_k, d),
                             .v = quality_tensor(c->memory[2], scene->n_k, d),
                             .o = quality_tensor(c->memory[3], scene->n_q, d),
                             .blocks = c->memory[4],
                             .scale = scene->scale};
  c->call.o.stride[0] = q;
  return status;
}

pisa_status sweep_clock_open(struct sweep *s, struct sweep_clock **out, pisa_error *error) {
  const struct pisa_method *m = &s->packs.items[0].chosen->method;
  int64_t batch = (m->heads + s->scene.heads - 1) / s->scene.heads;
  s->times_heads = batch * s->scene.heads;
  *out = calloc(1, sizeof **out);
  if (!*out)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory");
  (*out)->sweep = s;
  return fill(*out, error);
}

void sweep_clock_close(struct sweep_clock *c) {
  if (!c)
    return;
  for (size_t i = 0; i < sizeof c->memory / sizeof *c->memory; i++)
    pisa_device_free(&c->sweep->on.device, c->memory[i]);
  pisa_device_free(&c->sweep->on.device, c->workspace);
  free(c);
}

static pisa_status time_calls(const struct sweep_clock *c, const pisa_module *module, int calls,
                              double *out, pisa_error *error) {
  const struct tune_device *on = &c->sweep->on;
  float ms = 0;
  pisa_status status = pisa_event_record(&on->device, on->begin, on->stream, error);
  for (int i = 0; !status && i < calls; i++)
    status = pisa_launch(module, &c->call, c->workspace, c->bytes, on->stream, error);
  if (!status)
    status = pisa_event_record(&on->device, on->end, on->stream, error);
  if (!status)
    status = pisa_event_elapsed(&on->device, on->begin, on->end, &ms, error);
  *out = (double)ms / calls;
  return status;
}

static pisa_status reserve(struct sweep_clock *c, const pisa_module *module, pisa_error *error) {
  const struct pisa_device *device = &c->sweep->on.device;
  size_t bytes = 0;
  pisa_status status = pisa_workspace_size(module, &c->call, &bytes, error);
  if (status || bytes <= c->bytes)
    return status;
  pisa_device_free(device, c->workspace);
  c->workspace = NULL;
  c->bytes = 0;
  status = pisa_device_alloc(device, bytes, &c->workspace, error);
  c->bytes = status ? 0 : bytes;
  return status;
}

static pisa_status time_module(struct sweep_clock *c, const pisa_module *module, double *out,
                               pisa_error *error) {
  const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
  double rounds[ROUNDS], once = 0;
  pisa_status status = reserve(c, module, error);
  for (int i = 0; !status && i < 2; i++) /* the first call also loads the code */
    status = time_calls(c, module, 1, &once, error);
  int calls = once * MAX_CALLS > BURST_MS ? 1 : MAX_CALLS;
  for (int round = 0; !status && round < ROUNDS; round++) {
    nanosleep(&pause, NULL);
    status = time_calls(c, module, calls, &rounds[round], error);
  }
  *out = status ? 0 : bench_median(rounds, ROUNDS);
  return status;
}

pisa_status sweep_clock_time(struct sweep_clock *c, struct sweep_point *point, pisa_error *error) {
  const struct pisa_device *device = &c->sweep->on.device;
  pisa_module *module = NULL;
  int variant = 0;
  c->call.density = point->density;
  pisa_status status = pisa_cuda_check(device->cuda, device->cuda->cuCtxSetCurrent(device->context),
                                       error, "current context"); /* others were, in between */
  if (!status)
    status = pisa_tuned_variant(point->pack->pack, point->pack->variant, &c->call, &variant, error);
  if (!status)
    status = pisa_module_load(point->pack->pack, variant, 0, &module, error);
  if (!status)
    status = time_module(c, module, &point->ms, error);
  pisa_module_unload(module);
  return status;
}
