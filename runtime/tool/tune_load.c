/* tune_load.c: a length in; a call of it with its inputs on the device, which any variant of one
   result can serve, out. The cases are those of `pisa bench`. */
#include "runtime/tool/tune.h"

pisa_status tune_device_open(struct tune_device *out, pisa_error *error) {
  *out = (struct tune_device){.stream = NULL};
  pisa_status status = pisa_device_open(0, &out->device, error);
  if (status)
    return status;
  status = pisa_stream_create(&out->device, &out->stream, error);
  if (!status)
    status = pisa_event_create(&out->device, &out->begin, error);
  return status ? status : pisa_event_create(&out->device, &out->end, error);
}

void tune_device_close(struct tune_device *d) {
  if (d->begin)
    pisa_event_destroy(&d->device, d->begin);
  if (d->end)
    pisa_event_destroy(&d->device, d->end);
  if (d->stream)
    pisa_stream_destroy(&d->device, d->stream);
  if (d->device.cuda)
    pisa_device_close(&d->device);
}

static pisa_status open_attend(struct tune_load *load, const pisa_module *module, int64_t batch,
                               int64_t kv_heads, int64_t tokens, uint64_t seed, pisa_error *error) {
  load->attend_case = (struct verify_case){
      .name = "tune", .batch = batch, .kv_heads = kv_heads, .n_q = tokens, .n_k = tokens};
  load->attend = (struct verify_call){
      .device = &load->on->device, .stream = load->on->stream, .module = module};
  pisa_status status =
      verify_call_open(&load->attend, &load->attend_case, &module->method, seed, error);
  if (!status)
    verify_call_bind(&load->attend, false);
  load->request = load->attend.request;
  return status;
}

static pisa_status open_select(struct tune_load *load, const pisa_module *module, int64_t batch,
                               int64_t kv_heads, int64_t tokens, uint64_t seed, pisa_error *error) {
  if (batch > SELECT_MAX_BATCH)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--batch is above %d", SELECT_MAX_BATCH);
  load->select_case = (struct select_case){.name = "tune",
                                           .input = SELECT_NORMAL,
                                           .batch = batch,
                                           .kv_heads = kv_heads,
                                           .n_q = tokens,
                                           .n_k = tokens};
  load->select = (struct select_call){.device = &load->on->device,
                                      .stream = load->on->stream,
                                      .module = module,
                                      .test = &load->select_case,
                                      .seed = seed};
  pisa_status status = select_call_open(&load->select, error);
  if (!status)
    status = select_call_bind(&load->select, SELECT_BARE, error);
  load->request = load->select.request;
  return status;
}

pisa_status tune_load_open(struct tune_load *load, const struct tune_device *on,
                           const pisa_module *module, int64_t batch, int64_t heads, int64_t tokens,
                           uint64_t seed, pisa_error *error) {
  const struct pisa_method *method = &module->method;
  int64_t kv_heads = (heads ? heads : method->heads) / pisa_method_group(method);
  *load = (struct tune_load){.on = on, .selects = method->family == PISA_PYRAMID};
  return (load->selects ? open_select : open_attend)(load, module, batch, kv_heads, tokens, seed,
                                                     error);
}

pisa_status tune_load_fit(struct tune_load *load, const pisa_module *module, pisa_error *error) {
  const struct pisa_device *device = &load->on->device;
  size_t bytes = 0;
  pisa_status status = pisa_workspace_size(module, &load->request, &bytes, error);
  if (!status && bytes > load->bytes) {
    pisa_device_free(device, load->workspace);
    load->workspace = NULL;
    load->bytes = 0;
    status = pisa_device_alloc(device, bytes, &load->workspace, error);
    if (!status)
      load->bytes = bytes;
  }
  if (!status)
    status =
        pisa_launch(module, &load->request, load->workspace, load->bytes, load->on->stream, error);
  return status ? status : pisa_stream_wait(device, load->on->stream, error);
}

void tune_load_close(struct tune_load *load) {
  if (!load->on)
    return;
  pisa_device_free(&load->on->device, load->workspace);
  if (load->selects && load->select.device)
    select_call_close(&load->select);
  else if (load->attend.device)
    verify_call_close(&load->attend);
}
