/* select_args.c: fills the parameters of the kernels of block selection (pyramid.def). In: a
   checked call, its sizes and its workspace. Out: one struct per kernel. */
#include "runtime/select_args.h"

#include "runtime/limits.h"
#include "runtime/tensor_map.h"

/* ---- what they share ---- */

static CUdeviceptr address(const void *memory) {
  return (CUdeviceptr)(uintptr_t)memory;
}

/* 0 for a part that the call does not have. */
static CUdeviceptr part(const struct pisa_job *job, enum pisa_workspace_id id) {
  return job->layout.parts[id].size ? address(job->workspace + job->layout.parts[id].offset) : 0;
}

/* The call's own pyramid, or that in the workspace. */
static CUdeviceptr means(const struct pisa_job *job) {
  return job->call.pyramid ? address(job->call.pyramid) : part(job, PISA_WORKSPACE_MEANS);
}

static CUdeviceptr open_sums(const struct pisa_job *job) {
  if (!job->call.pyramid)
    return 0;
  return address(job->call.pyramid) + pisa_open_offset(job->method, &job->shape);
}

/* Where lists are written and read. */
static CUdeviceptr ids(const struct pisa_job *job) {
  return job->call.blocks ? address(job->call.blocks) : part(job, PISA_WORKSPACE_IDS);
}

#define SEQUENCE(job)                                                                              \
  .batch = (int32_t)(job)->shape.batch, .kv_heads = (int32_t)(job)->shape.kv_heads,                \
  .n_q = (int32_t)(job)->shape.n_q, .n_k = (int32_t)(job)->shape.n_k,                              \
  .queries = (job)->layout.queries, .node_rows = (job)->layout.node_rows,                          \
  .q_starts = address((job)->call.q_starts), .k_starts = address((job)->call.k_starts),            \
  .lengths = address((job)->call.k_lengths), .pages = address((job)->call.pages),                  \
  .page_columns = (int32_t)(job)->call.page_columns

/* Elements have 2 bytes. The stride of a dimension of one element may be anything, so it is not
   passed on; pages are any number. */
static int64_t step(int64_t extent, int64_t stride) {
  return extent > 1 ? 2 * stride : 0;
}

static int64_t batches(const struct pisa_job *job) {
  return job->shape.is_packed ? 1 : job->shape.batch;
}

static int64_t k_batches(const struct pisa_job *job) {
  return job->method->page ? INT64_MAX : batches(job);
}

#define STRIDES(name, tensor, batch, heads, rows)                                                  \
  .name = address((tensor).data), .name##_batch = step(batch, (tensor).stride[0]),                 \
  .name##_head = step(heads, (tensor).stride[1]), .name##_token = step(rows, (tensor).stride[2])
#define OF_Q(job, name)                                                                            \
  STRIDES(name, (job)->call.name, batches(job), (job)->shape.heads, (job)->shape.n_q)
#define OF_K(job, name)                                                                            \
  STRIDES(name, (job)->call.name, k_batches(job), (job)->shape.kv_heads, (job)->shape.n_k)

/* ---- prefill ---- */

void pisa_fill_pyramid(const struct pisa_job *job, struct pisa_pyramid_args *args) {
  *args = (struct pisa_pyramid_args){
      SEQUENCE(job),
      OF_K(job, k),
      .means = means(job),
      .span_sums = part(job, PISA_WORKSPACE_SPAN_SUMS),
      .open = open_sums(job),
      .images = part(job, PISA_WORKSPACE_IMAGES),
      .spans = job->layout.spans,
      .leaves = job->layout.leaves,
      .zeros = part(job, PISA_WORKSPACE_CLUSTER_COUNTS),
      .n_zeros = (int32_t)(job->layout.parts[PISA_WORKSPACE_CLUSTER_COUNTS].size / 4),
  };
}

void pisa_fill_pyramid_top(const struct pisa_job *job, struct pisa_pyramid_top_args *args) {
  *args = (struct pisa_pyramid_top_args){
      SEQUENCE(job),
      .means = means(job),
      .span_sums = part(job, PISA_WORKSPACE_SPAN_SUMS),
      .open = open_sums(job),
      .spans = job->layout.spans,
  };
}

