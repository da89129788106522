/* run_test.c: pisa_cpu_run as an application calls it. In: a pack by hand. Checked: what is refused
   and how, and that a call writes o, lse and blocks whole. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { B = 1, H = 4, N = 200, D = 128, NT = 4, NTQ = 2, KEPT = 2 };

struct arrays {
  _Alignas(16) uint16_t q[B * H * N * D], k[B * H * N * D], v[B * H * N * D], o[B * H * N * D];
  float lse[B * H * N];
  int32_t blocks[B * H * NTQ * KEPT], lists[B * H * NTQ * KEPT];
};

static pisa_error error;

static pisa_pack *pack_of(const struct sample_spec *spec) {
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  return pack;
}

static pisa_attention call_of(struct arrays *a) {
  const int64_t stride[4] = {H * N * D, N * D, D, 1};
  pisa_attention call = {.struct_size = sizeof call,
                         .batch = B,
                         .heads = H,
                         .kv_heads = H,
                         .n_q = N,
                         .n_k = N,
                         .q.data = a->q,
                         .k.data = a->k,
                         .v.data = a->v,
                         .o.data = a->o,
                         .lse = a->lse,
                         .blocks = a->blocks,
                         .keep = KEPT};
  memcpy(call.q.stride, stride, sizeof stride);
  memcpy(call.k.stride, stride, sizeof stride);
  memcpy(call.v.stride, stride, sizeof stride);
  memcpy(call.o.stride, stride, sizeof stride);
  return call;
}

/* bfloat16 numbers in [-2, 2): a sign, an exponent from 2^-15 up, any fraction. */
static void fill(uint16_t *data, uint32_t seed) {
  for (int i = 0; i < B * H * N * D; i++) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (uint16_t)((seed >> 16 & 0x87ff) | 0x3800);
  }
}

static struct arrays *arrays_new(void) {
  struct arrays *a = aligned_alloc(16, (sizeof *a + 15) / 16 * 16);
  if (!a)
    exit(1);
  memset(a, 0xff, sizeof *a);
  fill(a->q, 1);
  fill(a->k, 2);
  fill(a->v, 3);
  for (int i = 0; i < B * H * NTQ; i++) {
    a->lists[KEPT * i] = i % 3;
    a->lists[KEPT * i + 1] = i % 2 ? 3 : -1;
  }
  return a;
}

static void writes_all(const pisa_pack *pack, struct arrays *a, int oracle) {
  pisa_attention call = call_of(a);
  const pisa_cpu_options options = {.struct_size = sizeof options, .oracle = oracle, .threads = 2};
  memset(a->o, 0xff, sizeof a->o);
  memset(a->lse, 0xff, sizeof a->lse);
  memset(a->blocks, 0xff, sizeof a->blocks);
  CHECK_OK(pisa_cpu_run(pack, 0, &call, &options, &error), error);
  for (int i = 0; i < B * H * N * D; i++)
    CHECK((a->o[i] & 0x7f80) != 0x7f80);
  for (int i = 0; i < B * H * N; i++)
    CHECK(isfinite(a->lse[i]));
  for (int i = 0; i < B * H * NTQ; i++)
    CHECK(0 <= a->blocks[2 * i] && a->blocks[2 * i] < a->blocks[2 * i + 1] &&
          a->blocks[2 * i + 1] < NT);
}

static void refuses_calls(const pisa_pack *pack, struct arrays *a) {
  pisa_attention call = call_of(a);
  CHECK_FAILS(pisa_cpu_run(NULL, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "pack");
  CHECK_FAILS(pisa_cpu_run(pack, 0, NULL, NULL, &error), PISA_INVALID_ARGUMENT, error, "call");
  CHECK_FAILS(pisa_cpu_run(pack, -1, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "variant");
  CHECK_FAILS(pisa_cpu_run(pack, 2, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "variant");
  CHECK(pisa_cpu_run(NULL, 0, &call, NULL, NULL) == PISA_INVALID_ARGUMENT);
  call.n_k = 0;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "n_k");
  call = call_of(a);
  call.v.data = NULL;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "v.data");
  call = call_of(a);
  call.k.data = a->k + 1;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "k.data");
  call = call_of(a);
  call.o.data = a->q;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "overlap");
}

static void refuses_options(const pisa_pack *pack, struct arrays *a) {
  const pisa_attention call = call_of(a);
  pisa_cpu_options options = {.struct_size = 8};
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, &options, &error), PISA_INVALID_ARGUMENT, error,
              "struct_size is 8");
  options = (pisa_cpu_options){.struct_size = sizeof options, .threads = -1};
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, &options, &error), PISA_INVALID_ARGUMENT, error,
              "threads is -1");
}

/* Lists that are given come back ascending, each block once, and change the result. */
static void takes_lists(const pisa_pack *pack, struct arrays *a) {
  pisa_attention call = call_of(a);
  int32_t given[B * H * NTQ * KEPT];
  memcpy(given, a->lists, sizeof given);
  call.lists = given;
  call.n_listed = KEPT;
  call.keep = 0;
  CHECK_OK(pisa_cpu_run(pack, 0, &call, NULL, &error), error);
  CHECK(memcmp(a->blocks, a->lists, sizeof a->lists) == 0);
  const int32_t rows[][2 * KEPT] = {
      {NT, 1, 1, -1}, {2, 2, 2, -1}, {3, 0, 0, 3}, {-7, NT, -1, -1}}; /* given, blocks */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    memcpy(given + 3 * KEPT, rows[i], KEPT * sizeof *given);
    CHECK_OK(pisa_cpu_run(pack, 0, &call, NULL, &error), error);
    CHECK(memcmp(a->blocks + 3 * KEPT, rows[i] + KEPT, KEPT * sizeof *given) == 0);
  }
}

