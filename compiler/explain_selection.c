/* explain_selection.c: in goes a plan that selects blocks and a length; out comes a page of text:
   the method, the walk of the last query, what each launch moves and computes, how that grows with
   the length, and where a flat scan or dense attention would be cheaper. */
#include "compiler/explain.h"
#include "compiler/plan/cost_selection.h"
#include "dsl/text.h"

/* ---- the method ---- */

static const char *score_name(const struct plan_pyramid *p) {
  switch (p->score) {
  case SCORE_HALF_VARIANCE:
    return "mean and half the variance of the children's logits (half_variance)";
  case SCORE_LSE:
    return "log sum exp of the children's logits (lse)";
  case SCORE_MEAN:
    break;
  }
  return "the mean key (mean)";
}

static const char *reduce_name(const struct plan_pyramid *p) {
  switch (p->reduce) {
  case REDUCE_MAX:
    return "the largest over";
  case REDUCE_LSE:
    return "log sum exp over";
  case REDUCE_MASS:
    return "softmax over the candidates, summed over";
  case REDUCE_MAX_MASS:
    return "softmax over the candidates, the largest over";
  case REDUCE_SUM:
  case REDUCE_NONE:
    break;
  }
  return "summed over";
}

static void print_start(const char *phase, int nodes, struct text *out) {
  text_printf(out, "  start     %s: ", phase);
  if (nodes > 0)
    text_printf(out, "the lowest level of at most %d nodes that the query sees\n", nodes);
  else
    text_puts(out, "the root\n");
}

static void print_route(const struct plan *plan, struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  text_printf(out, "  pyramid   leaves of %d keys, %d children a node above them\n", p->leaf,
              p->children);
  text_printf(out, "  route     %d leaves for each query and key head, %s\n", p->keep,
              p->flat ? "from all leaves (flat)" : "by a walk from the top (pyramid)");
  text_printf(out, "  score     %s", score_name(p));
  if (p->group > 1)
    text_printf(out, ",\n            %s the %d heads of a key head", reduce_name(p), p->group);
  text_putc(out, '\n');
  explain_ranges(plan->spec, "leaf", out);
  if (p->previous)
    text_puts(out, "  always    the previous leaf\n");
  if (p->current)
    text_puts(out, "  always    the current leaf\n");
  if (!p->flat && p->prefill)
    print_start("prefill", p->start_nodes, out);
  if (!p->flat && p->decode)
    print_start("decode", p->decode_start_nodes, out);
}

void explain_selection_method(const struct plan *plan, struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  explain_shape(plan, out);
  print_route(plan, out);
  text_puts(out, "  attend    chosen leaves exactly, the rest dropped\n");
  explain_phases(plan->spec, out);
  if (plan->below || p->flat_below)
    text_printf(out, "  below     %lld tokens %s\n", (long long)plan->spec->below.tokens,
                plan->below ? "every key exactly, in phase prefill" : "all leaves are candidates");
  if (p->clustered)
    text_printf(out, "  schedule  leaves for clusters of queries, %d queries a tile (clustered)\n",
                p->query_tile);
  else if (!p->flat)
    text_puts(out, "  schedule  leaves within the walk (fused)\n");
  text_puts(out, "  defaults  ");
  explain_defaults(plan->spec, out);
  text_putc(out, '\n');
}

/* ---- at one length ---- */

static void print_levels(const struct selection_costs *c, struct text *out) {
  text_puts(out, "  level       nodes  candidates  ranked  (of the last query)\n");
  for (int l = c->levels; l >= 1; l--) {
    const struct cost_level *level = &c->last[l - 1];
    if (level->candidates == 0)
      continue;
    text_printf(out, "  %5d  %10lld  %10lld", l, (long long)level->nodes,
                (long long)level->candidates);
    if (level->ranked > 0)
      text_printf(out, "  %6lld\n", (long long)level->ranked);
    else
      text_puts(out, "       -\n");
  }
}

/* Elements of D that one (query, leaf) pair moves, where leaves are read key by key. */
static void print_traffic(const struct plan_pyramid *p, const struct selection_costs *c,
                          struct text *out) {
  enum { MEMBERS = 64 }; /* of an item of leaf_score, whose keys are loaded once */
  if (c->query.keys == 0)
    return;
  double tile = p->group + (double)p->leaf / p->query_tile;
  text_printf(out,
              "  for each leaf that is scored, a query moves C = %d vectors within the walk, and "
              "G + C / query_tile = %.4g\n  where a tile of queries shares keys",
              p->leaf, tile);
  if (p->clustered)
    text_printf(out,
                "; here G / %d + C / %d = %.3g: %d queries share keys, %d leaves share a query",
                p->children, MEMBERS, (double)p->group / p->children + (double)p->leaf / MEMBERS,
                MEMBERS, p->children);
  text_putc(out, '\n');
}