void pisa_fill_walk(const struct pisa_job *job, struct pisa_walk_args *args) {
  *args = (struct pisa_walk_args){
      SEQUENCE(job),
      OF_Q(job, q),
      OF_K(job, k),
      .means = means(job),
      .kept = part(job, PISA_WORKSPACE_KEPT),
      .positions = part(job, PISA_WORKSPACE_POSITIONS),
      .counts = part(job, PISA_WORKSPACE_CLUSTER_COUNTS),
      .forced = part(job, PISA_WORKSPACE_FORCED),
      .ids = job->method->fused ? ids(job) : 0,
      .worth = job->method->fused ? address(job->call.worth) : 0,
      .chunk = job->layout.chunk,
      .parents = job->layout.parents,
      .scale = job->shape.scale,
  };
}

void pisa_fill_cluster(const struct pisa_job *job, struct pisa_cluster_args *args) {
  *args = (struct pisa_cluster_args){
      SEQUENCE(job),
      .counts = part(job, PISA_WORKSPACE_CLUSTER_COUNTS),
      .offsets = part(job, PISA_WORKSPACE_CLUSTER_OFFSETS),
      .items = part(job, PISA_WORKSPACE_ITEMS),
      .n_items = part(job, PISA_WORKSPACE_N_ITEMS),
      .chunk = job->layout.chunk,
      .parents = job->layout.parents,
      .item_room = job->layout.item_room,
  };
}

void pisa_fill_scatter(const struct pisa_job *job, struct pisa_scatter_args *args) {
  *args = (struct pisa_scatter_args){
      SEQUENCE(job),
      .kept = part(job, PISA_WORKSPACE_KEPT),
      .positions = part(job, PISA_WORKSPACE_POSITIONS),
      .offsets = part(job, PISA_WORKSPACE_CLUSTER_OFFSETS),
      .entries = part(job, PISA_WORKSPACE_ENTRIES),
      .chunk = job->layout.chunk,
      .parents = job->layout.parents,
  };
}

void pisa_fill_leaf_score(const struct pisa_job *job, struct pisa_leaf_score_args *args) {
  *args = (struct pisa_leaf_score_args){
      SEQUENCE(job),
      OF_Q(job, q),
      .images = part(job, PISA_WORKSPACE_IMAGES),
      .items = part(job, PISA_WORKSPACE_ITEMS),
      .n_items = part(job, PISA_WORKSPACE_N_ITEMS),
      .entries = part(job, PISA_WORKSPACE_ENTRIES),
      .scores = part(job, PISA_WORKSPACE_SCORES),
      .segments = job->layout.segments,
      .chunk = job->layout.chunk,
      .item_room = job->layout.item_room,
      .leaves = job->layout.leaves,
      .scale = job->shape.scale,
  };
}

void pisa_fill_pick(const struct pisa_job *job, struct pisa_pick_args *args) {
  *args = (struct pisa_pick_args){
      SEQUENCE(job),
      .kept = part(job, PISA_WORKSPACE_KEPT),
      .scores = part(job, PISA_WORKSPACE_SCORES),
      .forced = part(job, PISA_WORKSPACE_FORCED),
      .ids = ids(job),
      .worth = address(job->call.worth),
  };
}

void pisa_fill_flat(const struct pisa_job *job, struct pisa_flat_args *args) {
  *args = (struct pisa_flat_args){
      SEQUENCE(job),
      OF_Q(job, q),
      OF_K(job, k),
      .means = means(job),
      .ids = ids(job),
      .worth = address(job->call.worth),
      .scale = job->shape.scale,
  };
}

void pisa_fill_csr_count(const struct pisa_job *job, struct pisa_csr_count_args *args) {
  *args = (struct pisa_csr_count_args){
      SEQUENCE(job),
      .ids = ids(job),
      .counts = part(job, PISA_WORKSPACE_CSR_COUNTS),
      .chunk = job->layout.csr_chunk,
      .leaves = job->layout.leaves,
  };
}

