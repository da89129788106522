/* verify_graph.c: a launch in; the same captured in a graph and run twice, out. */
#include "runtime/tool/verify.h"

pisa_status verify_graph_run(const struct pisa_device *device, CUstream stream,
                             pisa_status (*enqueue)(const void *call, pisa_error *error),
                             const void *call, pisa_error *error) {
  CUgraphExec graph = NULL;
  pisa_error ignored;
  pisa_status status = pisa_capture_begin(device, stream, error);
  if (status)
    return status;
  status = enqueue(call, error);
  pisa_status ended = pisa_capture_end(device, stream, &graph, status ? &ignored : error);
  if (!status)
    status = ended;
  for (int run = 0; !status && run < 2; run++)
    status = pisa_graph_launch(device, graph, stream, error);
  if (!status)
    status = pisa_stream_wait(device, stream, error);
  if (!ended)
    pisa_graph_destroy(device, graph);
  return status;
}
