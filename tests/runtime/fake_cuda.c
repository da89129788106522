/* fake_cuda.c: a library that looks like libcuda.so.1 to the runtime (fake_cuda.h). In: driver
   calls. Out: a record of them. It refuses what the driver's manual says the driver refuses, and
   fails on demand. */
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/fake_kinds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64, MAX_SETTINGS = 64 };

struct CUfunc_st {
  char entry[64];
  int smem_bytes; /* dynamic shared memory a launch may ask for */
  double ms;      /* a launch takes, */
  double per_cta; /* and for each CTA */
};
struct CUmod_st {
  double ms, per_cta; /* "ms=2.5", "per_cta=0.1" in its PTX; else 0 */
};
struct CUevent_st {
  double at;
};
struct setting { /* attribute |key| of |name| */
  char name[64];
  int key, value;
};

static struct setting counts[MAX_NAMES], failures[MAX_NAMES], attributes[MAX_SETTINGS],
    interrupts[MAX_NAMES];
static int n_counts, n_failures, n_attributes, n_interrupts;
static double clock_ms; /* runs with launches alone */
static struct fake_launch launches[FAKE_MAX_LAUNCHES];
static int n_launches;
static bool is_ready;
static CUcontext current;
static int object; /* what every handle points to */
static struct CUfunc_st functions[MAX_NAMES];
static int n_functions;

/* ---- settings ---- */

static struct setting *find(struct setting *list, int n, const char *name, int key) {
  for (int i = 0; i < n; i++)
    if (!strcmp(list[i].name, name) && list[i].key == key)
      return &list[i];
  return NULL;
}

static struct setting *put(struct setting *list, int *n, int room, const char *name, int key) {
  struct setting *found = find(list, *n, name, key);
  if (found)
    return found;
  if (*n == room)
    abort();
  found = &list[(*n)++];
  memset(found, 0, sizeof *found);
  snprintf(found->name, sizeof found->name, "%s", name);
  found->key = key;
  return found;
}

static void set_device(int attribute, int value) {
  put(attributes, &n_attributes, MAX_SETTINGS, "device", attribute)->value = value;
}

static void set_function(const char *entry, int attribute, int value) {
  put(attributes, &n_attributes, MAX_SETTINGS, entry, attribute)->value = value;
}

static void fail(const char *symbol, CUresult result) {
  put(failures, &n_failures, MAX_NAMES, symbol, 0)->value = result;
}

/* "name=value,name=value" of the environment. */
static void read_environment(const char *variable, void (*set)(const char *name, int value)) {
  char text[512];
  const char *given = getenv(variable);
  snprintf(text, sizeof text, "%s", given ? given : "");
  for (char *rest = text, *word; (word = strtok_r(rest, ",", &rest));) {
    char *equals = strchr(word, '=');
    if (!equals)
      abort();
    *equals = '\0';
    set(word, atoi(equals + 1));
  }
}

static void set_registers(const char *entry, int value) {
  set_function(entry, CU_FUNC_NUM_REGS, value);
}

static void interrupt(const char *symbol, int call) {
  put(interrupts, &n_interrupts, MAX_NAMES, symbol, 0)->value = call;
}

static void reset(void) {
  is_ready = true;
  n_counts = n_failures = n_attributes = n_launches = 0;
  current = (CUcontext)(void *)&object;
  set_device(CU_DEVICE_MULTIPROCESSOR_COUNT, 132);
  set_device(CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, 9);
  set_device(CU_DEVICE_COMPUTE_CAPABILITY_MINOR, 0);
  set_device(CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 * 1024);
  read_environment("FAKE_CUDA_FAIL", fail);
  read_environment("FAKE_CUDA_REGISTERS", set_registers);
  read_environment("FAKE_CUDA_INTERRUPT", interrupt);
}

