/* print.c: in goes a plan; out comes text: a heading per kernel and one fact a line. */
#include <string.h>

#include "compiler/plan/plan.h"
#include "dsl/text.h"

static const char *yes(bool b) {
  return b ? "yes" : "no";
}

static void kernel(const struct plan_kernel *k, bool by_length, struct text *out) {
  text_printf(out, "kernel %s\n", k->entry);
  text_printf(out, "  threads         %d\n", k->threads);
  if (k->smem_bytes > 0 || !by_length)
    text_printf(out, "  shared memory   %d bytes\n", k->smem_bytes);
  else
    text_puts(out, "  shared memory   16 * (128 * ceil(NT/128) + 4) * 4 bytes, NT key blocks\n");
  if (k->entry_registers > 0)
    text_printf(out, "  registers       %d at entry\n", k->entry_registers);
  text_printf(out, "  spills          at most %d bytes\n", k->spill_budget);
}

static void elements(enum spec_type type, int group, struct text *out) {
  text_printf(out, "  elements        %s, %d query head%s per key head\n",
              type == TYPE_BF16 ? "bf16" : "fp16", group, group == 1 ? "" : "s");
}

static void roles(int producer, int consumer, struct text *out) {
  text_printf(out, "  roles           1 loading warpgroup of %d registers, 2 computing of %d\n",
              producer, consumer);
}

static void statistics(const struct plan_statistics *p, struct text *out) {
  kernel(&p->kernel, false, out);
  elements(p->type, p->group, out);
  roles(p->producer_registers, p->consumer_registers, out);
  text_printf(out, "  block           %d rows x %d\n", p->block, p->head_dim);
  text_printf(out, "  ring            %d stages, each a q, k and v block\n", p->stages);
  text_printf(out, "  layout          ring 0, ones %d, barriers %d\n", p->ones_offset,
              p->barrier_offset);
  text_printf(out, "  v_mean          %s\n", yes(p->wants_v));
  text_printf(out, "  H_j             formed %s, norm %s, sum %s\n", yes(p->wants_h),
              yes(p->wants_h_norm), yes(p->wants_h_sum));
  text_printf(out, "  key variance    columns %s, trace %s\n", yes(p->wants_variance),
              yes(p->wants_trace));
}

static void residual(const struct plan_residual *p, struct text *out) {
  kernel(&p->kernel, false, out);
  text_printf(out, "  elements        %s\n", p->type == TYPE_BF16 ? "bf16" : "fp16");
  roles(p->producer_registers, p->consumer_registers, out);
  text_printf(out, "  block           %d rows x %d\n", p->block, p->head_dim);
  text_printf(out, "  ring            %d stages, each a k and v block\n", p->stages);
  text_printf(out, "  layout          ring 0, ones %d, barriers %d\n", p->ones_offset,
              p->barrier_offset);
}

static const char *term(enum spec_term term) {
  switch (term) {
  case TERM_LOG_COVARIANCE:
    return " + ln(||H_j||_F + 1e-5)";
  case TERM_LOG_RESIDUAL:
    return " + ln(||H_j - Hbar||_F + 1e-5)";
  case TERM_LOG_KEY_VARIANCE:
    return " + ln(max(tr C_j, 1e-8))";
  case TERM_NONE:
    break;
  }
  return "";
}

static void route(const struct plan_route *p, struct text *out) {
  kernel(&p->kernel, true, out);
  elements(p->type, p->group, out);
  text_printf(out, "  query block     %d rows, %d blocks a CTA, head_dim %d\n", p->query,
              p->rows_per_cta, p->head_dim);
  text_printf(out, "  key block       %d keys\n", p->key);
  text_printf(out, "  score           scale * mean(q) . mean(k)%s\n", term(p->term));
  text_printf(out, "  reads           %s\n",
              !p->threshold                      ? "the best, a number of blocks"
              : p->variance == VARIANCE_DIAGONAL ? "above mu + threshold sigma, diagonal"
                                                 : "above mu + threshold sigma, full");
  text_printf(out, "  window          %s\n", yes(p->wants_window));
  text_printf(out, "  sums H_j        %s\n", yes(p->reduces_h));
  text_printf(out, "  lists           %s\n",
              p->pairs          ? "what two neighbours share first"
              : p->rest_follows ? "read blocks, then all others"
                                : "read blocks, ascending");
}

