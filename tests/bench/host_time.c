/* host_time.c: what a call costs the host, in C: packs in, JSON lines out (docs/results/README.md,
   h200/host.jsonl). Tensors are small: a call's host time does not depend on their size, and the
   device keeps up. Per call, the median over rounds in which the three take turns:

       us ........... pisa_launch
       launches_us .. the same launches, bare: same functions, grids and parameters
       ours_us ...... the difference
       dropped_us ... pisa_launch whose launches do nothing: ours_us without what the two share

   usage: host_time [--facts JSON_OBJECT] [--limit US] PACK ...
   --facts: what every line begins with. Exit 3: ours_us of a call is above the limit. 2: the world
   failed. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/device.h"
#include "runtime/module.h"
#include "runtime/pack.h"
#include "tests/bench/launches.h"

enum {
  ROUNDS = 31,
  CALLS = 25,    /* at most 16 launches each: the driver's queue holds a thousand */
  TOKENS = 2048, /* no pack of generated/ calls that short */
  BUFFER = 64 << 20,
  BUFFERS = 7, /* q, k, v, o, blocks, pyramid, workspace */
  EXIT_SLOW = 3
};

struct bench {
  const char *facts;
  double limit;
  struct pisa_device device;
  CUstream stream;
  void *memory[BUFFERS];
  pisa_pack *pack;
  pisa_module *module;
  pisa_attention call;
  size_t bytes; /* of workspace */
  bool is_slow;
};

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static pisa_status launch(const struct bench *b, pisa_error *error) {
  return pisa_launch(b->module, &b->call, b->memory[6], b->bytes, b->stream, error);
}

static pisa_status repeat(const struct bench *b, int times, pisa_error *error) {
  return pisa_cuda_check(b->device.cuda, launches_repeat(times), error, "repeating launches");
}

/* us a call of CALLS calls; the queue is empty before. */
static pisa_status time_calls(const struct bench *b, int mode, double *us, pisa_error *error) {
  pisa_status status = pisa_stream_wait(&b->device, b->stream, error);
  if (mode >= 0)
    launches_set(mode);
  double begin = now_us();
  for (int i = 0; mode >= 0 && i < CALLS && !status; i++)
    status = launch(b, error);
  if (mode < 0 && !status)
    status = repeat(b, CALLS, error);
  *us = (now_us() - begin) / CALLS;
  return status;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *of) {
  qsort(of, ROUNDS, sizeof *of, ascending);
  return of[ROUNDS / 2];
}

/* Launches it once to record; then all in turns. */
static pisa_status time_one(struct bench *b, const char *name, pisa_error *error) {
  enum { WHOLE, BARE, DROPPED, N_KINDS };
  static const int modes[N_KINDS] = {LAUNCHES_PASS, -1, LAUNCHES_DROP};
  static double us[N_KINDS][ROUNDS];
  launches_set(LAUNCHES_RECORD);
  pisa_status status = launch(b, error);
  int launches = launches_count();
  launches_set(LAUNCHES_PASS);
  for (int warm = 0; warm < 3 && !status; warm++)
    status = launch(b, error);
  for (int r = 0; r < ROUNDS && !status; r++)
    for (int kind = 0; kind < N_KINDS && !status; kind++)
      status = time_calls(b, modes[kind], &us[kind][r], error);
  if (!status)
    status = pisa_stream_wait(&b->device, b->stream, error);
  if (status)
    return status;
  double whole = median(us[WHOLE]), bare = median(us[BARE]), ours = whole - bare;
  b->is_slow = b->is_slow || (b->limit > 0 && ours > b->limit);
  pisa_pack_info info;
  pisa_pack_get_info(b->pack, &info, NULL);
  printf("%.*s%s\"bench\": \"host\", \"side\": \"c\", \"call\": \"%s\", \"variant\": \"%s\", "
         "\"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64 ", \"Hk\": %" PRId64 ", \"Nq\": %" PRId64
         ", \"Nk\": %" PRId64 ", \"D\": %d, \"type\": \"%s\"}, \"launches\": %d, \"us\": %.2f, "
         "\"launches_us\": %.2f, \"ours_us\": %.2f, \"dropped_us\": %.2f}\n",
         (int)strlen(b->facts) - 1, b->facts, strlen(b->facts) > 2 ? ", " : "", name, info.name,
         b->call.batch, b->call.heads, b->call.kv_heads, b->call.n_q, b->call.n_k, info.head_dim,
         info.type == PISA_BF16 ? "bf16" : "fp16", launches, whole, bare, ours,
         median(us[DROPPED]));
  return PISA_OK;
}

