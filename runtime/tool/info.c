/* info.c: `pisa info`. A pack in; on stdout what it was made from, what it does, and what code it
 * holds. */
#include <inttypes.h>
#include <stdio.h>

#include "runtime/pack.h"
#include "runtime/tool/args.h"
#include "runtime/tool/tool.h"

static const char *type_name(pisa_type type) {
  return type == PISA_BF16 ? "bf16" : "fp16";
}

static void print_always(const struct pisa_method *m) {
  for (int i = 0; i < m->n_always; i++) {
    const struct pisa_always *a = &m->always[i];
    if (a->kind == PISA_ALWAYS_RANGE)
      printf(", always tokens %" PRId64 "..%" PRId64, a->begin, a->end);
    else
      printf(", always tokens %s %" PRId64, a->kind == PISA_ALWAYS_FIRST ? "first" : "last",
             a->end);
  }
  if (m->always_previous)
    printf(", always previous");
  if (m->always_current)
    printf(", always current");
  if (m->has_window && m->window)
    printf(", always window %" PRId64, m->window);
  else if (m->has_window)
    printf(", always diagonal");
}

/* num / den, den a power of ten, with the digits it has: 15/100 is 0.15. */
static void print_decimal(const char *name, int64_t num, int64_t den) {
  int digits = 0;
  for (int64_t power = den; power > 1; power /= 10)
    digits++;
  printf("%s %.*f", name, digits, (double)num / (double)den);
}

static void print_budget(const struct pisa_method *m) {
  if (m->budget == PISA_BUDGET_KEEP)
    printf("keep %" PRId64, m->keep);
  else if (m->budget == PISA_BUDGET_DENSITY)
    print_decimal("density", m->density_num, m->density_den);
  else
    print_decimal("threshold", m->threshold_num, m->threshold_den);
  if (m->budget == PISA_BUDGET_THRESHOLD)
    printf(", variance %s", m->variance == PISA_VARIANCE_FULL ? "full" : "diagonal");
}

/* Block selection. */
static void print_selection(const struct pisa_method *m, const char *indent) {
  static const char *const scores[] = {[PISA_SCORE_MEAN] = "mean",
                                       [PISA_SCORE_HALF_VARIANCE] = "half_variance",
                                       [PISA_SCORE_LSE] = "lse"};
  static const char *const reductions[] = {[PISA_REDUCE_SUM] = "sum",
                                           [PISA_REDUCE_MAX] = "max",
                                           [PISA_REDUCE_LSE] = "lse",
                                           [PISA_REDUCE_MASS] = "mass",
                                           [PISA_REDUCE_MAX_MASS] = "max_mass"};
  printf("%spyramid     leaf %d, group %d", indent, m->key, m->group);
  if (m->page)
    printf(", pages of %d tokens", m->page);
  printf("\n%sroute       %s, score %s, reduce heads %s, keep %" PRId64, indent,
         m->flat ? "flat" : "pyramid", scores[m->score], reductions[m->reduce], m->keep);
  if (m->start_nodes)
    printf(", start %" PRId64, m->start_nodes);
  if (m->decode && m->decode_start_nodes != m->start_nodes)
    printf(", decode_start %" PRId64, m->decode_start_nodes);
  print_always(m);
  printf("\n%sattend      selected exact, rest drop\n", indent);
  printf("%sphases      %s%s%s", indent, m->prefill ? "prefill" : "",
         m->prefill && m->decode ? ", " : "", m->decode ? "decode" : "");
  if (!m->flat)
    printf("; leaf_stage %s", m->fused ? "fused" : "clustered");
  printf(", query_tile %d\n", m->query_tile);
  if (m->dense_below)
    printf("%sbelow       %" PRId64 " tokens dense\n", indent, m->dense_below);
  if (m->flat_below)
    printf("%sbelow       %" PRId64 " tokens flat\n", indent, m->flat_below);
}

