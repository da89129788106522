/* launch_test.c: what pisa_launch asks of the driver: which kernels, with which grids, shared
   memory and parameters, for many shapes; and what it must never ask: memory, synchronisation,
   copies. */
#include "runtime/launch.h"

#include <stdio.h>
#include <string.h>

#include "tests/runtime/calls.h"
#include "tests/runtime/check.h"

static int64_t eighth(int64_t n_k) {
  int64_t k = ceil_div(n_k, 64) / 8;
  return k ? k : 1;
}

static void check_shape(const pisa_module *module, const pisa_attention *call, int64_t kept) {
  struct expect expect = expect_default(call, kept);
  if (call->keep)
    expect.num = 0, expect.den = 1, expect.budget = call->keep;
  if (call->density == 1)
    expect.num = expect.den = 1000000000;
  check_call(module, &expect);
}

/* [batch, heads, n, d] with tokens outside of heads. */
static pisa_tensor tokens_first(int i, int64_t heads, int64_t n, int64_t d) {
  return (pisa_tensor){address(i), {n * heads * d, d, heads * d, 1}};
}

/* Fewer key/value heads than query heads, fp16 with its gain, other head dims. VB is NT for the
   first, G * NQS for the others. */
static void check_other_shapes(void) {
  static const struct {
    const char *shape;
    int64_t d, kv_heads, heads, n_q, n_k, kept;
    int type;
  } cases[] = {{"heads=8 kv_heads=2 head_dim=64 type=fp16 mask=none", 64, 2, 8, 300, 3000, 5,
                CU_TENSOR_MAP_FLOAT16},
               {"heads=8 kv_heads=2 head_dim=64 type=fp16 mask=none", 64, 3, 12, 1000, 3000, 5,
                CU_TENSOR_MAP_FLOAT16},
               {"heads=4 kv_heads=2 head_dim=96 type=bf16 mask=none", 96, 2, 4, 2000, 1030, 2,
                CU_TENSOR_MAP_BFLOAT16},
               {"heads=3 kv_heads=3 head_dim=96 type=fp16 mask=none", 96, 5, 5, 640, 64, 1,
                CU_TENSOR_MAP_FLOAT16},
               {"heads=16 kv_heads=1 head_dim=128 type=bf16 mask=none", 128, 1, 16, 4429, 4429, 8,
                CU_TENSOR_MAP_BFLOAT16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t d = cases[i].d, heads = cases[i].heads, kv_heads = cases[i].kv_heads;
    pisa_module *module = load_module(&(struct sample_spec){.shape = cases[i].shape});
    pisa_attention call = make_call(2, heads, cases[i].n_q, cases[i].n_k, false);
    call.kv_heads = kv_heads;
    call.q = tokens_first(1, heads, call.n_q, d);
    call.k = tokens_first(2, kv_heads, call.n_k, d);
    call.v = tokens_first(3, kv_heads, call.n_k, d);
    call.o = tokens_first(4, heads, call.n_q, d);
    struct expect expect = expect_default(&call, cases[i].kept);
    expect.d = d;
    expect.type = cases[i].type;
    check_call(module, &expect);
    pisa_module_unload(module);
  }
}

/* Query blocks of 64 rows, key blocks of 128, masses to second order, windows. */
static const struct blocks_case {
  const char *always;
  int64_t query, key, window, n_q, n_k, kept;
  bool second_order;
  bool uneven; /* more blocks are forced for some query block than the density gives */
  int64_t first;
} blocks_cases[] = {
    {NULL, 64, 64, -1, 300, 3000, 5, false, false, 0},
    {"always window=2\n", 64, 64, 2, 1000, 640, 5, true, true, 0},
    {"always window=0\n", 128, 64, 0, 1000, 640, 2, true, true, 0},
    {"always window=0\n", 128, 64, 0, 1000, 1024, 2, true, false, 0},
    {"always window=9\n", 128, 64, 9, 4096, 4096, 20, false, true, 0},
    {NULL, 128, 128, -1, 5000, 2048, 2, true, false, 0},
    {NULL, 128, 128, -1, 130, 2112, 2, false, false, 0},
    {"always first=1\nalways window=1\n", 128, 128, 1, 4429, 4429, 4, true, false, 1},
};

static void check_blocks(const struct blocks_case *c, bool strided) {
  char blocks[64], attend[64];
  snprintf(blocks, sizeof blocks, "query=%d key=%d lists=separate", (int)c->query, (int)c->key);
  snprintf(attend, sizeof attend, "selected=exact rest=taylor_hybrid mass=%s_order",
           c->second_order ? "second" : "zeroth");
  pisa_module *module =
      load_module(&(struct sample_spec){.blocks = blocks, .always = c->always, .attend = attend});
  const pisa_attention call = make_call(2, 3, c->n_q, c->n_k, strided);
  struct expect expect = expect_default(&call, c->kept);
  expect.query = c->query;
  expect.key = c->key;
  expect.second_order = c->second_order;
  expect.window = c->window;
  expect.uneven = c->uneven;
  expect.always[1] = c->first;
  check_call(module, &expect);
  pisa_module_unload(module);
}

static void check_shapes(void) {
  static const int64_t tokens[] = {1, 63, 64, 65, 127, 128, 1000, 4096, 4429, 4608, 32760, 229376};
  pisa_module *module = load_module(&(struct sample_spec){.no_cubin = false});
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    int64_t n = tokens[i];
    for (int layout = 0; layout < 2; layout++) {
      pisa_attention call = make_call(1, 24, n, n, layout);
      check_shape(module, &call, eighth(n));
      call = make_call(3, 2, n, n, layout);
      check_shape(module, &call, eighth(n));
    }
  }
  pisa_attention call = make_call(2, 3, 5000, 700, false); /* more query rows than keys */
  call.scale = 0.5f;
  check_shape(module, &call, eighth(700));
  call = make_call(1, 1, 70, 5000, true);
  call.keep = 17;
  check_shape(module, &call, 17);
  call.keep = 0;
  call.density = 1;
  check_shape(module, &call, 79);
  call.lse = NULL;
  call.blocks = NULL;
  check_shape(module, &call, 79);
  call = make_call(2, 4, 640, 640, false);
  call.k.stride[0] = 0; /* one key/value set for both batches */
  call.v.stride[1] = 0;
  check_shape(module, &call, 1);
  pisa_module_unload(module);
}

