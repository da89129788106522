/* select_layout.c: lays out the workspace of block selection, and a pyramid of the caller's. In:
   sizes of the call and the number of multiprocessors. Out: offset and size of every part. */
#include <string.h>

#include "runtime/select.h"
#include "runtime/size.h"
#include "runtime/workspace.h"

int64_t pisa_node_rows(const struct pisa_method *method, int64_t batch, int64_t keys) {
  enum { ROWS_OF_A_SEQUENCE = 128, ROWS_BEHIND = 32 };
  return 4 * (keys / (2 * method->key)) + ROWS_OF_A_SEQUENCE * batch + ROWS_BEHIND;
}

pisa_status pisa_pyramid_bytes(const struct pisa_method *method, const pisa_attention *call,
                               size_t *out, pisa_error *error) {
  int64_t keys, means, open;
  const int64_t row = method->head_dim, of_sequence = PISA_OPEN_LEVELS * row * 4;
  if (call->batch < 1 || call->batch > INT32_MAX || call->kv_heads < 1 || call->n_k < 1 ||
      call->n_k > PISA_MAX_TOKENS)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "batch, kv_heads and n_k must be positive, and n_k at most 2^30");
  bool fits = call->k_starts ? pisa_multiply(call->n_k, 1, &keys)
                             : pisa_multiply(call->n_k, call->batch, &keys);
  fits = fits && pisa_multiply(call->kv_heads, pisa_node_rows(method, call->batch, keys), &means) &&
         pisa_multiply(means, row * 2, &means) &&
         pisa_multiply(call->batch, call->kv_heads, &open) &&
         pisa_multiply(open, of_sequence, &open) &&
         pisa_add(pisa_round_up(means, PISA_WORKSPACE_ALIGN), open, &means);
  if (!fits)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "the pyramid of this shape exceeds the address space");
  *out = (size_t)means;
  return PISA_OK;
}

size_t pisa_open_offset(const struct pisa_method *method, const struct pisa_shape *s) {
  int64_t rows = s->kv_heads * pisa_node_rows(method, s->batch, s->keys);
  return (size_t)pisa_round_up(rows * method->head_dim * 2, PISA_WORKSPACE_ALIGN);
}

/* The means, unless the call has its own, and what the walk and the leaf stage leave. A short call
   that is dense makes no means but those of its own pyramid. */
static bool add_prefill(const struct pisa_method *m, const struct pisa_shape *s,
                        struct pisa_workspace *ws) {
  const bool selects = !s->dense, builds = selects || s->has_pyramid;
  const bool clustered = selects && pisa_is_clustered(m) && !s->is_flat;
  const bool mass = pisa_reduces_mass(m);
  const int64_t d = m->head_dim, hk = s->kv_heads, rows = hk * s->queries;
  const int64_t listed = clustered ? rows : 0, segments = clustered ? ws->segments : 0;
  const int64_t slots = pisa_score_slots((int)m->keep, m->group, mass);
  const int64_t group = pisa_method_group(m);
  return pisa_workspace_add(ws, PISA_WORKSPACE_MEANS,
                            selects && !s->has_pyramid ? hk * ws->node_rows : 0, d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_SPAN_SUMS, builds ? hk * ws->spans : 0, d, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_IMAGES, clustered ? hk * ws->leaves : 0, m->key * d,
                            2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_KEPT, listed, m->keep, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_POSITIONS, listed, m->keep, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_CLUSTER_COUNTS, segments, ws->parents, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_CLUSTER_OFFSETS, segments, ws->parents, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_ITEMS, segments, ws->item_room, 16) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_N_ITEMS, segments, 1, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_ENTRIES, segments, m->keep * ws->chunk, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_SCORES, listed, mass ? slots * group : slots, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_FORCED, mass ? listed : 0, group, 4);
}

/* Counters that lists are turned around with. */
static bool add_csr(const struct pisa_shape *s, struct pisa_workspace *ws) {
  const int64_t segments = s->has_csr ? s->kv_heads * ws->csr_segments : 0;
  return pisa_workspace_add(ws, PISA_WORKSPACE_CSR_COUNTS, segments, ws->leaves, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_CSR_BEGINS, segments, ws->leaves, 4);
}

static bool add_attention(const struct pisa_method *m, const struct pisa_shape *s,
                          struct pisa_workspace *ws) {
  const int64_t rows = s->attends ? s->kv_heads * s->queries : 0;
  const bool is_split = s->is_decode && m->dense && ws->splits > 1,
             has_lists = !s->dense && !s->has_blocks;
  return pisa_workspace_add(ws, PISA_WORKSPACE_IDS, has_lists ? rows : 0, m->keep, 4) &&
         add_csr(s, ws) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_PARTIAL, is_split ? rows * ws->splits : 0,
                            pisa_method_group(m) * (m->head_dim + 2), 4);
}

pisa_status pisa_select_layout(const struct pisa_method *method, const struct pisa_shape *s,
                               int sm_count, struct pisa_workspace *out, pisa_error *error) {
  const struct pisa_select_numbers n = pisa_select_numbers(method, s, sm_count);
  out->queries = (int32_t)s->queries;
  out->node_rows = (int32_t)n.node_rows;
  out->spans = (int32_t)n.spans;
  out->leaves = (int32_t)n.leaves;
  out->parents = (int32_t)n.parents;
  out->chunk = (int32_t)n.chunk;
  out->segments = (int32_t)n.segments;
  out->item_room = (int32_t)n.item_room;
  out->splits = (int32_t)n.splits;
  out->csr_chunk = (int32_t)n.csr_chunk;
  out->csr_segments = (int32_t)n.csr_segments;
  if ((s->is_decode || add_prefill(method, s, out)) && add_attention(method, s, out))
    return PISA_OK;
  memset(out, 0, sizeof *out);
  return pisa_fail(error, PISA_UNSUPPORTED,
                   "the workspace of this shape exceeds the address space");
}
