/* workspace.c: lays out the workspace. In: sizes of the call and the number of multiprocessors.
   Out: offset and size of every part, and the padded row lengths that the kernels get as
   parameters. */
#include "runtime/workspace.h"

#include <string.h>

#include "runtime/select.h"
#include "runtime/size.h"

enum {
  ROUTE_ROWS = 16, /* query blocks that one CTA of the route kernel takes */
  LIST_PAD = 8,    /* entries behind a list that attend's look-ahead may read */
  NORM_PARTS = 8   /* partial sums of ||H_j||^2 or tr C_j, one per warp */
};

const char *const pisa_workspace_names[PISA_N_WORKSPACE_PARTS] = {
    "q_mean",     "k_mean",     "v_mean",  "h_norm2",   "h_part",         "h_sum",
    "k_variance", "lists",      "masks",   "counts",    "shared",         "means",
    "span_sums",  "images",     "kept",    "positions", "cluster_counts", "cluster_offsets",
    "items",      "n_items",    "entries", "scores",    "forced",         "ids",
    "csr_counts", "csr_begins", "partial"};

bool pisa_workspace_add(struct pisa_workspace *ws, enum pisa_workspace_id id, int64_t rows,
                        int64_t columns, int64_t bytes) {
  int64_t size, end;
  if (!pisa_multiply(rows, columns, &size) || !pisa_multiply(size, bytes, &size) ||
      !pisa_add((int64_t)ws->bytes, size, &end) || end > INT64_MAX - PISA_WORKSPACE_ALIGN)
    return false;
  ws->parts[id].offset = ws->bytes;
  ws->parts[id].size = (size_t)size;
  ws->bytes = (size_t)pisa_round_up(end, PISA_WORKSPACE_ALIGN);
  return true;
}

static bool add_parts(const struct pisa_method *method, const struct pisa_shape *s,
                      struct pisa_workspace *ws) {
  const int64_t d = method->head_dim, means = s->bh_k * s->nt;
  const int64_t v_rows = pisa_wants_v_mean(method) ? means : 0;
  const int64_t variance_rows = pisa_wants_k_variance(method) ? means : 0;
  const int64_t norm_rows = pisa_wants_block_norm(method) ? means : 0;
  const int64_t part_slots = pisa_wants_h_part(method) ? s->bh_k + ws->stat_ctas - 1 : 0;
  const int64_t sum_slots = pisa_wants_h_sum(method) ? s->bh_k : 0;
  const int64_t pairs = method->union_lists ? s->bh * pisa_ceil_div(s->nt_q, 2) : 0;
  const int64_t list_rows = s->bh * s->nt_q; /* fits: limits.h */
  return pisa_workspace_add(ws, PISA_WORKSPACE_Q_MEAN, s->bh * s->nq_s, d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_K_MEAN, means, d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_V_MEAN, v_rows, d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_H_NORM2, norm_rows, NORM_PARTS, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_H_PART, part_slots, d * d, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_H_SUM, sum_slots, d * d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_K_VARIANCE, variance_rows, d, 2) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_LISTS, list_rows, ws->list_stride, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_MASKS, list_rows, ws->mask_words, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_COUNTS, list_rows, 1, 4) &&
         pisa_workspace_add(ws, PISA_WORKSPACE_SHARED, pairs, 1, 4);
}

/* With taylor_1 all other blocks follow those of the list. */
static int64_t list_entries(const struct pisa_method *method, const struct pisa_shape *s) {
  return method->tail == PISA_TAIL_TAYLOR_1 ? s->nt : s->kept;
}

pisa_status pisa_workspace_layout(const struct pisa_method *method, const struct pisa_shape *s,
                                  int sm_count, struct pisa_workspace *out, pisa_error *error) {
  memset(out, 0, sizeof *out);
  if (method->family == PISA_PYRAMID || s->is_decode)
    return pisa_select_layout(method, s, sm_count, out, error);
  if (s->dense)
    return PISA_OK;
  out->stat_blocks = (int32_t)s->vb;
  out->stat_ctas = (int32_t)pisa_min(sm_count, s->bh_k * s->vb);
  out->row_tiles = (int32_t)pisa_ceil_div(s->nt_q, ROUTE_ROWS);
  out->list_stride = (int32_t)pisa_round_up(list_entries(method, s) + LIST_PAD, 4);
  out->mask_words = (int32_t)(4 * pisa_ceil_div(s->nt, 128));
  if (add_parts(method, s, out))
    return PISA_OK;
  memset(out, 0, sizeof *out);
  return pisa_fail(error, PISA_UNSUPPORTED,
                   "the workspace of this shape exceeds the address space");
}
