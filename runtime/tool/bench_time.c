/* bench_time.c: launches in; milliseconds of one time out: as a stream has them, ten times one
   behind the other, or as a CUDA graph of ten times them. There what the host needs for a launch
   does not count, which for a short kernel is more than it takes itself. */
#include <time.h>

#include "runtime/tool/bench.h"

enum { IDLE_MS = 200 };

void bench_idle(void) {
  const struct timespec pause = {.tv_nsec = IDLE_MS * 1000000L};
  nanosleep(&pause, NULL);
}

pisa_status bench_repeat(bench_launches *launches, const void *context, int times,
                         pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int i = 0; !status && i < times; i++)
    status = launches(context, error);
  return status;
}

pisa_status bench_time(const struct bench *b, bench_launches *launches, const void *context,
                       int load, double *out, pisa_error *error) {
  float ms = 0;
  pisa_status status = bench_repeat(launches, context, load, error);
  if (!status)
    status = pisa_event_record(&b->device, b->begin, b->stream, error);
  if (!status)
    status = bench_repeat(launches, context, BENCH_CALLS, error);
  if (!status)
    status = pisa_event_record(&b->device, b->end, b->stream, error);
  if (!status)
    status = pisa_event_elapsed(&b->device, b->begin, b->end, &ms, error);
  *out = (double)ms / BENCH_CALLS;
  return status;
}

pisa_status bench_time_burst(const struct bench *b, bench_launches *launches, const void *context,
                             double *out, pisa_error *error) {
  pisa_status status = pisa_device_wait(&b->device, error);
  bench_idle();
  return status ? status : bench_time(b, launches, context, 0, out, error);
}

pisa_status bench_capture(const struct bench *b, bench_launches *launches, const void *context,
                          CUgraphExec *out, pisa_error *error) {
  pisa_error ignored;
  pisa_status status = pisa_capture_begin(&b->device, b->stream, error);
  if (status)
    return status;
  status = bench_repeat(launches, context, BENCH_CALLS, error);
  pisa_status ended = pisa_capture_end(&b->device, b->stream, out, status ? &ignored : error);
  return status ? status : ended;
}

pisa_status bench_time_graph(const struct bench *b, CUgraphExec graph, double *out,
                             pisa_error *error) {
  float ms = 0;
  pisa_status status = pisa_device_wait(&b->device, error);
  bench_idle();
  if (!status)
    status = pisa_graph_launch(&b->device, graph, b->stream, error);
  if (!status)
    status = pisa_event_record(&b->device, b->begin, b->stream, error);
  if (!status)
    status = pisa_graph_launch(&b->device, graph, b->stream, error);
  if (!status)
    status = pisa_event_record(&b->device, b->end, b->stream, error);
  if (!status)
    status = pisa_event_elapsed(&b->device, b->begin, b->end, &ms, error);
  *out = (double)ms / BENCH_CALLS;
  return status;
}

void bench_destroy_graph(const struct bench *b, CUgraphExec graph) {
  if (graph)
    pisa_graph_destroy(&b->device, graph);
}

pisa_status bench_time_captured(const struct bench *b, bench_launches *launches,
                                const void *context, double *out, pisa_error *error) {
  CUgraphExec graph = NULL;
  pisa_status status = bench_capture(b, launches, context, &graph, error);
  if (!status)
    status = bench_time_graph(b, graph, out, error);
  bench_destroy_graph(b, graph);
  return status;
}