static void print_query(const struct plan *plan, const struct selection_costs *c,
                        struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  text_printf(out, "\nat %lld tokens, batch 1: %d level%s\n", (long long)c->tokens, c->levels,
              c->levels == 1 ? "" : "s");
  print_levels(c, out);
  text_printf(out,
              "  on average a query reads %.4g means and %.4g keys of leaves to choose, and %.3g "
              "leaves in the end\n",
              c->query.means, c->query.keys, c->query.listed);
  print_traffic(p, c, out);
  text_printf(out, "  %.0f bytes of workspace a token, pyramid included%s\n", c->workspace,
              p->clustered ? "; and the sizes of clusters" : "");
}

static void print_launch(const struct cost *c, struct text *out) {
  text_printf(out, "  %-18s  %7d  %8d", c->kernel->entry, c->kernel->threads, c->smem_bytes);
  explain_cell(out, 6, c->flops);
  explain_cell(out, 6, c->exps);
  explain_cell(out, 6, c->l2_bytes);
  explain_cell(out, 6, c->hbm_bytes);
  text_printf(out, "  %8.1f  %s\n", c->seconds * 1e6, c->bound ? c->bound : "launch");
}

static void print_launches(const struct plan *plan, const struct selection_costs *c,
                           struct text *out) {
  text_printf(out, "  %-18s  %7s  %8s  %6s  %6s  %6s  %6s  %8s  %s\n", "kernel", "threads", "smem",
              "FLOP", "exps", "L2", "memory", "us", "bound");
  for (int i = 0; i < c->n_launches; i++)
    print_launch(&c->launch[i], out);
  text_printf(out, "  at best %.1f us, %d launches of %.0f us included; L2 as if ",
              c->seconds * 1e6, c->n_launches, plan->target->launch_seconds * 1e6);
  if (c->tile_queries > 1)
    text_printf(out, "%d neighbours shared what is forced, read once\n", c->tile_queries);
  else
    text_puts(out, "neighbours shared no leaves\n");
}

static void print_expected(const struct plan *plan, const struct selection_costs *c,
                           struct text *out) {
  const struct cost_expected *e = &c->expected;
  text_printf(out, "  expected %.3f ms to select and %.3f to attend, by %s; dense attention %.3f\n",
              e->select * 1e3, e->attend * 1e3,
              selection_is_measured(plan) ? "rates of these kernels" : "estimate", e->dense * 1e3);
}

/* ---- by length ---- */

static void print_row(const struct plan *plan, int64_t tokens, struct text *out) {
  struct selection_costs c = selection_cost_of(plan, tokens);
  double flops = 0, exps = 0, bytes = 0;
  for (int i = 0; i + 1 < c.n_launches; i++) { /* the last one attends */
    flops += c.launch[i].flops;
    exps += c.launch[i].exps;
    bytes += c.launch[i].l2_bytes;
  }
  text_printf(out, "  %8lld  %6d  %6.0f  %6.0f", (long long)tokens, c.levels, c.query.means,
              c.query.keys);
  explain_cell(out, 6, flops);
  explain_cell(out, 6, exps);
  explain_cell(out, 6, bytes);
  const struct cost_expected *e = &c.expected;
  const double seconds[] = {e->select, e->attend, e->dense, e->flat, e->means, e->folded};
  for (int i = 0; i < 6; i++)
    text_printf(out, "  %9.3f", seconds[i] * 1e3);
  text_putc(out, '\n');
}

/* What of the columns no measurement stands behind. */
static void print_basis(const struct plan *plan, struct text *out) {
  const struct plan_pyramid *p = &plan->pyramid;
  const bool folds = p->score == SCORE_MEAN && p->reduce == REDUCE_SUM;
  if (!selection_is_measured(plan))
    text_puts(out,
              "  estimated: all of this spec, whose shape or method was not measured, from its "
              "counts\n");
  else if (!folds)
    text_puts(out, "  estimated, as limited by the same units: flat and by means\n");
  else
    text_puts(out, "  estimated, as limited by the same units: by means\n");
}

