/* bench_decode.c: a pack that selects blocks and a length in; milliseconds of a decode step and of
   its parts out, for one query a sequence whose last key is new.

   Warm: the keys it reads are in L2. Cold: a pass of the kernel |pyramid| over other sequences, as
   many as fill L2, comes before every call and is taken off. All calls are parts of CUDA graphs: a
   step is shorter than what enqueuing it takes. The sequences never grow: their lengths stay. */
#include <inttypes.h>

#include "runtime/launch.h"
#include "runtime/tool/bench.h"

#define FLUSH_BYTES 2e8 /* three times L2 */

enum item { STEP, APPEND, SELECT, ATTEND, N_ITEMS };
static const struct {
  const char *name, *cold_name, *title;
  unsigned kernels;
} items[N_ITEMS] = {{"ms", "cold_ms", "step", PISA_LAUNCH_ALL},
                    {"append_ms", "cold_append_ms", "append", PISA_LAUNCH_APPEND},
                    {"select_ms", "cold_select_ms", "select", PISA_LAUNCH_DECODE},
                    {"attend_ms", "cold_attend_ms", "attend", /* what it adds to select */
                     PISA_LAUNCH_DECODE | PISA_LAUNCH_DECODE_ATTEND}};

struct decoding {
  const struct bench *bench;
  struct select_call call;      /* of all sequences */
  pisa_attention step, flush;   /* its first ones; prefill of all */
  struct select_buffer pyramid; /* of the first ones */
  struct select_buffer room;    /* workspace of |step| */
  size_t room_bytes;
};

struct graphs {
  CUgraphExec flush, warm[N_ITEMS], cold[N_ITEMS];
};

struct times {
  double warm[N_ITEMS], cold[N_ITEMS];
};

static pisa_status flush(const struct decoding *d, pisa_error *error) {
  return pisa_launch_some(d->bench->module, &d->flush, select_call_workspace(&d->call),
                          d->call.layout.bytes, d->bench->stream, PISA_LAUNCH_PYRAMID, error);
}

static pisa_status step(const struct decoding *d, unsigned kernels, pisa_error *error) {
  return pisa_launch_some(d->bench->module, &d->step, select_buffer_inside(&d->room), d->room_bytes,
                          d->bench->stream, kernels, error);
}

/* A flush, if |cold|, and the kernels, if any. */
struct part {
  const struct decoding *decoding;
  bool cold;
  unsigned kernels;
};

static pisa_status launch_part(const void *context, pisa_error *error) {
  const struct part *part = context;
  pisa_status status = part->cold ? flush(part->decoding, error) : PISA_OK;
  return status || !part->kernels ? status : step(part->decoding, part->kernels, error);
}

static pisa_status capture(const struct decoding *d, bool cold, unsigned kernels, CUgraphExec *out,
                           pisa_error *error) {
  const struct part part = {d, cold, kernels};
  return bench_capture(d->bench, launch_part, &part, out, error);
}

static pisa_status capture_all(const struct decoding *d, struct graphs *graphs, pisa_error *error) {
  pisa_status status = capture(d, true, 0, &graphs->flush, error);
  for (int item = 0; !status && item < N_ITEMS; item++) {
    status = capture(d, false, items[item].kernels, &graphs->warm[item], error);
    if (!status)
      status = capture(d, true, items[item].kernels, &graphs->cold[item], error);
  }
  return status;
}

static void destroy_all(const struct decoding *d, const struct graphs *graphs) {
  bench_destroy_graph(d->bench, graphs->flush);
  for (int item = 0; item < N_ITEMS; item++) {
    bench_destroy_graph(d->bench, graphs->warm[item]);
    bench_destroy_graph(d->bench, graphs->cold[item]);
  }
}

static pisa_status measure(const struct bench *b, const struct graphs *graphs, struct times *times,
                           pisa_error *error) {
  static double warm[N_ITEMS][BENCH_MAX_ROUNDS], cold[N_ITEMS][BENCH_MAX_ROUNDS];
  pisa_status status = PISA_OK;
  for (int64_t round = 0; !status && round < b->options.rounds; round++) {
    double alone = 0;
    status = bench_time_graph(b, graphs->flush, &alone, error);
    for (int item = 0; !status && item < N_ITEMS; item++) {
      status = bench_time_graph(b, graphs->warm[item], &warm[item][round], error);
      if (!status)
        status = bench_time_graph(b, graphs->cold[item], &cold[item][round], error);
      cold[item][round] -= alone;
    }
  }
  for (int item = 0; !status && item < N_ITEMS; item++) {
    times->warm[item] = bench_median(warm[item], b->options.rounds);
    times->cold[item] = bench_median(cold[item], b->options.rounds);
  }
  times->warm[ATTEND] -= times->warm[SELECT];
  times->cold[ATTEND] -= times->cold[SELECT];
  return status;
}

