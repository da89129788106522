/* select_launch.c: a checked call that selects blocks, or decodes, in; its kernels onto the stream,
   with the grids of pyramid.def. All of them depend on sizes alone. */
#include "runtime/select_launch.h"

#include "runtime/enqueue.h"
#include "runtime/launch.h"
#include "runtime/select_args.h"
#include "runtime/size.h"

/* CTAs of a kernel that loops over |work|. */
static int64_t persistent(const struct pisa_job *job, enum pisa_kernel_id id, int64_t work) {
  int64_t resident = job->module->kernels[id].resident;
  return pisa_min(job->module->limits.sm_count * resident, work);
}

/* Rows of the internal arrays, R. */
static int64_t rows(const struct pisa_job *job) {
  return job->shape.kv_heads * job->shape.queries;
}

/* Queries that a CTA of attend_blocks takes. */
static int64_t attended(const struct pisa_job *job) {
  const struct pisa_method *m = job->method;
  const int warps = job->module->kernels[PISA_KERNEL_ATTEND_BLOCKS].threads / 32;
  const int group = pisa_method_group(m);
  const int each = pisa_attend_blocks_each(group, m->head_dim, m->key, m->page);
  return warps / pisa_attend_blocks_warps(group) * each;
}

/* Queries that a CTA of flat takes: heads fold into one query where scores are linear and add up.
 */
static int64_t scanned(const struct pisa_job *job) {
  bool folded = job->method->score == PISA_SCORE_MEAN && job->method->reduce == PISA_REDUCE_SUM;
  return pisa_flat_queries(pisa_method_group(job->method), folded);
}

/* Queries that a CTA of pick takes. */
static int64_t picked(const struct pisa_job *job) {
  const struct pisa_method *m = job->method;
  return pisa_pick_rows((int)m->keep, m->group, pisa_reduces_mass(m));
}

/* CTAs that take |count| queries of a key head each. */
static int64_t groups(const struct pisa_job *job, int64_t count) {
  return job->shape.kv_heads * pisa_ceil_div(job->shape.queries, count);
}

/* CTAs that merge what a query has of a key head: one, or of the many splits of all keys as many as
   fill the multiprocessors and have eight items or more each, an item being eight columns of a
   head. */
static int64_t merged(const struct pisa_job *job) {
  enum { COLUMNS = 8, LEAST_ITEMS = 8, FEW_SPLITS = 4 };
  int64_t items = pisa_method_group(job->method) * job->method->head_dim / COLUMNS;
  int64_t fill = pisa_min(job->module->limits.sm_count / rows(job), items / LEAST_ITEMS);
  return job->layout.splits > FEW_SPLITS ? pisa_max(1, fill) : 1;
}

#define ADDRESS(kind, name, meaning) &a.name,
#define ENQUEUE(KERNEL, kernel, grid)                                                              \
  static pisa_status enqueue_##kernel(const struct pisa_job *job, pisa_error *error) {             \
    const enum pisa_kernel_id id = PISA_KERNEL_##KERNEL;                                           \
    struct pisa_##kernel##_args a;                                                                 \
    void *list[] = {PISA_##KERNEL##_ARGS(ADDRESS)};                                                \
    pisa_fill_##kernel(job, &a);                                                                   \
    return pisa_enqueue(job, id, grid, job->module->kernels[id].smem_bytes, list, error);          \
  }
ENQUEUE(PYRAMID, pyramid, job->shape.kv_heads * job->layout.spans)
ENQUEUE(PYRAMID_TOP, pyramid_top, job->shape.kv_heads * job->shape.batch)
ENQUEUE(WALK, walk, persistent(job, id, rows(job)))
ENQUEUE(CLUSTER, cluster, job->layout.segments)
ENQUEUE(SCATTER, scatter, groups(job, PISA_SCATTER_ROWS))
ENQUEUE(LEAF_SCORE, leaf_score,
        persistent(job, id, (int64_t)job->layout.segments * job->layout.item_room))