static void print_lengths(const struct plan *plan, struct text *out) {
  text_puts(out,
            "\nselection by length: of a query and key head, then of all; ms as expected from "
            "rates measured on an H200\nat 32 heads over 2 key/value heads x 64, bf16, causal, "
            "leaves of 64, 2 children, 8 leaves kept\n");
  text_printf(out, "  %8s  %6s  %6s  %6s  %6s  %6s  %6s", "tokens", "levels", "means", "keys",
              "FLOP", "exps", "L2");
  text_printf(out, "  %9s  %9s  %9s  %9s  %9s  %9s\n", "select", "attend", "dense", "flat",
              "by means", "folded");
  for (int64_t n = 4096; n <= 1 << 20; n *= 4)
    print_row(plan, n, out);
  text_puts(out,
            "  select: this spec; attend: over its leaves; dense: attention to every key, at the "
            "rate of cuDNN\n  flat: a scan of all leaves with the same score; by means: with "
            "score mean; folded: the same\n  of the heads' sum (score mean, reduce heads sum)\n");
  print_basis(plan, out);
}

/* To two figures. */
static long long about(int64_t n) {
  int64_t unit = 1;
  while (n / unit >= 100)
    unit *= 10;
  return (long long)((n + unit / 2) / unit * unit);
}

static void print_crossover(const struct plan *plan, const struct selection_costs *c,
                            const char *what, enum selection_rival rival, struct text *out) {
  int64_t n = selection_crossover(plan, rival);
  double own = selection_own_seconds(c, rival), other = selection_rival_seconds(c, rival);
  if (n > 0)
    text_printf(out, "  expected to be faster than %s from about %lld tokens on\n", what, about(n));
  if (own > other)
    text_printf(out, "  warning: at %lld tokens %s is expected to take %.3f ms, this %.3f\n",
                (long long)c->tokens, what, other * 1e3, own * 1e3);
}

static void print_flat_crossovers(const struct plan *plan, const struct selection_costs *c,
                                  struct text *out) {
  if (plan->spec->below.kind == BELOW_NEVER && c->expected.select > c->expected.flat)
    text_puts(out, "  `below N tokens use flat` would take the flat scan with the same score\n");
  print_crossover(plan, c, "a flat scan with the same score", RIVAL_FLAT, out);
  if (plan->pyramid.score != SCORE_MEAN)
    print_crossover(plan, c, "a flat scan by means", RIVAL_MEANS, out);
  if (plan->pyramid.reduce == REDUCE_SUM && plan->pyramid.score != SCORE_MEAN)
    print_crossover(plan, c, "a flat scan by means of folded heads", RIVAL_FOLDED, out);
}

/* Selection against other selections; then with attention against attention to every key. */
static void print_crossovers(const struct plan *plan, const struct selection_costs *c,
                             struct text *out) {
  if (!plan->pyramid.flat)
    print_flat_crossovers(plan, c, out);
  if (plan->pyramid.attends)
    print_crossover(plan, c, "dense attention", RIVAL_DENSE, out);
}

/* ---- decoding ---- */

static void print_steps(const struct plan *plan, const struct selection_costs *c,
                        struct text *out) {
  const struct cost_expected *e = &c->expected;
  text_printf(out,
              "\ndecoding at %lld tokens, keys from memory; as expected from steps measured on an "
              "H200%s\n",
              (long long)c->tokens, selection_is_measured(plan) ? "" : ", estimated");
  const struct {
    int batch;
    double own, dense;
    enum selection_rival rival;
  } rows[] = {{1, e->step, e->dense_step, RIVAL_STEP},
              {COST_BATCH, e->steps, e->dense_steps, RIVAL_STEPS}};
  for (int i = 0; i < 2; i++) {
    int64_t n = selection_crossover(plan, rows[i].rival);
    text_printf(out, "  batch %2d: a step %.1f us, a dense step %.1f", rows[i].batch,
                rows[i].own * 1e6, rows[i].dense * 1e6);
    if (n > 0)
      text_printf(out, "; expected to be faster from about %lld tokens on", about(n));
    text_putc(out, '\n');
  }
}

/* ---- all ---- */

void explain_selection(const struct plan *plan, int64_t tokens, struct text *out) {
  const struct selection_costs costs = selection_cost_of(plan, tokens);
  explain_selection_method(plan, out);
  print_query(plan, &costs, out);
  if (plan->pyramid.prefill) {
    print_launches(plan, &costs, out);
    print_expected(plan, &costs, out);
    print_lengths(plan, out);
    print_crossovers(plan, &costs, out);
  }
  if (plan->pyramid.decode)
    print_steps(plan, &costs, out);
}
