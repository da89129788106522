/* device.c: the driver calls behind device.h, one small function each. In: handles and sizes. Out:
   the result, or the driver's words with the name of what was tried. */
#include "runtime/device.h"

#include <string.h>

static pisa_status read_attributes(struct pisa_device *d, pisa_error *error) {
  const struct {
    int attribute;
    int *out;
  } wanted[] = {{CU_DEVICE_MULTIPROCESSOR_COUNT, &d->sm_count},
                {CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, &d->major},
                {CU_DEVICE_COMPUTE_CAPABILITY_MINOR, &d->minor}};
  pisa_status status = pisa_cuda_check(
      d->cuda, d->cuda->cuDeviceGetName(d->name, sizeof d->name, d->id), error, "device name");
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !status; i++)
    status = pisa_cuda_check(
        d->cuda, d->cuda->cuDeviceGetAttribute(wanted[i].out, wanted[i].attribute, d->id), error,
        "device attribute %d", wanted[i].attribute);
  if (!status)
    status = pisa_cuda_check(d->cuda, d->cuda->cuDriverGetVersion(&d->driver_version), error,
                             "driver version");
  return status;
}

pisa_status pisa_device_open(int ordinal, struct pisa_device *out, pisa_error *error) {
  struct pisa_device d;
  memset(&d, 0, sizeof d);
  pisa_status status = pisa_cuda_get(&d.cuda, error);
  if (status)
    return status;
  int count = 0;
  status = pisa_cuda_check(d.cuda, d.cuda->cuDeviceGetCount(&count), error, "number of devices");
  if (status)
    return status;
  if (ordinal < 0 || ordinal >= count)
    return pisa_fail(error, PISA_NO_DEVICE, "there is no device %d: the driver sees %d", ordinal,
                     count);
  status =
      pisa_cuda_check(d.cuda, d.cuda->cuDeviceGet(&d.id, ordinal), error, "device %d", ordinal);
  if (!status)
    status = read_attributes(&d, error);
  if (!status)
    status = pisa_cuda_check(d.cuda, d.cuda->cuDevicePrimaryCtxRetain(&d.context, d.id), error,
                             "primary context of device %d", ordinal);
  if (status)
    return status;
  status = pisa_cuda_check(d.cuda, d.cuda->cuCtxSetCurrent(d.context), error, "current context");
  if (status)
    d.cuda->cuDevicePrimaryCtxRelease(d.id);
  else
    *out = d;
  return status;
}

void pisa_device_close(struct pisa_device *device) {
  device->cuda->cuCtxSetCurrent(NULL);
  device->cuda->cuDevicePrimaryCtxRelease(device->id);
}

static CUdeviceptr address(const void *memory) {
  return (CUdeviceptr)(uintptr_t)memory;
}

pisa_status pisa_device_alloc(const struct pisa_device *device, size_t bytes, void **out,
                              pisa_error *error) {
  CUdeviceptr memory = 0; /* the driver refuses 0 bytes, so at least one is asked for */
  pisa_status status =
      pisa_cuda_check(device->cuda, device->cuda->cuMemAlloc(&memory, bytes ? bytes : 1), error,
                      "allocating %zu bytes of device memory", bytes);
  if (!status)
    *out = (void *)(uintptr_t)memory;
  return status;
}

void pisa_device_free(const struct pisa_device *device, void *memory) {
  if (memory)
    device->cuda->cuMemFree(address(memory));
}

pisa_status pisa_device_upload(const struct pisa_device *device, void *to, const void *from,
                               size_t bytes, pisa_error *error) {
  if (bytes == 0)
    return PISA_OK;
  pisa_status status =
      pisa_cuda_check(device->cuda, device->cuda->cuMemcpyHtoD(address(to), from, bytes), error,
                      "copying %zu bytes to the device", bytes);
  return status ? status : pisa_device_wait(device, error); /* pageable memory is staged */
}

pisa_status pisa_device_download(const struct pisa_device *device, void *to, const void *from,
                                 size_t bytes, pisa_error *error) {
  if (bytes == 0)
    return PISA_OK;
  pisa_status status = pisa_device_wait(device, error); /* for work on other streams */
  return status
             ? status
             : pisa_cuda_check(device->cuda, device->cuda->cuMemcpyDtoH(to, address(from), bytes),
                               error, "copying %zu bytes from the device", bytes);
}

pisa_status pisa_device_fill(const struct pisa_device *device, void *memory, unsigned char value,
                             size_t bytes, pisa_error *error) {
  if (bytes == 0)
    return PISA_OK;
  pisa_status status =
      pisa_cuda_check(device->cuda, device->cuda->cuMemsetD8(address(memory), value, bytes), error,
                      "filling %zu bytes of device memory", bytes);
  return status ? status : pisa_device_wait(device, error);
}

pisa_status pisa_device_wait(const struct pisa_device *device, pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuCtxSynchronize(), error,
                         "waiting for the device");
}

pisa_status pisa_stream_create(const struct pisa_device *device, CUstream *out, pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuStreamCreate(out, CU_STREAM_NON_BLOCKING),
                         error, "creating a stream");
}

pisa_status pisa_stream_wait(const struct pisa_device *device, CUstream stream, pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuStreamSynchronize(stream), error,
                         "waiting for a stream");
}

void pisa_stream_destroy(const struct pisa_device *device, CUstream stream) {
  device->cuda->cuStreamDestroy(stream);
}

pisa_status pisa_event_create(const struct pisa_device *device, CUevent *out, pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuEventCreate(out, 0), error,
                         "creating an event");
}

pisa_status pisa_event_record(const struct pisa_device *device, CUevent event, CUstream stream,
                              pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuEventRecord(event, stream), error,
                         "recording an event");
}

pisa_status pisa_event_elapsed(const struct pisa_device *device, CUevent begin, CUevent end,
                               float *ms, pisa_error *error) {
  pisa_status status = pisa_cuda_check(device->cuda, device->cuda->cuEventSynchronize(end), error,
                                       "waiting for an event");
  return status ? status
                : pisa_cuda_check(device->cuda, device->cuda->cuEventElapsedTime(ms, begin, end),
                                  error, "time between two events");
}

void pisa_event_destroy(const struct pisa_device *device, CUevent event) {
  device->cuda->cuEventDestroy(event);
}

pisa_status pisa_capture_begin(const struct pisa_device *device, CUstream stream,
                               pisa_error *error) {
  return pisa_cuda_check(device->cuda,
                         device->cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_THREAD_LOCAL),
                         error, "beginning a capture");
}

pisa_status pisa_capture_end(const struct pisa_device *device, CUstream stream, CUgraphExec *out,
                             pisa_error *error) {
  CUgraph graph = NULL;
  pisa_status status = pisa_cuda_check(
      device->cuda, device->cuda->cuStreamEndCapture(stream, &graph), error, "ending a capture");
  if (status)
    return status;
  status = pisa_cuda_check(device->cuda, device->cuda->cuGraphInstantiateWithFlags(out, graph, 0),
                           error, "instantiating a graph");
  device->cuda->cuGraphDestroy(graph);
  return status;
}

pisa_status pisa_graph_launch(const struct pisa_device *device, CUgraphExec graph, CUstream stream,
                              pisa_error *error) {
  return pisa_cuda_check(device->cuda, device->cuda->cuGraphLaunch(graph, stream), error,
                         "launching a graph");
}

void pisa_graph_destroy(const struct pisa_device *device, CUgraphExec graph) {
  device->cuda->cuGraphExecDestroy(graph);
}
