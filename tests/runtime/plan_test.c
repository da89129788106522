/* plan_test.c: what follows from the sizes of a call: kept blocks, limits of a device, and the
   workspace of a million tokens. */
#include <stdio.h>

#include "runtime/limits.h"
#include "runtime/pack.h"
#include "runtime/workspace.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

static const struct pisa_method method = {.heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = 128,
                                          .query = 128,
                                          .key = 64,
                                          .density_num = 1,
                                          .density_den = 10};

/* The arrays are not looked at, but for the strides in limits.h. */
static pisa_attention call_of(int64_t batch, int64_t n) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = batch,
                          .heads = 6,
                          .kv_heads = 3,
                          .n_q = n,
                          .n_k = n};
}

static void check_limits(void) {
  const struct pisa_limits limits = {132, 227 * 1024};
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = call_of(2, 100);
  call.n_k = 229376;
  pisa_clear(&error);
  CHECK_OK(pisa_shape_sizes(&method, &call, &shape, &error), error);
  CHECK_OK(pisa_limits_sizes(&method, &shape, &limits, &error), error);
  call.n_k = 229377;
  CHECK_OK(pisa_shape_sizes(&method, &call, &shape, &error), error);
  CHECK_FAILS(
      pisa_limits_sizes(&method, &shape, &limits, &error), PISA_UNSUPPORTED, error,
      "n_k is 229377: the route kernel keeps a row of scores in shared memory, which holds at "
      "most 229376 tokens");
  call.n_k = 6400;
  call.batch = 100000;
  CHECK(!pisa_shape_sizes(&method, &call, &shape, NULL));
  CHECK_FAILS(pisa_limits_sizes(&method, &shape, &limits, &error), PISA_UNSUPPORTED, error,
              "batch * kv_heads * blocks is 300000 * 100, at most 16268815 fit");
  call = call_of(2, 100);
  call.v.stride[0] = INT64_C(1) << 39;
  CHECK(!pisa_shape_sizes(&method, &call, &shape, NULL));
  CHECK_FAILS(
      pisa_limits_strides(&call, &shape, &error), PISA_UNSUPPORTED, error,
      "v.stride[0] (batch) is 549755813888 elements, a tensor map takes less than 2^40 bytes");
}

/* Dense calls have no rows of scores. */
static void check_dense_limits(void) {
  const struct pisa_limits limits = {132, 227 * 1024};
  struct pisa_method below = method;
  struct pisa_shape shape;
  struct pisa_workspace workspace;
  pisa_error error;
  const pisa_attention call = call_of(1, PISA_MAX_TOKENS);
  below.dense_below = INT64_C(1) << 40;
  pisa_clear(&error);
  CHECK_OK(pisa_shape_sizes(&below, &call, &shape, &error), error);
  CHECK_OK(pisa_limits_sizes(&below, &shape, &limits, &error), error);
  CHECK_OK(pisa_workspace_layout(&below, &shape, 132, &workspace, &error), error);
  CHECK_INT((long long)workspace.bytes, 0);
}

