/* module_test.c: loading a variant. Cubin first, PTX as the fallback, both failures in one message;
   what the driver reports about a kernel must fit the manifest and the device. */
#include "runtime/module.h"

#include <stdlib.h>
#include <string.h>

#include "tests/runtime/check.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/sample_pack.h"

static const struct fake_cuda *fake;

static pisa_pack *read_pack(const struct sample_spec *spec) {
  struct sample sample;
  pisa_error error;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  return pack;
}

/* Loads variant 0 and unloads it again; every loaded image must be unloaded, also after a failure.
 */
static pisa_status load(const pisa_pack *pack, unsigned flags, bool *from_cubin,
                        pisa_error *error) {
  pisa_module *module = NULL;
  pisa_status status = pisa_module_load(pack, 0, flags, &module, error);
  CHECK((module != NULL) == (status == PISA_OK));
  if (module && from_cubin)
    *from_cubin = module->from_cubin;
  pisa_module_unload(module);
  return status;
}

static void check_order(const pisa_pack *pack) {
  pisa_error error;
  bool from_cubin = false;
  fake->reset();
  CHECK_OK(load(pack, 0, &from_cubin, &error), error);
  CHECK(from_cubin);
  CHECK_INT(fake->calls("cuModuleLoadDataEx"), 1);
  CHECK_INT(fake->calls("cuModuleUnload"), 1);
  CHECK_OK(load(pack, PISA_LOAD_PTX_ONLY, &from_cubin, &error), error);
  CHECK(!from_cubin);
  CHECK_INT(fake->calls("cuModuleLoadDataEx"), 2);
  fake->fail("cubin", CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_OK(load(pack, 0, &from_cubin, &error), error);
  CHECK(!from_cubin);
  CHECK_INT(fake->calls("cuModuleLoadDataEx"), 4);
  fake->fail("ptx", CUDA_ERROR_INVALID_PTX);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_DRIVER, error, "loading sample, variant 0: ");
  CHECK(strstr(error.message,
               "loading cubin: the fake driver was told to fail (CUDA_ERROR_FAKE, 209)"));
  CHECK(strstr(error.message, "loading PTX: "));
  CHECK(strstr(error.message, "log: ptxas fatal : the fake compiler gives up"));
  CHECK_FAILS(load(pack, PISA_LOAD_PTX_ONLY, NULL, &error), PISA_DRIVER, error, "gives up");
  CHECK(!strstr(error.message, "cubin"));
}

static void check_chips(const pisa_pack *pack) {
  pisa_error error;
  fake->reset();
  fake->set_device(CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, 8);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_NO_DEVICE, error,
              "built for sm_90a, the device has compute capability 8.0");
  fake->set_device(CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, 10);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_NO_DEVICE, error, "compute capability 10.0");
  CHECK_INT(fake->calls("cuModuleLoadDataEx"), 0);
  fake->reset();
  pisa_pack *odd = read_pack(&(struct sample_spec){.target = "gfx942"});
  CHECK_FAILS(load(odd, 0, NULL, &error), PISA_UNSUPPORTED, error, "target 'gfx942' is not known");
  pisa_pack_close(odd);
  odd = read_pack(&(struct sample_spec){.target = "sm_80"}); /* no letter: newer chips run it */
  CHECK_OK(load(odd, 0, NULL, &error), error);
  pisa_pack_close(odd);
}

static void check_context(const pisa_pack *pack) {
  pisa_error error;
  const struct pisa_cuda *cuda = NULL;
  fake->reset();
  CHECK_OK((pisa_clear(&error), pisa_cuda_get(&cuda, &error)), error);
  cuda->cuCtxSetCurrent(NULL);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_NO_DEVICE, error, "no current CUDA context");
}

