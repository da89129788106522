/* bench.h: the parts of `pisa bench`.

       bench.c .......... options, the loop over lengths, packs that route for blocks of queries
       bench_median.c ... the median of rounds
       bench_time.c ..... the time of launches in a stream, and as a graph
       bench_select.c ... packs that select blocks: prefill, kernel by kernel
       bench_decode.c ... the same packs, phase decode, with keys in L2 and without */
#ifndef PISA_TOOL_BENCH_H
#define PISA_TOOL_BENCH_H

#include <stdio.h>

#include "runtime/pack.h"
#include "runtime/tool/gpu_options.h"
#include "runtime/tool/verify_select.h"

enum { BENCH_CALLS = 10, BENCH_MAX_ROUNDS = 1000 };
#define BENCH_LOAD_MS 300.0

struct bench {
  struct gpu_options options;
  pisa_pack *pack;
  const struct pisa_variant *variant;
  pisa_module *module;
  struct pisa_device device;
  CUstream stream;
  CUevent begin, end;
  FILE *table;
};

/* 0.2 s. */
void bench_idle(void);
/* What is timed, once. */
typedef pisa_status bench_launches(const void *context, pisa_error *error);
pisa_status bench_repeat(bench_launches *launches, const void *context, int times,
                         pisa_error *error);
/* ms of |launches| once, of BENCH_CALLS in a row: behind |load| more of them; or after 0.2 s idle.
 */
pisa_status bench_time(const struct bench *bench, bench_launches *launches, const void *context,
                       int load, double *ms, pisa_error *error);
pisa_status bench_time_burst(const struct bench *bench, bench_launches *launches,
                             const void *context, double *ms, pisa_error *error);
/* A graph of |launches| BENCH_CALLS times; bench_destroy_graph frees it, and takes NULL too. */
pisa_status bench_capture(const struct bench *bench, bench_launches *launches, const void *context,
                          CUgraphExec *out, pisa_error *error);
void bench_destroy_graph(const struct bench *bench, CUgraphExec graph);
/* ms of |launches| once, of a graph that ran 0.2 s after the device had gone idle, and runs again.
 */
pisa_status bench_time_graph(const struct bench *bench, CUgraphExec graph, double *ms,
                             pisa_error *error);
/* The same of a graph of its own. */
pisa_status bench_time_captured(const struct bench *bench, bench_launches *launches,
                                const void *context, double *ms, pisa_error *error);
/* Of values [n], which are sorted. */
double bench_median(double *values, int64_t n);
/* What every JSON line begins with: `{"bench": "kernels", ... "device": ..., `. */
void bench_json_code(const struct bench *bench);

/* Lines of the table and of JSON for one length. */
void bench_select_head(const struct bench *bench);
pisa_status bench_select(const struct bench *bench, int64_t tokens, pisa_error *error);
void bench_decode_head(const struct bench *bench);
pisa_status bench_decode(const struct bench *bench, int64_t tokens, pisa_error *error);

#endif