static void print_method(const struct pisa_method *m, const char *indent) {
  static const char *const tails[] = {[PISA_TAIL_DROP] = "drop",
                                      [PISA_TAIL_TAYLOR_0] = "taylor 0",
                                      [PISA_TAIL_TAYLOR_1] = "taylor 1",
                                      [PISA_TAIL_TAYLOR_HYBRID] = "taylor hybrid"};
  static const char *const terms[] = {[PISA_TERM_NONE] = "",
                                      [PISA_TERM_LOG_COVARIANCE] = " + log covariance",
                                      [PISA_TERM_LOG_RESIDUAL] = " + log residual",
                                      [PISA_TERM_LOG_KEY_VARIANCE] = " + log key_variance"};
  if (m->family == PISA_PYRAMID) {
    print_selection(m, indent);
    return;
  }
  printf("%sblocks      query %d, key %d%s\n", indent, m->query, m->key,
         m->union_lists ? ", lists union" : "");
  if (m->dense) {
    printf("%sattend      all exact\n", indent);
    if (m->decode)
      printf("%sphases      %sdecode\n", indent, m->prefill ? "prefill, " : "");
    if (m->page)
      printf("%spages       of %d tokens\n", indent, m->page);
    return;
  }
  printf("%sroute       top_k, score mean%s, ", indent, terms[m->term]);
  print_budget(m);
  print_always(m);
  printf("\n%sattend      selected exact, rest %s%s\n", indent, tails[m->tail],
         m->mass == PISA_MASS_SECOND_ORDER ? ", mass second_order" : "");
  if (m->dense_below)
    printf("%sbelow       %" PRId64 " tokens dense\n", indent, m->dense_below);
}

static void print_part(const char *name, const struct pisa_part *part) {
  if (part->present)
    printf("  %-11s %zu bytes, sha256 %s\n", name, part->size, part->sha256);
  else
    printf("  %-11s none: the driver compiles the PTX on load\n", name);
}

static void print_kernel(const char *name, const struct pisa_kernel *kernel) {
  printf("  %-11s %s: %d threads, ", name, kernel->entry, kernel->threads);
  if (kernel->smem_bytes == PISA_SMEM_DYNAMIC)
    printf("shared memory by length");
  else
    printf("%d bytes shared memory", kernel->smem_bytes);
  if (kernel->registers)
    printf(", %d registers, %d bytes spilled\n", kernel->registers, kernel->spill_bytes);
  else
    printf(", registers not known (no ptxas)\n");
}

static void print_variant(const struct pisa_variant *v, int index) {
  printf("\nvariant %d%s%s\n", index, *v->choices ? ": " : "", v->choices);
  print_method(&v->method, "  ");
  print_part("ptx", &v->ptx);
  print_part("cubin", &v->cubin);
  for (int k = 0; k < PISA_N_KERNELS; k++)
    if (v->kernels[k].present)
      print_kernel(pisa_kernel_names[k], &v->kernels[k]);
}

static void print_pack(const struct pisa_manifest *manifest) {
  const struct pisa_method *m = &manifest->variants[0].method;
  printf("name        %s\n", manifest->name);
  printf("compiler    %s\n", manifest->compiler);
  printf("target      %s, PTX %d.%d\n", manifest->target, manifest->ptx_version / 10,
         manifest->ptx_version % 10);
  printf("spec        sha256 %s\n", manifest->spec_sha256);
  printf("method      %s\n", m->family == PISA_PYRAMID ? "pyramid" : "piecewise");
  printf("shape       heads %d, kv_heads %d, head_dim %d, type %s, mask %s\n", m->heads,
         m->kv_heads, m->head_dim, type_name(m->type),
         m->mask == PISA_MASK_NONE ? "none" : "causal");
  printf("validation  %s\n", manifest->validated
                                 ? "validated: this code passed on a GPU"
                                 : "unvalidated: this code has no record of passing on a GPU");
  printf("variants    %d\n", manifest->n_variants);
  for (int i = 0; i < manifest->n_variants; i++)
    print_variant(&manifest->variants[i], i);
}

int tool_info(int argc, char **argv) {
  bool raw = false;
  const struct args_option options[] = {
      {"--manifest", NULL, "print the manifest as it stands in the pack (docs/ABI.md)", ARGS_FLAG,
       &raw, 0},
  };
  const struct args_command command = {"info", "PACK", "Prints what a pack holds.", options, 1};
  const char *path;
  pisa_pack *pack;
  pisa_error error;
  int code;
  if (!args_parse(&command, argc, argv, &path, &code))
    return code;
  if (pisa_pack_open(path, &pack, &error))
    return tool_report("info", &error);
  if (raw)
    fputs(pack->manifest.text, stdout);
  else
    print_pack(&pack->manifest);
  pisa_pack_close(pack);
  return TOOL_DONE;
}
