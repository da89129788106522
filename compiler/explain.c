/* explain.c: in go planned variants and a length; out comes a page of text: the method, what each
   launch moves and computes, the time that takes at best, and every choice that was not built with
   its reason. */
#include "compiler/explain.h"

#include <stdio.h>
#include <string.h>

#include "compiler/plan/cost.h"
#include "dsl/text.h"

/* ---- numbers ---- */

/* Three figures and a unit of 1000: 1.88T, 64.5M, 0. */
static void scaled(double value, char out[16]) {
  static const char UNITS[] = " kMGTP";
  int unit = 0;
  while (value >= 999.5 && unit < 5) {
    value /= 1000;
    unit++;
  }
  int places = value == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  int n = snprintf(out, 16, "%.*f", places, value);
  if (unit > 0)
    snprintf(out + n, 16 - (size_t)n, "%c", UNITS[unit]);
}

static void cell(struct text *out, int width, double value) {
  char digits[16];
  scaled(value, digits);
  text_printf(out, "  %*s", width, digits);
}

/* ---- the method ---- */

static void print_decimal(struct decimal d, struct text *out) {
  int places = 0;
  for (int64_t den = d.den; den > 1; den /= 10)
    places++;
  if (places == 0)
    text_printf(out, "%lld", (long long)d.num);
  else
    text_printf(out, "%lld.%0*lld", (long long)(d.num / d.den), places, (long long)(d.num % d.den));
}

static void print_route(const struct spec *spec, struct text *out) {
  text_puts(out, "  route     ");
  if (spec->attend.all_exact) {
    text_puts(out, "none\n");
    return;
  }
  if (spec->route.budget == BUDGET_DENSITY) {
    print_decimal(spec->route.density, out);
    text_puts(out, " of the key blocks");
  } else {
    text_printf(out, "%d key blocks", spec->route.keep);
  }
  text_printf(out, " for each query block, by mean%s\n",
              spec->route.term == TERM_LOG_COVARIANCE     ? " + log covariance"
              : spec->route.term == TERM_LOG_KEY_VARIANCE ? " + log key_variance"
                                                          : "");
}

static void print_forced(const struct spec *spec, struct text *out) {
  struct always_tokens ranges[PLAN_MAX_ALWAYS];
  int n = plan_always(spec, ranges), window = plan_window(spec);
  if (window == 0)
    text_puts(out, "  always    the blocks of the query block's own rows\n");
  if (window > 0)
    text_printf(out, "  always    the blocks of the query block's own rows, and %d to each side\n",
                window);
  for (int i = 0; i < n; i++) {
    const char *side = ranges[i].kind == ALWAYS_TOKENS_FIRST ? "first" : "last";
    if (ranges[i].kind == ALWAYS_RANGE)
      text_printf(out, "  always    tokens %lld..%lld\n", (long long)ranges[i].begin,
                  (long long)ranges[i].end);
    else if (ranges[i].end == 1)
      text_printf(out, "  always    the %s block\n", side);
    else
      text_printf(out, "  always    the %s %lld tokens\n", side, (long long)ranges[i].end);
  }
}

static void print_attend(const struct spec *spec, struct text *out) {
  static const char *const rests[] = {
      [TAIL_DROP] = "the rest dropped",
      [TAIL_TAYLOR_0] = "each other block by its mean (taylor 0)",
      [TAIL_TAYLOR_1] = "each other block to first order (taylor 1)",
      [TAIL_TAYLOR_HYBRID] = "each other block by its mean, all to first order (taylor hybrid)",
  };
  const char *mass = spec->attend.mass_second_order ? ", its mass to second order" : "";
  if (spec->attend.all_exact)
    text_puts(out, "  attend    every block exactly\n");
  else
    text_printf(out, "  attend    chosen blocks exactly, %s%s\n", rests[spec->attend.rest], mass);
}

static void print_method(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  text_printf(out, "%s\n", spec->name);
  text_printf(out, "  target    %s\n", plan->target->name);
  text_printf(out, "  shape     %d heads, %d key/value heads, head_dim %d, %s, mask %s\n",
              spec->shape.heads, spec->shape.kv_heads, spec->shape.head_dim,
              spec->shape.type == TYPE_BF16 ? "bf16" : "fp16",
              spec->shape.mask == MASK_NONE ? "none" : "causal");
  text_printf(out, "  blocks    %d queries, %d keys\n", spec->blocks.query, spec->blocks.key);
  print_route(spec, out);
  print_forced(spec, out);
  print_attend(spec, out);
  text_puts(out, "  defaults  ");
  explain_defaults(spec, out);
  text_putc(out, '\n');
}

