/* cost.c: in goes a plan and a length; out come FLOP, exps and bytes per launch, and the time they
   need at the target's rates. Formulas: N tokens, H heads, D head_dim, NT key blocks, NTq query
   blocks. */
#include "compiler/plan/cost.h"

#include "compiler/plan/kept.h"
#include "runtime/abi.def"

enum {
  ELEMENT = 2,
  FLOAT = 4,
  ROUTE_ROWS = 16, /* whose scores the route kernel holds: of NT blocks, padded to MEAN_TILE, and */
  MEAN_TILE = 128,
  ROUTE_PAD = 4
};

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ---- launches ---- */

/* Time of the slowest resource; work comes in |items| equal pieces, |streams| at a time on an SM,
 * so the last wave may be part empty. */
void cost_bound(const struct target *t, struct cost *c, int64_t items, int streams) {
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
  int64_t slots = t->sm_count * streams, waves = ceil_div(items, slots);
  c->seconds *= (double)(waves * slots) / (double)items;
}

static struct cost *launch(struct costs *c, const struct plan_kernel *kernel, int64_t ctas) {
  struct cost *cost = &c->launch[c->n_launches++];
  *cost = (struct cost){.kernel = kernel, .ctas = ctas, .smem_bytes = kernel->smem_bytes};
  return cost;
}

/* Reads q, k (and v) once; H_j = K^T V takes 2 * block * D^2 FLOP a block. The variances of 64 key
   columns are the diagonal of their K^T K, a product of 2 * block * 64^2. */
static void statistics(const struct plan *plan, struct costs *c) {
  const struct plan_statistics *p = &plan->statistics;
  double d = p->head_dim, q_heads = plan->spec->shape.heads, kv_heads = plan->spec->shape.kv_heads;
  double q_rows = q_heads * (double)c->tokens, kv_rows = kv_heads * (double)c->tokens;
  double q_blocks = q_heads * (double)c->key_blocks, kv_blocks = kv_heads * (double)c->key_blocks;
  double read = p->wants_v || p->wants_h ? 2 : 1;      /* k and v */
  double written = 1 + p->wants_v + p->wants_variance; /* means of k and v, variances of k */
  int64_t blocks = (int64_t)(q_blocks > kv_blocks ? q_blocks : kv_blocks);
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, blocks));
  cost->flops = p->wants_h ? kv_blocks * 2 * p->block * d * d : 0;
  if (p->wants_variance || p->wants_trace)
    cost->flops += kv_blocks * (double)ceil_div(p->head_dim, 64) * 2 * p->block * 64 * 64;
  cost->hbm_bytes = (q_rows + kv_rows * read + q_blocks + kv_blocks * written) * d * ELEMENT;
  if (p->wants_h_sum)
    cost->hbm_bytes += (kv_heads + (double)cost->ctas - 1) * d * d * FLOAT;
  cost->l2_bytes = cost->hbm_bytes;
  cost_bound(plan->target, cost, cost->ctas, 1);
}

/* k and v once more, for H_j once more. */
static void residual(const struct plan *plan, struct costs *c) {
  const struct plan_residual *p = &plan->residual;
  double d = p->head_dim, kv_heads = plan->spec->shape.kv_heads;
  int64_t blocks = plan->spec->shape.kv_heads * c->key_blocks;
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, blocks));
  cost->flops = (double)blocks * 2 * p->block * d * d;
  cost->hbm_bytes = kv_heads * (double)c->tokens * 2 * d * ELEMENT +
                    (kv_heads + plan->target->sm_count - 1) * d * d * FLOAT;
  cost->l2_bytes = cost->hbm_bytes;
  cost_bound(plan->target, cost, cost->ctas, 1);
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
  double entries = (p->rest_follows ? nt : c->mean_kept) + 8;
  double lists = rows * entries * 4 + rows * nt / 8;
  double norms = p->term != TERM_NONE ? nt * 8 * FLOAT : 0;
  double parts = p->reduces_h ? (kv_heads + plan->target->sm_count - 1) * d * d * FLOAT : 0;
  double key_bytes = nt * d * ELEMENT + norms; /* of one head */
  int64_t row = MEAN_TILE * ceil_div(c->key_blocks, MEAN_TILE) + ROUTE_PAD;
  cost->smem_bytes = (int)(ROUTE_ROWS * row * FLOAT);
  cost->flops = rows * nt * 2 * d;
  cost->l2_bytes = heads * (double)row_tiles * key_bytes + rows * 2 * d * ELEMENT + parts + lists;
  cost->hbm_bytes = kv_heads * key_bytes + rows * 2 * d * ELEMENT + parts + lists;
  cost_bound(plan->target, cost, ctas, 1);
}

/* Tiles of a list of |blocks|, halves counting. */
static double exact_tiles(const struct plan_attend *p, int64_t blocks) {
  double parts = p->half_tile ? 2 : 1;
  return (double)ceil_div(blocks * p->block * (p->half_tile ? 2 : 1), p->tile_k) / parts;
}

