/* verify_report.c: results in, a table for people and JSON lines for scripts out
 * (docs/results/README.md). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/launch.h"
#include "runtime/tool/verify.h"

static enum pisa_kernel_id kernel_of(const struct verify_call *call) {
  if (call->shape.is_decode)
    return PISA_KERNEL_DECODE_ATTEND;
  return pisa_attend_kernel(&call->module->method, &call->shape);
}

/* JSON has no infinities and no NaN: null stands for them. */
void verify_json_number(FILE *out, const char *name, double value) {
  if (isfinite(value))
    fprintf(out, "\"%s\": %.4g, ", name, value);
  else
    fprintf(out, "\"%s\": null, ", name);
}

void verify_json_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++)
    if (*text == '"' || *text == '\\')
      fprintf(out, "\\%c", *text);
    else if ((unsigned char)*text < ' ')
      fprintf(out, "\\u%04x", (unsigned char)*text);
    else
      fputc(*text, out);
  fputc('"', out);
}

void verify_json_code(FILE *out, const struct verify_code *code) {
  const struct pisa_device *device = code->device;
  fprintf(out, "\"spec\": ");
  verify_json_string(out, code->spec);
  fprintf(out, ", \"variant\": ");
  verify_json_string(out, code->choices);
  fprintf(out,
          ", \"code\": \"%s\", \"sha256\": \"%s\", \"has_cubin\": %s, \"device\": ", code->kind,
          code->sha256, code->has_cubin ? "true" : "false");
  verify_json_string(out, device->name);
  fprintf(out, ", \"compute\": \"%d.%d\", \"cuda\": \"%d.%d\", ", device->major, device->minor,
          device->driver_version / 1000, device->driver_version % 1000 / 10);
}

static void json_shape(FILE *out, const struct verify_case *test, const struct verify_call *call) {
  const struct pisa_shape *s = &call->shape;
  const struct pisa_method *method = &call->module->method;
  fprintf(out,
          "\"shape\": {\"B\": %" PRId64 ", \"H\": %" PRId64 ", \"Hk\": %" PRId64
          ", \"Nq\": %" PRId64 ", \"Nk\": %" PRId64
          ", \"D\": %d, \"type\": \"%s\"}, \"kept\": %" PRId64 ", \"blocks\": %" PRId64
          ", \"layout\": \"%s\", \"kernel\": \"%s\", ",
          s->batch, s->heads, s->kv_heads, s->n_q, s->n_k, method->head_dim,
          method->type == PISA_BF16 ? "bf16" : "fp16", s->kept, s->nt,
          verify_layout_names[test->layout], pisa_kernel_names[kernel_of(call)]);
}

static void json_errors(FILE *out, const struct verify_result *r) {
  verify_json_number(out, "rel_l2", verify_o_rel(r));
  verify_json_number(out, "block_rel_l2", r->block_rel);
  verify_json_number(out, "lse_abs", r->lse_abs);
  verify_json_number(out, "mean_ulp", r->mean_ulp);
  verify_json_number(out, "norm_rel", r->norm_rel);
  verify_json_number(out, "h_sum_rel_l2", r->h_sum_rel);
  verify_json_number(out, "score_gap", r->score_gap);
  fprintf(out,
          "\"swaps\": %" PRId64 ", \"query_blocks\": [%" PRId64 ", %" PRId64
          "], \"inherited\": %s, ",
          r->swaps, r->blocks_compared, r->blocks, r->inherited ? "true" : "false");
}

