/* expected_selection.c: in go the counts of a selection at a length; out comes the time it is
   expected to take, and what a flat scan and dense attention would.
   Letters: N tokens, C leaf, g children, K keep, G heads per key head, D head_dim; a row is a query
   of one key head, a product one m16n8k16. */
#include <math.h>

#include "compiler/plan/blocks.h"
#include "compiler/plan/cost_selection.h"
#include "compiler/plan/decode.h"
#include "runtime/abi.def"

enum { ELEMENT = 2, PRODUCT_FLOPS = 2 * 16 * 8 * 16, MEASURED_KEEP = 8 };

/* Rates of our kernels on an H200 (docs/results/h200/kernels.jsonl, pyramid.jsonl), at 32 / 2 heads
   x 64, C = 64, K = 8, g = 2, causal, bf16, 4096 to 262144 tokens. */

/* A launch that overlaps with the end of the one before. A chain of 7 takes 84 us at 4096 tokens,
   of which 48 are work; each alone and to its end, the 7 take 108 us. */
#define LAUNCH_SECONDS 5.5e-6
#define BUILD_BYTES 3.7e12 /* pyramid and images: 136 MB in 44 us */
/* The walk: a row's begin and end; exponentials at nearly what the units can; means that an SM does
   not keep, from L2 and in part, after all, from L1. Within 8 % of 56 us at 16384, 268 at 65536,
   611 at 131072, 1375 at 262144, and with mass of 309 at 65536 and 1616 at 262144. */
#define WALK_SECONDS 1.25e-9
#define WALK_EXPS 3.9e12
#define WALK_BYTES 1.25e13
#define LEAF_EXPS 2.65e12    /* leaf_score: 0.646 ms at 65536 tokens, 2.61 at 262144 */
#define SCATTER_BYTES 1.5e12 /* 16 us at 65536 tokens, 49 at 262144 */
#define PICK_BYTES 3.6e12    /* sum: 37 us at 262144; mass: 158 */
#define FLAT_FLOPS 1.07e14   /* means, heads folded: 0.372 ms at 65536 tokens, 2.41 at 262144 */
#define FLAT_SECONDS 2.0e-9  /* the best MEASURED_KEEP of a row, kept as they come by */
#define TILE_BYTES 8.7e12    /* tiles of 4 queries: 0.359 ms at 16384 tokens, 6.22 at 262144 */
#define ALONE_BYTES 9.1e12   /* a warp a query, through L1: 28.8 ns a token */
/* cuDNN: causal D 64 0.203 ms at 4096 tokens, 2.35 at 16384, 36.4 at 65536, 148 at 131072; D 128 is
   of 24 heads without a mask. Our own dense causal attention has no record and is taken for equal.
   A tile of queries has a begin and an end, as long as so many keys more. */
#define DENSE_FLOPS_64 4.9e14
#define DENSE_FLOPS_128 6.6e14
#define DENSE_MORE_KEYS 1600
/* Decoding from memory: 9.1 us at 4096 tokens, 10.7 at 32768, 10.9 at 65536, 11.8 at 131072; 32
   sequences 14.4, 16.6, 16.9 up to 65536; with mass, from 128 nodes on, 10.0, 12.1, 12.8, 13.5 and
   24.6, 18.9, 19.4. Where no cluster shares them one CTA reads the keys of all candidates. A dense
   step of cuDNN: one sequence 7.6 us at 4096 tokens, 10.7 at 16384, 20 at 65536; 32 sequences 28,
   74, 251. Its loads need time until they come in full. */
#define STEP_SECONDS 7.2e-6
#define STEP_LEVEL_SECONDS 0.6e-6
#define STEP_MASS_SECONDS 2.8e-6
#define STEP_BYTES 3.2e12
#define STEP_ALONE_BYTES 3.6e10 /* of one CTA */
#define DENSE_STEP_SECONDS 7e-6
#define DENSE_RAMP_SECONDS 5e-6
#define DENSE_RAMP_BYTES 6e12

/* Estimates, without a record of ours. Warps that wait for products, not for exponentials (scores
   without them): taken from the exponentials above, since a product has 32 of them. Leaves in
   clusters for as many heads that exps do not bound: a rate of the prototypes. A flat scan of means
   with heads apart is taken to handle a product as a folded one is handled; a flat scan of keys and
   a walk that reads keys, to do what the walk does. */
#define MMA_FLOPS 5.0e14
#define LEAF_FLOPS 5.5e14