/* What the lists of a head come to. */
static void count_tiles(const struct spec *spec, const struct plan_attend *p, struct costs *c) {
  double blocks = 0, tiles = 0;
  int64_t lists = kept_are_alike(spec) ? 1 : c->query_blocks;
  for (int64_t i = 0; i < lists; i++) {
    int64_t kept = kept_blocks(spec, c->tokens, i);
    c->kept = kept > c->kept ? kept : c->kept;
    blocks += (double)kept;
    tiles += exact_tiles(p, kept);
  }
  c->mean_kept = blocks / (double)lists;
  c->exact_tiles = tiles / (double)lists;
  c->mean_tiles = p->means ? exact_tiles(p, ceil_div(c->key_blocks, p->block)) : 0;
  if (p->linear) /* listed and other blocks share tiles */
    c->linear_tiles = exact_tiles(p, c->key_blocks) - c->exact_tiles;
}

/* A tile of q x k takes 4 q k D FLOP, q k exps and 2 k D elements; a mean tile half as much again
   of FLOP and elements for q^2 . k_variance; the first-order term 2 q D^2 FLOP and D^2 elements;
   a block of taylor 1 an exp per query in place of one per key. So with query blocks of half the
   rows every key is read twice as often, but where two neighbours walk together they read means,
   and what their lists share (COST_SHARED of both), once. */
static void attend(const struct plan *plan, const struct plan_attend *p, struct costs *c) {
  double d = p->head_dim, items = (double)c->items, k = p->tile_k;
  double q = p->pairs ? p->tile_q / 2 : p->tile_q;
  double lists = plan->spec->shape.heads * (double)c->query_blocks;
  double first_order = p->first_order ? 1 : 0, squares = p->means && p->second_order ? 0.5 : 0;
  double tiles = c->exact_tiles + c->linear_tiles + c->mean_tiles * (1 + squares);
  double loads = tiles;
  if (p->pairs)
    loads = c->exact_tiles * (1 - COST_SHARED / 2) + c->mean_tiles * (1 + squares) / 2;
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, c->items));
  cost->flops = lists * (tiles * 4 * q * k * d + first_order * 2 * q * d * d);
  cost->exps = lists * q * k * (c->exact_tiles + c->mean_tiles + c->linear_tiles / p->block);
  cost->l2_bytes =
      (lists * (loads * 2 * k * d + 2 * q * d) + items * first_order * d * d) * ELEMENT;
  double heads = plan->spec->shape.heads + plan->spec->shape.kv_heads; /* q and o, k and v */
  cost->hbm_bytes = heads * (double)c->tokens * d * ELEMENT * 2;
  cost_bound(plan->target, cost, c->items, p->streams);
}

/* |p|: the attend kernel of a call; |spec| says what its lists hold. */
static struct costs costs_of(const struct plan *plan, const struct spec *spec,
                             const struct plan_attend *p, int64_t tokens) {
  double n = (double)tokens;
  int64_t rows = p->pairs ? p->tile_q / 2 : p->tile_q;
  struct costs c = {
      .tokens = tokens,
      .attend = p,
      .key_blocks = ceil_div(tokens, p->block),
      .query_blocks = ceil_div(tokens, rows),
      .dense_flops =
          (spec->shape.mask == MASK_CAUSAL ? 2.0 : 4.0) * spec->shape.heads * n * n * p->head_dim,
  };
  c.items = spec->shape.heads * ceil_div(tokens, p->tile_q);
  count_tiles(spec, p, &c);
  if (!p->dense) {
    statistics(plan, &c);
    if (plan->wants_residual)
      residual(plan, &c);
    route(plan, &c);
  }
  attend(plan, p, &c);
  c.flops = c.launch[c.n_launches - 1].flops;
  for (int i = 0; i < c.n_launches; i++)
    c.seconds += c.launch[i].seconds + plan->target->launch_seconds;
  return c;
}

static struct costs costs_of_dense(const struct plan *plan, const struct plan_attend *p,
                                   int64_t tokens) {
  struct spec dense = *plan->spec;
  dense.attend.all_exact = true;
  dense.blocks.query = p->tile_q;
  dense.blocks.key = p->block;
  return costs_of(plan, &dense, p, tokens);
}

static const struct plan_attend *general(const struct plan *plan) {
  bool counts = plan->routed && plan->route.threshold; /* lists of any length */
  return counts || plan->attend_edge.causal ? &plan->attend_edge : &plan->attend;
}

struct costs cost_of(const struct plan *plan, int64_t tokens) {
  const struct plan_attend *dense = plan->dense_edge.causal ? &plan->dense_edge : &plan->dense;
  if (plan->below && tokens < plan->spec->below.tokens)
    return costs_of_dense(plan, dense, tokens);
  return costs_of(plan, plan->spec, general(plan), tokens);
}

int64_t cost_most_tokens(const struct plan *plan) {
  if (!plan->routed)
    return 0;
  int64_t row = plan->target->smem_bytes / (ROUTE_ROWS * FLOAT) - ROUTE_PAD;
  int64_t blocks = smaller(row / MEAN_TILE * MEAN_TILE, 32 * PISA_MAX_MASK_WORDS);
  return blocks * plan->spec->blocks.key;
}

int64_t cost_crossover(struct arena *arena, const struct plan *plan) {
  if (plan->attend.dense)
    return 0;
  const struct plan *dense = plan_dense(arena, plan);
  for (int64_t n = 128; n <= 1 << 17; n += 128)
    if (costs_of(plan, plan->spec, general(plan), n).seconds <
        costs_of_dense(plan, &dense->attend, n).seconds)
      return n;
  return 0;
}
