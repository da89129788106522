/* launch_test.c: what pisa_launch asks of the driver: which kernels, with which grids, shared
   memory and parameters, for many shapes; and what it must never ask: memory, synchronisation,
   copies. */
#include "runtime/launch.h"

#include <math.h>
#include <string.h>

#include "tests/runtime/check.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/sample_pack.h"

enum { D = 128, SMS = 132 };
static const struct fake_cuda *fake;

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

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* Addresses far apart: no array of these tests is longer than 4 GiB. */
static void *address(int i) {
  return (void *)((uintptr_t)i << 36);
}

static pisa_tensor bhnd(int i, int64_t heads, int64_t n) {
  return (pisa_tensor){address(i), {heads * n * D, n * D, D, 1}};
}

static pisa_tensor bnhd(int i, int64_t heads, int64_t n) {
  return (pisa_tensor){address(i), {n * heads * D, D, heads * D, 1}};
}

static pisa_attention make_call(int64_t batch, int64_t heads, int64_t n_q, int64_t n_k,
                                bool is_bnhd) {
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

static pisa_module *load_module(const struct sample_spec *spec) {
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

static pisa_status launch(const pisa_module *module, const pisa_attention *call,
                          pisa_error *error) {
  size_t bytes = 0;
  pisa_status status = pisa_workspace_size(module, call, &bytes, error);
  return status ? status : pisa_launch(module, call, address(7), bytes, address(9), error);
}

static int64_t whole(const struct fake_launch *launch, int parameter) {
  return launch->params[parameter].whole;
}

static bool is_zero(const struct fake_map *map) {
  static const struct fake_map zero;
  return !memcmp(map, &zero, sizeof zero);
}

/* A map of [batch, heads, rows, D] at |data| with these strides in elements. */
static void check_map(const struct fake_map *map, const void *data, int64_t batch, int64_t heads,
                      int64_t rows, const int64_t stride[3]) {
  CHECK_INT((long long)map->address, (long long)(uintptr_t)data);
  CHECK(map->extents[0] == D && map->extents[1] == (uint64_t)rows);
  CHECK(map->extents[2] == (uint64_t)heads && map->extents[3] == (uint64_t)batch);
  CHECK(rows == 1 || map->strides[0] == 2 * (uint64_t)stride[2]);
  CHECK(heads == 1 || map->strides[1] == 2 * (uint64_t)stride[1]);
  CHECK(batch == 1 || map->strides[2] == 2 * (uint64_t)stride[0]);
  CHECK(map->box[0] == 64 && map->box[1] == 64 && map->box[2] == 1 && map->box[3] == 1);
  CHECK(map->type == CU_TENSOR_MAP_BFLOAT16 && map->swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  CHECK(map->promotion == CU_TENSOR_MAP_L2_PROMOTION_256B && map->fill == CU_TENSOR_MAP_FILL_ZERO);
}

static void check_common(const struct fake_launch *l, const char *entry, int64_t grid,
                         int64_t threads, int64_t smem) {
  CHECK(!strcmp(l->entry, entry));
  CHECK_INT(l->grid[0], grid);
  CHECK(l->grid[1] == 1 && l->grid[2] == 1 && l->block[1] == 1 && l->block[2] == 1);
  CHECK_INT(l->block[0], threads);
  CHECK_INT(l->shared_bytes, smem);
  CHECK(l->stream == address(9));
  CHECK(l->overlaps);
}

/* Address of a part as docs/ABI.md section 4 lays them out, computed anew here. */
struct layout {
  uintptr_t q_mean, k_mean, v_mean, h_norm2, h_part, h_sum, lists, masks;
  int64_t ctas, blocks, list_stride, mask_words, kept;
  size_t bytes;
};

static uintptr_t place(size_t *end, int64_t bytes) {
  uintptr_t at = (uintptr_t)address(7) + *end;
  *end = (*end + (size_t)bytes + 255) / 256 * 256;
  return at;
}

static struct layout lay_out(const pisa_attention *c, int64_t kept) {
  const int64_t bh = c->batch * c->heads, nt = ceil_div(c->n_k, 64), nq = ceil_div(c->n_q, 64);
  const int64_t nt_q = ceil_div(c->n_q, 128);
  struct layout l = {.kept = kept, .blocks = nt > nq ? nt : nq};
  l.ctas = bh * l.blocks < SMS ? bh * l.blocks : SMS;
  l.list_stride = ceil_div(kept + 8, 4) * 4;
  l.mask_words = 4 * ceil_div(nt, 128);
  l.q_mean = place(&l.bytes, 2 * bh * nq * D);
  l.k_mean = place(&l.bytes, 2 * bh * nt * D);
  l.v_mean = place(&l.bytes, 2 * bh * nt * D);
  l.h_norm2 = place(&l.bytes, 4 * bh * nt * 8);
  l.h_part = place(&l.bytes, 4 * (bh + l.ctas - 1) * D * D);
  l.h_sum = place(&l.bytes, 2 * bh * D * D);
  l.lists = place(&l.bytes, 4 * bh * nt_q * l.list_stride);
  l.masks = place(&l.bytes, 4 * bh * nt_q * l.mask_words);
  return l;
}

static void check_statistics(const struct fake_launch *l, const pisa_attention *c,
                             const struct layout *w) {
  check_common(l, "pisa_statistics", w->ctas, 384, 197888);
  check_map(&l->params[PISA_STATISTICS_q].map, c->q.data, c->batch, c->heads, c->n_q, c->q.stride);
  check_map(&l->params[PISA_STATISTICS_k].map, c->k.data, c->batch, c->heads, c->n_k, c->k.stride);
  check_map(&l->params[PISA_STATISTICS_v].map, c->v.data, c->batch, c->heads, c->n_k, c->v.stride);
  CHECK_INT(whole(l, PISA_STATISTICS_q_mean), (int64_t)w->q_mean);
  CHECK_INT(whole(l, PISA_STATISTICS_k_mean), (int64_t)w->k_mean);
  CHECK_INT(whole(l, PISA_STATISTICS_v_mean), (int64_t)w->v_mean);
  CHECK_INT(whole(l, PISA_STATISTICS_h_norm2), (int64_t)w->h_norm2);
  CHECK_INT(whole(l, PISA_STATISTICS_h_part), (int64_t)w->h_part);
  CHECK_INT(whole(l, PISA_STATISTICS_total_heads), c->batch * c->heads);
  CHECK_INT(whole(l, PISA_STATISTICS_heads), c->heads);
  CHECK_INT(whole(l, PISA_STATISTICS_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_STATISTICS_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_STATISTICS_blocks), w->blocks);
}

static void check_route(const struct fake_launch *l, const pisa_attention *c,
                        const struct layout *w) {
  const int64_t bh = c->batch * c->heads, nt = ceil_div(c->n_k, 64);
  const int64_t row_tiles = ceil_div(ceil_div(c->n_q, 128), 16);
  check_common(l, "pisa_route", bh * (row_tiles + 4), 512, 16 * (128 * ceil_div(nt, 128) + 4) * 4);
  CHECK_INT(whole(l, PISA_ROUTE_q_mean), (int64_t)w->q_mean);
  CHECK_INT(whole(l, PISA_ROUTE_k_mean), (int64_t)w->k_mean);
  CHECK_INT(whole(l, PISA_ROUTE_h_norm2), (int64_t)w->h_norm2);
  CHECK_INT(whole(l, PISA_ROUTE_h_part), (int64_t)w->h_part);
  CHECK_INT(whole(l, PISA_ROUTE_lists), (int64_t)w->lists);
  CHECK_INT(whole(l, PISA_ROUTE_masks), (int64_t)w->masks);
  CHECK_INT(whole(l, PISA_ROUTE_ids), (int64_t)(uintptr_t)c->blocks);
  CHECK_INT(whole(l, PISA_ROUTE_h_sum), (int64_t)w->h_sum);
  CHECK_INT(whole(l, PISA_ROUTE_total_heads), bh);
  CHECK_INT(whole(l, PISA_ROUTE_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_ROUTE_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_ROUTE_keep), w->kept);
  CHECK_INT(whole(l, PISA_ROUTE_list_stride), w->list_stride);
  CHECK_INT(whole(l, PISA_ROUTE_mask_words), w->mask_words);
  CHECK_INT(whole(l, PISA_ROUTE_row_tiles), row_tiles);
  CHECK_INT(whole(l, PISA_ROUTE_stat_ctas), w->ctas);
  CHECK_INT(whole(l, PISA_ROUTE_stat_blocks), w->blocks);
  double scale = c->scale > 0 ? (double)c->scale : 1 / sqrt(D);
  CHECK(fabs(l->params[PISA_ROUTE_scale].real / scale - 1) < 1e-6);
  CHECK(fabs(l->params[PISA_ROUTE_h_scale].real * (double)c->n_k / scale - 1) < 1e-6);
}

static void check_attend(const struct fake_launch *l, const pisa_attention *c,
                         const struct layout *w) {
  const int64_t bh = c->batch * c->heads, nt = ceil_div(c->n_k, 64), nt_q = ceil_div(c->n_q, 128);
  const int64_t means[3] = {c->heads * nt * D, nt * D, D}, sums[3] = {c->heads * D * D, D * D, D};
  bool whole_tiles = c->n_k % 64 == 0 && w->kept >= 2;
  check_common(l, whole_tiles ? "pisa_attend" : "pisa_attend_edge",
               bh * nt_q < SMS ? bh * nt_q : SMS, 384, 196704);
  check_map(&l->params[PISA_ATTEND_q].map, c->q.data, c->batch, c->heads, c->n_q, c->q.stride);
  check_map(&l->params[PISA_ATTEND_k].map, c->k.data, c->batch, c->heads, c->n_k, c->k.stride);
  check_map(&l->params[PISA_ATTEND_v].map, c->v.data, c->batch, c->heads, c->n_k, c->v.stride);
  check_map(&l->params[PISA_ATTEND_o].map, c->o.data, c->batch, c->heads, c->n_q, c->o.stride);
  check_map(&l->params[PISA_ATTEND_k_mean].map, (void *)w->k_mean, c->batch, c->heads, nt, means);
  check_map(&l->params[PISA_ATTEND_v_mean].map, (void *)w->v_mean, c->batch, c->heads, nt, means);
  check_map(&l->params[PISA_ATTEND_h_sum].map, (void *)w->h_sum, c->batch, c->heads, D, sums);
  CHECK_INT(whole(l, PISA_ATTEND_lists), (int64_t)w->lists);
  CHECK_INT(whole(l, PISA_ATTEND_masks), (int64_t)w->masks);
  CHECK_INT(whole(l, PISA_ATTEND_lse), (int64_t)(uintptr_t)c->lse);
  CHECK_INT(whole(l, PISA_ATTEND_items), bh * nt_q);
  CHECK_INT(whole(l, PISA_ATTEND_q_blocks), nt_q);
  CHECK_INT(whole(l, PISA_ATTEND_heads), c->heads);
  CHECK_INT(whole(l, PISA_ATTEND_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_ATTEND_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_ATTEND_keep), w->kept);
  CHECK_INT(whole(l, PISA_ATTEND_list_stride), w->list_stride);
  CHECK_INT(whole(l, PISA_ATTEND_mask_words), w->mask_words);
  double scale = c->scale > 0 ? (double)c->scale : 1 / sqrt(D);
  CHECK(fabs(l->params[PISA_ATTEND_scale_log2].real / (scale * 1.4426950408889634) - 1) < 1e-6);
}

static int64_t eighth(int64_t n_k) {
  int64_t k = ceil_div(n_k, 64) / 8;
  return k ? k : 1;
}

static void check_shape(const pisa_module *module, const pisa_attention *call, int64_t kept) {
  pisa_error error;
  size_t bytes = 0;
  struct layout w = lay_out(call, kept);
  CHECK_OK(pisa_workspace_size(module, call, &bytes, &error), error);
  CHECK_INT((long long)bytes, (long long)w.bytes);
  fake->reset();
  n_allocations = 0;
  CHECK_OK(pisa_launch(module, call, address(7), bytes, address(9), &error), error);
  CHECK_INT(n_allocations, 0);
  CHECK_INT(fake->n_launches(), 3);
  CHECK_INT(fake->calls(NULL), fake->calls("cuLaunchKernelEx") +
                                   fake->calls("cuTensorMapEncodeTiled") +
                                   fake->calls("cuCtxGetCurrent"));
  if (fake->n_launches() != 3)
    return;
  check_statistics(fake->launch(0), call, &w);
  check_route(fake->launch(1), call, &w);
  check_attend(fake->launch(2), call, &w);
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

static void check_always(void) {
  pisa_error error;
  pisa_module *module = load_module(&(struct sample_spec){
      .always = "always first=256\nalways last=100\nalways range=1000..1001\n"});
  pisa_attention call = make_call(1, 2, 4096, 4100, false);
  fake->reset();
  CHECK_OK(launch(module, &call, &error), error);
  const int64_t wanted[8] = {0, 4, 62, 65, 15, 16, 0, 0};
  for (int i = 0; i < 8; i++)
    CHECK_INT(whole(fake->launch(1), PISA_ROUTE_always_0_begin + i), wanted[i]);
  CHECK_INT(whole(fake->launch(1), PISA_ROUTE_keep), 8);
  pisa_module_unload(module);
}

/* What a method does not need is neither in the workspace nor passed. */
static void check_drop(void) {
  pisa_error error;
  size_t bytes = 0;
  pisa_module *module = load_module(
      &(struct sample_spec){.route = "top_k score=mean term=none budget=keep density=0/1 keep=4",
                            .attend = "selected=exact rest=drop"});
  pisa_attention call = make_call(1, 2, 1024, 1024, false);
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  CHECK_INT((long long)bytes, 2 * (2 * 2 * 16 * D) + 4 * 2 * 8 * 12 + 4 * 2 * 8 * 4);
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
  CHECK(whole(attend, PISA_ATTEND_lists) && whole(attend, PISA_ATTEND_masks));
  pisa_module_unload(module);
}

static void check_taylor_0(void) {
  pisa_error error;
  pisa_module *module =
      load_module(&(struct sample_spec){.attend = "selected=exact rest=taylor_0"});
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
    CHECK(is_zero(&attend->params[PISA_ATTEND_k_mean].map));
  }
  pisa_module_unload(module);
}

static void check_types(void) {
  pisa_error error;
  pisa_module *module = load_module(
      &(struct sample_spec){.shape = "heads=4 kv_heads=4 head_dim=128 type=fp16 mask=none"});
  pisa_attention call = make_call(1, 2, 1024, 1024, false);
  CHECK_OK(launch(module, &call, &error), error);
  CHECK(fake->launch(2)->params[PISA_ATTEND_q].map.type == CU_TENSOR_MAP_FLOAT16);
  CHECK(fake->launch(2)->params[PISA_ATTEND_k_mean].map.type == CU_TENSOR_MAP_FLOAT16);
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
  check_types();
  pisa_module *module = load_module(&(struct sample_spec){.no_cubin = false});
  check_some(module);
  check_refusals(module);
  pisa_module_unload(module);
  return check_result();
}