static double larger(double a, double b) {
  return a > b ? a : b;
}

static double bytes_of(const struct selection_costs *c, const struct plan_kernel *kernel) {
  double bytes = 0;
  for (int i = 0; i < c->n_launches; i++)
    if (c->launch[i].kernel == kernel)
      bytes = c->launch[i].hbm_bytes;
  return bytes;
}

/* The two of the pyramid and |others|. */
static double fixed(const struct plan *plan, const struct selection_costs *c, int others) {
  return bytes_of(c, &plan->pyramid.build) / BUILD_BYTES + (2 + others) * LAUNCH_SECONDS;
}

static double scores(double products, double exps, double bytes) {
  return larger(products * PRODUCT_FLOPS / MMA_FLOPS, exps / WALK_EXPS) + bytes / WALK_BYTES;
}

/* ---- a walk ---- */

static double clusters(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double logits = selection_rows(plan, c) * c->query.keys * p->group;
  return larger(logits / LEAF_EXPS, logits * 2 * p->head_dim / LEAF_FLOPS) +
         bytes_of(c, &p->scatter) / SCATTER_BYTES + bytes_of(c, &p->pick) / PICK_BYTES;
}

static double walk(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double rows = selection_rows(plan, c), exps = c->query.exps, reads = c->query.far;
  if (p->clustered)
    exps -= c->query.keys * p->group;
  else
    reads += c->query.keys;
  double seconds =
      rows * (WALK_SECONDS + scores(c->query.products, exps, reads * p->head_dim * ELEMENT));
  return p->clustered ? fixed(plan, c, 5) + seconds + clusters(plan, c)
                      : fixed(plan, c, 1) + seconds;
}

/* ---- flat scans ---- */

static double seen_leaves(const struct plan *plan, const struct selection_costs *c) {
  double leaves = ceil((double)c->tokens / plan->pyramid.leaf);
  return plan->pyramid.causal ? (leaves + 1) / 2 : leaves;
}

/* Rows of products that a query takes: folded one, else its heads and what pads them. */
static double query_rows(const struct plan_pyramid *p, bool folded) {
  int heads = 16 * PISA_FLAT_WARPS / pisa_flat_queries(p->group, folded);
  return folded ? 1 : heads * ceil((double)p->group / heads);
}

/* Queries of which a CTA takes |together|: fewer CTAs than SMs take as long as one on each. */
static double scanned(const struct plan *plan, const struct selection_costs *c, int together) {
  return larger(selection_rows(plan, c), (double)plan->target->sm_count * together);
}

static double keep_best(const struct plan_pyramid *p) {
  return FLAT_SECONDS * p->keep / MEASURED_KEEP;
}

static double flat_means(const struct plan *plan, const struct selection_costs *c, bool folded) {
  const struct plan_pyramid *p = &plan->pyramid;
  double flops = seen_leaves(plan, c) * query_rows(p, folded) * 2 * p->head_dim;
  double rows = scanned(plan, c, pisa_flat_queries(p->group, folded));
  return fixed(plan, c, 1) + rows * (keep_best(p) + flops / FLAT_FLOPS);
}

static double flat_keys(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  int together = pisa_flat_queries(p->group, false);
  double keys = seen_leaves(plan, c) * p->leaf;
  double products = keys * query_rows(p, false) * p->head_dim / (16 * 8 * 16);
  double exps = p->score == SCORE_LSE ? keys * p->group : 0;
  double bytes = keys * p->head_dim * ELEMENT / together;
  return fixed(plan, c, 1) +
         scanned(plan, c, together) * (keep_best(p) + scores(products, exps, bytes));
}

/* ---- attention ---- */

static double attend(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  if (blocks_in_tiles(p))
    return LAUNCH_SECONDS + c->launch[c->n_launches - 1].l2_bytes / TILE_BYTES;
  double warps = ceil(p->group / 16.0), keys = c->query.listed * p->leaf;
  return LAUNCH_SECONDS +
         selection_rows(plan, c) * warps * keys * 2 * p->head_dim * ELEMENT / ALONE_BYTES;
}

static double dense(const struct plan *plan, const struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  double n = (double)c->tokens, rate = p->head_dim > 64 ? DENSE_FLOPS_128 : DENSE_FLOPS_64;
  double flops = (p->causal ? 2.0 : 4.0) * p->head_dim * n * (n + DENSE_MORE_KEYS);
  return LAUNCH_SECONDS + plan->spec->shape.heads * flops / rate;
}

