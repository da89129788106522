/* shape_test.c: every field of a call that is wrong is refused by its name and reason; what is
   right, however odd, passes. Reached through pisa_call_read and pisa_shape_check, without
   a device. */
#include "runtime/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/runtime/check.h"

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

/* Below the spec's N tokens a call is dense, though the pack is not. */
static void check_below(void) {
  struct pisa_method below = method;
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  below.dense_below = 201;
  pisa_clear(&error);
  CHECK_FAILS(pisa_shape_check(&below, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "blocks must be NULL: below 201 tokens this pack makes no block lists, n_k is 200");
  call.blocks = NULL;
  call.keep = 2; /* without effect */
  pisa_clear(&error);
  CHECK_OK(pisa_shape_check(&below, &call, &shape, &error), error);
  CHECK(shape.dense && shape.uniform && shape.k == 4 && shape.kept == 4);
  call.k_lengths = at(0x80000000);
  CHECK_OK(pisa_shape_check(&below, &call, &shape, &error), error);
  CHECK(shape.dense && !shape.uniform && shape.kept == 4);
  below.dense_below = 200;
  CHECK_OK(pisa_shape_check(&below, &call, &shape, &error), error);
  CHECK(!shape.dense && shape.kept == 2);
}

static void check_lists(void) {
  struct pisa_method other = method;
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  REFUSED(n_listed, 1, "n_listed is 1, but lists is NULL: it must be 0");
  REFUSED(n_listed, -1, "n_listed is -1, but lists is NULL");
  REFUSED(lists, at(0x90000000), "n_listed is 0, must be from 1 to 4");
  call.lists = at(0x90000000);
  call.n_listed = 5;
  CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error,
              "n_listed is 5, must be from 1 to 4");
  call.n_listed = 3;
  CHECK_OK(check(&call, &error), error);
  CHECK_OK(pisa_shape_sizes(&method, &call, &shape, &error), error);
  CHECK(shape.k == 3 && shape.kept == 3 && !shape.uniform && !shape.dense);
  call.keep = 2;
  CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error,
              "keep is set, but lists say what is read");
  call.keep = 0;
  call.density = 1;
  CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error,
              "density is set, but lists say what is read");
  call.density = 0;
  other.dense_below = 300;
  CHECK_FAILS(pisa_shape_check(&other, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "lists must be NULL: below 300 tokens this pack reads every block exactly");
  other.dense_below = 0;
  other.dense = true;
  CHECK_FAILS(pisa_shape_check(&other, &call, &shape, &error), PISA_INVALID_ARGUMENT, error,
              "lists must be NULL: the pack is dense");
}

/* Lengths and lists are inputs: apart from outputs, but not from each other. */
static void check_input_arrays(void) {
  REFUSED(k_lengths, at(0x80000002), "k_lengths is 0x80000002, must be aligned to 4 bytes");
  REFUSED(k_lengths, at(0x40000004), "o overlaps k_lengths in memory");
  REFUSED(k_lengths, at(0x50000008), "lse overlaps k_lengths in memory");
  REFUSED(k_lengths, at(0x60000000), "blocks overlaps k_lengths in memory");
  REFUSED(k_lengths, at(UINTPTR_MAX - 3), "k_lengths reaches beyond the address space");
  ACCEPTED(k_lengths, at(0x5ffffffc)); /* two of them, up to the first of |blocks| */
  ACCEPTED(k_lengths, at(0x20000000));
  struct pisa_shape shape;
  pisa_error error;
  pisa_attention call = good_call();
  call.n_listed = 4; /* 2 batches, 6 heads, 1 query block: 192 bytes */
  static const struct {
    uintptr_t at;
    const char *words;
  } cases[] = {{0x80000001, "lists is 0x80000001, must be aligned to 4 bytes"},
               {0x40000000 - 188, "o overlaps lists in memory"},
               {0x60000004, "blocks overlaps lists in memory"},
               {UINTPTR_MAX - 187, "lists reaches beyond the address space"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    call.lists = at(cases[i].at);
    CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error, cases[i].words);
  }
  call.lists = at(0x40000000 - 192);
  call.k_lengths = at(0x40000000 - 192);
  CHECK_OK(check(&call, &error), error);
  CHECK(!pisa_shape_sizes(&method, &call, &shape, NULL));
  CHECK_FAILS(pisa_shape_tensors(&method, &call, &shape, at(0x3fffff00), 256, &error),
              PISA_INVALID_ARGUMENT, error, "workspace overlaps k_lengths in memory");
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

/* An earlier version's struct ends before k_lengths: what lies behind it is not the caller's. */
static void check_older(void) {
  pisa_error error;
  pisa_attention call = good_call(), full;
  const size_t older = offsetof(pisa_attention, k_lengths);
  call.struct_size = older;
  call.k_lengths = at(1);
  call.lists = at(1);
  call.n_listed = 1;
  pisa_clear(&error);
  CHECK_OK(pisa_call_read(&call, &full, &error), error);
  CHECK(full.struct_size == sizeof full && !full.k_lengths && !full.lists && !full.n_listed);
  CHECK(full.batch == 2 && full.n_k == 200 && full.lse == call.lse);
  CHECK_OK(check(&call, &error), error);
  call.struct_size = offsetof(pisa_attention, worth); /* with lists, before block selection */
  call.worth = at(1);
  call.phase = 77;
  CHECK_OK(pisa_call_read(&call, &full, &error), error);
  CHECK(full.lists == at(1) && full.n_listed == 1 && !full.worth && !full.phase);
  for (size_t size = 0; size < sizeof call; size++) {
    call.struct_size = size;
    if (size != older && size != offsetof(pisa_attention, worth) &&
        size != offsetof(pisa_attention, csr_offsets))
      CHECK_FAILS(check(&call, &error), PISA_INVALID_ARGUMENT, error, "struct_size");
  }
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
  CHECK(shape.k == 1 && shape.uniform && !shape.dense);
  struct pisa_method forced = method;
  forced.n_always = 1;
  forced.always[0] = (struct pisa_always){PISA_ALWAYS_FIRST, 0, 65};
  CHECK_OK(pisa_shape_check(&forced, &call, &shape, &error), error);
  CHECK(shape.k == 1 && shape.kept == 2 && !shape.uniform);
  forced.budget = PISA_BUDGET_THRESHOLD;
  CHECK_OK(pisa_shape_check(&forced, &call, &shape, &error), error);
  CHECK(shape.kept == 4 && !shape.uniform);
  struct pisa_method coarse = method;
  coarse.key = 128;
  CHECK_OK(pisa_shape_check(&coarse, &call, &shape, &error), error);
  CHECK(shape.nt == 2 && shape.nt_q == 1 && shape.nq_s == 1 && shape.vb == 2);
  coarse.query = coarse.key = 64;
  CHECK_OK(pisa_shape_check(&coarse, &call, &shape, &error), error);
  CHECK(shape.nt == 4 && shape.nt_q == 2 && shape.nq_s == 2 && shape.vb == 4);
}

int main(void) {
  check_sizes();
  check_options();
  check_dense();
  check_below();
  check_lists();
  check_input_arrays();
  check_growth();
  check_older();
  check_pointers();
  check_strides();
  check_unit_dimensions();
  check_layouts();
  check_overflow();
  check_overlaps();
  check_derived();
  return check_result();
}
