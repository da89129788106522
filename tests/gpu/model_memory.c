/* model_memory.c: the model driver's device memory: the host's, reserved and not touched, so that
   tensors may lie gigabytes apart. */
#define _DEFAULT_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "runtime/cuda.h"

enum { GRAIN = 4096 };

/* Every entry point is declared before it is defined, with the types the runtime calls it by. */
#include "tests/runtime/driver_symbols.h"

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes) {
  size_t all = bytes + GRAIN;
  size_t *memory =
      mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = all;
  *out = (CUdeviceptr)(uintptr_t)memory + GRAIN;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr memory) {
  size_t *start = (size_t *)(uintptr_t)(memory - GRAIN);
  munmap(start, *start);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
  *available = *total = (size_t)1 << 40;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr memory, unsigned char value, size_t bytes) {
  memset((void *)(uintptr_t)memory, value, bytes);
  return CUDA_SUCCESS;
}
