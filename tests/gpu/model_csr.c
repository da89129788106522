/* model_csr.c: csr_count, csr_scan and csr_fill (runtime/pyramid.def): lists in, the queries of
   each leaf out, one segment after the other. */
#include "tests/gpu/model_select.h"

struct lists {
  const union model_value *args;
  const int32_t *ids;
  int64_t chunk, leaves, heads;
};

typedef void pair_body(const struct lists *x, int64_t segment, int64_t leaf, int64_t query,
                       void *user);

static void each_query(const struct lists *x, const struct model_sequence *s, int64_t head,
                       int64_t n, pair_body *body, void *user) {
  const int64_t first = model_fault("csr_starts") ? 0 : s->k_begin / model_now.leaf + s->b;
  const int64_t query = s->first + n, segment = query / x->chunk * x->heads + head;
  const int32_t *list = x->ids + model_out_row(s, x->heads, head, n) * model_now.keep;
  for (int e = 0; e < model_now.keep; e++)
    if (list[e] >= 0)
      body(x, segment, first + list[e], query, user);
}

static void each_pair(const struct lists *x, pair_body *body, void *user) {
  for (int64_t b = 0; b < integer(x->args, PISA_SEQUENCE_batch); b++) {
    const struct model_sequence s = model_sequence_at(x->args, b);
    for (int64_t head = 0; head < x->heads; head++)
      for (int64_t i = 0; i < s.queries; i++)
        each_query(x, &s, head, model_fault("csr_order") ? s.queries - 1 - i : i, body, user);
  }
}

static struct lists lists_of(const union model_value *args, int ids, int chunk, int leaves) {
  return (struct lists){args, pointer(args, ids), integer(args, chunk), integer(args, leaves),
                        integer(args, PISA_SEQUENCE_kv_heads)};
}

static void count(const struct lists *x, int64_t segment, int64_t leaf, int64_t query, void *user) {
  int32_t *counts = user;
  (void)query;
  counts[segment * x->leaves + leaf]++;
}

void model_csr_count(const union model_value *args) {
  const struct lists x =
      lists_of(args, PISA_CSR_COUNT_ids, PISA_CSR_COUNT_chunk, PISA_CSR_COUNT_leaves);
  const int64_t queries = integer(args, PISA_SEQUENCE_queries);
  const int64_t segments = (queries + x.chunk - 1) / x.chunk * x.heads;
  int32_t *counts = pointer(args, PISA_CSR_COUNT_counts);
  for (int64_t i = 0; i < segments * x.leaves; i++)
    counts[i] = 0;
  each_pair(&x, count, counts);
}

void model_csr_scan(const union model_value *args) {
  const int64_t leaves = integer(args, PISA_CSR_SCAN_leaves);
  const int64_t segments = integer(args, PISA_CSR_SCAN_segments);
  const int64_t heads = integer(args, PISA_SEQUENCE_kv_heads);
  const int32_t *counts = pointer(args, PISA_CSR_SCAN_counts);
  int32_t *begins = pointer(args, PISA_CSR_SCAN_begins);
  for (int64_t head = 0; head < heads; head++) {
    int32_t *offsets = (int32_t *)pointer(args, PISA_CSR_SCAN_offsets) + head * (leaves + 1);
    int32_t next = 0;
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
      offsets[leaf] = next;
      for (int64_t s = 0; s < segments; s++) {
        const int64_t at = (s * heads + head) * leaves + leaf;
        begins[at] = model_fault("csr_segment") ? offsets[leaf] : next;
        next += counts[at];
      }
    }
    offsets[leaves] = next;
  }
}

struct places {
  int32_t *next, *members;
  int64_t entries; /* of a key head */
};

static void place(const struct lists *x, int64_t segment, int64_t leaf, int64_t query, void *user) {
  const struct places *places = user;
  int32_t *next = &places->next[segment * x->leaves + leaf];
  places->members[segment % x->heads * places->entries + (*next)++] = (int32_t)query;
}

/* Counts in |begins|, which csr_scan writes anew. */
void model_csr_fill(const union model_value *args) {
  const struct lists x =
      lists_of(args, PISA_CSR_FILL_ids, PISA_CSR_FILL_chunk, PISA_CSR_FILL_leaves);
  struct places places = {pointer(args, PISA_CSR_FILL_begins), pointer(args, PISA_CSR_FILL_members),
                          (int64_t)integer(args, PISA_SEQUENCE_queries) * model_now.keep};
  each_pair(&x, place, &places);
}
