/* module.c: pack -> module. In: a variant and the calling thread's CUDA context. Out: functions
   that were checked against the manifest: right chip, cubin first and PTX as the fallback, threads,
   registers and shared memory that the device can give. */
#include "runtime/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pack.h"

enum { LOG_BYTES = 8192, SMEM_GRANTED = 48 * 1024 };

/* "sm_90a" runs on compute capability 9.0 alone; without the letter, newer chips run it too. */
static pisa_status check_chip(const struct pisa_cuda *cuda, CUdevice device, const char *target,
                              pisa_error *error) {
  int number = 0, major = 0, minor = 0;
  char suffix = '\0';
  if (sscanf(target, "sm_%4d%c", &number, &suffix) < 1)
    return pisa_fail(error, PISA_UNSUPPORTED, "the pack's target '%.40s' is not known", target);
  pisa_status status = pisa_cuda_check(
      cuda, cuda->cuDeviceGetAttribute(&major, CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, device), error,
      "compute capability");
  if (!status)
    status = pisa_cuda_check(
        cuda, cuda->cuDeviceGetAttribute(&minor, CU_DEVICE_COMPUTE_CAPABILITY_MINOR, device), error,
        "compute capability");
  if (status)
    return status;
  int chip = 10 * major + minor;
  if (suffix ? chip == number : chip >= number)
    return PISA_OK;
  return pisa_fail(error, PISA_NO_DEVICE,
                   "the pack is built for %s, the device has compute capability %d.%d", target,
                   major, minor);
}

static pisa_status read_limits(const struct pisa_cuda *cuda, CUdevice device,
                               struct pisa_limits *out, pisa_error *error) {
  pisa_status status = pisa_cuda_check(
      cuda, cuda->cuDeviceGetAttribute(&out->sm_count, CU_DEVICE_MULTIPROCESSOR_COUNT, device),
      error, "number of multiprocessors");
  if (status)
    return status;
  return pisa_cuda_check(cuda,
                         cuda->cuDeviceGetAttribute(&out->route_smem_bytes,
                                                    CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                                    device),
                         error, "shared memory of a block");
}

/* Loads one image; the driver's compiler writes to |log|. PTX must end in NUL, and a copy aligns
 * cubins. */
static pisa_status load_image(struct pisa_module *module, const pisa_pack *pack,
                              const struct pisa_part *part, const char *kind, char *log,
                              pisa_error *error) {
  char *image = malloc(part->size + 1);
  if (!image)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for %zu bytes of %s", part->size, kind);
  memcpy(image, pisa_part_bytes(pack, part), part->size);
  image[part->size] = '\0';
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
  log[0] = '\0';
  CUresult result = module->cuda->cuModuleLoadDataEx(&module->code, image, 2, options, values);
  log[LOG_BYTES - 1] = '\0';
  free(image);
  return pisa_cuda_check(module->cuda, result, error, "loading %s", kind);
}

static pisa_status load_ptx(struct pisa_module *module, const pisa_pack *pack,
                            const struct pisa_variant *variant, char *log, pisa_error *error) {
  pisa_status status = load_image(module, pack, &variant->ptx, "PTX", log, error);
  if (!status || !error || !*log)
    return status;
  size_t used = strlen(error->message);
  snprintf(error->message + used, sizeof error->message - used, "; log: %s", log);
  return status;
}

static pisa_status load_code(struct pisa_module *module, const pisa_pack *pack,
                             const struct pisa_variant *variant, unsigned flags, char *log,
                             pisa_error *error) {
  pisa_error first = {PISA_OK, ""};
  if (variant->cubin.present && !(flags & PISA_LOAD_PTX_ONLY)) {
    if (!load_image(module, pack, &variant->cubin, "cubin", log, &first)) {
      module->from_cubin = true;
      return PISA_OK;
    }
  }
  pisa_status status = load_ptx(module, pack, variant, log, error);
  return status && first.status ? pisa_add_context(error, status, "%.300s", first.message) : status;
}