/* Parts of a million tokens lie gigabytes apart, each behind the one before it. */
static void check_million(void) {
  enum { N = 1 << 20, HEADS = 6 * 8, KV_HEADS = 3 * 8, NT = N / 64, ROWS = HEADS * (N / 128) };
  struct pisa_method large = method;
  struct pisa_shape shape;
  struct pisa_workspace w;
  pisa_error error;
  pisa_attention call = call_of(8, N);
  large.tail = PISA_TAIL_TAYLOR_HYBRID;
  large.term = PISA_TERM_LOG_RESIDUAL;
  pisa_clear(&error);
  CHECK_OK(pisa_shape_sizes(&large, &call, &shape, &error), error);
  CHECK_OK(pisa_workspace_layout(&large, &shape, 132, &w, &error), error);
  CHECK_INT(shape.kept, NT / 10);
  const int64_t stride = (NT / 10 + 8 + 3) / 4 * 4, d = 128;
  const int64_t sizes[PISA_N_WORKSPACE_PARTS] = {HEADS * (int64_t)NT * d * 2,
                                                 KV_HEADS * (int64_t)NT * d * 2,
                                                 KV_HEADS * (int64_t)NT * d * 2,
                                                 KV_HEADS * (int64_t)NT * 8 * 4,
                                                 (KV_HEADS + 131) * d * d * 4,
                                                 KV_HEADS * d * d * 2,
                                                 0,
                                                 ROWS * stride * 4,
                                                 ROWS * (int64_t)(NT / 32) * 4,
                                                 ROWS * INT64_C(4),
                                                 0};
  int64_t offset = 0;
  for (int i = 0; i < PISA_N_WORKSPACE_PARTS; i++) {
    CHECK_INT((int64_t)w.parts[i].size, sizes[i]);
    if (sizes[i])
      CHECK_INT((int64_t)w.parts[i].offset, offset);
    offset = (offset + sizes[i] + 255) / 256 * 256;
  }
  CHECK_INT((int64_t)w.bytes, offset);
  CHECK(w.parts[PISA_WORKSPACE_LISTS].size > INT64_C(1) << 31);
  large.tail = PISA_TAIL_TAYLOR_1;
  CHECK_OK(pisa_workspace_layout(&large, &shape, 132, &w, &error), error);
  CHECK_INT(w.list_stride, NT + 8);
  CHECK_INT((int64_t)w.parts[PISA_WORKSPACE_LISTS].size, ROWS * INT64_C(4) * (NT + 8));
}

static void check_kept_blocks(void) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  int64_t kept = -1;
  sample_make(&(struct sample_spec){.always = "always last=256\n"}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  pisa_attention call = {
      .struct_size = sizeof call, .batch = 1, .heads = 4, .kv_heads = 4, .n_q = 64, .n_k = 6400};
  CHECK_OK(pisa_kept_blocks(pack, 0, &call, &kept, &error), error); /* pointers are not looked at */
  CHECK_INT(kept, 12);
  CHECK_OK(pisa_kept_blocks(pack, 1, &call, &kept, &error), error);
  CHECK_INT(kept, 25);
  call.keep = 1;
  CHECK_OK(pisa_kept_blocks(pack, 1, &call, &kept, &error), error);
  CHECK_INT(kept, 4);
  call.k_lengths = (const int32_t *)&call; /* not read: last=256 may touch five blocks */
  CHECK_OK(pisa_kept_blocks(pack, 1, &call, &kept, &error), error);
  CHECK_INT(kept, 5);
  call.keep = 0;
  call.lists = call.k_lengths;
  call.n_listed = 77;
  CHECK_OK(pisa_kept_blocks(pack, 1, &call, &kept, &error), error);
  CHECK_INT(kept, 77);
  call.struct_size = offsetof(pisa_attention, k_lengths); /* an older caller */
  call.keep = 1;
  CHECK_OK(pisa_kept_blocks(pack, 1, &call, &kept, &error), error);
  CHECK_INT(kept, 4);
  call.n_q = 0;
  CHECK_FAILS(pisa_kept_blocks(pack, 0, &call, &kept, &error), PISA_INVALID_ARGUMENT, error,
              "n_q is 0");
  CHECK_INT(kept, 4);
  CHECK_FAILS(pisa_kept_blocks(pack, 0, NULL, &kept, &error), PISA_INVALID_ARGUMENT, error,
              "call is NULL");
  CHECK_FAILS(pisa_kept_blocks(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out is NULL");
  CHECK_FAILS(pisa_kept_blocks(NULL, 0, &call, &kept, &error), PISA_INVALID_ARGUMENT, error,
              "pack is NULL");
  CHECK_FAILS(pisa_kept_blocks(pack, 2, &call, &kept, &error), PISA_INVALID_ARGUMENT, error,
              "variant is 2, must be from 0 to 1");
  CHECK_FAILS(pisa_kept_blocks(pack, -1, &call, &kept, &error), PISA_INVALID_ARGUMENT, error,
              "variant is -1");
  pisa_pack_close(pack);
  sample_free(&sample);
}

int main(void) {
  check_limits();
  check_dense_limits();
  check_million();
  check_kept_blocks();
  return check_result();
}
