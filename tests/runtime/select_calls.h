/* select_calls.h: calls that select blocks, and where the parts of their workspace lie: what tests
   of their launches expect. */
#ifndef PISA_TESTS_RUNTIME_SELECT_CALLS_H
#define PISA_TESTS_RUNTIME_SELECT_CALLS_H

#include "tests/runtime/calls.h"

enum { DIM = 64, SMS = 132, C = 64, K = 8, HEADS = 32, KV_HEADS = 2, G = 16 };

/* All of a call but its optional outputs, at address(1) to address(4); tokens before heads. */
pisa_attention call_of(int64_t batch, int64_t n_q, int64_t n_k);

/* Where parts lie, one behind the other, as docs/ABI.md section 4 has them. */
struct layout {
  int64_t queries, keys, rows, node_rows, spans, leaves, parents, segments, chunk, item_room;
  size_t bytes;
  int64_t means, span_sums, images, kept, positions, counts, offsets, items, n_items, entries,
      scores, forced, ids;
  int64_t csr_chunk, csr_segments, csr_counts, csr_begins;
};
/* With the workspace at address(7). */
struct layout lay_out(const pisa_attention *call, bool clustered, bool mass);

#endif