static const char *rest(const struct plan_attend *p) {
  if (p->dense)
    return "none";
  if (p->linear)
    return "token by token to first order";
  if (p->first_order)
    return "means, then (g q) Hsum";
  return p->means ? "means" : "dropped";
}

static const char *mass(const struct plan_attend *p) {
  if (p->linear)
    return p->second_order ? "sum of exp(mean s + var s / 2) (1 + s - mean s)"
                           : "sum of exp(mean s) (1 + s - mean s)";
  return p->second_order ? "len_j exp(scale (q . kbar_j + q^2 . k_variance_j))"
                         : "len_j exp(scale q . kbar_j)";
}

static void attend(const struct plan_attend *p, struct text *out) {
  kernel(&p->kernel, false, out);
  elements(p->type, p->group, out);
  roles(p->producer_registers, p->consumer_registers, out);
  text_printf(out, "  tile            %d queries x %d keys, blocks of %d keys, head_dim %d\n",
              p->tile_q, p->tile_k, p->block, p->head_dim);
  text_printf(out, "  streams         %d of query blocks, with the stages below\n", p->streams);
  text_printf(out, "  stages          q %d, k %d, v %d\n", p->q_stages, p->k_stages, p->v_stages);
  text_printf(out, "  layout          q %d, k %d, v %d, barriers %d, masks %d\n", p->q_offset,
              p->k_offset, p->v_offset, p->barrier_offset, p->mask_offset);
  text_printf(out, "  exact           %s\n",
              p->causal  ? "every block that a row sees"
              : p->dense ? "every block"
                         : "the blocks of the list");
  text_printf(out, "  rest            %s\n", rest(p));
  if (p->means || p->linear)
    text_printf(out, "  mass            %s\n", mass(p));
  text_printf(out, "  walk            %s%s\n",
              p->pairs ? "two query blocks together: shared entries once, then each its own"
                       : "each query block by itself",
              p->half_tile ? ", an odd last block as half a tile" : "");
  if (plan_exps_beside(p))
    text_printf(out,
                "  order           exponentials before the wait for the product beside them\n");
  text_printf(out, "  exp2            %d of 8 as polynomials\n", p->fma_exp2);
  text_printf(out, "  edge            %s\n",
              p->edge ? "any lengths, a number of blocks for each list"
                      : "whole blocks, as many for every list, two at least");
}

/* ---- block selection ---- */

static const char *score(const struct plan_pyramid *p) {
  switch (p->score) {
  case SCORE_HALF_VARIANCE:
    return "mean + half variance of the children's logits";
  case SCORE_LSE:
    return "log sum exp of the children's logits";
  case SCORE_MEAN:
    break;
  }
  return "scale * q . mean(k)";
}

static const char *reduction(const struct plan_pyramid *p) {
  switch (p->reduce) {
  case REDUCE_MAX:
    return "the largest of the heads'";
  case REDUCE_LSE:
    return "log sum exp of the heads'";
  case REDUCE_MASS:
    return "sum of the heads' softmax over the candidates";
  case REDUCE_MAX_MASS:
    return "largest of the heads' softmax over the candidates";
  case REDUCE_SUM:
  case REDUCE_NONE:
    break;
  }
  return "sum of the heads'";
}

static void start(const char *name, int nodes, struct text *out) {
  if (nodes > 0)
    text_printf(out, "  %-15s the lowest level of at most %d seen nodes\n", name, nodes);
  else
    text_printf(out, "  %-15s the root\n", name);
}

