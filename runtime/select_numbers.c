/* select_numbers.c: sizes of a call in; out come the numbers that kernels of block selection and
   their workspace are sized by, and the first of them that the kernels cannot count. */
#include <assert.h>
#include <inttypes.h>

#include "runtime/select.h"
#include "runtime/size.h"
#include "runtime/workspace.h"

enum {
  UNIT_KEYS = 16,      /* of a warp of decode_attend */
  CHUNK = 16384,       /* query numbers whose rows of q one key head keeps in L2 (2 KB each) */
  MAX_CHUNK = 1 << 24, /* of an entry's 32 bits 8 are the slot */
  MAX_SEGMENTS = 64,   /* of a key head: counters are a row of parents each */
  LEAST_UNITS = 4,     /* of a list, 16 keys each, that a split has: as many as are merged fast */
  SPLIT_KEYS = 128     /* of all keys: a unit of 16 for each of 8 warps */
};

/* Query numbers of a segment, a power of two as walk needs it: doubled while there were too many
   segments. */
static int64_t chunk_of(const struct pisa_shape *s) {
  int64_t chunk = CHUNK, most = pisa_min(MAX_SEGMENTS, PISA_MAX_SEGMENTS / s->kv_heads);
  while (chunk < MAX_CHUNK && pisa_ceil_div(s->queries, chunk) > most)
    chunk *= 2;
  assert((chunk & (chunk - 1)) == 0 && chunk <= MAX_CHUNK);
  return chunk;
}

/* Parts of a list, the CTAs of a cluster: a power of two, so that few queries fill the
   multiprocessors, one CTA each. A cluster lies in one group of 16 or 18 of them, so large clusters
   do not fill all: they are for calls that three quarters hold. */
static int64_t splits_of(const struct pisa_method *method, int64_t rows, int sm_count) {
  const int64_t units = pisa_ceil_div(method->keep * method->key, UNIT_KEYS);
  int64_t splits = 1;
  while (2 * splits <= PISA_DECODE_MAX_SPLITS && 2 * splits * LEAST_UNITS <= units &&
         2 * splits * rows <= (splits == 1 ? sm_count : sm_count / 4 * 3))
    splits *= 2;
  return splits;
}

/* Parts of all keys, so that the CTAs that fit the multiprocessors (two of D 64, else one) have as
   much each. */
static int64_t dense_splits_of(const struct pisa_method *method, const struct pisa_shape *s,
                               int sm_count) {
  const int64_t rows = s->kv_heads * s->queries, fit = sm_count * (method->head_dim <= 64 ? 2 : 1);
  return pisa_min(pisa_max(1, fit / rows), pisa_ceil_div(s->n_k, SPLIT_KEYS));
}

struct pisa_select_numbers pisa_select_numbers(const struct pisa_method *method,
                                               const struct pisa_shape *s, int sm_count) {
  if (method->dense)
    return (struct pisa_select_numbers){.splits = dense_splits_of(method, s, sm_count)};
  const int64_t leaf = method->key, rows = s->kv_heads * s->queries;
  struct pisa_select_numbers n = {
      .node_rows = pisa_node_rows(method, s->batch, s->keys),
      .spans = s->keys / (leaf * pisa_span_leaves(method->group)) + s->batch,
      .leaves = s->keys / leaf + s->batch,
      .parents = s->keys / (leaf * method->group) + s->batch,
      .chunk = chunk_of(s),
      .splits = splits_of(method, rows, sm_count),
      .csr_chunk = pisa_csr_chunk(s->queries),
  };
  n.csr_segments = pisa_ceil_div(s->queries, n.csr_chunk);
  n.segments = pisa_ceil_div(s->queries, n.chunk) * s->kv_heads;
  n.item_room = pisa_item_room(n.parents, method->keep, n.chunk, method->query_tile);
  return n;
}

struct count {
  const char *what;
  int64_t a, b;
};

/* |a| * |b| at most 2^31 - 1. */
static pisa_status check_count(const struct count *count, pisa_error *error) {
  int64_t product;
  if (pisa_multiply(count->a, count->b, &product) && product <= INT32_MAX)
    return PISA_OK;
  return pisa_fail(error, PISA_UNSUPPORTED,
                   "%s is %" PRId64 " * %" PRId64 ", at most 2147483647 fit the 32-bit counters "
                   "of this device's kernels",
                   count->what, count->a, count->b);
}

pisa_status pisa_select_limits(const struct pisa_method *method, const struct pisa_shape *s,
                               const struct pisa_limits *limits, pisa_error *error) {
  if (s->is_decode && !s->has_pyramid && !method->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "pyramid is NULL: on a GPU phase decode reads what prefill left there");
  const struct count queries = {"heads * queries", s->heads, s->queries};
  pisa_status status = check_count(&queries, error);
  if (status)
    return status;
  const struct pisa_select_numbers n = pisa_select_numbers(method, s, limits->sm_count);
  const bool clustered = pisa_is_clustered(method) && !s->is_decode && !s->is_flat && !s->dense;
  const struct count counts[] = {
      {"kv_heads * spans", s->kv_heads, n.spans},
      {"kv_heads * leaves", s->kv_heads, n.leaves},
      {"kv_heads * rows of means", s->kv_heads, n.node_rows},
      {"batch * page_columns", s->batch, method->page ? s->n_k / method->page : 0},
      {"segments * parents", n.segments, clustered ? n.parents : 0},
      {"segments * items", n.segments, clustered ? n.item_room : 0},
      {"kv_heads * queries * splits", s->kv_heads * s->queries, s->is_decode ? n.splits : 1},
      {"queries * keep", s->queries, s->has_csr ? method->keep : 1}};
  if (clustered && n.segments > PISA_MAX_SEGMENTS)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "kv_heads * queries is %" PRId64 " * %" PRId64 ", in chunks of at most %d "
                     "queries they must be at most %d segments",
                     s->kv_heads, s->queries, MAX_CHUNK, PISA_MAX_SEGMENTS);
  for (size_t i = 0; i < sizeof counts / sizeof *counts && !status; i++)
    status = check_count(&counts[i], error);
  return status;
}