/* ---- the cost ---- */

static void print_work(const struct plan *plan, const struct costs *c, struct text *out) {
  text_printf(out, "\nat %lld tokens, batch 1: %lld query blocks, %lld key blocks\n",
              (long long)c->tokens, (long long)c->query_blocks, (long long)c->key_blocks);
  text_printf(out, "  a query block reads %lld key blocks exactly: %lld tile%s of %d keys",
              (long long)c->kept, (long long)c->exact_tiles, c->exact_tiles == 1 ? "" : "s",
              plan->attend.tile_k);
  if (c->mean_tiles > 0)
    text_printf(out, ", then %lld of means", (long long)c->mean_tiles);
  text_puts(out, plan->attend.first_order ? ", then the first-order term\n" : "\n");
}

static void print_launch(const struct plan *plan, const struct cost *c, struct text *out) {
  const struct plan_statistics *s = &plan->statistics;
  const struct plan_attend *a = &plan->attend;
  char registers[16] = "any";
  if (c->kernel == &s->kernel)
    snprintf(registers, sizeof registers, "%d / %d", s->producer_registers, s->consumer_registers);
  if (c->kernel == &a->kernel)
    snprintf(registers, sizeof registers, "%d / %d", a->producer_registers, a->consumer_registers);
  text_printf(out, "  %-15s  %6lld  %7d  %9s  %8d", c->kernel->entry, (long long)c->ctas,
              c->kernel->threads, registers, c->smem_bytes);
  cell(out, 6, c->flops);
  cell(out, 6, c->exps);
  cell(out, 6, c->l2_bytes);
  cell(out, 6, c->hbm_bytes);
  text_printf(out, "  %8.1f  %s\n", c->seconds * 1e6, c->bound);
}

static void print_costs(const struct plan *plan, const struct costs *c, struct text *out) {
  const struct target *t = plan->target;
  text_printf(out, "  %-15s  %6s  %7s  %9s  %8s  %6s  %6s  %6s  %6s  %8s  %s\n", "kernel", "CTAs",
              "threads", "registers", "smem", "FLOP", "exps", "L2", "memory", "us", "bound");
  for (int i = 0; i < c->n_launches; i++)
    print_launch(plan, &c->launch[i], out);
  double dense = c->dense_flops / t->tensor_flops + t->launch_seconds;
  char digits[16];
  scaled(c->flops, digits);
  text_printf(out, "  attention %s FLOP, %.3f of dense attention's, %.0f for each byte from L2\n",
              digits, c->flops / c->dense_flops, c->flops / c->launch[c->n_launches - 1].l2_bytes);
  text_printf(
      out,
      "  at best %.1f us, %d launch%s of %.0f us included; dense attention at the same rate "
      "%.1f us\n",
      c->seconds * 1e6, c->n_launches, c->n_launches == 1 ? "" : "es", t->launch_seconds * 1e6,
      dense * 1e6);
}

static void print_crossover(struct arena *arena, const struct plan *plan, struct text *out) {
  int64_t tokens = cost_crossover(arena, plan);
  if (tokens > 0)
    text_printf(out, "  expected to be faster than dense attention from %lld tokens on\n",
                (long long)tokens);
  else if (!plan->attend.dense)
    text_puts(out, "  not expected to be faster than dense attention at any length\n");
}

/* ---- what is built and what is not ---- */

static void print_variants(const struct variants *v, struct text *out) {
  if (v->n > 1 || *v->plans[0]->choices)
    text_puts(out, "\nvariants\n");
  for (int i = 0; i < v->n && *v->plans[i]->choices; i++)
    text_printf(out, "  %d  %s\n", i, v->plans[i]->choices);
  if (v->n_dropped > 0)
    text_puts(out, "\nnot built\n");
  for (int i = 0; i < v->n_dropped; i++)
    text_printf(out, "  %s: %s\n", v->dropped[i].candidate, v->dropped[i].reason);
}

static void print_rejections(const struct plan *plan, struct text *out) {
  text_puts(out, "\nnot taken by the plan\n");
  for (int i = 0; i < plan->n_rejections; i++)
    text_printf(out, "  %s: %s\n", plan->rejections[i].candidate, plan->rejections[i].reason);
}

void explain(struct arena *arena, const struct variants *variants, int64_t tokens,
             struct text *out) {
  const struct plan *plan = variants->plans[0];
  struct costs costs = cost_of(plan, tokens);
  print_method(plan, out);
  print_work(plan, &costs, out);
  print_costs(plan, &costs, out);
  print_crossover(arena, plan, out);
  print_variants(variants, out);
  print_rejections(plan, out);
}
