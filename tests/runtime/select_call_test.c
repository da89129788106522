/* select_call_test.c: what a call that selects blocks may say. In: one wrong field at a time. Out:
   the error that names it; on packs of the other method too. */
#include <math.h>

#include "runtime/limits.h"
#include "runtime/pack.h"
#include "runtime/select.h"
#include "runtime/workspace.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { B = 2, H = 8, HK = 2, NQ = 100, NK = 1000, D = 64 };

static pisa_error error;
static const struct pisa_limits limits = {132, 227 * 1024};

static const struct pisa_method plain = {.family = PISA_PYRAMID,
                                         .heads = H,
                                         .kv_heads = HK,
                                         .head_dim = D,
                                         .mask = PISA_MASK_CAUSAL,
                                         .query = 1,
                                         .key = 64,
                                         .group = 2,
                                         .keep = 8,
                                         .budget = PISA_BUDGET_KEEP,
                                         .query_tile = 16,
                                         .prefill = true,
                                         .decode = true};

/* Addresses far apart, never read. */
static void *at(uintptr_t i) {
  return (void *)(i << 32);
}

static pisa_tensor bhnd(uintptr_t i, int64_t heads, int64_t n) {
  return (pisa_tensor){at(i), {heads * n * D, n * D, D, 1}};
}

static pisa_attention good(void) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = B,
                          .heads = H,
                          .kv_heads = HK,
                          .n_q = NQ,
                          .n_k = NK,
                          .q = bhnd(1, H, NQ),
                          .k = bhnd(2, HK, NK),
                          .v = bhnd(3, HK, NK),
                          .o = bhnd(4, H, NQ),
                          .lse = at(5),
                          .blocks = at(6),
                          .worth = at(7)};
}

static pisa_status check(const struct pisa_method *method, const pisa_attention *call) {
  struct pisa_shape shape;
  pisa_clear(&error);
  return pisa_shape_check(method, call, &shape, &error);
}

static pisa_status limit(const struct pisa_method *method, const pisa_attention *call) {
  struct pisa_shape shape;
  pisa_clear(&error);
  pisa_status status = pisa_shape_sizes(method, call, &shape, &error);
  return status ? status : pisa_limits_sizes(method, &shape, &limits, &error);
}

#define REFUSED(field, value, words)                                                               \
  do {                                                                                             \
    pisa_attention call_ = call;                                                                   \
    call_.field = value;                                                                           \
    CHECK_FAILS(check(method, &call_), PISA_INVALID_ARGUMENT, error, words);                       \
  } while (0)

static void check_prefill(void) {
  const struct pisa_method *method = &plain;
  const pisa_attention call = good();
  CHECK_OK(check(method, &call), error);
  REFUSED(density, 0.5, "density is 0.5, must be 0");
  REFUSED(density, -1, "density is -1");
  REFUSED(density, NAN, "density is nan");
  REFUSED(keep, 7, "keep is 7, must be 0 or the pack's 8");
  REFUSED(lists, at(8), "lists must be NULL");
  REFUSED(n_listed, 3, "lists must be NULL and n_listed 0");
  REFUSED(q_starts, at(8), "k_starts is NULL, but q_starts is not");
  REFUSED(k_starts, at(8), "q_starts is NULL, but k_starts is not");
  REFUSED(pages, at(8), "pages must be NULL and page_columns 0");
  REFUSED(page_columns, 1, "pages must be NULL and page_columns 0");
  REFUSED(phase, 2, "phase is 2");
  REFUSED(n_new, 1, "n_new is set, but phase is prefill");
  REFUSED(append_completed, 1, "append_completed is set, but phase is prefill");
  REFUSED(scale, -1, "scale is -1");
  REFUSED(heads, 6, "heads / kv_heads is 6 / 2");
  REFUSED(n_k, 0, "n_k is 0");
  REFUSED(csr_offsets, at(9), "csr_queries is NULL, but csr_offsets is not");
  REFUSED(csr_queries, at(9), "csr_offsets is NULL, but csr_queries is not");
  pisa_attention turned = call;
  turned.csr_offsets = at(9);
  turned.csr_queries = at(10);
  CHECK_OK(check(method, &turned), error);
  turned.csr_queries = turned.csr_offsets + HK * (B * NK / 64 + B + 1); /* just behind */
  CHECK_OK(check(method, &turned), error);
  turned.csr_queries--;
  CHECK_FAILS(check(method, &turned), PISA_INVALID_ARGUMENT, error,
              "csr_offsets overlaps csr_queries in memory");
  turned.csr_queries = turned.blocks - HK * B * NQ * 8 + 1;
  CHECK_FAILS(check(method, &turned), PISA_INVALID_ARGUMENT, error,
              "blocks overlaps csr_queries in memory");
  REFUSED(pyramid, (char *)at(9) + 128, "must be aligned to 256 bytes");
  REFUSED(pyramid, call.k.data, "pyramid overlaps k in memory");
  REFUSED(worth, (float *)call.blocks, "blocks overlaps worth in memory");
  REFUSED(worth, (float *)(void *)((char *)at(7) + 2), "worth is 0x700000002, must be aligned");
  REFUSED(blocks, (int32_t *)((char *)call.v.data + 64), "blocks overlaps v in memory");
  pisa_attention same = call;
  same.keep = 8;
  CHECK_OK(check(method, &same), error);
}

