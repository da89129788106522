/* driver_test.c CASE: how the runtime meets a driver that is missing, old or failing, and that it
   opens it once. The driver is opened once per process, so each case is a process of its own. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/device.h"
#include "tests/runtime/check.h"
#include "tests/runtime/fake_cuda.h"

static void check_refused(const char *words) {
  pisa_error error;
  const struct pisa_cuda *cuda = NULL;
  struct pisa_device device;
  CHECK_FAILS(pisa_cuda_get(&cuda, &error), PISA_NO_DEVICE, error, words);
  CHECK_FAILS(pisa_cuda_get(&cuda, &error), PISA_NO_DEVICE, error, words); /* the outcome stays */
  CHECK_FAILS(pisa_device_open(0, &device, &error), PISA_NO_DEVICE, error, words);
  CHECK(!cuda);
}

static void *get_table(void *out) {
  pisa_cuda_get(out, NULL);
  return NULL;
}

static void check_threads(void) {
  enum { N = 16 };
  pthread_t threads[N];
  const struct pisa_cuda *tables[N] = {NULL};
  for (int i = 0; i < N; i++)
    CHECK(!pthread_create(&threads[i], NULL, get_table, &tables[i]));
  for (int i = 0; i < N; i++) {
    pthread_join(threads[i], NULL);
    CHECK(tables[i] && tables[i] == tables[0]);
  }
}

static void check_memory(const struct pisa_device *device) {
  pisa_error error;
  void *memory = NULL;
  char text[6] = "";
  pisa_clear(&error);
  CHECK_OK(pisa_device_alloc(device, 6, &memory, &error), error);
  CHECK_OK(pisa_device_fill(device, memory, 0, 6, &error), error);
  CHECK_OK(pisa_device_upload(device, memory, "hello", 5, &error), error);
  CHECK_OK(pisa_device_download(device, text, memory, 6, &error), error);
  CHECK(!strcmp(text, "hello"));
  CHECK_OK(pisa_device_upload(device, NULL, NULL, 0, &error), error);
  pisa_device_free(device, memory);
  pisa_device_free(device, NULL);
}

static void check_streams(const struct pisa_device *device) {
  pisa_error error;
  CUstream stream = NULL;
  CUevent event = NULL;
  CUgraphExec graph = NULL;
  float ms = 0;
  pisa_clear(&error);
  CHECK_OK(pisa_stream_create(device, &stream, &error), error);
  CHECK_OK(pisa_event_create(device, &event, &error), error);
  CHECK_OK(pisa_event_record(device, event, stream, &error), error);
  CHECK_OK(pisa_event_elapsed(device, event, event, &ms, &error), error);
  CHECK(ms == 1);
  CHECK_OK(pisa_capture_begin(device, stream, &error), error);
  CHECK_OK(pisa_capture_end(device, stream, &graph, &error), error);
  CHECK_OK(pisa_graph_launch(device, graph, stream, &error), error);
  CHECK_OK(pisa_stream_wait(device, stream, &error), error);
  pisa_graph_destroy(device, graph);
  pisa_event_destroy(device, event);
  pisa_stream_destroy(device, stream);
}

static void check_device(void) {
  const struct fake_cuda *fake = fake_open();
  struct pisa_device device;
  pisa_error error;
  pisa_clear(&error);
  CHECK_OK(pisa_device_open(0, &device, &error), error);
  CHECK(!strcmp(device.name, "fake device"));
  CHECK(device.sm_count == 132 && device.major == 9 && device.minor == 0);
  CHECK(device.driver_version == 13000);
  check_memory(&device);
  check_streams(&device);
  fake->fail("cuCtxSynchronize", 719);
  CHECK_FAILS(pisa_device_wait(&device, &error), PISA_DRIVER, error,
              "waiting for the device: the fake driver was told to fail (CUDA_ERROR_FAKE, 719)");
  fake->fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  void *memory = NULL;
  CHECK_FAILS(pisa_device_alloc(&device, 77, &memory, &error), PISA_OUT_OF_MEMORY, error,
              "allocating 77 bytes of device memory: out of memory");
  pisa_device_close(&device);
  CHECK_FAILS(pisa_device_open(1, &device, &error), PISA_NO_DEVICE, error,
              "there is no device 1: the driver sees 1");
  CHECK_FAILS(pisa_device_open(-1, &device, &error), PISA_NO_DEVICE, error,
              "there is no device -1");
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "missing"))
    check_refused("cannot open the CUDA driver (");
  else if (!strcmp(name, "old"))
    check_refused("has no cuGraphLaunch: update the NVIDIA driver");
  else if (!strcmp(name, "foreign"))
    check_refused("has no cuGetErrorString");
  else if (!strcmp(name, "failing"))
    check_refused("cannot start the CUDA driver");
  else if (!strcmp(name, "threads"))
    check_threads();
  else if (!strcmp(name, "device"))
    check_device();
  else
    return 2;
  return check_result();
}
