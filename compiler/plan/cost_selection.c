/* cost_selection.c: in goes a plan that selects blocks and a length; out come counts and the times
   they take at best; what is expected is added by expected_selection.c.
   Letters: N tokens, C leaf, g children, K keep, G heads per key head, D head_dim. */
#include "compiler/plan/cost_selection.h"

#include <math.h>

#include "compiler/plan/blocks.h"
#include "compiler/plan/decode.h"
#include "compiler/plan/kept.h"
#include "runtime/abi.def"

enum { ELEMENT = 2, FLOAT = 4, INT = 4, ROWS = 16, SAMPLES = 512 };

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ---- one query ---- */

static int64_t node_size(const struct plan_pyramid *p, int level) {
  int64_t size = p->leaf;
  for (int l = 1; l < level; l++)
    size *= p->children;
  return size;
}

static int64_t visible(const struct plan_pyramid *p, int64_t tokens, int64_t own, int level) {
  int64_t size = node_size(p, level);
  return p->causal ? own * p->leaf / size + 1 : ceil_div(tokens, size);
}

static int count_levels(const struct plan_pyramid *p, int64_t tokens) {
  int level = 1;
  while (ceil_div(tokens, node_size(p, level)) > 1)
    level++;
  return level;
}

/* Where a walk begins: the lowest level of at most |start_nodes| seen nodes, the root's the last.
 */
static int first_level(const struct plan_pyramid *p, int64_t tokens, int64_t own, int levels) {
  int64_t most = p->start_nodes > 0 ? p->start_nodes : 1;
  for (int l = 1; l < levels && !p->flat; l++)
    if (visible(p, tokens, own, l) <= most)
      return l;
  return p->flat ? 1 : levels;
}

/* Fills levels from the first of the walk down. */
static void walk(const struct plan *plan, int64_t tokens, int64_t own, int levels,
                 struct cost_level out[COST_MAX_LEVELS]) {
  const struct plan_pyramid *p = &plan->pyramid;
  int64_t kept = 0;
  int first = first_level(p, tokens, own, levels);
  for (int l = levels; l >= 1; l--) {
    int64_t nodes = visible(p, tokens, own, l);
    int64_t candidates = l > first ? 0 : l == first ? nodes : smaller(nodes, kept * p->children);
    int64_t forced = forced_nodes(plan->spec, tokens, own, node_size(p, l));
    bool scored = candidates > p->keep;
    kept = smaller(candidates, p->keep);
    int64_t ranked = plan_is_mass(p) ? candidates : candidates - smaller(forced, candidates);
    out[l - 1] = (struct cost_level){nodes, candidates, scored ? ranked : 0};
  }
}

static void count_products(struct cost_query *q, const struct plan_pyramid *p, double rows) {
  q->products += ceil((double)p->group / ROWS) * ceil(rows / 8) * p->head_dim / 16;
}

/* Nodes above the leaves read their children, for score mean themselves; an SM keeps about 64 KB of
   a level near it. */
static void count_nodes(struct cost_query *q, const struct plan_pyramid *p,
                        const struct cost_level *level) {
  enum { NEAR_BYTES = 64 << 10 };
  double ranked = (double)level->ranked, children = p->score == SCORE_MEAN ? 1 : p->children;
  double rows = ranked * children;
  if ((double)level->nodes * children * p->head_dim * ELEMENT > NEAR_BYTES)
    q->far += rows;
  q->levels += ranked > 0;
  q->means += rows;
  q->exps += p->group * (rows * (p->score == SCORE_LSE) + ranked * plan_is_mass(p));
  count_products(q, p, rows);
}

/* Leaves read their keys, for score mean themselves; with mass only two of the forced ones do. */
static void count_leaves(struct cost_query *q, const struct plan_pyramid *p, double ranked,
                         double by_mean) {
  if (p->score == SCORE_MEAN)
    by_mean = ranked;
  double keys = (ranked - by_mean) * p->leaf;
  q->means += by_mean;
  q->far += by_mean;
  q->keys += keys;
  q->exps += p->group * (keys * (p->score == SCORE_LSE) + ranked * plan_is_mass(p));
  if (!p->clustered)
    count_products(q, p, by_mean + keys);
}