/* Only a selection: v and o may be anything, lists are needed. */
static void check_selection(void) {
  const struct pisa_method *method = &plain;
  pisa_attention call = good();
  call.o.data = NULL;
  call.v = (pisa_tensor){(void *)3, {1, 1, 1, 5}};
  REFUSED(worth, NULL, "lse is set, but o.data is NULL");
  call.lse = NULL;
  CHECK_OK(check(method, &call), error);
  REFUSED(blocks, NULL, "o.data and blocks are both NULL");
}

static void check_packed(void) {
  const struct pisa_method *method = &plain;
  pisa_attention call = good();
  call.q_starts = at(8);
  call.k_starts = at(9);
  call.batch = 5; /* of sequences, more than rows of the first extent */
  call.q.stride[0] = -3;
  CHECK_OK(check(method, &call), error);
  REFUSED(k_lengths, at(10), "k_lengths must be NULL with k_starts");
  REFUSED(q_starts, (int32_t *)call.worth, "worth overlaps q_starts in memory");
  call.phase = PISA_DECODE;
  CHECK_OK(check(method, &call), error);
  REFUSED(n_new, 1, "with k_starts sequences have no room to grow");
  struct pisa_shape shape;
  pisa_clear(&error);
  CHECK_OK(pisa_shape_sizes(method, &call, &shape, &error), error);
  CHECK(shape.queries == NQ && shape.keys == NK && shape.kept == 8 && shape.is_packed);
}

static void check_pages(void) {
  struct pisa_method paged = plain, *method = &paged;
  pisa_attention call = good();
  paged.page = 50;
  call.n_k = 1000;
  call.k.stride[0] = HK * 50 * D;
  call.v.stride[0] = 0; /* every page the same */
  call.k.stride[1] = call.v.stride[1] = 50 * D;
  CHECK_FAILS(check(method, &call), PISA_INVALID_ARGUMENT, error,
              "pages is NULL: the pack finds keys in pages of 50 tokens");
  call.pages = at(8);
  call.page_columns = 20;
  CHECK_OK(check(method, &call), error);
  REFUSED(page_columns, 19, "page_columns is 19 and n_k 1000");
  REFUSED(page_columns, INT64_MAX, "page_columns is 9223372036854775807");
  REFUSED(page_columns, 0, "page_columns is 0");
  REFUSED(k.stride[0], 4, "k.stride[0] (batch) is 4 elements, must be a multiple of 8");
  REFUSED(k.stride[0], -8, "k.stride[0] (batch) is -8");
  REFUSED(pages, (int32_t *)call.o.data, "o overlaps pages in memory");
  call.k_starts = call.q_starts = at(9);
  CHECK_FAILS(check(method, &call), PISA_INVALID_ARGUMENT, error,
              "q_starts and k_starts must be NULL: the pack finds keys in pages");
}

