/* bench.c: `pisa bench`: a pack and lengths in; milliseconds of the whole method and of each kernel
   out, under the protocol of docs/results/README.md: 10 back-to-back launches after 0.2 s idle, the
   median of the rounds; sustained after 0.3 s of load; a kernel by itself in a graph. Inputs are
   normal and routed for themselves.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch.h"
#include "runtime/tool/bench.h"
#include "runtime/tool/tool.h"

enum { MAX_ROUNDS = BENCH_MAX_ROUNDS };
#define LOAD_MS BENCH_LOAD_MS
#define DRAM_BYTES_PER_MS 4.2e9 /* what an H200 reads at best, of the 4.8e9 on paper */

enum item { WHOLE, STATISTICS, RESIDUAL, ROUTE, ATTEND, N_ITEMS };
static const struct {
  const char *name;
  unsigned kernels;
} items[N_ITEMS] = {{"ms", PISA_LAUNCH_ALL},
                    {"statistics_ms", PISA_LAUNCH_STATISTICS},
                    {"residual_ms", PISA_LAUNCH_RESIDUAL},
                    {"route_ms", PISA_LAUNCH_ROUTE},
                    {"attend_ms", PISA_LAUNCH_ATTEND}};

struct times {
  bool has[N_ITEMS];                /* the whole alone when there is one kernel */
  double burst[N_ITEMS], sustained; /* ms per launch; 0 for what there is not */
};

struct launches {
  const struct bench *bench;
  const struct verify_call *call;
  enum item item;
};

static pisa_status launch_once(const void *context, pisa_error *error) {
  const struct launches *x = context;
  return pisa_launch_some(x->bench->module, &x->call->request, verify_call_workspace(x->call),
                          x->call->layout.bytes, x->bench->stream, items[x->item].kernels, error);
}

static pisa_status measure(const struct bench *b, const struct verify_call *call,
                           struct times *times, pisa_error *error) {
  static double rounds[N_ITEMS][MAX_ROUNDS];
  const struct launches whole = {b, call, WHOLE};
  int64_t n = b->options.rounds;
  *times = (struct times){.has = {[WHOLE] = true}};
  for (int item = STATISTICS; item < N_ITEMS; item++)
    times->has[item] =
        !call->shape.dense && (item != RESIDUAL || pisa_wants_residual(&b->module->method));
  pisa_status status =
      bench_repeat(launch_once, &whole, 3, error); /* module load and first touches stay outside */
  for (int64_t round = 0; !status && round < n; round++)
    for (int item = 0; !status && item < N_ITEMS; item++) {
      if (!times->has[item])
        continue;
      const struct launches x = {b, call, (enum item)item};
      double *out = &rounds[item][round];
      status = item == WHOLE ? bench_time_burst(b, launch_once, &x, out, error)
                             : bench_time_captured(b, launch_once, &x, out, error);
    }
  for (int item = 0; !status && item < N_ITEMS; item++)
    times->burst[item] = times->has[item] ? bench_median(rounds[item], n) : 0;
  for (int64_t round = 0; !status && round < n; round++)
    status = bench_time(b, launch_once, &whole, (int)(LOAD_MS / times->burst[WHOLE]) + 1,
                        &rounds[WHOLE][round], error);
  times->sustained = status ? 0 : bench_median(rounds[WHOLE], n);
  return status;
}

/* What a kernel must read and write at least, in ms: statistics reads q, k and v, residual k and v,
   route what statistics wrote for it, and it writes lists and Hsum. 0: not bound by memory. */
static double memory_floor(const struct verify_call *call, enum item item) {
  const struct pisa_shape *s = &call->shape;
  double row = 2.0 * call->module->method.head_dim, keys = 2 * row * (double)(s->bh_k * s->n_k);
  double bytes = 0;
  for (int id = 0; item == ROUTE && id < PISA_N_WORKSPACE_PARTS; id++)
    if (id != PISA_WORKSPACE_V_MEAN && id != PISA_WORKSPACE_K_VARIANCE)
      bytes += (double)call->layout.parts[id].size;
  if (item == RESIDUAL)
    bytes = keys;
  if (item == STATISTICS)
    bytes = keys + row * (double)(s->bh * s->n_q);
  return bytes / DRAM_BYTES_PER_MS;
}

static double over_floor(const struct verify_call *call, const struct times *times,
                         enum item item) {
  return times->has[item] ? times->burst[item] / memory_floor(call, item) : 0;
}

