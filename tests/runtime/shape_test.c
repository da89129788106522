/* shape_test.c: every field of a call that is wrong is refused by its name and reason; what is
   right, however odd, passes. Reached through pisa_kept_blocks (sizes) and pisa_shape_check
   (arrays), without a device. */
#include "runtime/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/limits.h"
#include "runtime/pack.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { D = 128 };
static const struct pisa_method method = {.heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = D,
                                          .query = 128,
                                          .key = 64,
                                          .density_num = 1,
                                          .density_den = 10};

static void *at(uintptr_t address) {
  return (void *)address; /* never read */
}

static pisa_tensor tensor(uintptr_t address, int64_t heads, int64_t tokens) {
  return (pisa_tensor){at(address), {heads * tokens * D, tokens * D, D, 1}};
}

static pisa_attention good_call(void) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = 2,
                          .heads = 6,
                          .kv_heads = 3,
                          .n_q = 100,
                          .n_k = 200,
                          .q = tensor(0x10000000, 6, 100),
                          .k = tensor(0x20000000, 3, 200),
                          .v = tensor(0x30000000, 3, 200),
                          .o = tensor(0x40000000, 6, 100),
                          .lse = at(0x50000004),
                          .blocks = at(0x60000004)};
}

static pisa_status check(const pisa_attention *call, pisa_error *error) {
  struct pisa_shape shape;
  pisa_attention full;
  pisa_clear(error);
  pisa_status status = pisa_call_read(call, &full, error);
  return status ? status : pisa_shape_check(&method, &full, &shape, error);
}

/* A good call with |field| set to |value| is refused with |words|. */
#define REFUSED(field, value, words)                                                               \
  do {                                                                                             \
    pisa_attention trial_ = good_call();                                                           \
    pisa_error told_;                                                                              \
    trial_.field = value;                                                                          \
    CHECK_FAILS(check(&trial_, &told_), PISA_INVALID_ARGUMENT, told_, words);                      \
  } while (0)
#define ACCEPTED(field, value)                                                                     \
  do {                                                                                             \
    pisa_attention trial_ = good_call();                                                           \
    pisa_error told_;                                                                              \
    trial_.field = value;                                                                          \
    CHECK_OK(check(&trial_, &told_), told_);                                                       \
  } while (0)

static void check_sizes(void) {
  REFUSED(struct_size, 0, "struct_size is 0, must be sizeof(pisa_attention)");
  REFUSED(struct_size, sizeof(pisa_attention) - 1, "struct_size");
  REFUSED(struct_size, SIZE_MAX, "struct_size");
  REFUSED(batch, 0, "batch is 0, must be from 1");
  REFUSED(batch, -1, "batch is -1");
  REFUSED(batch, INT64_MAX, "batch");
  REFUSED(heads, 0, "heads is 0");
  REFUSED(heads, INT64_C(1) << 31, "heads is 2147483648");
  REFUSED(kv_heads, 0, "kv_heads is 0");
  REFUSED(kv_heads, 7, "kv_heads is 7");
  REFUSED(kv_heads, 6, "heads / kv_heads is 6 / 6, must be the spec's 2");
  REFUSED(kv_heads, 4, "heads / kv_heads is 6 / 4, must be the spec's 2");
  REFUSED(n_q, 0, "n_q is 0");
  REFUSED(n_q, INT64_MIN, "n_q is -9223372036854775808");
  REFUSED(n_k, 0, "n_k is 0");
  REFUSED(n_k, (INT64_C(1) << 30) + 1, "n_k is 1073741825, must be from 1 to 1073741824");
}

static void check_options(void) {
  REFUSED(density, -0.1, "density is -0.1, must be in (0, 1]");
  REFUSED(density, 1.0001, "density is 1.0001");
  REFUSED(density, NAN, "density is ");
  REFUSED(density, INFINITY, "density is inf");
  REFUSED(keep, -1, "keep is -1, must be at least 1");
  REFUSED(scale, -1.0f, "scale is -1");
  REFUSED(scale, (float)NAN, "scale is ");
  REFUSED(scale, (float)INFINITY, "scale is inf");
  pisa_attention call = good_call();
  pisa_error error;
  call.keep = 1;
  call.density = 0.5;
  CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error, "density and keep are both set");
  ACCEPTED(density, 1.0);
  ACCEPTED(keep, INT64_MAX);
  ACCEPTED(scale, 1e-30f);
  CHECK_FAILS(check(NULL, &error), PISA_INVALID_ARGUMENT, error, "call is NULL");
}

