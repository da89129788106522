/* model_cuda.c: a libcuda.so.1 without a GPU: memory is the host's, launches run model_kernels.h at
   once, graphs replay what was captured. PISA_LIBCUDA points the runtime at it. Beside the faults
   of the kernels, PISA_MODEL_FAULT knows "second_launch" (bits change from launch to launch),
   "workspace" (a write behind it), "cubin" (the driver takes no cubin), "ptx" (PTX gives other
   results) and "launch" (launches are refused). */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.def"
#include "runtime/cuda.h"
#include "tests/gpu/model_kernels.h"

enum { SMS = 5, MAX_ARGS = 48, MAX_LAUNCHES = 128 };

enum kernel {
  STATISTICS,
  RESIDUAL,
  ROUTE,
  ATTEND,
  EDGE,
  DENSE,
  DENSE_EDGE,
  PYRAMID,
  PYRAMID_TOP,
  WALK,
  CLUSTER,
  SCATTER,
  LEAF_SCORE,
  PICK,
  FLAT,
  CSR_COUNT,
  CSR_SCAN,
  CSR_FILL,
  ATTEND_BLOCKS,
  APPEND,
  DECODE,
  DECODE_ATTEND,
  DECODE_MERGE,
  N_KERNELS
};

/* Handles the driver gives out. */
struct CUmod_st {
  bool ptx;
  struct model_build build;
};
struct CUfunc_st {
  enum kernel kernel;
  const struct CUmod_st *module;
};
struct CUevent_st {
  double at; /* of |clock_ms| */
};
struct launch {
  enum kernel kernel;
  bool ptx;
  struct model_build build;
  int grid;
  union model_value values[MAX_ARGS];
};
struct CUgraph_st {
  int n;
  struct launch launches[MAX_LAUNCHES];
};

static struct CUgraph_st *capture; /* NULL: launches run */
static CUcontext current;
static int calls; /* of the whole method */
/* Moves by LAUNCH_MS with every launch, so that who is faster does not depend on what else runs
   here. */
enum { LAUNCH_MS = 5 };
static double clock_ms;

/* Bytes of every parameter of a kernel. */
#define BYTES(kind, name, meaning) BYTES_##kind,
enum { BYTES_MAP = 128, BYTES_PTR = 8, BYTES_I64 = 8, BYTES_I32 = 4, BYTES_F32 = 4 };
#define KERNEL(entry, ARGS)                                                                        \
  {                                                                                                \
    "pisa_" #entry, PISA_##ARGS##_N_ARGS, {                                                        \
      PISA_##ARGS##_ARGS(BYTES)                                                                    \
    }                                                                                              \
  }
static const struct {
  const char *entry;
  int n, bytes[MAX_ARGS];
} kernels[N_KERNELS] = {KERNEL(statistics, STATISTICS),
                        KERNEL(residual, RESIDUAL),
                        KERNEL(route, ROUTE),
                        KERNEL(attend, ATTEND),
                        KERNEL(attend_edge, ATTEND),
                        KERNEL(dense, ATTEND),
                        KERNEL(dense_edge, ATTEND),
                        KERNEL(pyramid, PYRAMID),
                        KERNEL(pyramid_top, PYRAMID_TOP),
                        KERNEL(walk, WALK),
                        KERNEL(cluster, CLUSTER),
                        KERNEL(scatter, SCATTER),
                        KERNEL(leaf_score, LEAF_SCORE),
                        KERNEL(pick, PICK),
                        KERNEL(flat, FLAT),
                        KERNEL(csr_count, CSR_COUNT),
                        KERNEL(csr_scan, CSR_SCAN),
                        KERNEL(csr_fill, CSR_FILL),
                        KERNEL(attend_blocks, ATTEND_BLOCKS),
                        KERNEL(append, APPEND),
                        KERNEL(decode, DECODE),
                        KERNEL(decode_attend, DECODE_ATTEND),
                        KERNEL(decode_merge, DECODE_MERGE)};