/* Counts the call; the result it must fail with, or success. The first call sets the state up. */
static CUresult enter(const char *symbol) {
  if (!is_ready) {
    reset();
    current = NULL;
  }
  int call = ++put(counts, &n_counts, MAX_NAMES, symbol, 0)->value;
  const struct setting *stop = find(interrupts, n_interrupts, symbol, 0);
  if (stop && stop->value == call)
    raise(SIGINT);
  const struct setting *failure = find(failures, n_failures, symbol, 0);
  return failure ? failure->value : CUDA_SUCCESS;
}

#define ENTER(symbol)                                                                              \
  do {                                                                                             \
    CUresult result_ = enter(symbol);                                                              \
    if (result_ != CUDA_SUCCESS)                                                                   \
      return result_;                                                                              \
  } while (0)

static int calls(const char *symbol) {
  int total = 0;
  for (int i = 0; i < n_counts; i++)
    if (!symbol || !strcmp(counts[i].name, symbol))
      total += counts[i].value;
  return total;
}

static int get_n_launches(void) {
  return n_launches;
}

static const struct fake_launch *get_launch(int index) {
  return index < n_launches ? &launches[index] : NULL;
}

extern const struct fake_cuda fake_cuda;
const struct fake_cuda fake_cuda = {reset,        calls,          fail,      set_device,
                                    set_function, get_n_launches, get_launch};

/* ---- entry points: each is declared by cuda.def, so that a wrong signature does not compile ----
 */

#include "tests/runtime/driver_symbols.h"