static void check_decode(void) {
  struct pisa_method other = plain;
  const struct pisa_method *method = &plain;
  pisa_attention call = good();
  call.phase = PISA_DECODE;
  call.n_q = 2;
  CHECK_OK(check(method, &call), error); /* the CPU makes means of its own */
  CHECK_FAILS(limit(method, &call), PISA_INVALID_ARGUMENT, error, "pyramid is NULL");
  call.pyramid = at(9);
  call.append_completed = 1;
  CHECK_OK(limit(method, &call), error);
  call.n_new = 64;
  CHECK_OK(check(method, &call), error);
  pisa_attention turned = call;
  turned.csr_offsets = turned.csr_queries = at(10);
  CHECK_FAILS(check(method, &turned), PISA_INVALID_ARGUMENT, error,
              "csr_offsets and csr_queries must be NULL in phase decode");
  REFUSED(n_new, 65, "n_new is 65, must be from 0 to 64");
  REFUSED(n_new, -1, "n_new is -1");
  other.mask = PISA_MASK_NONE;
  CHECK_FAILS(check(&other, &call), PISA_INVALID_ARGUMENT, error, "without a causal mask");
  other = plain;
  other.decode = false;
  CHECK_FAILS(check(&other, &call), PISA_UNSUPPORTED, error,
              "phase is decode, but the pack was built without it");
  other.prefill = false;
  other.decode = true;
  call = good();
  CHECK_FAILS(check(&other, &call), PISA_UNSUPPORTED, error,
              "phase is prefill, but the pack was built without it");
}

/* Of the other method none of the new fields may be set. */
static void check_piecewise(void) {
  static const struct pisa_method piecewise = {.heads = H,
                                               .kv_heads = HK,
                                               .head_dim = D,
                                               .query = 128,
                                               .key = 64,
                                               .density_num = 1,
                                               .density_den = 10};
  const struct pisa_method *method = &piecewise;
  pisa_attention call = good();
  call.worth = NULL;
  CHECK_OK(check(method, &call), error);
  REFUSED(worth, at(9), "worth is set, but the pack is not of method pyramid: it must be NULL");
  REFUSED(q_starts, at(9), "q_starts is set");
  REFUSED(k_starts, at(9), "k_starts is set");
  REFUSED(pages, at(9), "pages is set");
  REFUSED(page_columns, 1, "page_columns is set");
  REFUSED(pyramid, at(9), "pyramid is set, but the pack is not of method pyramid: it must be NULL");
  REFUSED(phase, PISA_DECODE, "phase is set, but the pack is not of method pyramid: it must be 0");
  REFUSED(csr_offsets, at(9),
          "csr_offsets is set, but the pack is not of method pyramid: it must "
          "be NULL");
  REFUSED(csr_queries, at(9), "csr_queries is set");
  REFUSED(n_new, 1, "n_new is set");
  REFUSED(append_completed, 1, "append_completed is set");
  REFUSED(o.data, NULL, "o.data is NULL");
}

/* What 32 bits count. */
static void check_limits(void) {
  const struct pisa_method *method = &plain;
  pisa_attention call = good();
  CHECK_OK(limit(method, &call), error);
  call.n_q = 1 << 28;
  CHECK_FAILS(limit(method, &call), PISA_UNSUPPORTED, error,
              "heads * queries is 8 * 536870912, at most 2147483647 fit");
  call = good();
  call.batch = 1 << 24;
  call.n_q = 1;
  call.n_k = 1 << 14;
  CHECK_FAILS(limit(method, &call), PISA_UNSUPPORTED, error, "kv_heads * leaves is 2 * 4311744512");
  call = good();
  call.batch = 1;
  call.n_q = 1 << 28;
  call.heads = call.kv_heads = 2;
  struct pisa_method ungrouped = plain;
  ungrouped.heads = HK;
  CHECK_OK(limit(&ungrouped, &call), error);
  call.csr_offsets = call.csr_queries = at(9);
  CHECK_FAILS(limit(&ungrouped, &call), PISA_UNSUPPORTED, error,
              "queries * keep is 268435456 * 8, at most 2147483647 fit");
  call = good();
  call.batch = 1;
  call.heads = 4 * 20000;
  call.kv_heads = 20000;
  call.n_q = 20000;
  CHECK_FAILS(limit(method, &call), PISA_UNSUPPORTED, error, "at most 4096 segments");
  struct pisa_method flat = plain;
  flat.flat = true;
  CHECK_OK(limit(&flat, &call), error);
}

