/* bench_select.c: a pack that selects blocks and a length in; milliseconds of the whole call, of
   its selection and of each kernel out, and of the three that list the queries of each leaf, which
   the whole is without. Inputs are normal: no kernel is faster where they are not.
 */
#include <inttypes.h>

#include "runtime/launch.h"
#include "runtime/tool/bench.h"

#define CSR (PISA_LAUNCH_CSR_COUNT | PISA_LAUNCH_CSR_SCAN | PISA_LAUNCH_CSR_FILL)
#define ALL ((unsigned)PISA_LAUNCH_ALL & ~(unsigned)CSR)
#define SELECTION (ALL & ~(unsigned)PISA_LAUNCH_ATTEND_BLOCKS)

enum item {
  WHOLE,
  SELECT,
  PYRAMID,
  TOP,
  WALK,
  CLUSTER,
  SCATTER,
  LEAF,
  PICK,
  FLAT,
  ATTEND,
  COUNT,
  SCAN,
  FILL,
  N_ITEMS
};
/* The walk of a clustered pack counts from zeros that |pyramid| writes: it is timed behind it, and
   the time of |pyramid| by itself taken off. */
static const struct {
  const char *name;
  enum pisa_kernel_id id;
  unsigned kernels;
  bool behind_pyramid;
} items[N_ITEMS] = {
    [WHOLE] = {"ms", PISA_N_KERNELS, ALL, false},
    [SELECT] = {"select_ms", PISA_N_KERNELS, SELECTION, false},
    [PYRAMID] = {"pyramid_ms", PISA_KERNEL_PYRAMID, PISA_LAUNCH_PYRAMID, false},
    [TOP] = {"pyramid_top_ms", PISA_KERNEL_PYRAMID_TOP, PISA_LAUNCH_PYRAMID_TOP, false},
    [WALK] = {"walk_ms", PISA_KERNEL_WALK, PISA_LAUNCH_PYRAMID | PISA_LAUNCH_WALK, true},
    [CLUSTER] = {"cluster_ms", PISA_KERNEL_CLUSTER, PISA_LAUNCH_CLUSTER, false},
    [SCATTER] = {"scatter_ms", PISA_KERNEL_SCATTER, PISA_LAUNCH_SCATTER, false},
    [LEAF] = {"leaf_score_ms", PISA_KERNEL_LEAF_SCORE, PISA_LAUNCH_LEAF_SCORE, false},
    [PICK] = {"pick_ms", PISA_KERNEL_PICK, PISA_LAUNCH_PICK, false},
    [FLAT] = {"flat_ms", PISA_KERNEL_FLAT, PISA_LAUNCH_FLAT, false},
    [ATTEND] = {"attend_ms", PISA_KERNEL_ATTEND_BLOCKS, PISA_LAUNCH_ATTEND_BLOCKS, false},
    [COUNT] = {"csr_count_ms", PISA_KERNEL_CSR_COUNT, PISA_LAUNCH_CSR_COUNT, false},
    [SCAN] = {"csr_scan_ms", PISA_KERNEL_CSR_SCAN, PISA_LAUNCH_CSR_SCAN, false},
    [FILL] = {"csr_fill_ms", PISA_KERNEL_CSR_FILL, PISA_LAUNCH_CSR_FILL, false}};

struct times {
  bool has[N_ITEMS];
  double burst[N_ITEMS], sustained; /* ms per launch */
};

static bool has_item(const struct bench *b, const struct select_call *call, enum item item) {
  bool flat = call->shape.is_flat;
  if (item <= SELECT)
    return true;
  if (item >= COUNT && !call->request.csr_offsets)
    return false;
  if (item == FLAT ? !flat : flat && item >= WALK && item <= PICK)
    return false;
  return b->module->kernels[items[item].id].function != NULL;
}

struct launches {
  const struct bench *bench;
  const struct select_call *call;
  unsigned kernels;
};

static pisa_status launch_once(const void *context, pisa_error *error) {
  const struct launches *x = context;
  return pisa_launch_some(x->bench->module, &x->call->request, select_call_workspace(x->call),
                          x->call->layout.bytes, x->bench->stream, x->kernels, error);
}

static pisa_status time_item(const struct bench *b, const struct select_call *call, enum item item,
                             double *out, pisa_error *error) {
  const struct launches x = {b, call, items[item].kernels};
  const struct launches pyramid = {b, call, PISA_LAUNCH_PYRAMID};
  double alone = 0;
  if (item <= SELECT)
    return bench_time_burst(b, launch_once, &x, out, error);
  pisa_status status = PISA_OK;
  if (items[item].behind_pyramid)
    status = bench_time_captured(b, launch_once, &pyramid, &alone, error);
  if (!status)
    status = bench_time_captured(b, launch_once, &x, out, error);
  *out -= alone;
  return status;
}