static void takes_lengths(const pisa_pack *pack, struct arrays *a) {
  static float whole[B * H * N];
  const int32_t all = 5 * N, none = 0;
  pisa_attention call = call_of(a);
  int64_t kept;
  writes_all(pack, a, 0);
  memcpy(whole, a->lse, sizeof whole);
  call.k_lengths = &all;
  CHECK_OK(pisa_kept_blocks(pack, 0, &call, &kept, &error), error);
  CHECK(kept == KEPT);
  CHECK_OK(pisa_cpu_run(pack, 0, &call, NULL, &error), error);
  CHECK(memcmp(whole, a->lse, sizeof whole) == 0);
  call.k_lengths = &none;
  CHECK_OK(pisa_cpu_run(pack, 0, &call, NULL, &error), error);
  for (int i = 0; i < B * H * N * D; i++)
    CHECK(a->o[i] == 0);
  for (int i = 0; i < B * H * N; i++)
    CHECK(a->lse[i] == -INFINITY);
  for (int i = 0; i < B * H * NTQ * KEPT; i++)
    CHECK(a->blocks[i] == -1);
}

/* A call shorter than `below` is dense, and has no lists. */
static void short_is_dense(struct arrays *a) {
  static float whole[B * H * N];
  pisa_pack *dense = pack_of(&(struct sample_spec){.dense = true});
  pisa_pack *below = pack_of(&(struct sample_spec){.below = "below tokens=201 use=dense\n"});
  pisa_pack *routed = pack_of(&(struct sample_spec){.below = "below tokens=200 use=dense\n"});
  pisa_attention call = call_of(a);
  CHECK_OK(pisa_cpu_run(routed, 0, &call, NULL, &error), error);
  CHECK_FAILS(pisa_cpu_run(below, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "blocks");
  call.blocks = NULL;
  CHECK_OK(pisa_cpu_run(below, 0, &call, NULL, &error), error);
  memcpy(whole, a->lse, sizeof whole);
  call.keep = 0;
  CHECK_OK(pisa_cpu_run(dense, 0, &call, NULL, &error), error);
  CHECK(memcmp(whole, a->lse, sizeof whole) == 0);
  pisa_pack_close(dense);
  pisa_pack_close(below);
  pisa_pack_close(routed);
}

/* A pack's threshold chooses; density and keep are refused. */
static void takes_thresholds(struct arrays *a) {
  static int32_t blocks[B * H * NTQ * NT];
  pisa_pack *pack = pack_of(&(struct sample_spec){
      .route = "top_k score=mean term=log_residual budget=threshold density=0/1 keep=0 "
               "threshold=5/10 variance=full",
      .attend = "selected=exact rest=taylor_1 mass=second_order"});
  pisa_attention call = call_of(a);
  call.blocks = blocks;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "keep");
  call.keep = 0;
  for (int oracle = 0; oracle < 2; oracle++) {
    const pisa_cpu_options options = {.struct_size = sizeof options, .oracle = oracle};
    CHECK_OK(pisa_cpu_run(pack, 0, &call, &options, &error), error);
    for (int i = 0; i < B * H * NTQ; i++)
      CHECK(blocks[NT * i] >= 0);
  }
  pisa_pack_close(pack);
}

/* The outcome does not depend on the executor's kind beyond rounding: lse agrees closely. */
static void agrees(const pisa_pack *pack, struct arrays *a) {
  static float fast[B * H * N];
  writes_all(pack, a, 0);
  memcpy(fast, a->lse, sizeof fast);
  writes_all(pack, a, 1);
  for (int i = 0; i < B * H * N; i++)
    CHECK(fabsf(fast[i] - a->lse[i]) < 1e-5f);
}

static void dense_refuses_lists(struct arrays *a) {
  pisa_pack *dense = pack_of(&(struct sample_spec){.dense = true});
  pisa_attention call = call_of(a);
  call.keep = 0;
  call.blocks = NULL;
  CHECK_OK(pisa_cpu_run(dense, 0, &call, NULL, &error), error);
  call.lists = a->lists;
  call.n_listed = KEPT;
  CHECK_FAILS(pisa_cpu_run(dense, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error, "dense");
  pisa_pack_close(dense);
}

/* The first row reads the first key alone. */
static void causal_reads_the_past(struct arrays *a) {
  pisa_pack *causal = pack_of(&(struct sample_spec){
      .shape = "heads=4 kv_heads=4 head_dim=128 type=bf16 mask=causal", .dense = true});
  pisa_attention call = call_of(a);
  call.keep = 0;
  call.blocks = NULL;
  CHECK_OK(pisa_cpu_run(causal, 0, &call, NULL, &error), error);
  CHECK(!memcmp(a->o, a->v, D * sizeof *a->o));
  CHECK(memcmp(a->o + D, a->v + D, D * sizeof *a->o));
  pisa_pack_close(causal);
}

int main(void) {
  struct arrays *a = arrays_new();
  pisa_pack *pack = pack_of(&(struct sample_spec){0});
  agrees(pack, a);
  refuses_calls(pack, a);
  refuses_options(pack, a);
  takes_lists(pack, a);
  takes_lengths(pack, a);
  takes_thresholds(a);
  short_is_dense(a);
  dense_refuses_lists(a);
  causal_reads_the_past(a);
  pisa_pack_close(pack);
  free(a);
  return check_result();
}