/* The pyramid of the step's sequences, and room for its workspace. */
static pisa_status prepare(struct decoding *d, int64_t batch, pisa_error *error) {
  const struct bench *b = d->bench;
  size_t bytes = 0;
  struct pisa_shape shape;
  struct pisa_workspace layout;
  pisa_status status = select_call_bind(&d->call, SELECT_BARE, error);
  d->flush = d->step = d->call.request;
  d->step.batch = batch;
  if (!status)
    status = pisa_pyramid_bytes(&b->module->method, &d->step, &bytes, error);
  if (!status)
    status = select_buffer_open(&b->device, bytes, &d->pyramid, error);
  d->step.pyramid = select_buffer_inside(&d->pyramid);
  if (!status) /* its one query is enough to make it */
    status =
        pisa_launch_some(b->module, &d->step, select_call_workspace(&d->call), d->call.layout.bytes,
                         b->stream, PISA_LAUNCH_PYRAMID | PISA_LAUNCH_PYRAMID_TOP, error);
  d->step.phase = PISA_DECODE;
  d->step.n_new = 1;
  if (!status)
    status = pisa_module_plan(b->module, &d->step, &shape, &layout, error);
  d->room_bytes = status ? 0 : layout.bytes;
  if (!status)
    status = select_buffer_open(&b->device, d->room_bytes, &d->room, error);
  if (!status)
    status = step(d, PISA_LAUNCH_ALL, error);
  if (!status)
    status = flush(d, error);
  return status ? status : pisa_device_wait(&b->device, error);
}

static void print_json(const struct bench *b, const pisa_attention *r, const struct times *times) {
  const struct pisa_method *method = &b->module->method;
  bench_json_code(b);
  printf("\"phase\": \"decode\", \"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64
         ", \"Hk\": %" PRId64 ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64
         ", \"D\": %d, \"type\": \"%s\"}, \"kept\": %" PRId64 ", \"rounds\": %" PRId64,
         r->batch, r->heads, r->kv_heads, r->n_q, r->n_k, method->head_dim,
         method->type == PISA_BF16 ? "bf16" : "fp16", method->keep, b->options.rounds);
  for (int item = 0; item < N_ITEMS; item++)
    printf(", \"%s\": %.5f, \"%s\": %.5f", items[item].name, times->warm[item],
           items[item].cold_name, times->cold[item]);
  printf("}\n");
  fflush(stdout);
}

void bench_decode_head(const struct bench *b) {
  fprintf(b->table, "%s (%s) on %s, decode, ms; in brackets with cold keys\n%8s %5s %5s %5s",
          b->pack->manifest.name, b->module->from_cubin ? "cubin" : "ptx", b->device.name, "tokens",
          "batch", "heads", "kept");
  for (int item = 0; item < N_ITEMS; item++)
    fprintf(b->table, " %17s", items[item].title);
  fputc('\n', b->table);
}

static void print_row(const struct bench *b, const pisa_attention *r, const struct times *times) {
  fprintf(b->table, "%8" PRId64 " %5" PRId64 " %5" PRId64 " %5" PRId64, r->n_k, r->batch, r->heads,
          b->module->method.keep);
  for (int item = 0; item < N_ITEMS; item++)
    fprintf(b->table, " %8.4f (%6.4f)", times->warm[item], times->cold[item]);
  fputc('\n', b->table);
  fflush(b->table);
}

/* Sequences in all: those of a step, and others whose keys fill L2. */
static int64_t sequences(const struct pisa_method *method, int64_t batch, int64_t kv_heads,
                         int64_t tokens) {
  double keys = (double)(kv_heads * tokens * method->head_dim) * 2;
  int64_t all = batch + (int64_t)(FLUSH_BYTES / keys) + 1;
  return all < SELECT_MAX_BATCH ? all : SELECT_MAX_BATCH;
}

static pisa_status run(struct decoding *d, int64_t batch, pisa_error *error) {
  const struct bench *b = d->bench;
  struct graphs graphs = {.flush = NULL};
  struct times times;
  pisa_status status = select_call_open(&d->call, error);
  if (!status)
    status = prepare(d, batch, error);
  if (!status)
    status = capture_all(d, &graphs, error);
  if (!status)
    status = measure(b, &graphs, &times, error);
  if (!status) {
    print_row(b, &d->step, &times);
    if (b->options.json)
      print_json(b, &d->step, &times);
  }
  destroy_all(d, &graphs);
  return status;
}

pisa_status bench_decode(const struct bench *b, int64_t tokens, pisa_error *error) {
  const struct gpu_options *o = &b->options;
  const struct pisa_method *method = &b->module->method;
  int64_t heads = o->heads ? o->heads : method->heads, batch = o->batch ? o->batch : 1;
  int64_t kv_heads = heads / pisa_method_group(method);
  const struct select_case test = {.name = "bench",
                                   .input = SELECT_NORMAL,
                                   .batch = sequences(method, batch, kv_heads, tokens),
                                   .kv_heads = kv_heads,
                                   .n_q = 1,
                                   .n_k = tokens};
  if (batch >= SELECT_MAX_BATCH)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--batch is not below %d", SELECT_MAX_BATCH);
  struct decoding d = {.bench = b,
                       .call = {.device = &b->device,
                                .stream = b->stream,
                                .module = b->module,
                                .test = &test,
                                .seed = o->seed}};
  pisa_status status = run(&d, batch, error);
  select_buffer_close(&b->device, &d.pyramid);
  select_buffer_close(&b->device, &d.room);
  select_call_close(&d.call);
  return status;
}