CUresult cuGetErrorString(CUresult result, const char **out) {
  *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "the fake driver was told to fail";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char **out) {
  *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult cuInit(unsigned flags) {
  ENTER("cuInit");
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *out) {
  ENTER("cuDriverGetVersion");
  *out = 13000;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *out) {
  ENTER("cuDeviceGetCount");
  *out = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  ENTER("cuDeviceGet");
  *out = ordinal;
  return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *out, int length, CUdevice device) {
  ENTER("cuDeviceGetName");
  (void)device;
  snprintf(out, (size_t)length, "fake device");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
  ENTER("cuDeviceGetAttribute");
  const struct setting *found = find(attributes, n_attributes, "device", attribute);
  if (!found || device)
    return CUDA_ERROR_INVALID_VALUE;
  *out = found->value;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  *out = (CUcontext)(void *)&object;
  return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease_v2");
  return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *out) {
  ENTER("cuCtxGetCurrent");
  *out = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER("cuCtxSetCurrent");
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *out) {
  ENTER("cuCtxGetDevice");
  *out = 0;
  return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuCtxSynchronize(void) {
  ENTER("cuCtxSynchronize");
  return CUDA_SUCCESS;
}

/* ---- code ---- */

/* The number behind |name|; 0: there is none. */
static double named(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at ? strtod(at + strlen(name), NULL) : 0;
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options,
                            void **values) {
  ENTER("cuModuleLoadDataEx");
  bool is_ptx = strncmp(image, "\177ELF", 4) != 0;
  const struct setting *failure = find(failures, n_failures, is_ptx ? "ptx" : "cubin", 0);
  for (unsigned i = 0; i < n && failure && is_ptx; i++)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
      strcpy(values[i], "ptxas fatal : the fake compiler gives up");
  if (failure)
    return failure->value;
  if (is_ptx && !strstr(image, ".target")) /* also reads up to the NUL, as the driver does */
    return CUDA_ERROR_INVALID_PTX;
  *out = malloc(sizeof **out); /* so that a leak is seen */
  if (!*out)
    return CUDA_ERROR_OUT_OF_MEMORY;
  (*out)->ms = is_ptx ? named(image, "ms=") : 0;
  (*out)->per_cta = is_ptx ? named(image, "per_cta=") : 0;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  ENTER("cuModuleUnload");
  free(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  ENTER("cuModuleGetFunction");
  if (!module || strncmp(name, "pisa_", 5))
    return CUDA_ERROR_NOT_FOUND;
  struct CUfunc_st *function = &functions[n_functions++ % MAX_NAMES];
  snprintf(function->entry, sizeof function->entry, "%s", name);
  function->smem_bytes = 48 * 1024;
  function->ms = module->ms;
  function->per_cta = module->per_cta;
  *out = function;
  return CUDA_SUCCESS;
}
/* As the sample pack's manifest has them: 96 for kernels of block selection. */
static int registers_of(const char *entry) {
  static const char *const piecewise[] = {"pisa_statistics",  "pisa_residual", "pisa_attend",
                                          "pisa_attend_edge", "pisa_dense",    "pisa_dense_edge"};
  for (size_t i = 0; i < sizeof piecewise / sizeof *piecewise; i++)
    if (!strcmp(entry, piecewise[i]))
      return 168;
  return strstr(entry, "route") ? 64 : 96;
}

CUresult cuFuncGetAttribute(int *out, int attribute, CUfunction function) {
  ENTER("cuFuncGetAttribute");
  const struct setting *found = find(attributes, n_attributes, function->entry, attribute);
  if (found)
    *out = found->value;
  else if (attribute == CU_FUNC_NUM_REGS)
    *out = registers_of(function->entry);
  else
    *out = attribute == CU_FUNC_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > 227 * 1024)
    return CUDA_ERROR_INVALID_VALUE;
  function->smem_bytes = value;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int threads,
                                                     size_t smem_bytes) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  int by_smem = 227 * 1024 / ((int)smem_bytes + 1024), by_threads = 2048 / threads;
  if (smem_bytes > (size_t)function->smem_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *out = by_smem < by_threads ? by_smem : by_threads;
  return CUDA_SUCCESS;
}

/* ---- launches ---- */

_Static_assert(sizeof(struct fake_map) <= sizeof(CUtensorMap), "a record fits into a map");

CUresult cuTensorMapEncodeTiled(CUtensorMap *out, int type, uint32_t rank, void *address,
                                const uint64_t *extents, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int l2_promotion, int fill) {
  ENTER("cuTensorMapEncodeTiled");
  struct fake_map map = {.address = (uint64_t)(uintptr_t)address,
                         .rank = (uint8_t)rank,
                         .type = (uint8_t)type,
                         .interleave = (uint8_t)interleave,
                         .swizzle = (uint8_t)swizzle,
                         .promotion = (uint8_t)l2_promotion,
                         .fill = (uint8_t)fill};
  if ((uintptr_t)out % 64 || rank != 4 || (uintptr_t)address % 16 || !address)
    return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < rank; i++) {
    if (extents[i] == 0 || extents[i] > UINT64_C(1) << 32 || box[i] == 0 || box[i] > 256 ||
        steps[i] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    if (i + 1 < rank && (strides[i] % 16 || strides[i] >= UINT64_C(1) << 40))
      return CUDA_ERROR_INVALID_VALUE;
    map.extents[i] = extents[i];
    map.box[i] = box[i];
    if (i + 1 < rank)
      map.strides[i] = strides[i];
  }
  memset(out, 0, sizeof *out);
  memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

static void record_parameter(struct fake_launch *launch, int i, enum fake_kind kind,
                             const void *value) {
  int32_t whole;
  float real;
  switch (kind) {
  case KIND_MAP:
    memcpy(&launch->params[i].map, value, sizeof launch->params[i].map);
    break;
  case KIND_PTR:
  case KIND_I64:
    memcpy(&launch->params[i].whole, value, 8);
    break;
  case KIND_I32:
    memcpy(&whole, value, 4);
    launch->params[i].whole = whole;
    break;
  case KIND_F32:
    memcpy(&real, value, 4);
    launch->params[i].real = real;
    break;
  }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  ENTER("cuLaunchKernelEx");
  if (extra || !config->grid[0] || config->grid[0] > INT32_MAX ||
      config->shared_bytes > (uint32_t)function->smem_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  clock_ms += function->ms + function->per_cta * config->grid[0];
  if (n_launches == FAKE_MAX_LAUNCHES)
    return CUDA_SUCCESS;
  struct fake_launch *launch = &launches[n_launches++];
  memset(launch, 0, sizeof *launch);
  snprintf(launch->entry, sizeof launch->entry, "%s", function->entry);
  memcpy(launch->grid, config->grid, sizeof launch->grid);
  memcpy(launch->block, config->block, sizeof launch->block);
  launch->shared_bytes = config->shared_bytes;
  launch->stream = config->stream;
  launch->cluster = 1;
  for (uint32_t i = 0; i < config->n_attributes; i++)
    if (config->attributes[i].id == CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch->overlaps = config->attributes[i].value.programmatic_serialization_allowed;
    else if (config->attributes[i].id == CU_LAUNCH_CLUSTER_DIMENSION)
      launch->cluster = config->attributes[i].value.cluster[0];
  if (launch->cluster < 1 || launch->cluster > 8 || config->grid[0] % launch->cluster)
    return CUDA_ERROR_INVALID_VALUE;
  const enum fake_kind *kinds = fake_kinds_of(function->entry, &launch->n_params);
  for (int i = 0; i < launch->n_params; i++)
    record_parameter(launch, i, kinds[i], parameters[i]);
  return CUDA_SUCCESS;
}

/* ---- memory, streams, events, graphs ---- */

#define ENTRY(symbol, parameters, body)                                                            \
  CUresult symbol parameters {                                                                     \
    ENTER(#symbol);                                                                                \
    body return CUDA_SUCCESS;                                                                      \
  }
#define HOST(address) ((void *)(uintptr_t)(address))

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
  ENTER("cuMemAlloc_v2");
  void *memory = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
  *out = (CUdeviceptr)(uintptr_t)memory;
  return memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER("cuMemGetInfo_v2");
  *free_bytes = *total = (size_t)1 << 36;
  return CUDA_SUCCESS;
}
ENTRY(cuMemFree_v2, (CUdeviceptr memory), free(HOST(memory));)
ENTRY(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), memcpy(HOST(to), from, n);)
ENTRY(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), memcpy(to, HOST(from), n);)
ENTRY(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t n), memset(HOST(to), value, n);)
ENTRY(cuStreamCreate, (CUstream * out, unsigned flags), *out = (CUstream)(void *)&object;)
ENTRY(cuStreamDestroy_v2, (CUstream stream), ;)
ENTRY(cuStreamSynchronize, (CUstream stream), ;)
CUresult cuEventCreate(CUevent *out, unsigned flags) {
  ENTER("cuEventCreate");
  *out = calloc(1, sizeof **out);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
ENTRY(cuEventDestroy_v2, (CUevent event), free(event);)
ENTRY(cuEventRecord, (CUevent event, CUstream stream), event->at = clock_ms;)
ENTRY(cuEventSynchronize, (CUevent event), ;)
/* Kernels that say nothing of their time take a millisecond together. */
ENTRY(cuEventElapsedTime, (float *ms, CUevent begin, CUevent end),
      *ms = end->at > begin->at ? (float)(end->at - begin->at) : 1;)
ENTRY(cuStreamBeginCapture_v2, (CUstream stream, int mode), ;)
ENTRY(cuStreamEndCapture, (CUstream stream, CUgraph *out), *out = (CUgraph)(void *)&object;)
ENTRY(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
      *out = (CUgraphExec)(void *)&object;)
#ifndef FAKE_CUDA_OLD /* a driver from before graphs lacks this one */
ENTRY(cuGraphLaunch, (CUgraphExec graph, CUstream stream), ;)
#endif
ENTRY(cuGraphExecDestroy, (CUgraphExec graph), ;)
ENTRY(cuGraphDestroy, (CUgraph graph), ;)