static void check_dense(void) {
  struct pisa_method dense = method;
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  dense.dense = true;
  CHECK_FAILS(pisa_shape_check(&dense, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "blocks must be NULL");
  call.blocks = NULL;
  pisa_clear(&error);
  CHECK_OK(pisa_shape_check(&dense, &call, &shape, &error), error);
  CHECK_INT(shape.kept, 4);
  call.keep = 2;
  CHECK_FAILS(pisa_shape_check(&dense, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "keep is set, but the pack is dense");
  call.keep = 0;
  call.density = 0.5;
  CHECK_FAILS(pisa_shape_check(&dense, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "density is set, but the pack is dense");
}

/* A later version's longer struct passes as long as what we cannot know is zero. */
static void check_growth(void) {
  struct {
    pisa_attention call;
    char more[16];
  } grown;
  pisa_error error;
  memset(&grown, 0, sizeof grown);
  grown.call = good_call();
  grown.call.struct_size = sizeof grown;
  CHECK_OK(check(&grown.call, &error), error);
  grown.more[3] = 1;
  CHECK_FAILS(check(&grown.call, &error), PISA_UNSUPPORTED, error, "update libpisa");
}

static void check_pointers(void) {
  REFUSED(q.data, NULL, "q.data is NULL");
  REFUSED(k.data, NULL, "k.data is NULL");
  REFUSED(v.data, NULL, "v.data is NULL");
  REFUSED(o.data, NULL, "o.data is NULL");
  REFUSED(q.data, at(0x10000008), "q.data is 0x10000008, must be aligned to 16 bytes");
  REFUSED(v.data, at(0x30000002), "v.data is 0x30000002, must be aligned to 16 bytes");
  REFUSED(lse, at(0x50000002), "lse is 0x50000002, must be aligned to 4 bytes");
  REFUSED(blocks, at(0x60000001), "blocks is 0x60000001, must be aligned to 4 bytes");
  ACCEPTED(lse, NULL);
  ACCEPTED(blocks, NULL);
}

static void check_strides(void) {
  REFUSED(q.stride[3], 2, "q.stride[3] (head_dim) is 2, must be 1");
  REFUSED(k.stride[3], 0, "k.stride[3] (head_dim) is 0, must be 1");
  REFUSED(v.stride[2], 132, "v.stride[2] (tokens) is 132 elements, must be a multiple of 8");
  REFUSED(q.stride[1], 12804, "q.stride[1] (heads) is 12804");
  REFUSED(o.stride[0], -76800, "o.stride[0] (batch) is -76800, must not be negative");
  REFUSED(k.stride[2], 0, "k.stride[2] (tokens) is 0, which is allowed only along batch and heads");
  REFUSED(o.stride[1], 0, "o.stride[1] (heads) is 0, which is allowed only");
  REFUSED(o.stride[0], 0, "o.stride[0] (batch) is 0, which is allowed only");
  REFUSED(o.stride[2], 120, "o.stride[2] (tokens) is 120, must be at least 128");
  REFUSED(o.stride[1], 12792, "o.stride[1] (heads) is 12792, must be at least 12800");
  ACCEPTED(q.stride[0], 0);
  ACCEPTED(k.stride[1], 0);
  ACCEPTED(q.stride[2], 136);
  ACCEPTED(o.stride[0], 1 << 20);
}

/* The stride of a dimension of one element says nothing. */
static void check_unit_dimensions(void) {
  pisa_attention call = good_call();
  pisa_error error;
  call.batch = 1;
  call.n_q = 1;
  call.heads = 2;
  call.kv_heads = 1;
  call.q.stride[0] = -3;
  call.o.stride[0] = 0;
  call.o.stride[2] = 7;
  call.q.stride[2] = INT64_MAX;
  call.k.stride[1] = 5;
  CHECK_OK(check(&call, &error), error);
}

static void check_layouts(void) {
  pisa_attention call = good_call();
  pisa_error error;
  const int64_t bnhd[4] = {100 * 6 * D, D, 6 * D, 1};
  memcpy(call.q.stride, bnhd, sizeof bnhd);
  memcpy(call.o.stride, bnhd, sizeof bnhd);
  CHECK_OK(check(&call, &error), error);
}

static void check_overflow(void) {
  const int64_t huge = INT64_MAX / 8 * 8;
  REFUSED(q.stride[0], huge, "q reaches beyond the address space");
  REFUSED(k.stride[1], huge, "k reaches beyond the address space");
  REFUSED(o.stride[2], huge, "o reaches beyond the address space");
  REFUSED(q.data, at(UINTPTR_MAX - 15), "q reaches beyond the address space");
  REFUSED(lse, at(UINTPTR_MAX - 3), "lse reaches beyond the address space");
  pisa_attention call = good_call();
  pisa_error error;
  call.batch = INT32_MAX;
  call.heads = 1;
  CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error, "kv_heads");
}

static void check_overlaps(void) {
  const uintptr_t o_bytes = 2 * 6 * 100 * D * 2;
  REFUSED(o.data, at(0x10000000), "o overlaps q in memory");
  REFUSED(o.data, at(0x20000000 - o_bytes + 16), "o overlaps k in memory");
  REFUSED(o.data, at(0x30000000 + 16), "o overlaps v in memory");
  REFUSED(lse, at(0x40000000), "o overlaps lse in memory");
  REFUSED(blocks, at(0x50000004), "lse overlaps blocks in memory");
  REFUSED(blocks, at(0x10000000 + 64), "blocks overlaps q in memory");
  ACCEPTED(o.data, at(0x20000000 - o_bytes));
  ACCEPTED(k.data, at(0x30000000)); /* inputs may share memory */
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  CHECK(!pisa_shape_sizes(&method, &call, &shape, NULL));
  CHECK_FAILS(pisa_shape_tensors(&method, &call, &shape, at(0x20000000), 256, &error),
              PISA_INVALID_ARGUMENT, error, "workspace overlaps k in memory");
  CHECK_FAILS(pisa_shape_tensors(&method, &call, &shape, at(0x70000010), 256, &error),
              PISA_INVALID_ARGUMENT, error,
              "workspace is 0x70000010, must be aligned to 256 bytes");
}

static void check_derived(void) {
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  pisa_clear(&error);
  CHECK_OK(pisa_shape_check(&method, &call, &shape, &error), error);
  CHECK(shape.bh == 12 && shape.nt == 4 && shape.nt_q == 1 && shape.nq_s == 2 && shape.kept == 1);
  CHECK(fabsf(shape.scale - 0.08838834764f) < 1e-9f);
  struct pisa_method coarse = method;
  coarse.key = 128;
  CHECK_OK(pisa_shape_check(&coarse, &call, &shape, &error), error);
  CHECK(shape.nt == 2 && shape.nt_q == 1 && shape.nq_s == 1 && shape.vb == 2);
  coarse.query = coarse.key = 64;
  CHECK_OK(pisa_shape_check(&coarse, &call, &shape, &error), error);
  CHECK(shape.nt == 4 && shape.nt_q == 2 && shape.nq_s == 2 && shape.vb == 4);
}

static void check_limits(void) {
  const struct pisa_limits limits = {132, 227 * 1024};
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
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
  call = good_call();
  call.v.stride[0] = INT64_C(1) << 39;
  CHECK(!pisa_shape_sizes(&method, &call, &shape, NULL));
  CHECK_FAILS(
      pisa_limits_strides(&call, &shape, &error), PISA_UNSUPPORTED, error,
      "v.stride[0] (batch) is 549755813888 elements, a tensor map takes less than 2^40 bytes");
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
  check_sizes();
  check_options();
  check_dense();
  check_growth();
  check_pointers();
  check_strides();
  check_unit_dimensions();
  check_layouts();
  check_overflow();
  check_overlaps();
  check_derived();
  check_limits();
  check_kept_blocks();
  return check_result();
}
