/* cuda.h: the CUDA driver, opened at run time. Declares the few types and constants that we use
   (the values are the driver's binary interface) and a table of its entry points; there is no
   link-time dependency. */
#ifndef PISA_RUNTIME_CUDA_H
#define PISA_RUNTIME_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

typedef int CUresult; /* 0 is success */
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

typedef struct CUtensorMap { /* opaque; the driver asks for 64-byte alignment, its header says 128
                              */
  _Alignas(128) uint64_t opaque[16];
} CUtensorMap;

typedef struct CUlaunchAttribute {
  uint32_t id, padding;
  union {
    char bytes[64];
    int32_t programmatic_serialization_allowed;
    uint32_t cluster[3];
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  uint32_t grid[3], block[3], shared_bytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  uint32_t n_attributes;
} CUlaunchConfig;

enum { /* CUresult */
       CUDA_SUCCESS = 0,
       CUDA_ERROR_INVALID_VALUE = 1,
       CUDA_ERROR_OUT_OF_MEMORY = 2,
       CUDA_ERROR_NOT_INITIALIZED = 3,
       CUDA_ERROR_STUB_LIBRARY = 34,
       CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
       CUDA_ERROR_NO_DEVICE = 100,
       CUDA_ERROR_INVALID_DEVICE = 101,
       CUDA_ERROR_INVALID_IMAGE = 200,
       CUDA_ERROR_INVALID_CONTEXT = 201,
       CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
       CUDA_ERROR_INVALID_PTX = 218,
       CUDA_ERROR_NOT_FOUND = 500,
       CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
       CUDA_ERROR_COMPAT_NOT_SUPPORTED = 804
};
enum { /* device attributes */
       CU_DEVICE_MULTIPROCESSOR_COUNT = 16,
       CU_DEVICE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};
enum { /* function attributes */
       CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
       CU_FUNC_SHARED_SIZE_BYTES = 1, /* static */
       CU_FUNC_LOCAL_SIZE_BYTES = 3,
       CU_FUNC_NUM_REGS = 4,
       CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
};
enum { /* options of cuModuleLoadDataEx */
       CU_JIT_ERROR_LOG_BUFFER = 5,
       CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
};
enum { /* tensor maps */
       CU_TENSOR_MAP_FLOAT16 = 6,
       CU_TENSOR_MAP_BFLOAT16 = 9,
       CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
       CU_TENSOR_MAP_SWIZZLE_128B = 3,
       CU_TENSOR_MAP_L2_PROMOTION_256B = 3,
       CU_TENSOR_MAP_FILL_ZERO = 0
};
enum {
  CU_LAUNCH_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
  CU_STREAM_NON_BLOCKING = 1,
  CU_STREAM_CAPTURE_THREAD_LOCAL = 1
};

struct pisa_cuda {
#define X(name, symbol, parameters) CUresult(*name) parameters;
#include "runtime/cuda.def"
#undef X
};

/* The driver's table, initialised (cuInit). The first call of the process opens libcuda.so.1, or
   what the environment variable PISA_LIBCUDA names; every call returns that outcome, from any
   thread. PISA_NO_DEVICE when there is no library, an entry point is missing, or no device. */
pisa_status pisa_cuda_get(const struct pisa_cuda **out, pisa_error *error);

/* PISA_OK on success; else a status, and "|format|: the driver's words (CUDA_ERROR_NAME)" in
 * |error|. */
pisa_status pisa_cuda_check(const struct pisa_cuda *cuda, CUresult result, pisa_error *error,
                            const char *format, ...) PISA_PRINTF(4, 5);

#endif
