/* verify_select_report.c: results of packs that select blocks in, rows of the table and JSON lines
   out (docs/results/README.md). */
#include <inttypes.h>
#include <math.h>

#include "runtime/launch.h"
#include "runtime/tool/verify_select.h"

void select_report_begin(const struct verify_report *report) {
  fprintf(report->table, "\nseed %" PRIu64 "\n", report->seed);
  fprintf(report->table,
          "%-12s %-16s %-5s %6s %6s %2s %3s %4s %-6s %7s %7s %7s %5s %7s %5s %11s %5s\n", "spec",
          "case", "code", "Nq", "Nk", "B", "H", "kept", "layout", "o", "row", "lse", "mean", "gap",
          "swaps", "compared", "s");
}

static void print_row(FILE *out, const struct select_call *call, const struct verify_result *r) {
  char compared[48];
  snprintf(compared, sizeof compared, "%" PRId64 "/%" PRId64, r->blocks_compared, r->blocks);
  fprintf(out,
          "%3" PRId64 " %4" PRId64 " %-6s %7.1e %7.1e %7.1e %5.2f %7.1e %5" PRId64
          " %11s %5.2f %s%s\n",
          call->request.heads, call->shape.kept, verify_layout_names[call->arrays.q.layout],
          verify_o_rel(r), r->block_rel, r->lse_abs, r->mean_ulp, r->score_gap, r->swaps, compared,
          r->seconds, r->inherited ? "same bits, " : "", r->n_failures ? "FAILED" : "ok");
  for (int i = 0; i < r->n_failures && i < VERIFY_MAX_FAILURES; i++)
    fprintf(out, "    %s\n", r->failures[i]);
  if (r->n_failures > VERIFY_MAX_FAILURES)
    fprintf(out, "    and %d more\n", r->n_failures - VERIFY_MAX_FAILURES);
  fflush(out);
}

/* The kernels that a case launches. */
static unsigned reached(const struct select_call *call) {
  const struct pisa_method *m = &call->module->method;
  unsigned kernels = 1U << PISA_KERNEL_PYRAMID | 1U << PISA_KERNEL_PYRAMID_TOP;
  if (call->shape.dense)
    return kernels | 1U << pisa_attend_kernel(m, &call->shape);
  kernels |= 1U << PISA_KERNEL_ATTEND_BLOCKS;
  if (!call->test->steps)
    kernels |=
        1U << PISA_KERNEL_CSR_COUNT | 1U << PISA_KERNEL_CSR_SCAN | 1U << PISA_KERNEL_CSR_FILL;
  if (m->flat || call->test->below)
    kernels |= 1U << PISA_KERNEL_FLAT;
  else
    kernels |= 1U << PISA_KERNEL_WALK;
  if (pisa_is_clustered(m) && !call->test->below)
    kernels |= 1U << PISA_KERNEL_CLUSTER | 1U << PISA_KERNEL_SCATTER |
               1U << PISA_KERNEL_LEAF_SCORE | 1U << PISA_KERNEL_PICK;
  if (call->test->steps)
    kernels |= 1U << PISA_KERNEL_APPEND | 1U << PISA_KERNEL_DECODE;
  return kernels;
}

static void json_errors(FILE *out, const struct verify_result *r) {
  verify_json_number(out, "rel_l2", verify_o_rel(r));
  verify_json_number(out, "row_rel_l2", r->block_rel);
  verify_json_number(out, "lse_abs", r->lse_abs);
  verify_json_number(out, "mean_ulp", r->mean_ulp);
  verify_json_number(out, "score_gap", r->score_gap);
  fprintf(out,
          "\"swaps\": %" PRId64 ", \"queries\": [%" PRId64 ", %" PRId64 "], \"inherited\": %s, ",
          r->swaps, r->blocks_compared, r->blocks, r->inherited ? "true" : "false");
}

static void json_case(const struct verify_report *report, const struct select_call *call,
                      const struct verify_result *r, const struct verify_code *code) {
  FILE *out = report->json;
  const pisa_attention *a = &call->request;
  const struct pisa_method *m = &call->module->method;
  fprintf(out, "{\"verify\": \"case\", \"case\": \"%s\", ", call->test->name);
  verify_json_code(out, code);
  fprintf(out,
          "\"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64 ", \"Hk\": %" PRId64
          ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64 ", \"D\": %d, \"type\": \"%s\"}, "
          "\"kept\": %" PRId64 ", \"leaf\": %d, \"layout\": \"%s\", \"steps\": %" PRId64 ", ",
          a->batch, a->heads, a->kv_heads, a->n_q, a->n_k, m->head_dim,
          m->type == PISA_BF16 ? "bf16" : "fp16", call->shape.kept, m->key,
          verify_layout_names[call->arrays.q.layout], call->test->steps);
  json_errors(out, r);
  fprintf(out, "\"seed\": %" PRIu64 ", \"seconds\": %.2f, \"passed\": %s, \"failures\": [",
          report->seed, r->seconds, r->n_failures ? "false" : "true");
  for (int i = 0; i < r->n_failures && i < VERIFY_MAX_FAILURES; i++) {
    fputs(i ? ", " : "", out);
    verify_json_string(out, r->failures[i]);
  }
  fprintf(out, "]}\n");
  fflush(out);
}

void select_report_case(const struct verify_report *report, const struct select_call *call,
                        const struct verify_result *r, struct verify_code *code) {
  print_row(report->table, call, r);
  verify_code_count(code, r, reached(call));
  if (report->json)
    json_case(report, call, r, code);
}
