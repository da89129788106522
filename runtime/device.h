/* device.h: what the pisa tool and the GPU tests need of the driver beside launches: a device with
   its primary context, memory, streams, timing and graphs. Applications bring their own; libpisa
   itself calls nothing of this. Every function but the frees returns a status and names itself in
   the message. */
#ifndef PISA_RUNTIME_DEVICE_H
#define PISA_RUNTIME_DEVICE_H

#include <stddef.h>

#include "runtime/cuda.h"

struct pisa_device {
  const struct pisa_cuda *cuda;
  CUdevice id;
  CUcontext context; /* primary, retained and current */
  int sm_count, major, minor;
  int driver_version; /* 13000 for CUDA 13.0 */
  char name[128];
};

/* Opens device |ordinal| and makes its primary context current in this thread. */
pisa_status pisa_device_open(int ordinal, struct pisa_device *out, pisa_error *error);
void pisa_device_close(struct pisa_device *device);

/* Device memory; 256-byte aligned. Copies and fills are complete when they return. */
pisa_status pisa_device_alloc(const struct pisa_device *device, size_t bytes, void **out,
                              pisa_error *error);
void pisa_device_free(const struct pisa_device *device, void *memory); /* NULL is allowed */
pisa_status pisa_device_upload(const struct pisa_device *device, void *to, const void *from,
                               size_t bytes, pisa_error *error);
pisa_status pisa_device_download(const struct pisa_device *device, void *to, const void *from,
                                 size_t bytes, pisa_error *error);
pisa_status pisa_device_fill(const struct pisa_device *device, void *memory, unsigned char value,
                             size_t bytes, pisa_error *error);
/* Waits for all work of the context; reports what failed in it. */
pisa_status pisa_device_wait(const struct pisa_device *device, pisa_error *error);

/* Streams do not wait for the legacy default stream. */
pisa_status pisa_stream_create(const struct pisa_device *device, CUstream *out, pisa_error *error);
pisa_status pisa_stream_wait(const struct pisa_device *device, CUstream stream, pisa_error *error);
void pisa_stream_destroy(const struct pisa_device *device, CUstream stream);

pisa_status pisa_event_create(const struct pisa_device *device, CUevent *out, pisa_error *error);
pisa_status pisa_event_record(const struct pisa_device *device, CUevent event, CUstream stream,
                              pisa_error *error);
/* Waits for |end| and gives the milliseconds between the two. */
pisa_status pisa_event_elapsed(const struct pisa_device *device, CUevent begin, CUevent end,
                               float *ms, pisa_error *error);
void pisa_event_destroy(const struct pisa_device *device, CUevent event);

/* What is enqueued on |stream| between begin and end becomes a graph instead of running. */
pisa_status pisa_capture_begin(const struct pisa_device *device, CUstream stream,
                               pisa_error *error);
pisa_status pisa_capture_end(const struct pisa_device *device, CUstream stream, CUgraphExec *out,
                             pisa_error *error);
pisa_status pisa_graph_launch(const struct pisa_device *device, CUgraphExec graph, CUstream stream,
                              pisa_error *error);
void pisa_graph_destroy(const struct pisa_device *device, CUgraphExec graph);

#endif
