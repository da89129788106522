/* select_csr_test.c: the queries that list each leaf, of pisa_cpu_run. In: packs by hand and random
   arrays. Checked: csr_offsets and csr_queries against |blocks|, leaf by leaf, with lengths, packed
   sequences, flat and causal routes; that they are the same without |blocks|; and that nothing is
   written behind them. */
#include <string.h>

#include "runtime/cpu/convert.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { B = 3, H = 4, HK = 2, NQ = 90, NK = 150, D = 64, C = 16, K = 6 };
enum { T = B * NQ, MOST_LEAVES = B * NK / C + B + 1, UNTOUCHED = 0x55555555 };

static struct {
  _Alignas(16) uint16_t q[B * H * NQ * D], k[B * HK * NK * D], v[B * HK * NK * D],
      o[B * H * NQ * D];
} memory;
static int32_t blocks[HK * T * K];
struct csr {
  int32_t offsets[HK * (MOST_LEAVES + 1)], queries[HK * T * K];
};
static struct csr csr, again;
static pisa_error error;

static void fill(uint16_t *x, size_t n) {
  static uint64_t seed = 1;
  for (size_t i = 0; i < n; i++) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    x[i] = cpu_to_bf16((float)(seed >> 40) / (1 << 23) - 1);
  }
}

static pisa_tensor bhnd(void *data, int64_t heads, int64_t n) {
  return (pisa_tensor){data, {heads * n * D, n * D, D, 1}};
}

static pisa_attention call_of(struct csr *out) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = B,
                          .heads = H,
                          .kv_heads = HK,
                          .n_q = NQ,
                          .n_k = NK,
                          .q = bhnd(memory.q, H, NQ),
                          .k = bhnd(memory.k, HK, NK),
                          .v = bhnd(memory.v, HK, NK),
                          .o = bhnd(memory.o, H, NQ),
                          .blocks = blocks,
                          .csr_offsets = out->offsets,
                          .csr_queries = out->queries};
}

/* ---- what the lists say ---- */

struct place {        /* of a query number */
  int64_t row;        /* of |blocks| */
  int64_t first_leaf; /* the number of its sequence's */
};

static struct place place_of(const pisa_attention *call, int64_t hk, int64_t query) {
  int64_t b = 0;
  if (!call->q_starts) {
    b = query / call->n_q;
    return (struct place){(b * HK + hk) * call->n_q + query % call->n_q, b * call->n_k / C + b};
  }
  while (call->q_starts[b + 1] <= query)
    b++;
  return (struct place){hk * call->n_q + query, call->k_starts[b] / C + b};
}

static bool lists(const pisa_attention *call, int64_t hk, int64_t query, int64_t leaf) {
  const struct place place = place_of(call, hk, query);
  for (int64_t e = 0; e < K; e++)
    if (blocks[place.row * K + e] >= 0 && place.first_leaf + blocks[place.row * K + e] == leaf)
      return true;
  return false;
}

static void check_against_lists(const pisa_attention *call) {
  const int64_t batch = call->q_starts ? 1 : call->batch, queries = batch * call->n_q;
  const int64_t leaves = batch * call->n_k / C + call->batch;
  int wrong = 0;
  CHECK(leaves <= MOST_LEAVES);
  for (int64_t hk = 0; hk < HK; hk++) {
    const int32_t *offsets = csr.offsets + hk * (leaves + 1);
    const int32_t *found = csr.queries + hk * queries * K;
    int32_t at = 0;
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
      wrong += offsets[leaf] != at;
      for (int64_t query = 0; query < queries; query++)
        if (lists(call, hk, query, leaf))
          wrong += found[at++] != query;
    }
    wrong += offsets[leaves] != at;
    for (; at < queries * K; at++)
      wrong += found[at] != UNTOUCHED;
  }
  CHECK_INT(wrong, 0);
  CHECK_INT(csr.offsets[HK * (leaves + 1)], UNTOUCHED);
}

/* |call| writes to csr. */
static void check_call(const pisa_pack *pack, pisa_attention call) {
  const pisa_cpu_options options = {.struct_size = sizeof options, .threads = 3};
  memset(&csr, 0x55, sizeof csr);
  memset(&again, 0x55, sizeof again);
  CHECK_OK(pisa_cpu_run(pack, 0, &call, &options, &error), error);
  check_against_lists(&call);
  call.blocks = NULL;
  call.csr_offsets = again.offsets;
  call.csr_queries = again.queries;
  CHECK_OK(pisa_cpu_run(pack, 0, &call, &options, &error), error);
  CHECK(!memcmp(&csr, &again, sizeof csr));
}

static void check_pack(const char *select, const char *shape) {
  static const int32_t lengths[B] = {NK, 0, 77};
  static const int32_t q_starts[] = {0, 1, 1, 60, NQ}, k_starts[] = {0, 40, 57, 57, NK};
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(
      &(struct sample_spec){.shape = shape, .pyramid = "leaf=16 group=2 page=0", .select = select},
      &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  pisa_attention call = call_of(&csr);
  check_call(pack, call);
  call.k_lengths = lengths;
  check_call(pack, call);
  call = call_of(&csr);
  call.batch = 4;
  call.q_starts = q_starts;
  call.k_starts = k_starts;
  check_call(pack, call);
  pisa_pack_close(pack);
}

int main(void) {
  fill(memory.q, sizeof memory.q / 2);
  fill(memory.k, sizeof memory.k / 2);
  fill(memory.v, sizeof memory.v / 2);
  check_pack("pyramid score=lse reduce=sum keep=6 start=0 leaf_stage=clustered query_tile=4",
             "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=causal");
  check_pack("flat score=mean reduce=sum keep=6 start=0 leaf_stage=fused query_tile=4",
             "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none");
  return check_result();
}