static void check_pyramid_size(void) {
  struct sample sample;
  pisa_pack *pack = NULL;
  size_t bytes = 0;
  sample_make(&(struct sample_spec){.pyramid = "leaf=64 group=2 page=0"}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  pisa_attention call = {.struct_size = sizeof call, .batch = 3, .kv_heads = 2, .n_k = 1000};
  CHECK_OK(pisa_pyramid_size(pack, 0, &call, &bytes, &error), error);
  const long long rows = 4 * (3000 / 128) + 128 * 3 + 32, open = 3 * 2 * 32 * 64 * 4;
  CHECK_INT((long long)bytes, (2 * rows * 64 * 2 + 255) / 256 * 256 + open);
  call.k_starts = at(1); /* not read */
  CHECK_OK(pisa_pyramid_size(pack, 0, &call, &bytes, &error), error);
  CHECK_INT((long long)bytes,
            (2 * (4 * (1000 / 128) + 128 * 3 + 32) * 64 * 2 + 255) / 256 * 256 + open);
  call.n_k = 0;
  CHECK_FAILS(pisa_pyramid_size(pack, 0, &call, &bytes, &error), PISA_INVALID_ARGUMENT, error,
              "must be positive");
  pisa_pack_close(pack);
  sample_free(&sample);
  sample_make(&(struct sample_spec){.dense = true}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  CHECK_FAILS(pisa_pyramid_size(pack, 0, &call, &bytes, &error), PISA_UNSUPPORTED, error,
              "has no pyramid");
  pisa_pack_close(pack);
  sample_free(&sample);
}

/* Segments stay few, splits fill the device. */
static void check_numbers(void) {
  static const struct {
    int64_t batch, kv_heads, n_q, chunk, segments, splits;
  } cases[] = {{1, 2, 4096, 16384, 2, 1},       {1, 2, 1 << 18, 16384, 32, 1},
               {1, 2, 1 << 20, 16384, 128, 1},  {1, 2, (1 << 20) + 1, 32768, 66, 1},
               {64, 8, 1 << 16, 65536, 512, 1}, {1, 2, 1, 16384, 2, 8},
               {1, 64, 1, 16384, 64, 2},        {33, 2, 1, 16384, 2, 2},
               {67, 2, 1, 16384, 2, 1},         {9, 2, 1, 16384, 2, 4},
               {6, 2, 1, 16384, 2, 8},          {12, 2, 1, 16384, 2, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct pisa_shape shape;
    pisa_attention call = good();
    call.batch = cases[i].batch;
    call.kv_heads = cases[i].kv_heads;
    call.heads = 4 * call.kv_heads;
    call.n_q = cases[i].n_q;
    pisa_clear(&error);
    CHECK_OK(pisa_shape_sizes(&plain, &call, &shape, &error), error);
    const struct pisa_select_numbers n = pisa_select_numbers(&plain, &shape, 132);
    CHECK_INT(n.chunk, cases[i].chunk);
    CHECK_INT(n.segments, cases[i].segments);
    CHECK_INT(n.splits, cases[i].splits);
  }
}

int main(void) {
  check_prefill();
  check_selection();
  check_packed();
  check_pages();
  check_decode();
  check_piecewise();
  check_limits();
  check_pyramid_size();
  check_numbers();
  return check_result();
}