ENQUEUE(PICK, pick, groups(job, picked(job)))
ENQUEUE(FLAT, flat, groups(job, scanned(job)))
ENQUEUE(CSR_COUNT, csr_count, job->shape.kv_heads * job->layout.csr_segments)
ENQUEUE(CSR_SCAN, csr_scan, job->shape.kv_heads)
ENQUEUE(CSR_FILL, csr_fill, job->shape.kv_heads * job->layout.csr_segments)
ENQUEUE(ATTEND_BLOCKS, attend_blocks, groups(job, attended(job)))
ENQUEUE(APPEND, append, job->shape.kv_heads * job->shape.batch)
ENQUEUE(DECODE_ATTEND, decode_attend, rows(job) * job->layout.splits)
ENQUEUE(DECODE_MERGE, decode_merge, rows(job) * merged(job))

/* The kernel decode, in clusters of the splits of a query; without attention no outputs of it.
   |beside|: right behind append. */
static pisa_status enqueue_decode(const struct pisa_job *job, bool attends, bool beside,
                                  pisa_error *error) {
  struct pisa_decode_args a;
  void *list[] = {PISA_DECODE_ARGS(ADDRESS)};
  pisa_fill_decode(job, &a);
  a.beside = beside;
  if (!attends) {
    a.o = 0;
    a.splits = 1;
  }
  return pisa_enqueue_clusters(job, PISA_KERNEL_DECODE, rows(job) * a.splits, a.splits,
                               job->module->kernels[PISA_KERNEL_DECODE].smem_bytes, list, error);
}

pisa_status pisa_select_launch(const struct pisa_job *job, unsigned kernels, pisa_error *error) {
  const bool prefill = !job->shape.is_decode, attends = job->shape.attends;
  const bool selects = !job->shape.dense, builds = prefill && (selects || job->shape.has_pyramid);
  const bool walks = prefill && selects && !job->shape.is_flat;
  const bool clustered = walks && pisa_is_clustered(job->method);
  const bool decodes = !prefill && selects, reads_all = !prefill && job->method->dense;
  const bool joint = attends && (kernels & PISA_LAUNCH_DECODE_ATTEND);
  const bool appends = !prefill && job->call.n_new > 0 && (kernels & PISA_LAUNCH_APPEND);
  const struct {
    bool present;
    unsigned bit;
    pisa_status (*enqueue)(const struct pisa_job *job, pisa_error *error);
  } steps[] = {
      {builds, PISA_LAUNCH_PYRAMID, enqueue_pyramid},
      {builds, PISA_LAUNCH_PYRAMID_TOP, enqueue_pyramid_top},
      {walks, PISA_LAUNCH_WALK, enqueue_walk},
      {clustered, PISA_LAUNCH_CLUSTER, enqueue_cluster},
      {clustered, PISA_LAUNCH_SCATTER, enqueue_scatter},
      {clustered, PISA_LAUNCH_LEAF_SCORE, enqueue_leaf_score},
      {clustered, PISA_LAUNCH_PICK, enqueue_pick},
      {prefill && selects && !walks, PISA_LAUNCH_FLAT, enqueue_flat},
      {job->shape.has_csr, PISA_LAUNCH_CSR_COUNT, enqueue_csr_count},
      {job->shape.has_csr, PISA_LAUNCH_CSR_SCAN, enqueue_csr_scan},
      {job->shape.has_csr, PISA_LAUNCH_CSR_FILL, enqueue_csr_fill},
      {prefill && selects && attends, PISA_LAUNCH_ATTEND_BLOCKS, enqueue_attend_blocks},
      {appends, PISA_LAUNCH_APPEND, enqueue_append},
      {reads_all && attends, PISA_LAUNCH_DECODE_ATTEND, enqueue_decode_attend},
      {reads_all && attends && job->layout.splits > 1, PISA_LAUNCH_DECODE_MERGE,
       enqueue_decode_merge},
  };
  pisa_status status = PISA_OK;
  for (size_t i = 0; i < sizeof steps / sizeof *steps && !status; i++)
    if (steps[i].present && (kernels & steps[i].bit))
      status = steps[i].enqueue(job, error);
  if (!status && decodes && (kernels & PISA_LAUNCH_DECODE))
    status = enqueue_decode(job, joint, appends, error);
  return status;
}