/* Every entry point is declared before it is defined, with the types the runtime calls it by. */
#include "tests/runtime/driver_symbols.h"

/* ---- errors, device, context ---- */

CUresult cuGetErrorString(CUresult result, const char **out) {
  *out = result ? "the model driver refuses this" : "no error";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **out) {
  *out = result ? "CUDA_ERROR_MODEL" : "CUDA_SUCCESS";
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *out) {
  *out = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out) {
  *out = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int length, CUdevice device) {
  (void)device;
  snprintf(out, (size_t)length, "host model");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
  (void)device;
  *out = attribute == CU_DEVICE_MULTIPROCESSOR_COUNT       ? SMS
         : attribute == CU_DEVICE_COMPUTE_CAPABILITY_MAJOR ? 9
         : attribute == CU_DEVICE_COMPUTE_CAPABILITY_MINOR ? 0
                                                           : 232448;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  (void)device;
  *out = (CUcontext)&current;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out) {
  *out = current;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out) {
  *out = 0;
  return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize(void) {
  return CUDA_SUCCESS;
}

/* ---- code ---- */

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options,
                            void **values) {
  static struct CUmod_st modules[] = {{.ptx = false}, {.ptx = true}};
  bool ptx = memcmp(image, "\177ELF", 4) != 0;
  (void)n, (void)options, (void)values;
  if (!ptx && model_fault("cubin"))
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  modules[ptx].build = model_read_build(image);
  *out = &modules[ptx];
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  static struct CUfunc_st functions[N_KERNELS][2];
  for (int i = 0; i < N_KERNELS; i++)
    if (strcmp(name, kernels[i].entry) == 0) {
      *out = &functions[i][module->ptx];
      **out = (struct CUfunc_st){(enum kernel)i, module};
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

/* As the sample packs say. */
static int registers_of(enum kernel kernel) {
  return kernel >= PYRAMID ? 96 : kernel == ROUTE ? 64 : 168;
}

CUresult cuFuncGetAttribute(int *out, int attribute, CUfunction function) {
  *out = attribute == CU_FUNC_MAX_THREADS_PER_BLOCK ? 1024
         : attribute == CU_FUNC_NUM_REGS            ? registers_of(function->kernel)
                                                    : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int threads,
                                                     size_t smem_bytes) {
  (void)function, (void)threads, (void)smem_bytes;
  *out = 1;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}

/* ---- launches ---- */

CUresult cuTensorMapEncodeTiled(CUtensorMap *out, int type, uint32_t rank, void *address,
                                const uint64_t *extents, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int l2_promotion, int fill) {
  union model_value value;
  (void)box, (void)steps, (void)interleave, (void)swizzle, (void)l2_promotion, (void)fill;
  if (rank != 4 || (type != CU_TENSOR_MAP_BFLOAT16 && type != CU_TENSOR_MAP_FLOAT16))
    return CUDA_ERROR_INVALID_VALUE;
  memset(&value, 0, sizeof value);
  value.map.data = address;
  for (int i = 0; i < 4; i++) {
    value.map.extent[i] = (int64_t)extents[i];
    value.map.stride[i] = i ? (int64_t)strides[i - 1] / 2 : 1;
  }
  *out = value.bytes;
  return CUDA_SUCCESS;
}

/* Damage that no single kernel does. */
static void spoil(const struct launch *launch) {
  const union model_value *args = launch->values;
  bool last = launch->kernel >= ATTEND;
  calls += last;
  if (last && model_fault("second_launch"))
    args[PISA_ATTEND_o].map.data[0] ^= (uint16_t)(calls % 2);
  if (last && model_fault("ptx") && launch->ptx)
    args[PISA_ATTEND_o].map.data[0] ^= 0x8000;
  if (launch->kernel == ROUTE && model_fault("workspace")) { /* counts are behind all else */
    int32_t query = launch->build.query;
    int32_t rows =
        args[PISA_ROUTE_total_heads].integer * ((args[PISA_ROUTE_n_q].integer + query - 1) / query);
    ((int32_t *)(uintptr_t)args[PISA_ROUTE_counts].pointer)[rows + 100] = 0;
  }
}

/* Damage to a list or an output of block selection. */
static void spoil_selection(const struct launch *launch) {
  const union model_value *args = launch->values;
  if (launch->kernel != ATTEND_BLOCKS)
    return;
  uint16_t *o = (uint16_t *)(uintptr_t)args[PISA_ATTEND_BLOCKS_o].pointer;
  calls++;
  if (model_fault("second_launch"))
    *o ^= (uint16_t)(calls % 2);
  if (model_fault("ptx") && launch->ptx)
    *o ^= 0x8000;
}

static void run_selection(const struct launch *launch) {
  static void (*const bodies[N_KERNELS])(const union model_value *args) = {
      [PYRAMID] = model_pyramid,
      [WALK] = model_walk,
      [PICK] = model_pick,
      [CSR_COUNT] = model_csr_count,
      [CSR_SCAN] = model_csr_scan,
      [CSR_FILL] = model_csr_fill,
      [FLAT] = model_flat,
      [ATTEND_BLOCKS] = model_attend_blocks,
      [APPEND] = model_append,
      [DECODE] = model_decode,
      [DECODE_ATTEND] = model_decode_attend,
      [DECODE_MERGE] = model_decode_merge}; /* the others' work is done in these */
  model_enter(&launch->build);
  if (bodies[launch->kernel])
    bodies[launch->kernel](launch->values);
  if (launch->kernel == DECODE)
    model_decode_blocks(launch->values);
  spoil_selection(launch);
}

static void run(const struct launch *launch) {
  const struct model_build *build = &launch->build;
  clock_ms += LAUNCH_MS;
  if (launch->kernel >= PYRAMID) {
    run_selection(launch);
    return;
  }
  if (launch->kernel == STATISTICS)
    model_statistics(build, launch->values, launch->grid);
  else if (launch->kernel == RESIDUAL)
    model_residual(build, launch->values);
  else if (launch->kernel == ROUTE)
    model_route(build, launch->values);
  else
    model_attend(build, launch->values,
                 launch->kernel == ATTEND ? MODEL_ATTEND
                 : launch->kernel == EDGE ? MODEL_EDGE
                                          : MODEL_DENSE);
  spoil(launch);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  static struct launch now;
  struct launch *launch = capture ? &capture->launches[capture->n] : &now;
  if (extra || model_fault("launch") || (capture && capture->n == MAX_LAUNCHES))
    return CUDA_ERROR_INVALID_VALUE;
  launch->kernel = function->kernel;
  launch->ptx = function->module->ptx;
  launch->build = function->module->build;
  launch->grid = (int)config->grid[0];
  for (int i = 0; i < kernels[launch->kernel].n; i++)
    memcpy(&launch->values[i], parameters[i], (size_t)kernels[launch->kernel].bytes[i]);
  if (capture)
    capture->n++;
  else
    run(launch);
  return CUDA_SUCCESS;
}

/* ---- streams, events, graphs ---- */

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  static int stream;
  (void)flags;
  *out = (CUstream)(void *)&stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamSynchronize(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned flags) {
  (void)flags;
  *out = calloc(1, sizeof **out);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy(CUevent event) {
  free(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  (void)stream;
  event->at = clock_ms;
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end) {
  *ms = (float)(end->at - begin->at);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, int mode) {
  (void)stream, (void)mode;
  capture = calloc(1, sizeof *capture);
  return capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out) {
  (void)stream;
  *out = capture;
  capture = NULL;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
  struct CUgraph_st *copy = malloc(sizeof *copy);
  (void)flags;
  if (!copy)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(copy, graph, sizeof *copy);
  *out = (CUgraphExec)(void *)copy;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  struct CUgraph_st *launches = (struct CUgraph_st *)(void *)graph;
  (void)stream;
  for (int i = 0; i < launches->n; i++)
    run(&launches->launches[i]);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  free(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  free(graph);
  return CUDA_SUCCESS;
}