/* Of attention: two products of every query with its exact tokens and its means. */
static double tflops(const struct verify_call *call, double ms) {
  const struct pisa_method *method = &call->module->method;
  const struct pisa_shape *s = &call->shape;
  int64_t exact = s->kept * method->key < s->n_k ? s->kept * method->key : s->n_k;
  int64_t means = pisa_wants_v_mean(method) && !s->dense ? s->nt : 0;
  if (!s->dense && method->tail == PISA_TAIL_TAYLOR_1)
    exact = s->n_k;
  if (method->mask == PISA_MASK_CAUSAL && s->n_q == s->n_k) /* what the queries see on average */
    exact = (exact + 1) / 2;
  return 4e-9 * (double)(s->bh * s->n_q * method->head_dim) * (double)(exact + means) / ms;
}

void bench_json_code(const struct bench *b) {
  const struct pisa_part *part = b->module->from_cubin ? &b->variant->cubin : &b->variant->ptx;
  printf("{\"bench\": \"kernels\", \"spec\": \"%s\", \"variant\": \"%s\", \"code\": \"%s\", "
         "\"sha256\": \"%s\", "
         "\"device\": \"%s\", ",
         b->pack->manifest.name, b->variant->choices, b->module->from_cubin ? "cubin" : "ptx",
         part->sha256, b->device.name);
}

static void print_json(const struct bench *b, const struct verify_call *call,
                       const struct times *times) {
  const struct pisa_shape *s = &call->shape;
  bench_json_code(b);
  printf("%s\"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64 ", \"Hk\": %" PRId64
         ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64
         ", \"D\": %d, \"type\": \"%s\"}, \"kept\": %" PRId64 ", \"rounds\": %" PRId64
         ", \"ms_sustained\": %.5f",
         s->is_decode ? "\"phase\": \"decode\", " : "", s->batch, s->heads, s->kv_heads, s->n_q,
         s->n_k, call->module->method.head_dim,
         call->module->method.type == PISA_BF16 ? "bf16" : "fp16", s->kept, b->options.rounds,
         times->sustained);
  for (int item = 0; item < N_ITEMS; item++)
    if (times->has[item])
      printf(", \"%s\": %.5f", items[item].name, times->burst[item]);
  if (times->has[ROUTE])
    printf(", \"statistics_over_floor\": %.2f, \"route_over_floor\": %.2f",
           over_floor(call, times, STATISTICS), over_floor(call, times, ROUTE));
  if (times->has[RESIDUAL])
    printf(", \"residual_over_floor\": %.2f", over_floor(call, times, RESIDUAL));
  printf("}\n");
  fflush(stdout);
}

static void print_head(const struct bench *b) {
  fprintf(b->table,
          "%s (%s) on %s, ms; in brackets times what memory alone would take\n"
          "%8s %5s %6s %9s %9s %16s %16s %16s %9s %8s\n",
          b->pack->manifest.name, b->module->from_cubin ? "cubin" : "ptx", b->device.name, "tokens",
          "heads", "kept", "burst", "sustained", "statistics", "residual", "route", "attend",
          "TFLOP/s");
}

static void print_row(const struct bench *b, const struct verify_call *call,
                      const struct times *times) {
  const double *t = times->burst, attend = times->has[ATTEND] ? t[ATTEND] : t[WHOLE];
  fprintf(b->table, "%8" PRId64 " %5" PRId64 " %6" PRId64 " %9.4f %9.4f", call->shape.n_k,
          call->shape.heads, call->shape.kept, t[WHOLE], times->sustained);
  for (int item = STATISTICS; item < ATTEND; item++)
    if (times->has[item])
      fprintf(b->table, " %9.4f (%4.1f)", t[item], over_floor(call, times, (enum item)item));
    else
      fprintf(b->table, " %9s %6s", "-", "");
  fprintf(b->table, " %9.4f %8.0f\n", attend, tflops(call, attend));
  fflush(b->table);
}

/* |decode|: a step, one query of each sequence. */
static struct verify_case case_of(const struct gpu_options *o, const struct pisa_method *method,
                                  int64_t tokens, bool decode) {
  struct verify_case test = {
      .name = "bench", .batch = o->batch ? o->batch : 1, .n_q = tokens, .n_k = tokens};
  test.decode = decode;
  test.n_q = decode ? 1 : tokens;
  test.kv_heads = o->heads / pisa_method_group(method);
  test.layout = o->layout >= 0 ? (enum verify_layout)o->layout : decode ? VERIFY_BNHD : VERIFY_BHND;
  bool budgeted = !method->dense && method->budget != PISA_BUDGET_THRESHOLD;
  test.density = budgeted ? o->density : 0;
  test.keep = budgeted ? o->keep : 0;
  return test;
}