/* Forced ranges travel as tokens; the last 100 begin at -100. */
static void check_always(void) {
  pisa_module *module = load_module(&(struct sample_spec){
      .always = "always first=256\nalways last=100\nalways range=1000..1001\n"});
  const pisa_attention call = make_call(1, 2, 4096, 4100, false);
  const int64_t tokens[8] = {0, 256, -100, 0, 1000, 1001, 0, 0};
  struct expect expect = expect_default(&call, 8);
  memcpy(expect.always, tokens, sizeof tokens);
  check_call(module, &expect);
  pisa_module_unload(module);
}

/* What a method does not need is neither in the workspace nor passed. */
static void check_drop(void) {
  pisa_error error;
  size_t bytes = 0;
  pisa_module *module = load_module(
      &(struct sample_spec){.route = "top_k score=mean term=none budget=keep density=0/1 keep=4 "
                                     "threshold=0/1 variance=diagonal",
                            .attend = "selected=exact rest=drop"});
  pisa_attention call = make_call(1, 2, 1024, 1024, false);
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  CHECK_INT((long long)bytes, 2 * (2 * 2 * 16 * D) + 4 * 2 * 8 * 12 + 4 * 2 * 8 * 4 + 256);
  fake->reset();
  CHECK_OK(launch(module, &call, &error), error);
  const struct fake_launch *statistics = fake->launch(0), *route = fake->launch(1);
  const struct fake_launch *attend = fake->launch(2);
  CHECK(whole(statistics, PISA_STATISTICS_v_mean) == 0 &&
        whole(statistics, PISA_STATISTICS_h_norm2) == 0);
  CHECK(whole(statistics, PISA_STATISTICS_h_part) == 0 && whole(route, PISA_ROUTE_h_part) == 0);
  CHECK(whole(route, PISA_ROUTE_h_norm2) == 0 && whole(route, PISA_ROUTE_h_sum) == 0);
  CHECK_INT(route->grid[0], 2); /* no CTAs for Hsum */
  CHECK(is_zero(&attend->params[PISA_ATTEND_k_mean].map));
  CHECK(is_zero(&attend->params[PISA_ATTEND_v_mean].map));
  CHECK(is_zero(&attend->params[PISA_ATTEND_h_sum].map));
  CHECK(is_zero(&attend->params[PISA_ATTEND_k_variance].map));
  CHECK(whole(attend, PISA_ATTEND_lists) && whole(attend, PISA_ATTEND_masks));
  CHECK(!whole(route, PISA_ROUTE_shared) && !whole(attend, PISA_ATTEND_shared));
  CHECK_INT(whole(attend, PISA_ATTEND_counts), whole(route, PISA_ROUTE_counts));
  pisa_module_unload(module);
}

static void check_taylor_0(void) {
  pisa_error error;
  pisa_module *module = load_module(
      &(struct sample_spec){.attend = "selected=exact rest=taylor_0 mass=zeroth_order"});
  pisa_attention call = make_call(1, 2, 1024, 1024, false);
  CHECK_OK(launch(module, &call, &error), error);
  const struct fake_launch *attend = fake->launch(2);
  CHECK(!is_zero(&attend->params[PISA_ATTEND_v_mean].map));
  CHECK(is_zero(&attend->params[PISA_ATTEND_h_sum].map));
  CHECK(whole(fake->launch(0), PISA_STATISTICS_h_norm2) &&
        !whole(fake->launch(0), PISA_STATISTICS_h_part));
  CHECK_INT(fake->launch(1)->grid[0], 2);
  pisa_module_unload(module);
}

