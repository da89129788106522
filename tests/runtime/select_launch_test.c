/* select_launch_test.c: which kernels a call that selects blocks enqueues, with which grids and
   parameters: docs/ABI.md and runtime/pyramid.def, written down once more. In: calls on the fake
   driver. Out: a failed check for everything that was recorded otherwise. */
#include "runtime/launch.h"

#include <math.h>
#include <string.h>

#include "tests/runtime/check.h"
#include "tests/runtime/select_calls.h"

#define SIZES "leaf=64 group=2 page=0"
#define FUSED "pyramid score=lse reduce=sum keep=8 start=0 leaf_stage=fused query_tile=4"
#define FLAT "flat score=mean reduce=sum keep=8 start=0 leaf_stage=fused query_tile=4"
#define MASS "pyramid score=lse reduce=mass keep=8 start=0 leaf_stage=clustered query_tile=4"

static pisa_error error;

static int64_t pointer(const void *memory) {
  return (int64_t)(uintptr_t)memory;
}

/* What all kernels begin with. */
static void check_sequence(const struct fake_launch *l, const pisa_attention *call,
                           const struct layout *w) {
  CHECK_INT(whole(l, PISA_SEQUENCE_batch), call->batch);
  CHECK_INT(whole(l, PISA_SEQUENCE_kv_heads), KV_HEADS);
  CHECK_INT(whole(l, PISA_SEQUENCE_n_q), call->n_q);
  CHECK_INT(whole(l, PISA_SEQUENCE_n_k), call->n_k);
  CHECK_INT(whole(l, PISA_SEQUENCE_queries), w->queries);
  CHECK_INT(whole(l, PISA_SEQUENCE_node_rows), w->node_rows);
  CHECK_INT(whole(l, PISA_SEQUENCE_q_starts), pointer(call->q_starts));
  CHECK_INT(whole(l, PISA_SEQUENCE_k_starts), pointer(call->k_starts));
  CHECK_INT(whole(l, PISA_SEQUENCE_lengths), pointer(call->k_lengths));
  CHECK_INT(whole(l, PISA_SEQUENCE_pages), pointer(call->pages));
  CHECK_INT(whole(l, PISA_SEQUENCE_page_columns), call->page_columns);
}

/* A kernel of the sample pack. */
static const struct fake_launch *next(int *i, const char *entry, int64_t grid,
                                      const pisa_attention *call, const struct layout *w) {
  const struct fake_launch *l = fake->launch((*i)++);
  if (!l || strcmp(l->entry, entry)) {
    CHECK(l && !strcmp(l->entry, entry)); /* the kernel that is expected here */
    return NULL;
  }
  CHECK_INT(l->grid[0], grid);
  CHECK(l->grid[1] == 1 && l->grid[2] == 1 && l->block[1] == 1 && l->block[2] == 1);
  CHECK(l->overlaps && l->stream == address(9));
  check_sequence(l, call, w);
  return l;
}

/* Bytes; 0 along a dimension of one element. |batch| 0: any number of pages. */
static void check_array(const struct fake_launch *l, int at, const pisa_tensor *tensor,
                        int64_t batch, int64_t heads, int64_t rows) {
  CHECK_INT(whole(l, at), pointer(tensor->data));
  CHECK_INT(whole(l, at + 1), batch == 1 ? 0 : 2 * tensor->stride[0]);
  CHECK_INT(whole(l, at + 2), heads == 1 ? 0 : 2 * tensor->stride[1]);
  CHECK_INT(whole(l, at + 3), rows == 1 ? 0 : 2 * tensor->stride[2]);
}

