/* manifest.c: in go plans, parts and ptxas's report; out come the lines of a manifest, in the order
 * of docs/ABI.md. */
#include "compiler/pack/manifest.h"

#include <string.h>

/* ---- the method, one function a line ---- */

static void shape_line(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  text_printf(out, "shape heads=%d kv_heads=%d head_dim=%d type=%s mask=%s\n", spec->shape.heads,
              spec->shape.kv_heads, spec->shape.head_dim,
              spec->shape.type == TYPE_BF16 ? "bf16" : "fp16",
              spec->shape.mask == MASK_NONE ? "none" : "causal");
}

static void blocks_line(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  text_printf(out, "blocks query=%d key=%d lists=%s\n", spec->blocks.query, spec->blocks.key,
              spec->lists == LISTS_UNION ? "union" : "separate");
}

static void route_line(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  if (spec->attend.all_exact) {
    text_puts(out, "route none\n");
    return;
  }
  static const char *const terms[] = {
      [TERM_NONE] = "none",
      [TERM_LOG_COVARIANCE] = "log_covariance",
      [TERM_LOG_RESIDUAL] = "log_residual",
      [TERM_LOG_KEY_VARIANCE] = "log_key_variance",
  };
  static const char *const budgets[] = {
      [BUDGET_KEEP] = "keep", [BUDGET_DENSITY] = "density", [BUDGET_THRESHOLD] = "threshold"};
  enum spec_budget budget = spec->route.budget;
  struct decimal none = {0, 1};
  struct decimal density = budget == BUDGET_DENSITY ? spec->route.density : none;
  struct decimal threshold = budget == BUDGET_THRESHOLD ? spec->route.threshold : none;
  text_printf(out, "route top_k score=mean term=%s budget=%s density=%lld/%lld keep=%d",
              terms[spec->route.term], budgets[budget], (long long)density.num,
              (long long)density.den, budget == BUDGET_KEEP ? spec->route.keep : 0);
  text_printf(out, " threshold=%lld/%lld variance=%s\n", (long long)threshold.num,
              (long long)threshold.den,
              spec->route.variance == VARIANCE_FULL ? "full" : "diagonal");
}

static void ranges_lines(const struct spec *spec, struct text *out) {
  struct always_tokens ranges[PLAN_MAX_ALWAYS];
  int n = spec->attend.all_exact ? 0 : plan_always(spec, ranges);
  for (int i = 0; i < n; i++)
    if (ranges[i].kind == ALWAYS_RANGE)
      text_printf(out, "always range=%lld..%lld\n", (long long)ranges[i].begin,
                  (long long)ranges[i].end);
    else
      text_printf(out, "always %s=%lld\n", ranges[i].kind == ALWAYS_TOKENS_FIRST ? "first" : "last",
                  (long long)ranges[i].end);
}

static void always_lines(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  ranges_lines(spec, out);
  if (!spec->attend.all_exact && plan_window(spec) >= 0)
    text_printf(out, "always window=%d\n", plan_window(spec));
}

static void attend_line(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  static const char *const tails[] = {
      [TAIL_DROP] = "drop",
      [TAIL_TAYLOR_0] = "taylor_0",
      [TAIL_TAYLOR_1] = "taylor_1",
      [TAIL_TAYLOR_HYBRID] = "taylor_hybrid",
  };
  if (spec->attend.all_exact)
    text_puts(out, "attend all=exact\n");
  else if (spec->attend.rest == TAIL_DROP)
    text_puts(out, "attend selected=exact rest=drop\n");
  else
    text_printf(out, "attend selected=exact rest=%s mass=%s\n", tails[spec->attend.rest],
                spec->attend.mass_second_order ? "second_order" : "zeroth_order");
}

/* ---- the same of block selection ---- */

static void pyramid_line(const struct plan *plan, struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  text_printf(out, "pyramid leaf=%d group=%d page=%d\n", p->leaf, p->children, p->page);
}

static void selection_line(const struct plan *plan, struct text *out) {
  static const char *const scores[] = {
      [SCORE_MEAN] = "mean", [SCORE_HALF_VARIANCE] = "half_variance", [SCORE_LSE] = "lse"};
  static const char *const reductions[] = {
      [REDUCE_NONE] = "sum", [REDUCE_SUM] = "sum",   [REDUCE_MAX] = "max",
      [REDUCE_LSE] = "lse",  [REDUCE_MASS] = "mass", [REDUCE_MAX_MASS] = "max_mass",
  };
  const struct plan_pyramid *p = &plan->pyramid;
  text_printf(out, "route %s score=%s reduce=%s keep=%d start=%d leaf_stage=%s query_tile=%d",
              p->flat ? "flat" : "pyramid", scores[p->score], reductions[p->reduce], p->keep,
              p->start_nodes, p->clustered ? "clustered" : "fused", p->query_tile);
  if (p->decode && p->decode_start_nodes != p->start_nodes)
    text_printf(out, " decode_start=%d", p->decode_start_nodes);
  text_putc(out, '\n');
}