static void count_query(const struct plan *plan, int64_t tokens, int64_t own, int levels,
                        struct cost_query *q) {
  const struct plan_pyramid *p = &plan->pyramid;
  struct cost_level level[COST_MAX_LEVELS];
  walk(plan, tokens, own, levels, level);
  for (int l = 2; l <= levels; l++)
    count_nodes(q, p, &level[l - 1]);
  int64_t ranked = level[0].ranked, forced = forced_nodes(plan->spec, tokens, own, p->leaf);
  double by_mean = plan_is_mass(p) && ranked > 0 && forced > 2 ? (double)forced - 2 : 0;
  count_leaves(q, p, (double)ranked, by_mean);
  if (levels > 1 && ranked > 0)
    q->parents += (double)smaller(smaller(level[1].candidates, p->keep), ranked);
  int64_t listed = smaller(level[0].candidates, p->keep);
  q->listed += (double)listed;
  q->forced += (double)smaller(forced, listed);
}

/* Over leaves at even distances, all of them where there are few. */
static struct cost_query average(const struct plan *plan, int64_t tokens, int levels) {
  int64_t leaves = ceil_div(tokens, plan->pyramid.leaf), n = smaller(leaves, SAMPLES);
  struct cost_query q = {0};
  for (int64_t i = 0; i < n; i++)
    count_query(plan, tokens, (2 * i + 1) * leaves / (2 * n), levels, &q);
  double *const fields[] = {&q.levels, &q.means,   &q.far,    &q.keys,  &q.products,
                            &q.exps,   &q.parents, &q.listed, &q.forced};
  for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
    *fields[i] /= (double)n;
  return q;
}

static struct cost_query decoded(const struct plan *plan, int64_t tokens, int levels) {
  struct plan decoding = *plan;
  struct cost_query q = {0};
  decoding.pyramid = decode_walk(&plan->pyramid);
  count_query(&decoding, tokens, (tokens - 1) / plan->pyramid.leaf, levels, &q);
  return q;
}

/* ---- launches ---- */

static struct cost *launch(struct selection_costs *c, const struct plan_kernel *kernel) {
  struct cost *cost = &c->launch[c->n_launches++];
  *cost = (struct cost){.kernel = kernel, .smem_bytes = kernel->smem_bytes};
  return cost;
}

double selection_rows(const struct plan *plan, const struct selection_costs *c) {
  return (double)plan->spec->shape.kv_heads * (double)c->tokens;
}

/* Keys once; means, two rows for every leaf at most; images as large as the keys. */
static double build_bytes(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double means = 1.0 / p->leaf / (1 - 1.0 / p->children);
  return selection_rows(plan, c) * p->head_dim * ELEMENT * (1 + means + p->clustered);
}

static double walk_flops(const struct plan *plan, const struct selection_costs *c, double rows) {
  return selection_rows(plan, c) * rows * plan->pyramid.group * 2 * plan->pyramid.head_dim;
}

static void build(const struct plan *plan, struct selection_costs *c) {
  struct cost *cost = launch(c, &plan->pyramid.build);
  cost->hbm_bytes = cost->l2_bytes = build_bytes(plan, c);
  launch(c, &plan->pyramid.top)->hbm_bytes = cost->hbm_bytes / (double)plan->pyramid.span;
}

/* Queries that a mean is read for at once: in a walk each has its own way. */
static double queries_of_means(const struct plan_pyramid *p) {
  bool folded = p->score == SCORE_MEAN && p->reduce == REDUCE_SUM;
  return p->flat ? pisa_flat_queries(p->group, folded) : 1;
}