#define ARRAY(KERNEL, name, batch, heads, rows)                                                    \
  check_array(l, PISA_##KERNEL##_##name, &call->name, batch, heads, rows)
#define IS(KERNEL, name, value) CHECK_INT(whole(l, PISA_##KERNEL##_##name), value)

static void check_scale(const struct fake_launch *l, int at) {
  CHECK(fabs(l->params[at].real - 0.125) < 1e-9);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void check_build(int *i, const pisa_attention *call, const struct layout *w, int64_t batch) {
  const int64_t means = call->pyramid ? pointer(call->pyramid) : w->means;
  const int64_t rows = ceil_div(KV_HEADS * w->node_rows * DIM * 2, 256) * 256;
  const int64_t open = call->pyramid ? means + rows : 0;
  const struct fake_launch *l = next(i, "pisa_pyramid", KV_HEADS * w->spans, call, w);
  ARRAY(PYRAMID, k, batch, KV_HEADS, call->n_k);
  IS(PYRAMID, means, means);
  IS(PYRAMID, span_sums, w->span_sums);
  IS(PYRAMID, open, open);
  IS(PYRAMID, images, w->images);
  IS(PYRAMID, spans, w->spans);
  IS(PYRAMID, leaves, w->leaves);
  IS(PYRAMID, zeros, w->counts);
  IS(PYRAMID, n_zeros, w->counts ? w->segments * w->parents : 0);
  l = next(i, "pisa_pyramid_top", KV_HEADS * call->batch, call, w);
  IS(PYRAMID_TOP, means, means);
  IS(PYRAMID_TOP, span_sums, w->span_sums);
  IS(PYRAMID_TOP, spans, w->spans);
  IS(PYRAMID_TOP, open, open);
}

static void check_clusters(int *i, const pisa_attention *call, const struct layout *w, int64_t ids,
                           int64_t batch) {
  const struct fake_launch *l = next(i, "pisa_cluster", w->segments, call, w);
  IS(CLUSTER, counts, w->counts);
  IS(CLUSTER, offsets, w->offsets);
  IS(CLUSTER, items, w->items);
  IS(CLUSTER, n_items, w->n_items);
  IS(CLUSTER, chunk, w->chunk);
  IS(CLUSTER, parents, w->parents);
  IS(CLUSTER, item_room, w->item_room);
  l = next(i, "pisa_scatter", KV_HEADS * ceil_div(w->queries, PISA_SCATTER_ROWS), call, w);
  IS(SCATTER, kept, w->kept);
  IS(SCATTER, positions, w->positions);
  IS(SCATTER, offsets, w->offsets);
  IS(SCATTER, entries, w->entries);
  IS(SCATTER, chunk, w->chunk);
  IS(SCATTER, parents, w->parents);
  l = next(i, "pisa_leaf_score", SMS, call, w); /* 132000 bytes: one CTA on each */
  ARRAY(LEAF_SCORE, q, batch, HEADS, call->n_q);
  IS(LEAF_SCORE, images, w->images);
  IS(LEAF_SCORE, items, w->items);
  IS(LEAF_SCORE, n_items, w->n_items);
  IS(LEAF_SCORE, entries, w->entries);
  IS(LEAF_SCORE, scores, w->scores);
  IS(LEAF_SCORE, segments, w->segments);
  IS(LEAF_SCORE, chunk, w->chunk);
  IS(LEAF_SCORE, item_room, w->item_room);
  IS(LEAF_SCORE, leaves, w->leaves);
  check_scale(l, PISA_LEAF_SCORE_scale);
  const int picked = pisa_pick_rows(K, 2, w->forced != 0);
  l = next(i, "pisa_pick", KV_HEADS * ceil_div(w->queries, picked), call, w);
  IS(PICK, kept, w->kept);
  IS(PICK, scores, w->scores);
  IS(PICK, forced, w->forced);
  IS(PICK, ids, ids);
  IS(PICK, worth, pointer(call->worth));
}

static void check_walk(int *i, const pisa_attention *call, const struct layout *w, int64_t ids,
                       int64_t batch) {
  const bool fused = !w->kept;
  const struct fake_launch *l = next(i, "pisa_walk", least(3 * SMS, w->rows), call, w);
  ARRAY(WALK, q, batch, HEADS, call->n_q);
  ARRAY(WALK, k, batch, KV_HEADS, call->n_k);
  IS(WALK, means, call->pyramid ? pointer(call->pyramid) : w->means);
  IS(WALK, kept, w->kept);
  IS(WALK, positions, w->positions);
  IS(WALK, counts, w->counts);
  IS(WALK, forced, w->forced);
  IS(WALK, ids, fused ? ids : 0);
  IS(WALK, worth, fused ? pointer(call->worth) : 0);
  IS(WALK, chunk, w->chunk);
  IS(WALK, parents, w->parents);
  check_scale(l, PISA_WALK_scale);
}

/* |queries| of a CTA: 128 where heads fold, else 16 heads are the rows of one. */
static void check_flat(int *i, const pisa_attention *call, const struct layout *w, int64_t ids,
                       int64_t batch, int64_t queries) {
  const struct fake_launch *l =
      next(i, "pisa_flat", KV_HEADS * ceil_div(w->queries, queries), call, w);
  ARRAY(FLAT, q, batch ? batch : call->batch, HEADS, call->n_q);
  ARRAY(FLAT, k, batch, KV_HEADS, call->n_k);
  IS(FLAT, means, call->pyramid ? pointer(call->pyramid) : w->means);
  IS(FLAT, ids, ids);
  IS(FLAT, worth, pointer(call->worth));
  check_scale(l, PISA_FLAT_scale);
}

static void check_csr(int *i, const pisa_attention *call, const struct layout *w, int64_t ids) {
  const struct fake_launch *l = next(i, "pisa_csr_count", KV_HEADS * w->csr_segments, call, w);
  IS(CSR_COUNT, ids, ids);
  IS(CSR_COUNT, counts, w->csr_counts);
  IS(CSR_COUNT, chunk, w->csr_chunk);
  IS(CSR_COUNT, leaves, w->leaves);
  l = next(i, "pisa_csr_scan", KV_HEADS, call, w);
  IS(CSR_SCAN, counts, w->csr_counts);
  IS(CSR_SCAN, begins, w->csr_begins);
  IS(CSR_SCAN, offsets, pointer(call->csr_offsets));
  IS(CSR_SCAN, segments, w->csr_segments);
  IS(CSR_SCAN, leaves, w->leaves);
  l = next(i, "pisa_csr_fill", KV_HEADS * w->csr_segments, call, w);
  IS(CSR_FILL, ids, ids);
  IS(CSR_FILL, begins, w->csr_begins);
  IS(CSR_FILL, members, pointer(call->csr_queries));
  IS(CSR_FILL, chunk, w->csr_chunk);
  IS(CSR_FILL, leaves, w->leaves);
}

/* Boxes of k or v; none with pages. */
static void check_boxes(const struct fake_launch *l, int at, const pisa_tensor *tensor,
                        int64_t batch, int64_t rows, bool pages) {
  const struct fake_map *map = &l->params[at].map;
  CHECK_INT((long long)map->address, pages ? 0 : pointer(tensor->data));
  CHECK(pages || (map->rank == 4 && map->extents[0] == DIM));
  CHECK(pages || (map->extents[1] == (uint64_t)rows && map->extents[2] == KV_HEADS));
  CHECK(pages || map->extents[3] == (uint64_t)batch);
  CHECK(pages || rows == 1 || map->strides[0] == 2 * (uint64_t)tensor->stride[2]);
}

static void check_attend(int *i, const pisa_attention *call, const struct layout *w, int64_t ids,
                         int64_t batch) {
  const struct fake_launch *l =
      next(i, "pisa_attend_blocks", KV_HEADS * ceil_div(w->queries, 8), call, w);
  ARRAY(ATTEND_BLOCKS, q, batch, HEADS, call->n_q);
  ARRAY(ATTEND_BLOCKS, k, batch, KV_HEADS, call->n_k);
  ARRAY(ATTEND_BLOCKS, v, batch, KV_HEADS, call->n_k);
  ARRAY(ATTEND_BLOCKS, o, batch, HEADS, call->n_q);
  IS(ATTEND_BLOCKS, lists, ids);
  IS(ATTEND_BLOCKS, width, K);
  IS(ATTEND_BLOCKS, lse, pointer(call->lse));
  check_scale(l, PISA_ATTEND_BLOCKS_scale);
  check_boxes(l, PISA_ATTEND_BLOCKS_k_map, &call->k, batch, call->n_k, call->pages);
  check_boxes(l, PISA_ATTEND_BLOCKS_v_map, &call->v, batch, call->n_k, call->pages);
}

enum way { CLUSTERED, CLUSTERED_MASS, FUSED_WALK, FLAT_SCAN, FLAT_FOLDED };

static void launch_call(const pisa_module *module, const pisa_attention *call, size_t wanted) {
  size_t bytes = 0;
  CHECK_OK(pisa_workspace_size(module, call, &bytes, &error), error);
  CHECK_INT((long long)bytes, (long long)wanted);
  fake->reset();
  CHECK_OK(pisa_launch(module, call, address(7), bytes, address(9), &error), error);
  const long long maps = fake->calls("cuTensorMapEncodeTiled"), two = call->o.data && !call->pages;
  CHECK(maps == 0 || (maps == 2 && two));
  CHECK_INT(fake->calls(NULL),
            fake->calls("cuLaunchKernelEx") + fake->calls("cuCtxGetCurrent") + maps);
}

static void check_prefill(const pisa_module *module, const pisa_attention *call, enum way way) {
  const bool clustered = way <= CLUSTERED_MASS;
  const struct layout w = lay_out(call, clustered, way == CLUSTERED_MASS);
  const int64_t batch = call->q_starts ? 1 : call->batch;
  const int64_t ids = call->blocks ? pointer(call->blocks) : w.ids;
  int i = 0;
  launch_call(module, call, w.bytes);
  check_build(&i, call, &w, call->pages ? 0 : batch);
  if (way >= FLAT_SCAN)
    check_flat(&i, call, &w, ids, call->pages ? 0 : batch, way == FLAT_FOLDED ? 128 : 8);
  else
    check_walk(&i, call, &w, ids, batch);
  if (clustered)
    check_clusters(&i, call, &w, ids, batch);
  if (call->csr_offsets)
    check_csr(&i, call, &w, ids);
  if (call->o.data)
    check_attend(&i, call, &w, ids, batch);
  CHECK_INT(fake->n_launches(), i);
}

static void check_ways(void) {
  static const struct {
    const char *select, *below;
    int64_t batch, n_q, n_k;
    enum way way;
  } cases[] = {
      {NULL, NULL, 1, 4096, 4096, CLUSTERED},
      {NULL, NULL, 3, 10, 100000, CLUSTERED},
      {NULL, NULL, 1, 1 << 18, 1 << 18, CLUSTERED},
      {NULL, NULL, 2, 1, 1, CLUSTERED},
      {MASS, NULL, 2, 300, 5000, CLUSTERED_MASS},
      {FUSED, NULL, 2, 300, 5000, FUSED_WALK},
      {FLAT, NULL, 2, 3000, 5000, FLAT_FOLDED},
      {NULL, "below tokens=5000 use=flat\n", 2, 300, 5000, CLUSTERED},
      {NULL, "below tokens=5000 use=flat\n", 2, 300, 4999, FLAT_SCAN},
      {FUSED, "below tokens=5000 use=flat\n", 2, 300, 1, FLAT_SCAN},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_module *module = load_module(&(struct sample_spec){
        .pyramid = SIZES, .select = cases[i].select, .below = cases[i].below});
    pisa_attention call = call_of(cases[i].batch, cases[i].n_q, cases[i].n_k);
    check_prefill(module, &call, cases[i].way);
    call.csr_offsets = address(14);
    call.csr_queries = address(15);
    check_prefill(module, &call, cases[i].way);
    call.lse = address(5);
    call.blocks = address(6);
    call.worth = address(12);
    call.k_lengths = address(8);
    check_prefill(module, &call, cases[i].way);
    call.pyramid = address(13);
    call.lse = NULL;
    call.o = call.v = (pisa_tensor){0};
    check_prefill(module, &call, cases[i].way);
    pisa_module_unload(module);
  }
}

static void check_packed(void) {
  pisa_module *module = load_module(&(struct sample_spec){.pyramid = SIZES});
  pisa_attention call = call_of(5, 3000, 20000);
  call.q_starts = address(8);
  call.k_starts = address(11);
  call.q.stride[0] = -1; /* not used */
  call.csr_offsets = address(14);
  call.csr_queries = address(15);
  check_prefill(module, &call, CLUSTERED);
  call.pyramid = address(13);
  check_prefill(module, &call, CLUSTERED);
  pisa_module_unload(module);
}

static void check_pages(void) {
  pisa_module *module =
      load_module(&(struct sample_spec){.pyramid = "leaf=64 group=2 page=16", .select = FLAT});
  pisa_attention call = call_of(1, 30, 320);
  call.pages = address(8);
  call.page_columns = 20;
  call.k.stride[0] = call.v.stride[0] = 16 * KV_HEADS * DIM; /* used, though B is 1 */
  call.o.data = NULL;
  call.blocks = address(6);
  check_prefill(module, &call, FLAT_FOLDED);
  pisa_module_unload(module);
}

/* ---- decode ---- */

static void check_decode(const pisa_module *module, const pisa_attention *call, int64_t splits) {
  const struct layout w = lay_out(call, false, false);
  const int64_t ids = call->blocks ? pointer(call->blocks) : w.ids;
  const struct fake_launch *l;
  int i = 0;
  launch_call(module, call, w.bytes);
  if (call->n_new > 0) {
    l = next(&i, "pisa_append", KV_HEADS * call->batch, call, &w);
    ARRAY(APPEND, k, call->batch, KV_HEADS, call->n_k);
    IS(APPEND, means, pointer(call->pyramid));
    IS(APPEND, open,
       pointer(call->pyramid) + ceil_div(KV_HEADS * w.node_rows * DIM * 2, 256) * 256);
    IS(APPEND, n_new, call->n_new);
    IS(APPEND, completed, call->append_completed);
  }
  const bool attends = call->o.data != NULL;
  const int64_t clusters = attends ? splits : 1;
  l = next(&i, "pisa_decode", w.rows * clusters, call, &w);
  CHECK_INT(l->cluster, clusters);
  IS(DECODE, splits, clusters);
  IS(DECODE, beside, call->n_new > 0);
  ARRAY(DECODE, q, call->batch, HEADS, call->n_q);
  ARRAY(DECODE, k, call->batch, KV_HEADS, call->n_k);
  IS(DECODE, means, pointer(call->pyramid));
  IS(DECODE, ids, ids);
  IS(DECODE, worth, pointer(call->worth));
  check_scale(l, PISA_DECODE_scale);
  IS(DECODE, o, pointer(call->o.data));
  if (attends) {
    ARRAY(DECODE, v, call->batch, KV_HEADS, call->n_k);
    ARRAY(DECODE, o, call->batch, HEADS, call->n_q);
    IS(DECODE, lse, pointer(call->lse));
  }
  CHECK_INT(fake->n_launches(), i);
}

static void check_decodes(void) {
  static const struct {
    int64_t batch, n_q, n_new, splits;
  } cases[] = {{1, 1, 1, 8}, {2, 3, 0, 8}, {9, 1, 1, 4}, {33, 1, 64, 2}, {64, 2, 1, 1}};
  pisa_module *module = load_module(&(struct sample_spec){.pyramid = SIZES});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_attention call = call_of(cases[i].batch, cases[i].n_q, 1 << 17);
    call.phase = PISA_DECODE;
    call.pyramid = address(13);
    call.n_new = cases[i].n_new;
    call.k_lengths = address(8);
    check_decode(module, &call, cases[i].splits);
    call.append_completed = 1;
    call.blocks = address(6);
    call.worth = address(12);
    call.lse = address(5);
    check_decode(module, &call, cases[i].splits);
    call.o.data = call.lse = NULL;
    check_decode(module, &call, cases[i].splits);
  }
  pisa_attention call = call_of(1, 1, 1000);
  call.phase = PISA_DECODE;
  fake->reset();
  CHECK_FAILS(launch(module, &call, &error), PISA_INVALID_ARGUMENT, error, "pyramid is NULL");
  CHECK_INT(fake->n_launches(), 0);
  pisa_module_unload(module);
}

/* Each kernel by its bit; a bit of what the call does not have enqueues nothing. */
static void check_some(void) {
  static const struct {
    unsigned bit;
    const char *entry;
  } cases[] = {{PISA_LAUNCH_PYRAMID, "pisa_pyramid"},
               {PISA_LAUNCH_PYRAMID_TOP, "pisa_pyramid_top"},
               {PISA_LAUNCH_WALK, "pisa_walk"},
               {PISA_LAUNCH_CLUSTER, "pisa_cluster"},
               {PISA_LAUNCH_SCATTER, "pisa_scatter"},
               {PISA_LAUNCH_LEAF_SCORE, "pisa_leaf_score"},
               {PISA_LAUNCH_PICK, "pisa_pick"},
               {PISA_LAUNCH_CSR_COUNT, "pisa_csr_count"},
               {PISA_LAUNCH_CSR_SCAN, "pisa_csr_scan"},
               {PISA_LAUNCH_CSR_FILL, "pisa_csr_fill"},
               {PISA_LAUNCH_ATTEND_BLOCKS, "pisa_attend_blocks"},
               {PISA_LAUNCH_FLAT, NULL},
               {PISA_LAUNCH_DECODE, NULL},
               {PISA_LAUNCH_ATTEND, NULL}};
  size_t bytes = 0;
  pisa_module *module = load_module(&(struct sample_spec){.pyramid = SIZES});
  pisa_attention call = call_of(2, 100, 3000);
  call.csr_offsets = address(14);
  call.csr_queries = address(15);
  CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake->reset();
    CHECK_OK(pisa_launch_some(module, &call, address(7), bytes, NULL, cases[i].bit, &error), error);
    CHECK_INT(fake->n_launches(), cases[i].entry != NULL);
    CHECK(!cases[i].entry || !strcmp(fake->launch(0)->entry, cases[i].entry));
  }
  fake->reset();
  fake->fail("cuLaunchKernelEx", 719);
  CHECK_FAILS(launch(module, &call, &error), PISA_DRIVER, error, "launching pyramid: ");
  CHECK_FAILS(pisa_launch(module, &call, address(7), bytes - 1, NULL, &error),
              PISA_INVALID_ARGUMENT, error, "workspace_bytes is ");
  pisa_module_unload(module);
}

int main(void) {
  fake = fake_open();
  check_ways();
  check_packed();
  check_pages();
  check_decodes();
  check_some();
  return check_result();
}
