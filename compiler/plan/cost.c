/* cost.c: in goes a plan and a length; out come FLOP, exps and bytes per launch, and the time they
   need at the target's rates. Formulas: N tokens, H heads, D head_dim, NT key blocks, NTq query
   blocks. */
#include "compiler/plan/cost.h"

enum { ELEMENT = 2, FLOAT = 4, MAX_FORCED = PLAN_MAX_ALWAYS + 1 };

struct range {
  int64_t begin, end; /* blocks */
};

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

/* Blocks that the tokens [from, to) touch, of those there are. */
static struct range touched(int64_t from, int64_t to, int64_t tokens, int64_t key) {
  from = larger(0, from);
  to = smaller(to, tokens);
  return from < to ? (struct range){from / key, ceil_div(to, key)} : (struct range){0, 0};
}

/* How many blocks are in one of |n| ranges: leftmost first, |done| blocks counted so far. */
static int64_t count_blocks(const struct range *range, int n) {
  int64_t count = 0, done = 0;
  for (;;) {
    const struct range *best = 0;
    for (int i = 0; i < n; i++)
      if (range[i].end > done && (!best || range[i].begin < best->begin))
        best = &range[i];
    if (!best)
      return count;
    count += best->end - larger(best->begin, done);
    done = best->end;
  }
}

/* Blocks around query block |i|. */
static struct range around(const struct spec *spec, int64_t i, int64_t tokens) {
  int64_t key = spec->blocks.key, query = spec->blocks.query, width = plan_window(spec) * key;
  return touched(i * query - width, (i + 1) * query + width, tokens, key);
}

/* The most blocks that any query block has forced. */
static int64_t forced_blocks(const struct spec *spec, int64_t tokens) {
  struct always_tokens always[PLAN_MAX_ALWAYS];
  struct range range[MAX_FORCED];
  int n = plan_always(spec, always);
  for (int i = 0; i < n; i++) {
    bool is_last = always[i].kind == ALWAYS_TOKENS_LAST;
    range[i] = touched(is_last ? tokens - always[i].end : always[i].begin,
                       is_last ? tokens : always[i].end, tokens, spec->blocks.key);
  }
  if (plan_window(spec) < 0)
    return count_blocks(range, n);
  int64_t most = 0;
  for (int64_t i = 0; i < ceil_div(tokens, spec->blocks.query); i++) {
    range[n] = around(spec, i, tokens);
    most = larger(most, count_blocks(range, n + 1));
  }
  return most;
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

/* Time of the slowest resource; work comes in |items| equal pieces, |streams| at a time on an SM,
 * so the last wave may be part empty. */
static void bound(const struct target *t, struct cost *c, int64_t items, int streams) {
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
  bound(plan->target, cost, cost->ctas, 1);
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
  bound(plan->target, cost, ctas, 1);
}

/* A tile of q x k takes 4 q k D FLOP, q k exps and 2 k D elements; a mean tile half as much again
   of FLOP and elements for q^2 . k_variance; the first-order term 2 q D^2 FLOP and D^2 elements. So
   with query blocks of half the rows every key is read twice as often. */
static void attend(const struct plan *plan, struct costs *c) {
  const struct plan_attend *p = &plan->attend;
  double d = p->head_dim, items = (double)c->items, q = p->tile_q, k = p->tile_k;
  double tiles = items * (double)(c->exact_tiles + c->mean_tiles);
  double first_order = p->first_order ? items : 0;
  double second_order = p->second_order ? items * (double)c->mean_tiles : 0;
  struct cost *cost = launch(c, &p->kernel, smaller(plan->target->sm_count, c->items));
  cost->flops = (tiles * 2 + second_order) * 2 * q * k * d + first_order * 2 * q * d * d;
  cost->exps = tiles * q * k;
  double columns = (tiles * 2 + second_order) * k; /* of keys, values and variances */
  cost->l2_bytes = (columns * d + first_order * d * d + items * 2 * q * d) * ELEMENT;
  double heads = plan->spec->shape.heads + plan->spec->shape.kv_heads; /* q and o, k and v */
  cost->hbm_bytes = heads * (double)c->tokens * d * ELEMENT * 2;
  bound(plan->target, cost, c->items, p->streams);
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
  if (plan->attend.dense)
    return 0;
  const struct plan *dense = plan_dense(arena, plan);
  for (int64_t n = 128; n <= 1 << 17; n += 128)
    if (cost_of(plan, n).seconds < cost_of(dense, n).seconds)
      return n;
  return 0;
}