static void selection_always_lines(const struct plan *plan, struct text *out) {
  ranges_lines(plan->spec, out);
  text_puts(out, plan->pyramid.previous ? "always previous\n" : "");
  text_puts(out, plan->pyramid.current ? "always current\n" : "");
}

/* Of a method that has no pyramid line to say the page. */
static void dense_phases_lines(const struct plan *plan, struct text *out) {
  if (!plan->decodes)
    return;
  text_printf(out, "phases%s decode\n", plan->prefills ? " prefill" : "");
  if (plan->pyramid.page > 0)
    text_printf(out, "pages size=%d\n", plan->pyramid.page);
}

static void phases_line(const struct plan *plan, struct text *out) {
  text_printf(out, "phases%s%s\n", plan->pyramid.prefill ? " prefill" : "",
              plan->pyramid.decode ? " decode" : "");
}

/* Of all variants: nothing of `below` can be varied. */
static void below_line(const struct spec *spec, struct text *out) {
  if (!spec->attend.all_exact && spec->below.kind != BELOW_NEVER)
    text_printf(out, "below tokens=%lld use=%s\n", (long long)spec->below.tokens,
                spec->below.kind == BELOW_DENSE ? "dense" : "flat");
}

/* ---- lines of a method ---- */

/* The lines a variant may repeat, in order. */
typedef void method_line(const struct plan *, struct text *);
static method_line *const PIECEWISE[] = {shape_line,  blocks_line,        route_line, always_lines,
                                         attend_line, dense_phases_lines, NULL};
static method_line *const PYRAMID[] = {
    shape_line,  pyramid_line, selection_line, selection_always_lines, attend_line,
    phases_line, NULL};

static method_line *const *method_lines(const struct plan *plan) {
  return plan->selects ? PYRAMID : PIECEWISE;
}

static void changed_lines(const struct plan *base, const struct plan *plan, struct text *out) {
  struct text before, now;
  text_init(&before);
  text_init(&now);
  for (method_line *const *line = method_lines(plan); *line; line++) {
    text_clear(&before);
    text_clear(&now);
    (*line)(base, &before);
    (*line)(plan, &now);
    if (strcmp(before.data, now.data) != 0)
      text_puts(out, now.size > 0 ? now.data : "always none\n");
  }
  text_fini(&before);
  text_fini(&now);
}

/* ---- head and variants ---- */

static void head(const struct pack *pack, struct text *out) {
  const struct plan *plan = pack->variants->plans[0];
  const struct spec *spec = plan->spec;
  const struct target *target = plan->target;
  struct text canonical;
  char digest[PISA_SHA256_HEX + 1];
  text_init(&canonical);
  spec_print(pack->spec, &canonical);
  pisa_sha256_hex(canonical.data, canonical.size, digest);
  text_fini(&canonical);
  text_printf(out, "name %s\ncompiler %s\ntarget %s\nptx_version %d\nspec_sha256 %s\n", spec->name,
              pack->compiler, target->name, target->ptx_version, digest);
  text_printf(out, "method %s\n", plan->selects ? "pyramid" : "piecewise");
  for (method_line *const *line = method_lines(plan); *line; line++)
    (*line)(plan, out);
  below_line(spec, out);
  text_printf(out, "validated %s\nvariants %d\n", pack_is_validated(pack) ? "yes" : "no",
              pack->variants->n);
}

static void part_line(const char *kind, const struct part *part, struct text *out) {
  text_printf(out, "part %s 0 %zu %zu %s\n", kind, part->offset, part->size, part->sha256);
}

static void kernel_line(const struct plan *plan, const struct plan_kernel *kernel,
                        const struct ptxas_report *report, struct text *out) {
  const struct ptxas_kernel *got = ptxas_kernel_find(report, kernel->entry);
  text_printf(out, "kernel %s entry=%s threads=%d smem=", kernel->entry + strlen("pisa_"),
              kernel->entry, kernel->threads);
  if (kernel == &plan->route.kernel)
    text_puts(out, "dynamic");
  else
    text_printf(out, "%d", kernel->smem_bytes);
  text_printf(out, " registers=%d spill=%d\n", got ? got->registers : kernel->entry_registers,
              got ? got->spill_stores + got->spill_loads : 0);
}

static void variant(const struct pack *pack, int i, const struct parts *parts, struct text *out) {
  const struct plan *plan = pack->variants->plans[i];
  const struct plan_kernel *kernels[MAX_KERNELS + 1];
  text_printf(out, "variant %d%s%s\n", i, *plan->choices ? " " : "", plan->choices);
  changed_lines(pack->variants->plans[0], plan, out);
  part_line("ptx", &parts->ptx, out);
  if (parts->cubin.size > 0)
    part_line("cubin", &parts->cubin, out);
  code_kernels(plan, kernels);
  for (int k = 0; kernels[k]; k++)
    kernel_line(plan, kernels[k], &pack->code[i]->report, out);
}

void manifest_write(const struct pack *pack, const struct parts *parts, struct text *out) {
  head(pack, out);
  for (int i = 0; i < pack->variants->n; i++)
    variant(pack, i, &parts[i], out);
  text_puts(out, "end\n");
}