static void forced(const struct plan_pyramid *p, struct text *out) {
  for (int i = 0; i < p->n_always; i++) {
    const struct always_tokens *a = &p->always[i];
    if (a->kind == ALWAYS_RANGE)
      text_printf(out, "  always          tokens %lld..%lld\n", (long long)a->begin,
                  (long long)a->end);
    else
      text_printf(out, "  always          the %s %lld token%s\n",
                  a->kind == ALWAYS_TOKENS_FIRST ? "first" : "last", (long long)a->end,
                  a->end == 1 ? "" : "s");
  }
  if (p->previous)
    text_puts(out, "  always          the previous leaf\n");
  if (p->current)
    text_puts(out, "  always          the current leaf\n");
}

static void pyramid(const struct plan_pyramid *p, struct text *out) {
  const struct plan_kernel *kernels[PLAN_PYRAMID_KERNELS];
  text_puts(out, "selection\n");
  elements(p->type, p->group, out);
  text_printf(out, "  head_dim        %d\n", p->head_dim);
  text_printf(out, "  mask            %s\n", p->causal ? "causal" : "none");
  text_printf(out, "  pyramid         leaves of %d keys, %d children a node, %d leaves a CTA\n",
              p->leaf, p->children, p->span);
  text_printf(out, "  pages           %d\n", p->page);
  text_printf(out, "  keeps           %d leaves\n", p->keep);
  forced(p, out);
  text_printf(out, "  score           %s\n", score(p));
  text_printf(out, "  heads           %s\n", reduction(p));
  if (p->flat)
    text_puts(out, "  candidates      all visible leaves\n");
  else
    start("start", p->start_nodes, out);
  if (p->decode && !p->flat)
    start("decode start", p->decode_start_nodes, out);
  if (p->clustered)
    text_printf(out, "  leaves          in clusters, %d queries a tile\n", p->query_tile);
  else if (!p->flat)
    text_puts(out, "  leaves          in the walk\n");
  int n = plan_pyramid_kernels(p, kernels);
  for (int i = 0; i < n; i++)
    kernel(kernels[i], false, out);
}

/* ---- all of it ---- */

static void decode(const struct plan_pyramid *p, struct text *out) {
  const struct plan_kernel *kernels[PLAN_PYRAMID_KERNELS];
  text_puts(out, "decode\n");
  elements(p->type, p->group, out);
  text_printf(out, "  head_dim        %d\n", p->head_dim);
  text_puts(out, "  mask            causal\n");
  text_printf(out, "  pages           %d\n", p->page);
  text_puts(out, "  exact           every key that a query sees\n");
  int n = plan_pyramid_kernels(p, kernels);
  for (int i = 0; i < n; i++)
    kernel(kernels[i], false, out);
}

static void below(const struct plan *plan, struct text *out) {
  if (!plan->dense_edge.causal)
    attend(&plan->dense, out);
  attend(&plan->dense_edge, out);
}

void plan_print_kernels(const struct plan *plan, struct text *out) {
  text_printf(out, "target %s, PTX %d.%d\n", plan->target->name, plan->target->ptx_version / 10,
              plan->target->ptx_version % 10);
  if (plan->selects) {
    pyramid(&plan->pyramid, out);
    if (plan->below)
      below(plan, out);
    return;
  }
  if (plan->routed) {
    statistics(&plan->statistics, out);
    if (plan->wants_residual)
      residual(&plan->residual, out);
    route(&plan->route, out);
  }
  if (plan->prefills && !plan->attend_edge.causal)
    attend(&plan->attend, out);
  if (plan->prefills)
    attend(&plan->attend_edge, out);
  if (plan->decodes)
    decode(&plan->pyramid, out);
  if (plan->below)
    below(plan, out);
}

void plan_print(const struct plan *plan, struct text *out) {
  text_printf(out, "plan %s\n", plan->spec->name);
  if (*plan->choices)
    text_printf(out, "choices %s\n", plan->choices);
  plan_print_kernels(plan, out);
  for (int i = 0; i < plan->n_rejections; i++)
    text_printf(out, "rejected %s: %s\n", plan->rejections[i].candidate,
                plan->rejections[i].reason);
}
