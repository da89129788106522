/* cost.c: in goes a plan and a length; out come FLOP, exps and bytes per launch, and the time they
   need at the target's rates. Formulas: N tokens, H heads, D head_dim, NT key blocks, NTq query
   blocks. */
#include "compiler/plan/cost.h"

enum { ELEMENT = 2, FLOAT = 4 };

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* ---- how many blocks are kept ---- */

/* Blocks [begin, end) that a token range touches. */
static void touched(const struct always_tokens *range, int64_t tokens, int64_t key, int64_t *begin,
                    int64_t *end) {
  int64_t from = range->begin, to = range->end;
  if (range->kind == ALWAYS_TOKENS_LAST)
    from = larger(0, tokens - range->end), to = tokens;
  to = smaller(to, tokens);
  *begin = from < to ? from / key : 0;
  *end = from < to ? ceil_div(to, key) : 0;
}

static int64_t forced_blocks(const struct spec *spec, int64_t tokens) {
  struct always_tokens ranges[PLAN_MAX_ALWAYS];
  int n = plan_always(spec, ranges);
  int64_t begin[PLAN_MAX_ALWAYS], end[PLAN_MAX_ALWAYS], count = 0, done = 0;
  for (int i = 0; i < n; i++)
    touched(&ranges[i], tokens, spec->blocks.key, &begin[i], &end[i]);
  for (int round = 0; round < n;
       round++) { /* leftmost range first; |done|: blocks counted so far */
    int best = -1;
    for (int i = 0; i < n; i++)
      if (end[i] > done && (best < 0 || begin[i] < begin[best]))
        best = i;
    if (best < 0)
      break;
    count += end[best] - larger(begin[best], done);
    done = end[best];
  }
  return count;
}

int64_t cost_kept(const struct spec *spec, int64_t tokens) {
  int64_t blocks = ceil_div(tokens, spec->blocks.key);
  if (spec->attend.all_exact)
    return blocks;
  int64_t kept = spec->route.keep;
  if (spec->route.budget == BUDGET_DENSITY)
    kept = larger(1, blocks * spec->route.density.num / spec->route.density.den);
  return smaller(blocks, larger(kept, forced_blocks(spec, tokens)));
}

/* ---- launches ---- */

/* Time of the slowest resource; work comes in |items| equal pieces over the SMs, so the last wave
 * may be part empty. */
static void bound(const struct target *t, struct cost *c, int64_t items) {
  const struct {
    const char *name;
    double seconds;
  } needs[] = {
      {"tensor", c->flops / t->tensor_flops},
      {"exp", c->exps / t->exp2_rate},
      {"L2", c->l2_bytes / t->l2_bytes},
      {"memory", c->hbm_bytes / t->hbm_bytes},
  };
  for (int i = 0; i < 4; i++)
    if (needs[i].seconds > c->seconds) {
      c->seconds = needs[i].seconds;
      c->bound = needs[i].name;
    }
  int64_t waves = ceil_div(items, t->sm_count);
  c->seconds *= (double)(waves * t->sm_count) / (double)items;
}

static struct cost *launch(struct costs *c, const struct plan_kernel *kernel, int64_t ctas) {
  struct cost *cost = &c->launch[c->n_launches++];
  *cost = (struct cost){.kernel = kernel, .ctas = ctas, .smem_bytes = kernel->smem_bytes};
  return cost;
}

/* Reads q, k (and v) once; H_j = K^T V takes 2 * 64 * D^2 FLOP a block. */
static void statistics(const struct plan *plan, struct costs *c) {
  const struct plan_statistics *p = &plan->statistics;
  double d = p->head_dim, q_heads = plan->spec->shape.heads, kv_heads = plan->spec->shape.kv_heads;
  double q_rows = q_heads * (double)c->tokens, kv_rows = kv_heads * (double)c->tokens;
  double q_blocks = q_heads * (double)c->key_blocks, kv_blocks = kv_heads * (double)c->key_blocks;
  double read = p->wants_v || p->wants_h ? 2 : 1, written = p->wants_v ? 2 : 1; /* of k and v */
  int64_t blocks = (int64_t)(q_blocks > kv_blocks ? q_blocks : kv_blocks);
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, blocks));
  cost->flops = p->wants_h ? kv_blocks * 2 * p->block * d * d : 0;
  cost->hbm_bytes = (q_rows + kv_rows * read + q_blocks + kv_blocks * written) * d * ELEMENT;
  if (p->wants_h_sum)
    cost->hbm_bytes += (kv_heads + (double)cost->ctas - 1) * d * d * FLOAT;
  cost->l2_bytes = cost->hbm_bytes;
  bound(plan->target, cost, cost->ctas);
}