static pisa_status bench_phase(const struct bench *b, int64_t tokens, bool decode,
                               pisa_error *error) {
  const struct verify_case test = case_of(&b->options, &b->module->method, tokens, decode);
  struct verify_call call = {.device = &b->device, .stream = b->stream, .module = b->module};
  struct times times;
  pisa_status status = verify_call_open(&call, &test, &b->module->method, b->options.seed, error);
  verify_call_bind(&call, false);
  if (!status)
    status = measure(b, &call, &times, error);
  if (!status) {
    print_row(b, &call, &times);
    if (b->options.json)
      print_json(b, &call, &times);
  }
  verify_call_close(&call);
  return status;
}

static pisa_status bench_tokens(const struct bench *b, int64_t tokens, pisa_error *error) {
  return bench_phase(b, tokens, false, error);
}

static pisa_status bench_step(const struct bench *b, int64_t tokens, pisa_error *error) {
  return bench_phase(b, tokens, true, error);
}

static void print_step_head(const struct bench *b) {
  fputs("decode, one query a sequence: ", b->table);
  print_head(b);
}

/* Every length, after a line of headings. */
static pisa_status bench_lengths(const struct bench *b, const int64_t *usual, int n_usual,
                                 void (*head)(const struct bench *b),
                                 pisa_status (*body)(const struct bench *b, int64_t tokens,
                                                     pisa_error *error),
                                 pisa_error *error) {
  int n = b->options.n_tokens ? b->options.n_tokens : n_usual;
  const int64_t *tokens = b->options.n_tokens ? b->options.tokens : usual;
  pisa_status status = PISA_OK;
  head(b);
  for (int i = 0; !status && i < n; i++)
    status = body(b, tokens[i], error);
  return status;
}

static pisa_status bench_all(const struct bench *b, pisa_error *error) {
  static const int64_t usual[] = {4096, 4608, 8192, 16384, 32768},
                       selected[] = {4096, 16384, 65536, 131072, 262144};
  const struct pisa_method *method = &b->module->method;
  pisa_status status = PISA_OK;
  if (method->family == PISA_PIECEWISE) {
    if (method->prefill && !b->options.decode)
      status = bench_lengths(b, usual, 5, print_head, bench_tokens, error);
    if (!status && method->decode && !b->options.prefill)
      status = bench_lengths(b, selected, 4, print_step_head, bench_step, error);
    return status;
  }
  if (method->prefill && !b->options.decode)
    status = bench_lengths(b, selected, 5, bench_select_head, bench_select, error);
  if (!status && method->prefill && method->decode && !b->options.prefill)
    status = bench_lengths(b, selected, 4, bench_decode_head, bench_decode, error);
  return status;
}

/* Makes what the measurements need; close_device undoes what was made. */
static pisa_status open_device(struct bench *b, int variant, pisa_error *error) {
  pisa_status status = pisa_stream_create(&b->device, &b->stream, error);
  if (!status)
    status = pisa_event_create(&b->device, &b->begin, error);
  if (!status)
    status = pisa_event_create(&b->device, &b->end, error);
  return status ? status : pisa_module_load(b->pack, variant, 0, &b->module, error);
}

static void close_device(struct bench *b) {
  pisa_module_unload(b->module);
  if (b->begin)
    pisa_event_destroy(&b->device, b->begin);
  if (b->end)
    pisa_event_destroy(&b->device, b->end);
  if (b->stream)
    pisa_stream_destroy(&b->device, b->stream);
  pisa_device_close(&b->device);
}

static pisa_status bench_pack(struct bench *b, pisa_error *error) {
  int variant = 0;
  pisa_status status =
      pisa_pack_find_variant(b->pack, b->options.settings, b->options.n_settings, &variant, error);
  if (!status)
    status = pisa_pack_variant(b->pack, variant, &b->variant, error);
  if (!status && b->options.heads % pisa_method_group(&b->variant->method))
    status = pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "--heads is no multiple of the spec's heads / kv_heads");
  if (!status)
    status = pisa_device_open(0, &b->device, error);
  if (status)
    return status;
  status = open_device(b, variant, error);
  if (!status)
    status = bench_all(b, error);
  close_device(b);
  return status;
}

int tool_bench(int argc, char **argv) {
  struct bench b = {.table = stdout};
  pisa_error error = {0};
  int code;
  if (!gpu_options_read(&b.options, OPTIONS_BENCH, argc, argv, &code))
    return code;
  if (b.options.rounds > MAX_ROUNDS)
    return tool_say("bench", TOOL_WRONG_INPUT, "--rounds is above %d", MAX_ROUNDS);
  if (b.options.json)
    b.table = stderr;
  if (pisa_pack_open(b.options.pack, &b.pack, &error))
    return tool_report("bench", &error);
  pisa_status status = bench_pack(&b, &error);
  pisa_pack_close(b.pack);
  return status ? tool_report("bench", &error) : TOOL_DONE;
}