static pisa_status measure(const struct bench *b, const struct select_call *call,
                           struct times *times, pisa_error *error) {
  static double rounds[N_ITEMS][BENCH_MAX_ROUNDS];
  const struct launches all = {b, call, PISA_LAUNCH_ALL}, whole = {b, call, ALL};
  int64_t n = b->options.rounds;
  *times = (struct times){.sustained = 0};
  for (int item = 0; item < N_ITEMS; item++)
    times->has[item] = has_item(b, call, (enum item)item);
  pisa_status status = bench_repeat(launch_once, &all, 3, error); /* first touches stay outside */
  for (int64_t round = 0; !status && round < n; round++)
    for (int item = 0; !status && item < N_ITEMS; item++)
      if (times->has[item])
        status = time_item(b, call, (enum item)item, &rounds[item][round], error);
  for (int item = 0; !status && item < N_ITEMS; item++)
    times->burst[item] = times->has[item] ? bench_median(rounds[item], n) : 0;
  for (int64_t round = 0; !status && round < n; round++)
    status = bench_time(b, launch_once, &whole, (int)(BENCH_LOAD_MS / times->burst[WHOLE]) + 1,
                        &rounds[WHOLE][round], error);
  times->sustained = status ? 0 : bench_median(rounds[WHOLE], n);
  return status;
}

static void print_json(const struct bench *b, const struct select_call *call,
                       const struct times *times) {
  const pisa_attention *r = &call->request;
  bench_json_code(b);
  printf("\"phase\": \"prefill\", \"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64
         ", \"Hk\": %" PRId64 ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64
         ", \"D\": %d, \"type\": \"%s\"}, \"layout\": \"%s\", \"kept\": %" PRId64
         ", \"rounds\": %" PRId64 ", \"ms_sustained\": %.5f",
         r->batch, r->heads, r->kv_heads, r->n_q, r->n_k, b->module->method.head_dim,
         b->module->method.type == PISA_BF16 ? "bf16" : "fp16",
         verify_layout_names[call->test->layout], call->shape.kept, b->options.rounds,
         times->sustained);
  for (int item = 0; item < N_ITEMS; item++)
    if (times->has[item])
      printf(", \"%s\": %.5f", items[item].name, times->burst[item]);
  printf("}\n");
  fflush(stdout);
}

void bench_select_head(const struct bench *b) {
  static const char *const names[N_ITEMS] = {"whole",   "select",  "pyramid", "top",  "walk",
                                             "cluster", "scatter", "leaf",    "pick", "flat",
                                             "attend",  "count",   "scan",    "fill"};
  fprintf(b->table, "%s (%s) on %s, prefill, ms\n%8s %5s %5s %9s", b->pack->manifest.name,
          b->module->from_cubin ? "cubin" : "ptx", b->device.name, "tokens", "heads", "kept",
          "sustained");
  for (int item = 0; item < N_ITEMS; item++)
    fprintf(b->table, " %9s", names[item]);
  fputc('\n', b->table);
}

static void print_row(const struct bench *b, const struct select_call *call,
                      const struct times *times) {
  fprintf(b->table, "%8" PRId64 " %5" PRId64 " %5" PRId64 " %9.4f", call->request.n_k,
          call->request.heads, call->shape.kept, times->sustained);
  for (int item = 0; item < N_ITEMS; item++)
    if (times->has[item])
      fprintf(b->table, " %9.4f", times->burst[item]);
    else
      fprintf(b->table, " %9s", "-");
  fputc('\n', b->table);
  fflush(b->table);
}

pisa_status bench_select(const struct bench *b, int64_t tokens, pisa_error *error) {
  const struct gpu_options *o = &b->options;
  const struct pisa_method *method = &b->module->method;
  const int64_t heads = o->heads ? o->heads : method->heads;
  const struct select_case test = {.name = "bench",
                                   .input = SELECT_NORMAL,
                                   .batch = o->batch ? o->batch : 1,
                                   .kv_heads = heads / pisa_method_group(method),
                                   .n_q = tokens,
                                   .n_k = tokens,
                                   .layout = o->layout == VERIFY_BNHD || o->layout == VERIFY_GAPPED
                                                 ? (enum verify_layout)o->layout
                                                 : VERIFY_BHND};
  if (test.batch > SELECT_MAX_BATCH)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--batch is above %d", SELECT_MAX_BATCH);
  struct select_call call = {.device = &b->device,
                             .stream = b->stream,
                             .module = b->module,
                             .test = &test,
                             .seed = o->seed};
  struct select_buffer offsets = {0}, queries = {0};
  struct times times;
  pisa_status status = select_call_open(&call, error);
  if (!status)
    status = select_call_bind(&call, SELECT_BARE, error);
  if (!status && !call.shape.dense)
    status = select_csr_open(&call, &offsets, &queries, error);
  if (!status && !call.shape.dense)
    status = select_csr_bind(&call, &offsets, &queries, error);
  if (!status)
    status = measure(b, &call, &times, error);
  if (!status) {
    print_row(b, &call, &times);
    if (o->json)
      print_json(b, &call, &times);
  }
  select_buffer_close(&b->device, &offsets);
  select_buffer_close(&b->device, &queries);
  select_call_close(&call);
  return status;
}
