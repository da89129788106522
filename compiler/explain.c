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

void explain_cell(struct text *out, int width, double value) {
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

static const char *term_name(enum spec_term term) {
  switch (term) {
  case TERM_LOG_COVARIANCE:
    return " + log covariance";
  case TERM_LOG_RESIDUAL:
    return " + log residual";
  case TERM_LOG_KEY_VARIANCE:
    return " + log key_variance";
  case TERM_NONE:
    break;
  }
  return "";
}

static void print_budget(const struct spec *spec, struct text *out) {
  switch (spec->route.budget) {
  case BUDGET_DENSITY:
    print_decimal(spec->route.density, out);
    text_puts(out, " of the key blocks");
    break;
  case BUDGET_KEEP:
    text_printf(out, "%d key blocks", spec->route.keep);
    break;
  case BUDGET_THRESHOLD:
    text_puts(out, "key blocks above the mean score by ");
    print_decimal(spec->route.threshold, out);
    text_printf(out, " standard deviations (%s)",
                spec->route.variance == VARIANCE_FULL ? "full" : "diagonal");
    break;
  }
}

static void print_route(const struct spec *spec, struct text *out) {
  text_puts(out, "  route     ");
  if (spec->attend.all_exact) {
    text_puts(out, "none\n");
    return;
  }
  print_budget(spec, out);
  text_printf(out, " for each query block, by mean%s\n", term_name(spec->route.term));
}

void explain_ranges(const struct spec *spec, const char *block, struct text *out) {
  struct always_tokens ranges[PLAN_MAX_ALWAYS];
  int n = plan_always(spec, ranges);
  for (int i = 0; i < n; i++) {
    const char *side = ranges[i].kind == ALWAYS_TOKENS_FIRST ? "first" : "last";
    if (ranges[i].kind == ALWAYS_RANGE)
      text_printf(out, "  always    tokens %lld..%lld\n", (long long)ranges[i].begin,
                  (long long)ranges[i].end);
    else if (ranges[i].end == 1)
      text_printf(out, "  always    the %s %s\n", side, block);
    else
      text_printf(out, "  always    the %s %lld tokens\n", side, (long long)ranges[i].end);
  }
}

static void print_forced(const struct spec *spec, struct text *out) {
  int window = plan_window(spec);
  if (window == 0)
    text_puts(out, "  always    the blocks of the query block's own rows\n");
  if (window > 0)
    text_printf(out, "  always    the blocks of the query block's own rows, and %d to each side\n",
                window);
  explain_ranges(spec, "block", out);
}

static void print_attend(const struct spec *spec, struct text *out) {
  static const char *const rests[] = {
      [TAIL_DROP] = "the rest dropped",
      [TAIL_TAYLOR_0] = "each other block by its mean (taylor 0)",
      [TAIL_TAYLOR_1] = "each other block token by token to first order (taylor 1)",
      [TAIL_TAYLOR_HYBRID] = "each other block by its mean, all to first order (taylor hybrid)",
  };
  const char *mass = spec->attend.mass_second_order ? ", its mass to second order" : "";
  if (spec->attend.all_exact)
    text_puts(out, "  attend    every block exactly\n");
  else
    text_printf(out, "  attend    chosen blocks exactly, %s%s\n", rests[spec->attend.rest], mass);
}

static void print_schedule(const struct spec *spec, struct text *out) {
  if (spec->half_tile)
    text_puts(out, "  schedule  an odd last block or 64 of means is half a tile (half_tile)\n");
  if (spec->lists == LISTS_UNION)
    text_puts(out,
              "  schedule  two neighbouring query blocks together: what both lists have is read "
              "once (lists union)\n");
}

void explain_shape(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  text_printf(out, "%s\n", spec->name);
  text_printf(out, "  target    %s\n", plan->target->name);
  text_printf(out, "  shape     %d heads, %d key/value heads, head_dim %d, %s, mask %s\n",
              spec->shape.heads, spec->shape.kv_heads, spec->shape.head_dim,
              spec->shape.type == TYPE_BF16 ? "bf16" : "fp16",
              spec->shape.mask == MASK_NONE ? "none" : "causal");
}

void explain_phases(const struct spec *spec, struct text *out) {
  bool prefill = spec->phases.prefill, decode = spec->phases.decode;
  text_printf(out, "  phases    %s%s%s\n", prefill ? "prefill" : "", prefill && decode ? ", " : "",
              decode ? "decode" : "");
  if (spec->pages.present)
    text_printf(out, "  pages     %d tokens\n", spec->pages.size);
}

static void print_method(const struct plan *plan, struct text *out) {
  const struct spec *spec = plan->spec;
  explain_shape(plan, out);
  text_printf(out, "  blocks    %d queries, %d keys\n", spec->blocks.query, spec->blocks.key);
  print_route(spec, out);
  print_forced(spec, out);
  print_attend(spec, out);
  if (plan->decodes)
    explain_phases(spec, out);
  if (spec->below.kind == BELOW_DENSE)
    text_printf(out, "  below     %lld tokens every block exactly\n",
                (long long)spec->below.tokens);
  print_schedule(spec, out);
  text_puts(out, "  defaults  ");
  explain_defaults(spec, out);
  text_putc(out, '\n');
}

/* ---- the cost ---- */

static const char *plural(double n) {
  return n == 1 ? "" : "s";
}

static void print_lists(const struct plan *plan, const struct costs *c, struct text *out) {
  text_printf(out, "  a query block reads %s%lld key block%s exactly",
              c->mean_kept < (double)c->kept ? "up to " : "", (long long)c->kept,
              plural((double)c->kept));
  if (c->mean_kept < (double)c->kept)
    text_printf(out, ", %.3g on average", c->mean_kept);
  text_printf(out, ": %.4g tile%s of %d keys", c->exact_tiles, plural(c->exact_tiles),
              c->attend->tile_k);
  if (c->linear_tiles > 0)
    text_printf(out, ", then %.4g to first order", c->linear_tiles);
  if (c->mean_tiles > 0)
    text_printf(out, ", then %.4g of means", c->mean_tiles);
  text_puts(out, c->attend->first_order ? ", then the first-order term\n" : "\n");
  if (plan->spec->route.budget == BUDGET_THRESHOLD && !c->attend->dense)
    text_puts(out,
              "  (the data decide how many; these are what normally distributed scores give)\n");
  if (c->attend->pairs)
    text_printf(out, "  (the data decide what two neighbours share; counted is %g of each list)\n",
                COST_SHARED);
}

static void print_work(const struct plan *plan, const struct costs *c, struct text *out) {
  text_printf(out, "\nat %lld tokens, batch 1: %lld query blocks, %lld key blocks%s\n",
              (long long)c->tokens, (long long)c->query_blocks, (long long)c->key_blocks,
              c->attend->dense && plan->below ? ", dense below the spec's limit" : "");
  print_lists(plan, c, out);
}

/* Registers of the loading and of the computing threads. */
static void print_registers(const struct plan *plan, const struct costs *c,
                            const struct plan_kernel *kernel, char out[16]) {
  const struct plan_statistics *s = &plan->statistics;
  const struct plan_residual *r = &plan->residual;
  const struct plan_attend *a = c->attend;
  snprintf(out, 16, "any");
  if (kernel == &s->kernel)
    snprintf(out, 16, "%d / %d", s->producer_registers, s->consumer_registers);
  if (kernel == &r->kernel)
    snprintf(out, 16, "%d / %d", r->producer_registers, r->consumer_registers);
  if (kernel == &a->kernel)
    snprintf(out, 16, "%d / %d", a->producer_registers, a->consumer_registers);
}

static void print_launch(const struct plan *plan, const struct costs *all, const struct cost *c,
                         struct text *out) {
  char registers[16];
  print_registers(plan, all, c->kernel, registers);
  text_printf(out, "  %-15s  %6lld  %7d  %9s  %8d", c->kernel->entry, (long long)c->ctas,
              c->kernel->threads, registers, c->smem_bytes);
  explain_cell(out, 6, c->flops);
  explain_cell(out, 6, c->exps);
  explain_cell(out, 6, c->l2_bytes);
  explain_cell(out, 6, c->hbm_bytes);
  text_printf(out, "  %8.1f  %s\n", c->seconds * 1e6, c->bound);
}

static void print_costs(const struct plan *plan, const struct costs *c, struct text *out) {
  const struct target *t = plan->target;
  text_printf(out, "  %-15s  %6s  %7s  %9s  %8s  %6s  %6s  %6s  %6s  %8s  %s\n", "kernel", "CTAs",
              "threads", "registers", "smem", "FLOP", "exps", "L2", "memory", "us", "bound");
  for (int i = 0; i < c->n_launches; i++)
    print_launch(plan, c, &c->launch[i], out);
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

/* A decoding step moves all keys and values once; what it computes is hidden behind that. */
static void print_decode(const struct plan *plan, int64_t tokens, struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  const struct target *t = plan->target;
  double bytes = 4.0 * (double)tokens * plan->spec->shape.kv_heads * p->head_dim;
  char digits[16];
  scaled(bytes, digits);
  text_printf(out,
              "\na decoding step of one query at %lld tokens: %s bytes of keys and values, at best "
              "%.1f us, 2 launches of %.0f us included\n",
              (long long)tokens, digits, (bytes / t->hbm_bytes + 2 * t->launch_seconds) * 1e6,
              t->launch_seconds * 1e6);
}

/* From where on routing pays, and how far from there the spec's `below` is. */
static void print_crossover(struct arena *arena, const struct plan *plan, struct text *out) {
  if (plan->attend.dense)
    return;
  int64_t tokens = cost_crossover(arena, plan), below = plan->spec->below.tokens;
  if (tokens == 0) {
    text_puts(out, "  not expected to be faster than dense attention at any length\n");
    return;
  }
  text_printf(out, "  expected to be faster than dense attention from %lld tokens on\n",
              (long long)tokens);
  if (plan->below && (below > 2 * tokens || 2 * below < tokens))
    text_printf(
        out,
        "  `below %lld tokens use dense` is far from that: in between the slower way is taken\n",
        (long long)below);
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
  if (plan->n_rejections > 0)
    text_puts(out, "\nnot taken by the plan\n");
  for (int i = 0; i < plan->n_rejections; i++)
    text_printf(out, "  %s: %s\n", plan->rejections[i].candidate, plan->rejections[i].reason);
}

/* The costs above hold for any length; the route kernel does not. */
static void print_most(const struct plan *plan, const struct costs *c, struct text *out) {
  int64_t most = cost_most_tokens(plan);
  if (most > 0 && !c->attend->dense && c->tokens > most)
    text_printf(out,
                "  warning: pisa_launch refuses calls of more than %lld tokens: the route kernel "
                "keeps a row of scores in shared memory\n",
                (long long)most);
}

static void print_prefill(const struct plan *plan, int64_t tokens, struct text *out) {
  const struct costs costs = cost_of(plan, tokens);
  print_work(plan, &costs, out);
  print_costs(plan, &costs, out);
  print_most(plan, &costs, out);
}

static void explain_piecewise(struct arena *arena, const struct plan *plan, int64_t tokens,
                              struct text *out) {
  print_method(plan, out);
  if (plan->prefills) {
    print_prefill(plan, tokens, out);
    print_crossover(arena, plan, out);
  }
  if (plan->decodes)
    print_decode(plan, tokens, out);
}

void explain(struct arena *arena, const struct variants *variants, int64_t tokens,
             struct text *out) {
  const struct plan *plan = variants->plans[0];
  if (plan->selects && plan->below && tokens < plan->spec->below.tokens) {
    explain_selection_method(plan, out);
    print_prefill(plan, tokens, out);
  } else if (plan->selects)
    explain_selection(plan, tokens, out);
  else
    explain_piecewise(arena, plan, tokens, out);
  print_variants(variants, out);
  print_rejections(plan, out);
}