static void json_case(const struct verify_report *report, const struct verify_case *test,
                      const struct verify_call *call, const struct verify_result *r,
                      const struct verify_code *code) {
  FILE *out = report->json;
  fprintf(out, "{\"verify\": \"case\", \"case\": \"%s\", ", test->name);
  verify_json_code(out, code);
  json_shape(out, test, call);
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

void verify_report_begin(const struct verify_report *report) {
  fprintf(report->table, "\nseed %" PRIu64 "\n", report->seed);
  fprintf(report->table,
          "%-12s %-16s %-5s %6s %6s %2s %3s %5s %-6s %-11s %7s %7s %7s %5s %7s %7s %5s %9s %5s\n",
          "spec", "case", "code", "Nq", "Nk", "B", "H", "kept", "layout", "kernel", "o", "block",
          "lse", "mean", "norm", "h_sum", "swaps", "compared", "s");
}

void verify_report_start(const struct verify_report *report, const struct verify_code *code,
                         const char *name, int64_t n_q, int64_t n_k, int64_t batch) {
  fprintf(report->table, "%-12s %-16s %-5s %6" PRId64 " %6" PRId64 " %2" PRId64 " ", code->spec,
          name, code->kind, n_q, n_k, batch);
  fflush(report->table);
}

static void note_max(double *largest, double value) {
  if (!(value <= *largest))
    *largest = value;
}

static void print_row(FILE *out, const struct verify_call *call, const struct verify_result *r) {
  char compared[48];
  snprintf(compared, sizeof compared, "%" PRId64 "/%" PRId64, r->blocks_compared, r->blocks);
  fprintf(out,
          "%3" PRId64 " %5" PRId64 " %-6s %-11s %7.1e %7.1e %7.1e %5.2f %7.1e %7.1e %5" PRId64
          " %9s %5.2f %s%s\n",
          call->shape.heads, call->shape.kept, verify_layout_names[call->inputs.q.layout],
          pisa_kernel_names[kernel_of(call)], verify_o_rel(r), r->block_rel, r->lse_abs,
          r->mean_ulp, r->norm_rel, r->h_sum_rel, r->swaps, compared, r->seconds,
          r->inherited ? "same bits, " : "", r->n_failures ? "FAILED" : "ok");
  for (int i = 0; i < r->n_failures && i < VERIFY_MAX_FAILURES; i++)
    fprintf(out, "    %s\n", r->failures[i]);
  if (r->n_failures > VERIFY_MAX_FAILURES)
    fprintf(out, "    and %d more\n", r->n_failures - VERIFY_MAX_FAILURES);
  fflush(out);
}

/* The kernels that a call launches. */
static unsigned reached(const struct verify_call *call) {
  unsigned kernels = 1U << kernel_of(call);
  if (call->shape.is_decode && call->layout.splits > 1)
    kernels |= 1U << PISA_KERNEL_DECODE_MERGE;
  if (call->shape.dense)
    return kernels;
  if (pisa_wants_residual(&call->module->method))
    kernels |= 1U << PISA_KERNEL_RESIDUAL;
  return kernels | 1U << PISA_KERNEL_STATISTICS | 1U << PISA_KERNEL_ROUTE;
}

void verify_code_count(struct verify_code *code, const struct verify_result *r, unsigned reached) {
  code->cases++;
  code->failed += r->n_failures > 0;
  code->reached |= reached;
  note_max(&code->o_rel, verify_o_rel(r));
  note_max(&code->block_rel, r->block_rel);
  note_max(&code->lse_abs, r->lse_abs);
}

void verify_report_case(const struct verify_report *report, const struct verify_case *test,
                        const struct verify_call *call, const struct verify_result *r,
                        struct verify_code *code) {
  print_row(report->table, call, r);
  verify_code_count(code, r, reached(call));
  if (report->json)
    json_case(report, test, call, r, code);
}

/* The kernels that ran, each with |quote| on both sides. */
static void list_kernels(FILE *out, unsigned reached, const char *quote) {
  const char *between = "";
  for (int id = 0; id < PISA_N_KERNELS; id++)
    if (reached >> id & 1) {
      fprintf(out, "%s%s%s%s", between, quote, pisa_kernel_names[id], quote);
      between = ", ";
    }
}

void verify_report_end(const struct verify_report *report, const struct verify_code *code) {
  fprintf(report->table,
          "%s %s: %d of %d cases passed%s; o %.2e, worst query block %.2e, lse %.1e\n", code->spec,
          code->kind, code->cases - code->failed, code->cases,
          code->complete ? "" : " (not the complete list)", code->o_rel, code->block_rel,
          code->lse_abs);
  fprintf(report->table, "%s %s: launched ", code->spec, code->kind);
  list_kernels(report->table, code->reached, "");
  fputc('\n', report->table);
  if (!report->json)
    return;
  fprintf(report->json, "{\"verify\": \"code\", ");
  verify_json_code(report->json, code);
  verify_json_number(report->json, "max_rel_l2", code->o_rel);
  verify_json_number(report->json, "max_block_rel_l2", code->block_rel);
  verify_json_number(report->json, "max_lse_abs", code->lse_abs);
  fprintf(report->json, "\"kernels\": [");
  list_kernels(report->json, code->reached, "\"");
  fprintf(report->json,
          "], \"seed\": %" PRIu64 ", \"cases\": %d, \"complete\": %s, \"passed\": %s}\n",
          report->seed, code->cases, code->complete ? "true" : "false",
          code->cases && !code->failed ? "true" : "false");
  fflush(report->json);
}
