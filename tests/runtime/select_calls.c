/* select_calls.c: sizes in; a call that selects blocks, and the offsets of its workspace, written
   down once more, out. */
#include "tests/runtime/select_calls.h"

#include "runtime/abi.def"

static pisa_tensor tokens_first(int i, int64_t heads, int64_t n) {
  return (pisa_tensor){address(i), {n * heads * DIM, DIM, heads * DIM, 1}};
}

pisa_attention call_of(int64_t batch, int64_t n_q, int64_t n_k) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = batch,
                          .heads = HEADS,
                          .kv_heads = KV_HEADS,
                          .n_q = n_q,
                          .n_k = n_k,
                          .q = tokens_first(1, HEADS, n_q),
                          .k = tokens_first(2, KV_HEADS, n_k),
                          .v = tokens_first(3, KV_HEADS, n_k),
                          .o = tokens_first(4, HEADS, n_q)};
}

static int64_t place(struct layout *l, bool wanted, int64_t bytes) {
  if (!wanted)
    return 0;
  int64_t at = (int64_t)(uintptr_t)address(7) + (int64_t)l->bytes;
  l->bytes += ((size_t)bytes + 255) / 256 * 256;
  return at;
}

struct layout lay_out(const pisa_attention *call, bool clustered, bool mass) {
  const bool decode = call->phase == PISA_DECODE, packed = call->q_starts != NULL;
  struct layout l = {.queries = packed ? call->n_q : call->batch * call->n_q,
                     .keys = packed ? call->n_k : call->batch * call->n_k,
                     .chunk = 16384};
  const int64_t slots = 2 * K + (mass ? 2 : 0);
  l.rows = KV_HEADS * l.queries;
  l.node_rows = 4 * (l.keys / (2 * C)) + 128 * call->batch + 32;
  l.spans = l.keys / (16 * C) + call->batch;
  l.leaves = l.keys / C + call->batch;
  l.parents = l.keys / (2 * C) + call->batch;
  l.segments = KV_HEADS * ceil_div(l.queries, l.chunk);
  l.item_room = pisa_item_room(l.parents, K, l.chunk, 4);
  l.means = place(&l, !decode && !call->pyramid, KV_HEADS * l.node_rows * DIM * 2);
  l.span_sums = place(&l, !decode, KV_HEADS * l.spans * DIM * 4);
  l.images = place(&l, clustered, KV_HEADS * l.leaves * C * DIM * 2);
  l.kept = place(&l, clustered, l.rows * K * 4);
  l.positions = place(&l, clustered, l.rows * K * 4);
  l.counts = place(&l, clustered, l.segments * l.parents * 4);
  l.offsets = place(&l, clustered, l.segments * l.parents * 4);
  l.items = place(&l, clustered, l.segments * l.item_room * 16);
  l.n_items = place(&l, clustered, l.segments * 4);
  l.entries = place(&l, clustered, l.segments * K * l.chunk * 4);
  l.scores = place(&l, clustered, l.rows * slots * (mass ? G : 1) * 4);
  l.forced = place(&l, clustered && mass, l.rows * G * 4);
  l.ids = place(&l, call->o.data && !call->blocks, l.rows * K * 4);
  l.csr_chunk = 32 * ceil_div(l.queries, 2048);
  l.csr_segments = ceil_div(l.queries, l.csr_chunk);
  l.csr_counts = place(&l, call->csr_offsets, KV_HEADS * l.csr_segments * l.leaves * 4);
  l.csr_begins = place(&l, call->csr_offsets, KV_HEADS * l.csr_segments * l.leaves * 4);
  return l;
}
