/* dense_run_test.c: pisa_cpu_run of dense attention in language models. In: packs by hand. Checked:
   phase decode is the end of prefill, keys are found in pages, short calls of packs that select
   blocks are dense and leave their pyramid. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { B = 3, H = 4, HK = 2, N = 192, NQ = 3, D = 64, PAGE = 16, COLUMNS = N / PAGE };
#define SHAPE "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=causal"
#define SIZES "leaf=32 group=2 page=0"
#define ROUTE "pyramid score=lse reduce=mass keep=4 start=0 leaf_stage=clustered query_tile=4"

static pisa_error error;
static const int32_t lengths[B] = {N, 77, 2}; /* the last one has fewer keys than queries */

struct arrays {
  _Alignas(16) uint16_t q[B * H * N * D], k[B * HK * N * D], v[B * HK * N * D], o[B * H * N * D];
  _Alignas(16) uint16_t k_pages[(B * COLUMNS + 1) * HK * PAGE * D];
  _Alignas(16) uint16_t v_pages[(B * COLUMNS + 1) * HK * PAGE * D];
  float lse[B * H * N];
  int32_t pages[B * COLUMNS];
};

static pisa_pack *pack_of(const struct sample_spec *spec) {
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  return pack;
}

static pisa_tensor bhnd(uint16_t *data, int64_t heads, int64_t n) {
  return (pisa_tensor){data, {heads * n * D, n * D, D, 1}};
}

static pisa_attention call_of(struct arrays *a, int64_t n_q) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = B,
                          .heads = H,
                          .kv_heads = HK,
                          .n_q = n_q,
                          .n_k = N,
                          .q = bhnd(a->q, H, n_q),
                          .k = bhnd(a->k, HK, N),
                          .v = bhnd(a->v, HK, N),
                          .o = bhnd(a->o, H, n_q),
                          .lse = a->lse};
}

/* bfloat16 numbers in [-2, 2): a sign, an exponent from 2^-15 up, any fraction. */
static void fill(uint16_t *data, int n, uint32_t seed) {
  for (int i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (uint16_t)((seed >> 16 & 0x87ff) | 0x3800);
  }
}

static struct arrays *arrays_new(void) {
  struct arrays *a = aligned_alloc(16, (sizeof *a + 15) / 16 * 16);
  if (!a)
    exit(1);
  memset(a, 0xff, sizeof *a);
  fill(a->q, B * H * N * D, 1);
  fill(a->k, B * HK * N * D, 2);
  fill(a->v, B * HK * N * D, 3);
  return a;
}

static void run(const pisa_pack *pack, struct arrays *a, const pisa_attention *call, int oracle) {
  const pisa_cpu_options options = {.struct_size = sizeof options, .oracle = oracle, .threads = 2};
  memset(a->o, 0xff, sizeof a->o);
  memset(a->lse, 0xff, sizeof a->lse);
  CHECK_OK(pisa_cpu_run(pack, 0, call, &options, &error), error);
}

static double value(uint16_t x) {
  float out;
  const uint32_t bits = (uint32_t)x << 16;
  memcpy(&out, &bits, sizeof out);
  return (double)out;
}

/* Alike but for rounding. */
static void check_alike(const uint16_t *o, const uint16_t *o_other, float lse, float lse_other) {
  CHECK(lse == lse_other || fabsf(lse - lse_other) < 1e-5f);
  for (int d = 0; d < D; d++)
    CHECK(fabs(value(o[d]) - value(o_other[d])) <= 1.0 / 128 * fabs(value(o_other[d])) + 1e-4);
}

/* |queries| are the last rows of each sequence: decode gives what they have in prefill. */
static void decodes(struct arrays *a, int oracle) {
  static uint16_t whole[B * H * N * D], last[B * H * NQ * D];
  static float whole_lse[B * H * N];
  pisa_pack *pack =
      pack_of(&(struct sample_spec){.dense = true, .shape = SHAPE, .phases = "prefill decode"});
  pisa_attention call = call_of(a, N);
  call.k_lengths = lengths;
  run(pack, a, &call, oracle);
  memcpy(whole, a->o, sizeof whole);
  memcpy(whole_lse, a->lse, sizeof whole_lse);
  for (int bh = 0; bh < B * H; bh++)
    memcpy(last + bh * NQ * D, a->q + (bh * N + N - NQ) * D, NQ * D * sizeof *last);
  call = call_of(a, NQ);
  call.k_lengths = lengths;
  call.phase = PISA_DECODE;
  call.q.data = last;
  run(pack, a, &call, oracle);
  for (int bh = 0; bh < B * H; bh++)
    for (int i = 0; i < NQ; i++)
      check_alike(a->o + (bh * NQ + i) * D, whole + (bh * N + N - NQ + i) * D, a->lse[bh * NQ + i],
                  whole_lse[bh * N + N - NQ + i]);
  for (int h = 0; h < H; h++) /* 2 keys: the first of 3 queries sees nothing */
    CHECK(a->lse[(2 * H + h) * NQ] == -INFINITY && isfinite(a->lse[(2 * H + h) * NQ + 1]));
  CHECK_FAILS(pisa_cpu_run(pack, 0, &(pisa_attention){.struct_size = sizeof call}, NULL, &error),
              PISA_INVALID_ARGUMENT, error, "batch is 0");
  pisa_pack_close(pack);
}

