/* cuda.c: opens the driver once per process and turns its results into statuses. In: libcuda.so.1
   or the library PISA_LIBCUDA names. Out: struct pisa_cuda with every entry point of cuda.def, or
   why not. */
#include "runtime/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's binary interface on 64-bit machines. */
_Static_assert(sizeof(CUtensorMap) == 128, "tensor maps are 128 bytes");
_Static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8,
               "launch attributes are an id and 64 bytes");
_Static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, stream) == 32 &&
                   offsetof(CUlaunchConfig, n_attributes) == 48,
               "launch configurations lie as the driver reads them");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct pisa_cuda table; /* written once, under |once| */
static pisa_error outcome;     /* of the load; PISA_OK: |table| is complete */

/* ISO C has no conversion from object to function pointers, so the pointer is copied. */
static bool resolve(void *library, const char *symbol, void *slot) {
  void *address = dlsym(library, symbol);
  memcpy(slot, &address, sizeof address);
  return address != NULL;
}

static const char *find_missing(void *library) {
#define X(name, symbol, parameters)                                                                \
  if (!resolve(library, symbol, &table.name))                                                      \
    return symbol;
#include "runtime/cuda.def"
#undef X
  return NULL;
}

static void load(void) {
  const char *name = getenv("PISA_LIBCUDA");
  if (!name || !*name)
    name = "libcuda.so.1";
  void *library =
      dlopen(name, RTLD_NOW | RTLD_LOCAL); /* never closed: the process keeps its driver */
  if (!library) {
    const char *reason = dlerror();
    pisa_fail(&outcome, PISA_NO_DEVICE,
              "cannot open the CUDA driver (%s); install the NVIDIA driver",
              reason ? reason : name);
    return;
  }
  const char *missing = find_missing(library);
  if (missing) {
    pisa_fail(&outcome, PISA_NO_DEVICE, "the CUDA driver %s has no %s: update the NVIDIA driver",
              name, missing);
    return;
  }
  if (pisa_cuda_check(&table, table.cuInit(0), &outcome, "cannot start the CUDA driver %s", name))
    outcome.status = PISA_NO_DEVICE;
}

pisa_status pisa_cuda_get(const struct pisa_cuda **out, pisa_error *error) {
  pthread_once(&once, load);
  if (outcome.status)
    return pisa_fail(error, outcome.status, "%s", outcome.message);
  *out = &table;
  return PISA_OK;
}

static pisa_status status_of(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return PISA_OK;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return PISA_OUT_OF_MEMORY;
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_STUB_LIBRARY:
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_INVALID_DEVICE:
  case CUDA_ERROR_INVALID_CONTEXT:
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
  case CUDA_ERROR_COMPAT_NOT_SUPPORTED:
    return PISA_NO_DEVICE;
  default:
    return PISA_DRIVER;
  }
}

pisa_status pisa_cuda_check(const struct pisa_cuda *cuda, CUresult result, pisa_error *error,
                            const char *format, ...) {
  if (result == CUDA_SUCCESS)
    return PISA_OK;
  const char *words = NULL, *name = NULL;
  cuda->cuGetErrorString(result, &words);
  cuda->cuGetErrorName(result, &name);
  char context[256];
  va_list args;
  va_start(args, format);
  vsnprintf(context, sizeof context, format, args);
  va_end(args);
  return pisa_fail(error, status_of(result), "%s: %s (%s, %d)", context,
                   words ? words : "no description", name ? name : "unknown", result);
}