/* ---- decoding ---- */

/* Bytes of |rows| rows of keys of every key head and sequence. */
static double read_bytes(const struct plan *plan, double rows, int batch) {
  return rows * batch * plan->spec->shape.kv_heads * plan->pyramid.head_dim * ELEMENT;
}

static double step(const struct plan *plan, const struct selection_costs *c, int batch) {
  const struct plan_pyramid *p = &plan->pyramid;
  const struct cost_query *q = &c->decoded;
  double levels = q->levels + 1; /* the leaves */
  double bytes = read_bytes(plan, q->means + q->keys + 2 * q->listed * p->leaf, batch);
  double alone = decode_shares(p) ? 0 : q->keys * p->head_dim * ELEMENT / STEP_ALONE_BYTES;
  return STEP_SECONDS + levels * STEP_LEVEL_SECONDS + (plan_is_mass(p) ? STEP_MASS_SECONDS : 0) +
         alone + bytes / STEP_BYTES;
}

static double dense_step(const struct plan *plan, const struct selection_costs *c, int batch) {
  double bytes = read_bytes(plan, 2 * (double)c->tokens, batch);
  double ramp = bytes / DENSE_RAMP_BYTES;
  return DENSE_STEP_SECONDS + bytes / plan->target->hbm_bytes +
         (ramp < DENSE_RAMP_SECONDS ? ramp : DENSE_RAMP_SECONDS);
}

/* ---- all ---- */

void selection_expect(const struct plan *plan, struct selection_costs *c) {
  const struct plan_pyramid *p = &plan->pyramid;
  const bool by_mean = p->score == SCORE_MEAN, folds = by_mean && p->reduce == REDUCE_SUM;
  struct cost_expected *e = &c->expected;
  e->means = flat_means(plan, c, p->group == 1);
  e->folded = flat_means(plan, c, true);
  e->flat = folds ? e->folded : by_mean ? e->means : flat_keys(plan, c);
  e->select = p->flat ? e->flat : walk(plan, c);
  e->attend = attend(plan, c);
  e->dense = dense(plan, c);
  e->step = step(plan, c, 1);
  e->steps = step(plan, c, COST_BATCH);
  e->dense_step = dense_step(plan, c, 1);
  e->dense_steps = dense_step(plan, c, COST_BATCH);
}

bool selection_is_measured(const struct plan *plan) {
  const struct plan_pyramid *p = &plan->pyramid;
  const bool shape = p->type == TYPE_BF16 && p->head_dim == 64 && p->group == 16 &&
                     plan->spec->shape.kv_heads == 2 && p->causal && p->leaf == 64 &&
                     p->children == 2 && p->keep == MEASURED_KEEP && p->start_nodes == 0 &&
                     p->page == 0;
  const bool sums = p->reduce == REDUCE_SUM;
  const bool method =
      p->flat ? p->score == SCORE_MEAN && sums : p->clustered && (sums || p->reduce == REDUCE_MASS);
  return shape && method;
}

double selection_rival_seconds(const struct selection_costs *c, enum selection_rival rival) {
  const double seconds[] = {
      [RIVAL_FLAT] = c->expected.flat,       [RIVAL_MEANS] = c->expected.means,
      [RIVAL_FOLDED] = c->expected.folded,   [RIVAL_DENSE] = c->expected.dense,
      [RIVAL_STEP] = c->expected.dense_step, [RIVAL_STEPS] = c->expected.dense_steps,
  };
  return seconds[rival];
}

double selection_own_seconds(const struct selection_costs *c, enum selection_rival rival) {
  switch (rival) {
  case RIVAL_DENSE:
    return c->expected.select + c->expected.attend;
  case RIVAL_STEP:
    return c->expected.step;
  case RIVAL_STEPS:
    return c->expected.steps;
  case RIVAL_FLAT:
  case RIVAL_MEANS:
  case RIVAL_FOLDED:
    break;
  }
  return c->expected.select;
}

int64_t selection_crossover(const struct plan *plan, enum selection_rival rival) {
  int64_t from = 0;
  for (int64_t n = SELECTION_LEAST_TOKENS; n <= 1 << 24; n += n / 8) {
    struct selection_costs c = selection_cost_of(plan, n);
    if (selection_own_seconds(&c, rival) >= selection_rival_seconds(&c, rival))
      from = 0;
    else if (from == 0)
      from = n;
  }
  return from;
}