/* Every CTA scores 16 query blocks against all key means: 2 NT D FLOP a row. */
static void route(const struct plan *plan, struct costs *c) {
  const struct plan_route *p = &plan->route;
  double d = p->head_dim, nt = (double)c->key_blocks;
  double heads = plan->spec->shape.heads, kv_heads = plan->spec->shape.kv_heads;
  int64_t row_tiles = ceil_div(c->query_blocks, p->rows_per_cta);
  int64_t sums = p->reduces_h ? plan->spec->shape.kv_heads * ceil_div(p->head_dim, 32) : 0;
  int64_t ctas = plan->spec->shape.heads * row_tiles + sums;
  struct cost *cost = launch(c, &p->kernel, ctas);
  double rows = heads * (double)c->query_blocks;
  double lists = rows * ((double)c->kept + 8) * 4 + rows * nt / 8;
  double norms = p->term != TERM_NONE ? nt * 8 * FLOAT : 0;
  double parts = p->reduces_h ? (kv_heads + plan->target->sm_count - 1) * d * d * FLOAT : 0;
  double key_bytes = nt * d * ELEMENT + norms; /* of one head */
  cost->smem_bytes = (int)(16 * (128 * ceil_div(c->key_blocks, 128) + 4) * 4);
  cost->flops = rows * nt * 2 * d;
  cost->l2_bytes = heads * (double)row_tiles * key_bytes + rows * 2 * d * ELEMENT + parts + lists;
  cost->hbm_bytes = kv_heads * key_bytes + rows * 2 * d * ELEMENT + parts + lists;
  bound(plan->target, cost, ctas);
}

/* A tile of 128 x 128 takes 4 * 128 * 128 * D FLOP, 128 * 128 exps and 2 * 128 * D elements; the
   first-order term half a tile's FLOP and D^2 elements. */
static void attend(const struct plan *plan, struct costs *c) {
  const struct plan_attend *p = &plan->attend;
  double d = p->head_dim, items = (double)c->items, q = p->tile_q, k = p->tile_k;
  double tiles = items * (double)(c->exact_tiles + c->mean_tiles);
  double first_order = p->first_order ? items : 0;
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, c->items));
  cost->flops = tiles * 4 * q * k * d + first_order * 2 * q * d * d;
  cost->exps = tiles * q * k;
  cost->l2_bytes = (tiles * 2 * k * d + first_order * d * d + items * 2 * q * d) * ELEMENT;
  double heads = plan->spec->shape.heads + plan->spec->shape.kv_heads; /* q and o, k and v */
  cost->hbm_bytes = heads * (double)c->tokens * d * ELEMENT * 2;
  bound(plan->target, cost, c->items);
}

struct costs cost_of(const struct plan *plan, int64_t tokens) {
  const struct plan_attend *p = &plan->attend;
  double n = (double)tokens;
  struct costs c = {
      .tokens = tokens,
      .key_blocks = ceil_div(tokens, p->block),
      .query_blocks = ceil_div(tokens, p->tile_q),
      .kept = cost_kept(plan->spec, tokens),
      .dense_flops = 4.0 * plan->spec->shape.heads * n * n * p->head_dim,
  };
  c.items = plan->spec->shape.heads * c.query_blocks;
  c.exact_tiles = ceil_div(c.kept * p->block, p->tile_k);
  c.mean_tiles = p->means ? ceil_div(c.key_blocks, p->tile_k) : 0;
  if (plan->routed) {
    statistics(plan, &c);
    route(plan, &c);
  }
  attend(plan, &c);
  c.flops = c.launch[c.n_launches - 1].flops;
  for (int i = 0; i < c.n_launches; i++)
    c.seconds += c.launch[i].seconds + plan->target->launch_seconds;
  return c;
}

int64_t cost_crossover(struct arena *arena, const struct plan *plan) {
  struct spec dense = *plan->spec;
  if (dense.attend.all_exact)
    return 0;
  dense.attend.all_exact = true;
  dense.route.kind = ROUTE_NONE;
  const struct plan *other = plan_choose(arena, &dense, plan->target, "");
  for (int64_t n = 128; n <= 1 << 17; n += 128)
    if (cost_of(plan, n).seconds < cost_of(other, n).seconds)
      return n;
  return 0;
}
