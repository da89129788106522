/* calls.c: calls, modules and whole launches on the fake driver (calls.h). */
#include "tests/runtime/calls.h"

#include "tests/runtime/check.h"

const struct fake_cuda *fake;

/* The linker sends the library's allocations through here (--wrap in CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
static int n_allocations;

void *__wrap_malloc(size_t size) {
  n_allocations++;
  return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
  n_allocations++;
  return __real_calloc(n, size);
}

void *address(int i) {
  return (void *)((uintptr_t)i << 36);
}

static pisa_tensor bhnd(int i, int64_t heads, int64_t n) {
  return (pisa_tensor){address(i), {heads * n * D, n * D, D, 1}};
}

static pisa_tensor bnhd(int i, int64_t heads, int64_t n) {
  return (pisa_tensor){address(i), {n * heads * D, D, heads * D, 1}};
}

pisa_attention make_call(int64_t batch, int64_t heads, int64_t n_q, int64_t n_k, bool is_bnhd) {
  pisa_tensor (*tensor)(int, int64_t, int64_t) = is_bnhd ? bnhd : bhnd;
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = batch,
                          .heads = heads,
                          .kv_heads = heads,
                          .n_q = n_q,
                          .n_k = n_k,
                          .q = tensor(1, heads, n_q),
                          .k = tensor(2, heads, n_k),
                          .v = tensor(3, heads, n_k),
                          .o = tensor(4, heads, n_q),
                          .lse = address(5),
                          .blocks = address(6)};
}

pisa_module *load_module(const struct sample_spec *spec) {
  struct sample sample;
  pisa_error error;
  pisa_pack *pack = NULL;
  pisa_module *module = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  fake->reset();
  n_allocations = 0;
  CHECK_OK(pisa_module_load(pack, 0, 0, &module, &error), error);
  CHECK(n_allocations > 0); /* or the counter counts nothing */
  pisa_pack_close(pack);
  sample_free(&sample);
  return module;
}

pisa_status launch(const pisa_module *module, const pisa_attention *call, pisa_error *error) {
  size_t bytes = 0;
  pisa_status status = pisa_workspace_size(module, call, &bytes, error);
  return status ? status : pisa_launch(module, call, address(7), bytes, address(9), error);
}

struct expect expect_default(const pisa_attention *call, int64_t kept) {
  return (struct expect){.call = *call,
                         .d = D,
                         .type = CU_TENSOR_MAP_BFLOAT16,
                         .query = 128,
                         .key = 64,
                         .tail = PISA_TAIL_TAYLOR_HYBRID,
                         .term = PISA_TERM_LOG_COVARIANCE,
                         .kept = kept,
                         .window = -1,
                         .num = 125,
                         .den = 1000,
                         .workspace = address(7),
                         .stream = address(9)};
}

void check_call(const pisa_module *module, const struct expect *expect) {
  pisa_error error;
  size_t bytes = 0;
  CHECK_OK(pisa_workspace_size(module, &expect->call, &bytes, &error), error);
  CHECK_INT((long long)bytes, (long long)expect_bytes(expect));
  fake->reset();
  n_allocations = 0;
  CHECK_OK(pisa_launch(module, &expect->call, expect->workspace, bytes, expect->stream, &error),
           error);
  CHECK_INT(n_allocations, 0);
  CHECK_INT(fake->calls(NULL), fake->calls("cuLaunchKernelEx") +
                                   fake->calls("cuTensorMapEncodeTiled") +
                                   fake->calls("cuCtxGetCurrent"));
  expect_launches(expect, fake);
}