void pisa_fill_csr_scan(const struct pisa_job *job, struct pisa_csr_scan_args *args) {
  *args = (struct pisa_csr_scan_args){
      SEQUENCE(job),
      .counts = part(job, PISA_WORKSPACE_CSR_COUNTS),
      .begins = part(job, PISA_WORKSPACE_CSR_BEGINS),
      .offsets = address(job->call.csr_offsets),
      .segments = job->layout.csr_segments,
      .leaves = job->layout.leaves,
  };
}

void pisa_fill_csr_fill(const struct pisa_job *job, struct pisa_csr_fill_args *args) {
  *args = (struct pisa_csr_fill_args){
      SEQUENCE(job),
      .ids = ids(job),
      .begins = part(job, PISA_WORKSPACE_CSR_BEGINS),
      .members = address(job->call.csr_queries),
      .chunk = job->layout.csr_chunk,
      .leaves = job->layout.leaves,
  };
}

pisa_status pisa_select_encode(struct pisa_job *job, pisa_error *error) {
  const struct pisa_shape *s = &job->shape;
  const struct {
    const char *name;
    const pisa_tensor *tensor;
    CUtensorMap *out;
  } arrays[] = {{"k", &job->call.k, &job->k}, {"v", &job->call.v, &job->v}};
  const struct pisa_method *m = job->method;
  if (s->is_decode || s->dense || !s->attends ||
      !pisa_attends_in_tiles(pisa_method_group(m), m->head_dim, m->key, m->page))
    return PISA_OK;
  pisa_status status = pisa_limits_strides(&job->call, s, error);
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !status; i++) {
    const int64_t *stride = arrays[i].tensor->stride;
    const struct pisa_map map = {arrays[i].name,
                                 arrays[i].tensor->data,
                                 m->type,
                                 {batches(job), s->kv_heads, s->n_k, m->head_dim},
                                 {stride[0], stride[1], stride[2]}};
    status = pisa_map_encode(job->module->cuda, &map, arrays[i].out, error);
  }
  return status;
}

void pisa_fill_attend_blocks(const struct pisa_job *job, struct pisa_attend_blocks_args *args) {
  *args = (struct pisa_attend_blocks_args){
      SEQUENCE(job),
      OF_Q(job, q),
      OF_K(job, k),
      OF_K(job, v),
      OF_Q(job, o),
      .lists = ids(job),
      .width = (int32_t)job->method->keep,
      .lse = address(job->call.lse),
      .scale = job->shape.scale,
      .k_map = job->k,
      .v_map = job->v,
  };
}

/* ---- decode ---- */

void pisa_fill_append(const struct pisa_job *job, struct pisa_append_args *args) {
  *args = (struct pisa_append_args){
      SEQUENCE(job),
      OF_K(job, k),
      .means = means(job),
      .open = open_sums(job),
      .n_new = (int32_t)job->call.n_new,
      .completed = job->call.append_completed != 0,
  };
}

void pisa_fill_decode(const struct pisa_job *job, struct pisa_decode_args *args) {
  *args = (struct pisa_decode_args){
      SEQUENCE(job),
      OF_Q(job, q),
      OF_K(job, k),
      .means = means(job),
      .ids = ids(job),
      .worth = address(job->call.worth),
      .scale = job->shape.scale,
      OF_K(job, v),
      OF_Q(job, o),
      .lse = address(job->call.lse),
      .splits = job->shape.attends ? job->layout.splits : 1,
  };
}

void pisa_fill_decode_attend(const struct pisa_job *job, struct pisa_decode_attend_args *args) {
  *args = (struct pisa_decode_attend_args){
      SEQUENCE(job),
      OF_Q(job, q),
      OF_K(job, k),
      OF_K(job, v),
      OF_Q(job, o),
      .splits = job->layout.splits,
      .partial = part(job, PISA_WORKSPACE_PARTIAL),
      .lse = address(job->call.lse),
      .scale = job->shape.scale,
  };
}

void pisa_fill_decode_merge(const struct pisa_job *job, struct pisa_decode_merge_args *args) {
  *args = (struct pisa_decode_merge_args){
      SEQUENCE(job),
      OF_Q(job, o),
      .splits = job->layout.splits,
      .partial = part(job, PISA_WORKSPACE_PARTIAL),
      .lse = address(job->call.lse),
  };
}
