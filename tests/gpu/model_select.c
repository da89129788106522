/* model_select.c: the kernels of block selection on the host, in float. The kernel |pyramid| makes
   all levels, |walk| the whole choice, which |pick| hands over; |append| makes the nodes above the
   new tokens anew from all keys, as |pyramid| does, so that their bits agree. */
#include "tests/gpu/model_select.h"

enum { MAX_HEADS = 32, MAX_KEEP = 64, MAX_CANDIDATES = 4096 };

/* ---- means ---- */

#define LEAF (model_now.leaf)
#define CHILDREN (model_now.children)

static int64_t size_of(int level) {
  int64_t size = level ? LEAF : 1;
  for (int l = 1; l < level; l++)
    size *= CHILDREN;
  return size;
}

static uint16_t *mean_of(const struct model_sequence *s, int means, int64_t hk, int level,
                         int64_t node, int d) {
  int64_t row = s->k_begin / (2 * LEAF) * 4 + 128 * s->b + node;
  for (int l = 1; l < level; l++)
    row += blocks_of(blocks_of(s->room, size_of(l)), 4) * 4;
  row += hk * integer(s->args, PISA_SEQUENCE_node_rows);
  return (uint16_t *)pointer(s->args, means) + pisa_mean_place(row, d, D);
}

static void make_node(const struct model_sequence *s, int k, int means, int64_t hk, int level,
                      int64_t node) {
  float sum[MAX_D] = {0}, row[MAX_D];
  int64_t begin = node * size_of(level), end = least(s->keys, begin + size_of(level));
  float n = model_fault("count_node") ? (float)size_of(level) : (float)(end - begin);
  for (int64_t t = begin; t < end; t++) {
    model_widen_row(model_row(s, k, true, hk, t), row);
    for (int d = 0; d < D; d++)
      sum[d] += row[d];
  }
  for (int d = 0; d < D; d++)
    *mean_of(s, means, hk, level, node, d) = narrow(sum[d] / n);
}

/* Nodes that tokens from |from| on lie in. */
static void make_nodes(const struct model_sequence *s, int k, int means, int64_t from,
                       bool completed) {
  for (int64_t hk = 0; hk < integer(s->args, PISA_SEQUENCE_kv_heads); hk++)
    for (int level = 1; from < s->keys; level++) {
      int64_t size = size_of(level), nodes = completed ? s->keys / size : blocks_of(s->keys, size);
      for (int64_t node = from / size; node < nodes; node++)
        if (!(level == 3 && from && model_fault("append")))
          make_node(s, k, means, hk, level, node);
      if (size >= s->keys)
        break;
    }
}

void model_pyramid(const union model_value *args) {
  if (pointer(args, PISA_PYRAMID_zeros))
    memset(pointer(args, PISA_PYRAMID_zeros), 0,
           (size_t)integer(args, PISA_PYRAMID_n_zeros) * sizeof(int32_t));
  for (int64_t b = 0; b < integer(args, PISA_SEQUENCE_batch); b++) {
    struct model_sequence s = model_sequence_at(args, b);
    make_nodes(&s, PISA_PYRAMID_k, PISA_PYRAMID_means, 0, false);
  }
}

void model_append(const union model_value *args) {
  for (int64_t b = 0; b < integer(args, PISA_SEQUENCE_batch); b++) {
    struct model_sequence s = model_sequence_at(args, b);
    make_nodes(&s, PISA_APPEND_k, PISA_APPEND_means,
               most(0, s.keys - integer(args, PISA_APPEND_n_new)),
               integer(args, PISA_APPEND_completed));
  }
}

/* ---- scores ---- */

struct search { /* one query */
  struct model_sequence s;
  int q, k, means; /* arguments */
  int64_t hk, t;
  float scale;
  float rows[MAX_HEADS][MAX_D];
};

static bool by_mass(void) {
  return model_now.reduce >= MODEL_MASS;
}

static int64_t visible(const struct search *x, int level) {
  int64_t nodes = blocks_of(x->s.keys, size_of(level));
  return !model_now.causal ? nodes : x->t < 0 ? 0 : least(nodes, x->t / size_of(level) + 1);
}

static bool touches(int64_t leaf, int64_t below, int64_t node) {
  return leaf >= 0 && leaf / below == node;
}

static bool is_forced(const struct search *x, int level, int64_t node) {
  int64_t below = size_of(level) / LEAF, own = x->t >= 0 ? x->t / LEAF : -1;
  return (model_now.first && touches(0, below, node)) ||
         (model_now.current && touches(own, below, node)) ||
         (model_now.previous && touches(own - 1, below, node) && !model_fault("previous"));
}

static float logit(const struct search *x, int h, int level, int64_t node) {
  const uint16_t *key = level ? NULL : model_row(&x->s, x->k, true, x->hk, node);
  float sum = 0;
  for (int d = 0; d < D; d++) {
    const uint16_t *in = level ? mean_of(&x->s, x->means, x->hk, level, node, d) : key + d;
    sum += x->rows[h][d] * widen(*in);
  }
  return x->scale * sum;
}