struct attributes {
  int threads, registers, local_bytes, smem_bytes;
};

static pisa_status read_attributes(const struct pisa_cuda *cuda, CUfunction function,
                                   struct attributes *out, pisa_error *error) {
  const struct {
    int attribute;
    int *out;
  } wanted[] = {{CU_FUNC_MAX_THREADS_PER_BLOCK, &out->threads},
                {CU_FUNC_NUM_REGS, &out->registers},
                {CU_FUNC_LOCAL_SIZE_BYTES, &out->local_bytes},
                {CU_FUNC_SHARED_SIZE_BYTES, &out->smem_bytes}};
  pisa_status status = PISA_OK;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !status; i++)
    status = pisa_cuda_check(cuda,
                             cuda->cuFuncGetAttribute(wanted[i].out, wanted[i].attribute, function),
                             error, "function attribute %d", wanted[i].attribute);
  return status;
}

/* The kernels of piecewise attention, but for route, hand registers from one warpgroup to the
   others; entered with fewer than the plan's number they would wait for ever. */
static pisa_status check_registers(const struct pisa_kernel *kernel, enum pisa_kernel_id id,
                                   int found, bool from_cubin, pisa_error *error) {
  if (kernel->registers == 0 || found == kernel->registers)
    return PISA_OK;
  if (from_cubin)
    return pisa_fail(error, PISA_CORRUPT, "the cubin uses %d registers, the manifest says %d",
                     found, kernel->registers);
  bool hands_over = id < PISA_KERNEL_PYRAMID && id != PISA_KERNEL_ROUTE;
  if (!hands_over || found > kernel->registers)
    return PISA_OK;
  return pisa_fail(
      error, PISA_UNSUPPORTED,
      "the driver's compiler gave %d registers a thread where the kernel needs %d: build "
      "the pack with ptxas",
      found, kernel->registers);
}

static pisa_status check_attributes(const struct pisa_module *module,
                                    const struct pisa_kernel *kernel, enum pisa_kernel_id id,
                                    const struct attributes *found, int room, pisa_error *error) {
  if (found->threads < kernel->threads)
    return pisa_fail(error, PISA_UNSUPPORTED, "it needs %d threads a block, the code allows %d",
                     kernel->threads, found->threads);
  if (kernel->smem_bytes > room)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "it needs %d bytes of dynamic shared memory, the device has %d",
                     kernel->smem_bytes, room);
  if (module->from_cubin && kernel->spill_bytes == 0 && found->local_bytes > 0)
    return pisa_fail(error, PISA_CORRUPT,
                     "the cubin uses %d bytes of local memory, the manifest says spill=0",
                     found->local_bytes);
  return check_registers(kernel, id, found->registers, module->from_cubin, error);
}

/* Dynamic shared memory beyond what every kernel may have is granted by name. */
static pisa_status allow_smem(const struct pisa_cuda *cuda, CUfunction function, int bytes,
                              pisa_error *error) {
  if (bytes <= SMEM_GRANTED)
    return PISA_OK;
  return pisa_cuda_check(
      cuda, cuda->cuFuncSetAttribute(function, CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes), error,
      "allowing %d bytes of shared memory", bytes);
}

/* What grids of persistent kernels are made of. */
static pisa_status read_resident(const struct pisa_cuda *cuda, struct pisa_loaded_kernel *kernel,
                                 pisa_error *error) {
  pisa_status status = pisa_cuda_check(
      cuda,
      cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &kernel->resident, kernel->function, kernel->threads, (size_t)kernel->smem_bytes),
      error, "blocks that fit a multiprocessor");
  if (!status && kernel->resident < 1)
    return pisa_fail(error, PISA_UNSUPPORTED, "no block of it fits a multiprocessor");
  return status;
}