static pisa_tensor tensor(void *data, int64_t heads, int64_t n, int64_t d) {
  return (pisa_tensor){data, {heads * n * d, n * d, d, 1}};
}

/* One sequence, two key heads, |n_q| queries at its end. */
static void make_call(struct bench *b, int64_t n_q, bool attends, bool lists) {
  const struct pisa_method *m = &b->module->method;
  const int64_t kv_heads = 2, heads = kv_heads * pisa_method_group(m), d = m->head_dim;
  b->call = (pisa_attention){.struct_size = sizeof b->call,
                             .batch = 1,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .n_q = n_q,
                             .n_k = TOKENS,
                             .q = tensor(b->memory[0], heads, n_q, d),
                             .k = tensor(b->memory[1], kv_heads, TOKENS, d),
                             .v = tensor(b->memory[2], kv_heads, TOKENS, d),
                             .o = tensor(attends ? b->memory[3] : NULL, heads, n_q, d),
                             .blocks = lists ? b->memory[4] : NULL};
}

static pisa_status fit_and_time(struct bench *b, const char *name, pisa_error *error) {
  pisa_status status = pisa_workspace_size(b->module, &b->call, &b->bytes, error);
  assert(status || b->bytes <= BUFFER);
  return status ? status : time_one(b, name, error);
}

static pisa_status time_selection(struct bench *b, pisa_error *error) {
  make_call(b, TOKENS, false, true);
  pisa_status status = fit_and_time(b, "select", error);
  make_call(b, TOKENS, true, false);
  b->call.pyramid = b->memory[5];
  if (!status)
    status = fit_and_time(b, "attention", error);
  if (status || !b->module->method.decode)
    return status;
  make_call(b, 1, true, false);
  b->call.pyramid = b->memory[5];
  b->call.phase = PISA_DECODE;
  b->call.n_new = 1;
  return fit_and_time(b, "decode", error);
}

static pisa_status time_pack(struct bench *b, const char *path, pisa_error *error) {
  pisa_status status = pisa_pack_open(path, &b->pack, error);
  if (status)
    return status;
  status = pisa_module_load(b->pack, 0, 0, &b->module, error);
  if (!status) {
    launches_hook(b->module);
    make_call(b, TOKENS, true, false);
    status = b->module->method.family == PISA_PYRAMID ? time_selection(b, error)
                                                      : fit_and_time(b, "attention", error);
    pisa_module_unload(b->module);
  }
  pisa_pack_close(b->pack);
  return status;
}

/* Small positive numbers: 0x3c3c is 0.0115 as bf16, 1.06 as fp16. */
static pisa_status open_device(struct bench *b, pisa_error *error) {
  pisa_status status = pisa_device_open(0, &b->device, error);
  if (!status)
    status = pisa_stream_create(&b->device, &b->stream, error);
  for (int i = 0; i < BUFFERS && !status; i++) {
    status = pisa_device_alloc(&b->device, BUFFER, &b->memory[i], error);
    if (!status)
      status = pisa_device_fill(&b->device, b->memory[i], 0x3c, BUFFER, error);
  }
  return status;
}

int main(int argc, char **argv) {
  struct bench b = {.facts = "{}"};
  pisa_error error = {0};
  int first = 1;
  for (; first + 1 < argc && !strncmp(argv[first], "--", 2); first += 2) {
    if (!strcmp(argv[first], "--facts"))
      b.facts = argv[first + 1];
    else if (!strcmp(argv[first], "--limit"))
      b.limit = strtod(argv[first + 1], NULL);
    else
      break;
  }
  if (first >= argc || !strncmp(argv[first], "--", 2) || *b.facts != '{') {
    fprintf(stderr, "usage: host_time [--facts JSON_OBJECT] [--limit US] PACK ...\n");
    return 1;
  }
  pisa_status status = open_device(&b, &error);
  for (int i = first; i < argc && !status; i++)
    status = time_pack(&b, argv[i], &error);
  if (status) {
    fprintf(stderr, "host_time: %s\n", error.message);
    return 2;
  }
  if (b.is_slow)
    fprintf(stderr, "host_time: a call takes more than %.2f us beside its launches\n", b.limit);
  return b.is_slow ? EXIT_SLOW : 0; /* what is open ends with the process */
}