/* Share of a full child that node |child| of |level| holds of what the query may read. */
static float share(const struct search *x, int level, int64_t child) {
  int64_t size = size_of(level), begin = child * size, n = least(size, x->s.keys - begin);
  bool past = begin + size <= x->t + 1;
  return n <= 0 || (model_now.causal && !past) ? 0 : (float)n / (float)size;
}

static float node_score(const struct search *x, int h, int level, int64_t node) {
  bool forced = is_forced(x, level, node);
  if (forced && !by_mass())
    return 0;
  enum model_score score = model_fault("score") ? MODEL_MEAN : model_now.score;
  if (forced && level == 1)
    score = node == x->t / LEAF || node == x->t / LEAF - 1 ? MODEL_LSE : MODEL_MEAN;
  int64_t size = size_of(level), children = level == 1 ? LEAF : CHILDREN;
  float count = (float)least(size, x->s.keys - node * size) / (float)size_of(level - 1);
  if (score == MODEL_MEAN && (!model_now.causal || (node + 1) * size <= x->t + 1))
    return logit(x, h, level, node) + (by_mass() ? logf(count) : 0);
  float most_logit = -INFINITY, sum = 0, weight = 0, mean = 0, square = 0;
  for (int64_t r = node * children; r < (node + 1) * children; r++)
    if (share(x, level - 1, r) > 0)
      most_logit = fmaxf(most_logit, logit(x, h, level - 1, r));
  for (int64_t r = node * children; r < (node + 1) * children; r++) {
    float n = share(x, level - 1, r), y = n > 0 ? logit(x, h, level - 1, r) - most_logit : 0;
    if (n <= 0)
      continue;
    sum += n * expf(y);
    weight += n;
    mean += n * y;
    square += n * y * y;
  }
  if (weight <= 0)
    return -INFINITY;
  mean /= weight;
  float variance = square / weight - mean * mean;
  if (score == MODEL_LSE)
    return most_logit + logf(sum);
  return most_logit + mean + (score == MODEL_HALF_VARIANCE ? variance / 2 : 0) +
         (by_mass() ? logf(weight) : 0);
}

/* score [G][n] into worth [n]. */
static void reduce(float (*score)[MAX_CANDIDATES], int64_t n, float *worth) {
  bool adds = model_now.reduce == MODEL_SUM || model_now.reduce == MODEL_MASS;
  for (int64_t e = 0; e < n; e++)
    worth[e] = adds ? 0 : -INFINITY;
  for (int h = 0; h < GROUP; h++) {
    float largest = -INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++)
      largest = fmaxf(largest, score[h][e]);
    for (int64_t e = 0; e < n; e++)
      sum += by_mass() && score[h][e] > -INFINITY ? expf(score[h][e] - largest) : 0;
    for (int64_t e = 0; e < n; e++) {
      float x = score[h][e];
      if (by_mass())
        x = x > -INFINITY ? expf(x - largest) / sum : 0;
      worth[e] = adds ? worth[e] + x : fmaxf(worth[e], x);
    }
  }
  for (int64_t e = 0; model_now.reduce == MODEL_LOG_SUM && e < n; e++) {
    float sum = 0;
    for (int h = 0; h < GROUP; h++)
      sum += expf(score[h][e] - worth[e]);
    worth[e] += logf(sum);
  }
}

/* ---- the walk ---- */

struct level {
  int32_t candidate[MAX_CANDIDATES];
  float worth[MAX_CANDIDATES];
  int64_t n;
};

static void score_level(const struct search *x, int level, struct level *l) {
  static _Thread_local float score[MAX_HEADS][MAX_CANDIDATES];
  for (int h = 0; h < GROUP; h++)
    for (int64_t e = 0; e < l->n; e++) {
      float value = node_score(x, h, level, l->candidate[e]);
      score[h][e] = isnan(value) ? -INFINITY : value;
    }
  reduce(score, l->n, l->worth);
  for (int64_t e = 0; e < l->n; e++)
    if (is_forced(x, level, l->candidate[e]))
      l->worth[e] = INFINITY;
    else if (isnan(l->worth[e]))
      l->worth[e] = -INFINITY;
}

/* Moves what is kept to the front. */
static void keep(struct level *l) {
  bool chosen[MAX_CANDIDATES] = {false};
  for (int slot = 0; slot < model_now.keep; slot++) {
    int64_t best = -1;
    for (int64_t e = 0; e < l->n; e++)
      if (!chosen[e] && (best < 0 || l->worth[e] > l->worth[best] ||
                         (model_fault("select_ties") && l->worth[e] >= l->worth[best])))
        best = e;
    chosen[best] = true;
  }
  int64_t n = 0;
  for (int64_t e = 0; e < l->n; e++)
    if (chosen[e]) {
      l->candidate[n] = l->candidate[e];
      l->worth[n++] = l->worth[e];
    }
  l->n = n;
}

