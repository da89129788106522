/* fake_cuda.h: what a test may ask of the fake driver. The fake is a shared library with the
   driver's entry points; the runtime opens it through PISA_LIBCUDA. "Device" memory is host memory,
   kernels do nothing, and the first launches are recorded with the parameters that abi.def gives
   their kernels. A launch takes the time that its PTX names ("ms=2.5 per_cta=0.1"), or none; events
   tell it.

   A test opens the same library by the same path and so sees the same state (fake_open).
   Environment, for whole programs: FAKE_CUDA_FAIL="symbol=result,..." makes entry points fail from
   the start; FAKE_CUDA_INTERRUPT="symbol=n,..." raises SIGINT at the n-th call;
   FAKE_CUDA_REGISTERS="entry=n,..." sets register counts of kernels (statistics and attend 168,
   route 64, block selection 96). */
#ifndef PISA_TESTS_RUNTIME_FAKE_CUDA_H
#define PISA_TESTS_RUNTIME_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi.def"
#include "runtime/cuda.h"

enum { FAKE_MAX_LAUNCHES = 64, FAKE_MAX_PARAMS = 40 };

struct fake_map { /* what cuTensorMapEncodeTiled was given; lies in the 128 bytes of the map */
  uint64_t address;
  uint64_t extents[4], strides[3];
  uint32_t box[4];
  uint8_t rank, type, interleave, swizzle, promotion, fill, padding[2];
};

struct fake_launch {
  char entry[64];
  uint32_t grid[3], block[3], shared_bytes;
  CUstream stream;
  bool overlaps;    /* launched with programmatic stream serialization */
  uint32_t cluster; /* CTAs of one */
  int n_params;
  struct {
    int64_t whole;           /* PTR, I32 and I64 */
    double real;             /* F32 */
    struct fake_map map;     /* MAP; all zero for a zero map */
  } params[FAKE_MAX_PARAMS]; /* indexed by enum pisa_attend_arg and its sisters */
};

struct fake_cuda {
  /* Forgets calls, launches, failures and settings; current context as after pisa_device_open. */
  void (*reset)(void);
  /* Calls of an entry point (versioned name) since the reset; all of them for NULL. */
  int (*calls)(const char *symbol);
  /* Makes |symbol| return |result| until the reset, or, for "cubin" and "ptx", the loading of such
   * code. */
  void (*fail)(const char *symbol, CUresult result);
  /* A device attribute. */
  void (*set_device)(int attribute, int value);
  /* A function attribute of kernel |entry|. */
  void (*set_function)(const char *entry, int attribute, int value);
  int (*n_launches)(void);
  const struct fake_launch *(*launch)(int index);
};

/* The state of the library that PISA_LIBCUDA names; exits when it cannot be opened. */
const struct fake_cuda *fake_open(void);

#endif