static void check_attributes(const pisa_pack *pack) {
  pisa_error error;
  fake->reset();
  fake->set_function("pisa_attend", CU_FUNC_NUM_REGS, 160);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_CORRUPT, error,
              "kernel attend: the cubin uses 160 registers, the manifest says 168");
  CHECK_FAILS(load(pack, PISA_LOAD_PTX_ONLY, NULL, &error), PISA_UNSUPPORTED, error,
              "compiler gave 160 registers a thread where the kernel needs 168");
  fake->reset();
  fake->set_function("pisa_attend", CU_FUNC_LOCAL_SIZE_BYTES, 16); /* it may spill */
  CHECK_OK(load(pack, 0, NULL, &error), error);
  fake->set_function("pisa_route", CU_FUNC_LOCAL_SIZE_BYTES, 16);
  CHECK_FAILS(load(pack, 0, NULL, &error), PISA_CORRUPT, error,
              "kernel route: the cubin uses 16 bytes of local memory, the manifest says spill=0");
  fake->reset();
  fake->set_function("pisa_route", CU_FUNC_NUM_REGS, 60); /* route may use fewer */
  CHECK_OK(load(pack, PISA_LOAD_PTX_ONLY, NULL, &error), error);
  fake->set_function("pisa_route", CU_FUNC_MAX_THREADS_PER_BLOCK, 256);
  CHECK_FAILS(load(pack, PISA_LOAD_PTX_ONLY, NULL, &error), PISA_UNSUPPORTED, error,
              "kernel route: it needs 512 threads a block, the code allows 256");
  fake->reset();
  fake->set_device(CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 100000);
  CHECK_FAILS(
      load(pack, 0, NULL, &error), PISA_UNSUPPORTED, error,
      "kernel statistics: it needs 197888 bytes of dynamic shared memory, the device has 100000");
  CHECK_INT(fake->calls("cuModuleUnload"), fake->calls("cuModuleLoadDataEx"));
}

/* Each driver call of a load, failing in turn, is a status with words and leaks nothing. */
static void check_each_failure(const pisa_pack *pack) {
  static const char *const symbols[] = {
      "cuCtxGetCurrent",     "cuCtxGetDevice",     "cuDeviceGetAttribute", "cuModuleLoadDataEx",
      "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute"};
  pisa_error error;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    fake->reset();
    fake->fail(symbols[i], CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_FAILS(load(pack, 0, NULL, &error), PISA_OUT_OF_MEMORY, error,
                "out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)");
    CHECK(load(pack, 0, NULL, NULL) == PISA_OUT_OF_MEMORY);
  }
}

static void check_arguments(const pisa_pack *pack) {
  pisa_error error;
  pisa_module *module = NULL;
  fake->reset();
  CHECK_FAILS(pisa_module_load(NULL, 0, 0, &module, &error), PISA_INVALID_ARGUMENT, error,
              "pack is NULL");
  CHECK_FAILS(pisa_module_load(pack, 2, 0, &module, &error), PISA_INVALID_ARGUMENT, error,
              "variant is 2, must be from 0 to 1");
  CHECK_FAILS(pisa_module_load(pack, 0, 2, &module, &error), PISA_INVALID_ARGUMENT, error,
              "flags is 0x2, which has unknown bits");
  CHECK_FAILS(pisa_module_load(pack, 0, 0, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out is NULL");
  CHECK_INT(fake->calls(NULL), 0);
  pisa_module_unload(NULL);
}

/* A module outlives its pack. */
static void check_lifetime(void) {
  pisa_error error;
  pisa_pack *pack = read_pack(&(struct sample_spec){.dense = true});
  pisa_module *module = NULL;
  size_t bytes = 1;
  fake->reset();
  CHECK_OK(pisa_module_load(pack, 0, 0, &module, &error), error);
  pisa_pack_close(pack);
  pisa_attention call = {
      .struct_size = sizeof call, .batch = 1, .heads = 1, .kv_heads = 1, .n_q = 5, .n_k = 5};
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  CHECK_INT((long long)bytes, 0);
  CHECK_FAILS(pisa_workspace_size(NULL, &call, &bytes, &error), PISA_INVALID_ARGUMENT, error,
              "module is NULL");
  CHECK_FAILS(pisa_workspace_size(module, NULL, &bytes, &error), PISA_INVALID_ARGUMENT, error,
              "call is NULL");
  CHECK_FAILS(pisa_workspace_size(module, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out_bytes is NULL");
  pisa_module_unload(module);
}

int main(void) {
  fake = fake_open();
  pisa_pack *pack = read_pack(&(struct sample_spec){.no_cubin = false});
  check_order(pack);
  check_chips(pack);
  check_context(pack);
  check_attributes(pack);
  check_each_failure(pack);
  check_arguments(pack);
  check_lifetime();
  pisa_pack_close(pack);
  return check_result();
}