static void expand(const struct search *x, int level, struct level *l) {
  int32_t node[MAX_KEEP];
  int64_t n = 0, seen = visible(x, level - 1);
  memcpy(node, l->candidate, (size_t)l->n * sizeof *node);
  for (int64_t e = 0; e < l->n; e++)
    for (int64_t r = (int64_t)node[e] * CHILDREN; r < least(seen, (node[e] + 1) * CHILDREN); r++)
      l->candidate[n++] = (int32_t)r;
  l->n = n;
}

static void search(const struct search *x, bool flat, struct level *l) {
  int level = 1;
  while (!flat && visible(x, level) > most(1, model_now.start))
    level++;
  l->n = visible(x, level);
  for (int64_t e = 0; e < l->n; e++)
    l->candidate[e] = (int32_t)e;
  for (;; level--) {
    if (l->n > model_now.keep) {
      score_level(x, level, l);
      keep(l);
    } else {
      for (int64_t e = 0; e < l->n; e++)
        l->worth[e] = INFINITY;
    }
    if (level == 1)
      return;
    expand(x, level, l);
  }
}

static void write_list(const struct level *l, int32_t *ids, float *worth) {
  for (int64_t e = 0; e < model_now.keep; e++) {
    int64_t from = model_fault("select_order") && l->n > 4 && e < 2 ? 1 - e : e;
    ids[e] = e < l->n ? l->candidate[from] : model_fault("select_padding") ? -2 : -1;
    if (worth)
      worth[e] = e < l->n ? l->worth[from] * (model_fault("worth") ? 1.01F : 1) : -INFINITY;
  }
  if (model_fault("select_room") && l->n > 4)
    ids[model_now.keep] = 0;
}

struct choice { /* lists of all queries */
  const union model_value *args;
  int q, k, means, scale;
  bool flat;
  int32_t *ids;
  float *worth;
};

static void choose(void *context, int thread, int64_t task) {
  const struct choice *c = context;
  int64_t kv_heads = integer(c->args, PISA_SEQUENCE_kv_heads);
  struct level *l = malloc(sizeof *l);
  struct search x = {.s = model_sequence_at(c->args, task / kv_heads),
                     .q = c->q,
                     .k = c->k,
                     .means = c->means,
                     .hk = task % kv_heads,
                     .scale = c->args[c->scale].number};
  (void)thread;
  for (int64_t n = 0; l && n < x.s.queries; n++) {
    int64_t row = model_out_row(&x.s, kv_heads, x.hk, n) * model_now.keep;
    x.t = x.s.keys - x.s.queries + n - (c->flat && model_fault("late") ? 1 : 0);
    for (int h = 0; h < GROUP; h++)
      model_widen_row(model_row(&x.s, c->q, false, x.hk * GROUP + h, n), x.rows[h]);
    search(&x, c->flat, l);
    write_list(l, c->ids + row, c->worth ? c->worth + row : NULL);
  }
  free(l);
}

static void choose_all(struct choice *c) {
  cpu_parallel(cpu_threads(0),
               (int64_t)integer(c->args, PISA_SEQUENCE_batch) *
                   integer(c->args, PISA_SEQUENCE_kv_heads),
               choose, c);
}

/* What a clustered walk found, until |pick| writes it. */
static int32_t *found_ids;
static float *found_worth;

void model_walk(const union model_value *args) {
  size_t entries = (size_t)integer(args, PISA_SEQUENCE_queries) *
                   (size_t)integer(args, PISA_SEQUENCE_kv_heads) * (size_t)model_now.keep;
  struct choice c = {args,
                     PISA_WALK_q,
                     PISA_WALK_k,
                     PISA_WALK_means,
                     PISA_WALK_scale,
                     false,
                     pointer(args, PISA_WALK_ids),
                     pointer(args, PISA_WALK_worth)};
  if (!c.ids) {
    free(found_ids);
    free(found_worth);
    c.ids = found_ids = malloc((entries + 1) * sizeof *found_ids);
    c.worth = found_worth = malloc((entries + 1) * sizeof *found_worth);
  }
  choose_all(&c);
}

void model_pick(const union model_value *args) {
  size_t entries = (size_t)integer(args, PISA_SEQUENCE_queries) *
                   (size_t)integer(args, PISA_SEQUENCE_kv_heads) * (size_t)model_now.keep;
  memcpy(pointer(args, PISA_PICK_ids), found_ids, entries * sizeof *found_ids);
  if (pointer(args, PISA_PICK_worth))
    memcpy(pointer(args, PISA_PICK_worth), found_worth, entries * sizeof *found_worth);
}

void model_flat(const union model_value *args) {
  struct choice c = {args,
                     PISA_FLAT_q,
                     PISA_FLAT_k,
                     PISA_FLAT_means,
                     PISA_FLAT_scale,
                     true,
                     pointer(args, PISA_FLAT_ids),
                     pointer(args, PISA_FLAT_worth)};
  choose_all(&c);
}

void model_decode(const union model_value *args) {
  struct choice c = {args,
                     PISA_DECODE_q,
                     PISA_DECODE_k,
                     PISA_DECODE_means,
                     PISA_DECODE_scale,
                     model_now.flat,
                     pointer(args, PISA_DECODE_ids),
                     pointer(args, PISA_DECODE_worth)};
  choose_all(&c);
}