/* |keys| of leaves are read here too where there are no clusters. */
static void choose(const struct plan *plan, struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double rows = selection_rows(plan, c), keys = p->clustered ? 0 : c->query.keys;
  double d = p->head_dim * (double)ELEMENT;
  double leaf_exps = p->clustered ? p->group * c->query.keys * (p->score == SCORE_LSE) : 0;
  struct cost *cost = launch(c, p->flat ? &p->flat_scan : &p->walk);
  cost->flops = walk_flops(plan, c, c->query.means + keys);
  cost->exps = rows * (c->query.exps - leaf_exps);
  cost->l2_bytes = rows * (p->group + (c->query.far + keys) / queries_of_means(p)) * d;
  cost->hbm_bytes = rows * (p->group * d + p->keep * (double)INT * (p->clustered ? 2 : 1));
  if (!p->clustered)
    return;
  double lists = rows * (p->keep + c->query.parents) * INT;
  launch(c, &p->cluster)->hbm_bytes = 0;
  launch(c, &p->scatter)->hbm_bytes = 2 * lists;
  double scores = rows * p->keep * p->children * (double)FLOAT * (plan_is_mass(p) ? p->group : 1);
  cost = launch(c, &p->leaf_score);
  cost->flops = walk_flops(plan, c, c->query.keys);
  cost->exps = rows * leaf_exps;
  cost->l2_bytes = rows * c->query.parents * p->group * d + scores;
  cost->hbm_bytes = rows * (p->group + 1) * d + scores;
  launch(c, &p->pick)->hbm_bytes = scores + 2 * lists;
}

/* A tile reads the union of its queries' lists once and multiplies all its rows with it; lists of
   neighbours are taken to share what is forced and nothing else. A query alone reads its list. */
static void attend(const struct plan *plan, struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double rows = selection_rows(plan, c), listed = c->query.listed * p->leaf, d = p->head_dim;
  double reads = listed, multiplied = listed * p->group;
  struct cost *cost = launch(c, &p->attend_blocks);
  c->tile_queries = 1;
  if (blocks_in_tiles(p)) {
    c->tile_queries = p->attend_blocks.threads / 128 * BLOCKS_TILE_ROWS / blocks_head_rows(p);
    reads -= c->query.forced * p->leaf * (1 - 1.0 / c->tile_queries);
    multiplied = reads * c->tile_queries * blocks_head_rows(p);
  }
  cost->flops = rows * multiplied * 4 * d;
  cost->exps = rows * listed * p->group;
  cost->l2_bytes = rows * (2 * reads + 2 * p->group) * d * ELEMENT;
  cost->hbm_bytes = rows * (2 + 2 * p->group) * d * ELEMENT;
}

/* As runtime/workspace.h lays it out, with the pyramid. */
static double workspace(const struct plan *plan) {
  const struct plan_pyramid *p = &plan->pyramid;
  double d = p->head_dim, row = p->keep * (double)INT; /* of ids */
  double bytes = 2 * d * ELEMENT / p->leaf + d * FLOAT / (p->leaf * p->span) + row;
  double scores = p->keep * p->children * (double)FLOAT;
  if (p->clustered)
    bytes += d * ELEMENT + 3 * row + scores * (plan_is_mass(p) ? p->group : 1);
  if (p->clustered && plan_is_mass(p))
    bytes += p->group * (double)FLOAT;
  return bytes * plan->spec->shape.kv_heads;
}

struct selection_costs selection_cost_of(const struct plan *plan, int64_t tokens) {
  struct selection_costs c = {.tokens = tokens, .workspace = workspace(plan)};
  c.levels = count_levels(&plan->pyramid, tokens);
  walk(plan, tokens, (tokens - 1) / plan->pyramid.leaf, c.levels, c.last);
  c.query = average(plan, tokens, c.levels);
  c.decoded = decoded(plan, tokens, c.levels);
  build(plan, &c);
  choose(plan, &c);
  attend(plan, &c);
  selection_expect(plan, &c);
  for (int i = 0; i < c.n_launches; i++) {
    cost_bound(plan->target, &c.launch[i], plan->target->sm_count, 1);
    c.seconds += c.launch[i].seconds + plan->target->launch_seconds;
  }
  return c;
}