static pisa_status load_kernel(struct pisa_module *module, const struct pisa_kernel *kernel,
                               enum pisa_kernel_id id, int optin_bytes, pisa_error *error) {
  const struct pisa_cuda *cuda = module->cuda;
  struct pisa_loaded_kernel *out = &module->kernels[id];
  struct attributes found = {0, 0, 0, 0};
  pisa_status status =
      pisa_cuda_check(cuda, cuda->cuModuleGetFunction(&out->function, module->code, kernel->entry),
                      error, "entry %s", kernel->entry);
  if (!status)
    status = read_attributes(cuda, out->function, &found, error);
  if (status)
    return status;
  int room = optin_bytes - found.smem_bytes;
  status = check_attributes(module, kernel, id, &found, room, error);
  if (status)
    return status;
  out->threads = kernel->threads;
  out->smem_bytes = kernel->smem_bytes;
  out->registers = found.registers;
  out->local_bytes = found.local_bytes;
  bool is_dynamic = kernel->smem_bytes == PISA_SMEM_DYNAMIC;
  if (id == PISA_KERNEL_ROUTE)
    module->limits.route_smem_bytes = room;
  status = allow_smem(cuda, out->function, is_dynamic ? room : kernel->smem_bytes, error);
  return status || id < PISA_KERNEL_PYRAMID ? status : read_resident(cuda, out, error);
}

static pisa_status load_kernels(struct pisa_module *module, const struct pisa_variant *variant,
                                pisa_error *error) {
  const int optin_bytes = module->limits.route_smem_bytes;
  for (int i = 0; i < PISA_N_KERNELS; i++) {
    const struct pisa_kernel *kernel = &variant->kernels[i];
    if (!kernel->present)
      continue;
    pisa_status status = load_kernel(module, kernel, (enum pisa_kernel_id)i, optin_bytes, error);
    if (status)
      return pisa_add_context(error, status, "kernel %s", pisa_kernel_names[i]);
  }
  return PISA_OK;
}

static pisa_status find_context(struct pisa_module *module, CUdevice *device, pisa_error *error) {
  pisa_status status = pisa_cuda_get(&module->cuda, error);
  if (!status)
    status = pisa_cuda_check(module->cuda, module->cuda->cuCtxGetCurrent(&module->context), error,
                             "current CUDA context");
  if (!status && !module->context)
    return pisa_fail(error, PISA_NO_DEVICE,
                     "the calling thread has no current CUDA context: make one current first");
  return status ? status
                : pisa_cuda_check(module->cuda, module->cuda->cuCtxGetDevice(device), error,
                                  "device of the current context");
}

static pisa_status load_into(struct pisa_module *module, const pisa_pack *pack,
                             const struct pisa_variant *variant, unsigned flags,
                             pisa_error *error) {
  CUdevice device = 0;
  pisa_status status = find_context(module, &device, error);
  if (!status)
    status = check_chip(module->cuda, device, pack->manifest.target, error);
  if (!status)
    status = read_limits(module->cuda, device, &module->limits, error);
  if (status)
    return status;
  char *log = malloc(LOG_BYTES);
  if (!log)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for the driver's log");
  status = load_code(module, pack, variant, flags, log, error);
  free(log);
  return status ? status : load_kernels(module, variant, error);
}

pisa_status pisa_module_load(const pisa_pack *pack, int variant, unsigned flags, pisa_module **out,
                             pisa_error *error) {
  pisa_clear(error);
  const struct pisa_variant *chosen = NULL;
  pisa_status status = pisa_pack_variant(pack, variant, &chosen, error);
  if (status)
    return status;
  if (flags & ~(unsigned)PISA_LOAD_PTX_ONLY)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "flags is %#x, which has unknown bits", flags);
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  pisa_module *module = calloc(1, sizeof *module);
  if (!module)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for a module");
  module->method = chosen->method;
  status = load_into(module, pack, chosen, flags, error);
  if (status) {
    pisa_module_unload(module);
    return pisa_add_context(error, status, "loading %s, variant %d", pack->manifest.name, variant);
  }
  *out = module;
  return PISA_OK;
}

void pisa_module_unload(pisa_module *module) {
  if (!module)
    return;
  if (module->code)
    module->cuda->cuModuleUnload(module->code);
  free(module);
}