/* Page p of sequence b lies at the place that a shuffle gives it; page 0 is nobody's. */
static void lay_out_pages(struct arrays *a) {
  for (int p = 0; p < B * COLUMNS; p++)
    a->pages[p] = 1 + (p * 7 + 5) % (B * COLUMNS);
  for (int p = 0; p < B * COLUMNS; p++)
    for (int h = 0; h < HK; h++) {
      size_t from = (size_t)((p / COLUMNS * HK + h) * N + p % COLUMNS * PAGE) * D;
      size_t to = (size_t)(a->pages[p] * HK + h) * PAGE * D, bytes = PAGE * D * sizeof *a->k;
      memcpy(a->k_pages + to, a->k + from, bytes);
      memcpy(a->v_pages + to, a->v + from, bytes);
    }
}

static void finds_pages(struct arrays *a, int oracle) {
  static uint16_t o[B * H * NQ * D];
  static float lse[B * H * NQ];
  pisa_pack *plain =
      pack_of(&(struct sample_spec){.dense = true, .shape = SHAPE, .phases = "decode"});
  pisa_pack *paged = pack_of(&(struct sample_spec){
      .dense = true, .shape = SHAPE, .phases = "decode", .pages = "pages size=16\n"});
  pisa_attention call = call_of(a, NQ);
  call.phase = PISA_DECODE;
  call.k_lengths = lengths;
  run(plain, a, &call, oracle);
  memcpy(o, a->o, sizeof o);
  memcpy(lse, a->lse, sizeof lse);
  lay_out_pages(a);
  call.k = bhnd(a->k_pages, HK, PAGE);
  call.v = bhnd(a->v_pages, HK, PAGE);
  call.pages = a->pages;
  call.page_columns = COLUMNS;
  a->pages[COLUMNS + 77 / PAGE + 1] = -7; /* behind the last key: not looked at */
  run(paged, a, &call, oracle);
  CHECK(!memcmp(o, a->o, sizeof o) && !memcmp(lse, a->lse, sizeof lse));
  a->pages[COLUMNS + 77 / PAGE] = -7;
  CHECK_FAILS(pisa_cpu_run(paged, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "pages[1, 4] is -7, must not be negative");
  pisa_pack_close(plain);
  pisa_pack_close(paged);
}

/* Below its limit a selection is the dense pack, and writes the pyramid that it would have. */
static void short_is_dense(struct arrays *a) {
  static uint16_t o[B * H * N * D];
  static float lse[B * H * N];
  static int32_t blocks[B * HK * N * 4];
  const struct sample_spec both[] = {
      {.pyramid = SIZES, .shape = SHAPE, .select = ROUTE, .below = "below tokens=193 use=dense\n"},
      {.pyramid = SIZES, .shape = SHAPE, .select = ROUTE, .below = "below tokens=192 use=dense\n"}};
  pisa_pack *dense = pack_of(&(struct sample_spec){.dense = true, .shape = SHAPE});
  pisa_pack *below = pack_of(&both[0]), *selects = pack_of(&both[1]);
  pisa_attention call = call_of(a, N);
  call.k_lengths = lengths;
  size_t bytes = 0;
  CHECK_OK(pisa_pyramid_size(below, 0, &call, &bytes, &error), error);
  void *written[2] = {aligned_alloc(256, (bytes + 255) / 256 * 256),
                      aligned_alloc(256, (bytes + 255) / 256 * 256)};
  if (!written[0] || !written[1])
    exit(1);
  run(dense, a, &call, 1);
  memcpy(o, a->o, sizeof o);
  memcpy(lse, a->lse, sizeof lse);
  for (int i = 0; i < 2; i++) {
    memset(written[i], 0xff, bytes);
    call.pyramid = i ? written[1] : NULL;
    run(below, a, &call, 0);
    for (int row = 0; row < B * H * N; row++)
      check_alike(a->o + row * D, o + row * D, a->lse[row], lse[row]);
  }
  call.pyramid = written[0];
  run(selects, a, &call, 0);
  CHECK(memcmp(lse, a->lse, sizeof lse) != 0);
  CHECK(!memcmp(written[0], written[1], bytes));
  call.blocks = blocks;
  CHECK_OK(pisa_cpu_run(selects, 0, &call, NULL, &error), error);
  CHECK_FAILS(pisa_cpu_run(below, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "blocks must be NULL: below 193 tokens this pack makes no block lists");
  call.phase = PISA_DECODE;
  CHECK_OK(pisa_cpu_run(below, 0, &call, NULL, &error), error);
  free(written[0]);
  free(written[1]);
  pisa_pack_close(dense);
  pisa_pack_close(below);
  pisa_pack_close(selects);
}

int main(void) {
  struct arrays *a = arrays_new();
  for (int oracle = 0; oracle < 2; oracle++) {
    decodes(a, oracle);
    finds_pages(a, oracle);
  }
  short_is_dense(a);
  free(a);
  return check_result();
}