static void check_dense(void) {
  pisa_error error;
  pisa_module *module = load_module(&(struct sample_spec){.dense = true});
  static const int64_t tokens[] = {64, 128, 129, 300000};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    pisa_attention call = make_call(1, 2, tokens[i], tokens[i], false);
    call.blocks = NULL;
    fake->reset();
    CHECK_OK(pisa_launch(module, &call, NULL, 0, address(9), &error), error);
    CHECK_INT(fake->n_launches(), 1);
    const struct fake_launch *attend = fake->launch(0);
    CHECK(!strcmp(attend->entry, tokens[i] == 128 ? "pisa_attend" : "pisa_attend_edge"));
    CHECK_INT(whole(attend, PISA_ATTEND_keep), ceil_div(tokens[i], 64));
    CHECK(!whole(attend, PISA_ATTEND_lists) && !whole(attend, PISA_ATTEND_masks));
    CHECK(!whole(attend, PISA_ATTEND_counts) && !whole(attend, PISA_ATTEND_lengths));
    CHECK(is_zero(&attend->params[PISA_ATTEND_k_mean].map));
  }
  pisa_module_unload(module);
}

static void check_some(const pisa_module *module) {
  pisa_error error;
  size_t bytes = 0;
  pisa_attention call = make_call(1, 2, 1024, 1024, false);
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  fake->reset();
  CHECK_OK(pisa_launch_some(module, &call, address(7), bytes, NULL, PISA_LAUNCH_ROUTE, &error),
           error);
  CHECK_INT(fake->n_launches(), 1);
  CHECK(!strcmp(fake->launch(0)->entry, "pisa_route") && !fake->launch(0)->stream);
}

/* Nothing is enqueued when anything is wrong. */
static void check_refusals(const pisa_module *module) {
  pisa_error error;
  size_t bytes = 0;
  const pisa_attention good = make_call(1, 2, 1024, 1024, false);
  pisa_attention call = good;
  const struct pisa_cuda *cuda = module->cuda;
  CHECK_OK(pisa_workspace_size(module, &good, &bytes, &error), error);
  fake->reset();
  CHECK_FAILS(pisa_launch(NULL, &good, address(7), bytes, NULL, &error), PISA_INVALID_ARGUMENT,
              error, "module is NULL");
  CHECK_FAILS(pisa_launch(module, NULL, address(7), bytes, NULL, &error), PISA_INVALID_ARGUMENT,
              error, "call is NULL");
  CHECK_FAILS(pisa_launch(module, &good, NULL, bytes, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "workspace is NULL");
  CHECK_FAILS(pisa_launch(module, &good, address(7), bytes - 1, NULL, &error),
              PISA_INVALID_ARGUMENT, error, "workspace_bytes is ");
  CHECK_FAILS(pisa_launch(module, &good, (char *)address(7) + 16, bytes, NULL, &error),
              PISA_INVALID_ARGUMENT, error, "must be aligned to 256 bytes");
  CHECK_FAILS(pisa_launch(module, &good, address(4), bytes, NULL, &error), PISA_INVALID_ARGUMENT,
              error, "o overlaps workspace in memory");
  call.q.data = NULL;
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error, "q.data is NULL");
  call = good;
  call.n_k = 229377;
  CHECK_FAILS(launch(module, &call, &error), PISA_UNSUPPORTED, error, "at most 229376 tokens");
  call = good;
  call.kv_heads = 1;
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error,
              "heads / kv_heads is 2 / 1");
  cuda->cuCtxSetCurrent(address(3));
  CHECK_FAILS(launch(module, &good, &error), PISA_INVALID_ARGUMENT, error,
              "the current CUDA context is not the one the module was loaded into");
  fake->reset();
  fake->fail("cuTensorMapEncodeTiled", CUDA_ERROR_INVALID_VALUE);
  CHECK_FAILS(launch(module, &good, &error), PISA_DRIVER, error,
              "tensor map of q [1, 2, 1024, 128]");
  CHECK_INT(fake->n_launches(), 0);
  fake->reset();
  fake->fail("cuLaunchKernelEx", 719);
  CHECK_FAILS(launch(module, &good, &error), PISA_DRIVER, error, "launching statistics: ");
  CHECK(launch(module, &good, NULL) == PISA_DRIVER);
}

int main(void) {
  fake = fake_open();
  check_shapes();
  check_always();
  check_drop();
  check_taylor_0();
  check_dense();
  check_other_shapes();
  for (size_t i = 0; i < sizeof blocks_cases / sizeof *blocks_cases; i++)
    check_blocks(&blocks_cases[i], i % 2);
  pisa_module *module = load_module(&(struct sample_spec){.no_cubin = false});
  check_some(module);
  check_refusals(module);
  pisa_module_unload(module);
  return check_result();
}
