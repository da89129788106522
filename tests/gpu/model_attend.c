/* model_attend.c: parameters of attend, attend_edge or a dense kernel in, o and lse out, column by
   column in float; see model_kernels.h. */
#include "tests/gpu/model_build.h"

struct state { /* of one query row: unscaled numerator, maximum, sums (docs/DESIGN.md) */
  float acc[MAX_D], m, l, g;
};

static float dot(const float *a, const float *b) {
  float sum = 0;
  for (int d = 0; d < D; d++)
    sum += a[d] * b[d];
  return sum;
}

/* One more column with score |s| in base 2 and |value|. Weights are rounded as a tensor core takes
 * them. */
static void add_column(struct state *state, float s, const float *value, bool mean) {
  float m = s > state->m ? s : state->m;
  float f = state->m == -INFINITY ? 0 : exp2f(state->m - m), p = exp2f(s - m);
  float rounded = widen(narrow(p));
  for (int d = 0; d < D; d++)
    state->acc[d] = state->acc[d] * f + rounded * value[d];
  state->l = state->l * f + p;
  state->g = (model_fault("g_rescale") ? state->g : state->g * f) + (mean ? p : 0);
  state->m = m;
}

struct tile { /* the columns of one block, widened once for all rows of an item */
  int64_t n;
  int64_t begin; /* token of the first column; of means nothing */
  bool spread;   /* of a mean: |variance| counts */
  float key[MAX_ROWS][MAX_D], value[MAX_ROWS][MAX_D], variance[MAX_D];
};

static void load_tile(const struct model_map *k, const struct model_map *v, int64_t bh,
                      int64_t begin, int64_t n, struct tile *tile) {
  tile->n = n;
  tile->begin = begin;
  tile->spread = false;
  for (int64_t i = 0; i < n; i++) {
    load_row(k, bh, begin + i, tile->key[i]);
    load_row(v, bh, begin + i, tile->value[i]);
  }
}

struct item { /* one query block */
  const union model_value *args;
  int64_t bh, rows;
  int64_t first;                /* of its rows */
  int64_t keys, blocks;         /* of its sequence */
  const int32_t *list;          /* NULL: every block */
  int64_t count;                /* exact blocks at the head of the list */
  float q[MAX_ROWS + 1][MAX_D]; /* one more for the fault "outside" */
  float q_square[MAX_ROWS + 1][MAX_D];
  struct state state[MAX_ROWS + 1];
};

/* Columns of |tile| that a row sees. */
static int64_t seen(const struct item *item, const struct tile *tile, int64_t row) {
  int64_t t = item->keys - integer(item->args, PISA_ATTEND_n_q) + item->first + row;
  if (!model_now.causal || model_fault("future"))
    return tile->n;
  return t < tile->begin ? 0 : least(tile->n, t + 1 - tile->begin);
}

/* All columns of |tile| for all rows; |bias| in base 2. */
static void add_tile(const struct tile *tile, float c, float bias, bool mean, struct item *item) {
  for (int64_t row = 0; row < item->rows; row++)
    for (int64_t i = 0, n = seen(item, tile, row); i < n; i++) {
      float product = dot(item->q[row], tile->key[i]);
      if (tile->spread)
        product += dot(item->q_square[row], tile->variance);
      add_column(&item->state[row], c * product + bias, tile->value[i], mean);
    }
}

static void add_tokens(struct item *item, int64_t block, struct tile *tile) {
  int64_t n = least(item->keys - block * KEY, KEY);
  if (model_fault("no_mask"))
    n = KEY;
  load_tile(map_of(item->args, PISA_ATTEND_k), map_of(item->args, PISA_ATTEND_v), item->bh / GROUP,
            block * KEY, n, tile);
  add_tile(tile, item->args[PISA_ATTEND_scale_log2].number, 0, false, item);
}

static void add_mean(struct item *item, int64_t block, struct tile *tile) {
  const union model_value *args = item->args;
  int64_t length = least(item->keys - block * KEY, KEY);
  if (model_fault("bias"))
    length = KEY;
  load_tile(map_of(args, PISA_ATTEND_k_mean), map_of(args, PISA_ATTEND_v_mean), item->bh / GROUP,
            block, 1, tile);
  const struct model_map *variance = map_of(args, PISA_ATTEND_k_variance);
  tile->spread = variance && !model_fault("no_spread");
  if (tile->spread)
    load_row(variance, item->bh / GROUP, block, tile->variance);
  add_tile(tile, args[PISA_ATTEND_scale_log2].number, log2f((float)length), true, item);
}

/* A block to first order about its mean score: sum_n e^mean (1 + s_n - mean) v_n, and e^mean a
   token in the denominator; to second order e^(mean + var / 2). */
static void add_linear(const struct tile *tile, float c, const float *q, struct state *state) {
  float s[MAX_ROWS], mean = 0, variance = 0;
  for (int64_t n = 0; n < tile->n; n++) {
    s[n] = c * 0.69314718F * dot(q, tile->key[n]);
    mean += s[n] / (float)tile->n;
  }
  for (int64_t n = 0; model_now.second_order && n < tile->n; n++)
    variance += (s[n] - mean) * (s[n] - mean) / (float)tile->n;
  float weight = (mean + variance / 2) * 1.44269504F; /* base 2 */
  float m = weight > state->m ? weight : state->m, p = exp2f(weight - m);
  float f = state->m == -INFINITY ? 0 : exp2f(state->m - m);
  for (int d = 0; d < D; d++)
    state->acc[d] *= f;
  for (int64_t n = 0; n < tile->n; n++) {
    float slope = model_fault("no_slope") ? 0 : s[n] - mean;
    float rounded = widen(narrow(p * (1 + slope)));
    for (int d = 0; d < D; d++)
      state->acc[d] += rounded * tile->value[n][d];
  }
  state->l = state->l * f + p * (float)tile->n;
  state->m = m;
}

static void add_rest(struct item *item, int64_t block, struct tile *tile) {
  load_tile(map_of(item->args, PISA_ATTEND_k), map_of(item->args, PISA_ATTEND_v), item->bh / GROUP,
            block * KEY, least(item->keys - block * KEY, KEY), tile);
  for (int64_t row = 0; row < item->rows; row++)
    add_linear(tile, item->args[PISA_ATTEND_scale_log2].number, item->q[row], &item->state[row]);
}

/* g q is rounded as a tensor core takes it, so the gain has to leave g before. */
static void add_first_order(const struct model_map *h_sum, int64_t bh, const float *q,
                            struct state *state) {
  float row[MAX_D], gain = model_now.type == PISA_FP16 ? PISA_FP16_H_GAIN : 1;
  float before = model_fault("late_gain") ? 1 : gain;
  for (int r = 0; r < D; r++) {
    float gq = widen(narrow(state->g / before * q[r]));
    load_row(h_sum, bh / GROUP, r, row);
    for (int c = 0; c < D; c++)
      state->acc[c] += gq * row[c] * (before / gain);
  }
}

static void store_row(const struct item *item, int64_t n, const struct state *state) {
  const struct model_map *o = map_of(item->args, PISA_ATTEND_o);
  int64_t b = item->bh / o->extent[2], h = item->bh % o->extent[2], n_q = o->extent[1];
  uint16_t *out = o->data + b * o->stride[3] + h * o->stride[2] + n * o->stride[1];
  float *lse = pointer(item->args, PISA_ATTEND_lse);
  bool nothing = state->l == 0 && !model_fault("empty");
  for (int d = 0; d < D; d++)
    out[d] = nothing ? 0 : narrow(state->acc[d] / state->l);
  if (lse)
    lse[item->bh * n_q + n] =
        (state->m + log2f(state->l)) * 0.69314718F + (model_fault("lse") ? 0.002F : 0);
}

static void attend_columns(struct item *item, const uint32_t *mask) {
  const struct model_map *h_sum = map_of(item->args, PISA_ATTEND_h_sum),
                         *k_mean = map_of(item->args, PISA_ATTEND_k_mean);
  struct tile *tile = malloc(sizeof *tile);
  if (!tile)
    abort();
  for (int64_t e = 0; e < item->count; e++)
    add_tokens(item, item->list ? item->list[e] : e, tile);
  for (int64_t e = item->count; model_now.linear && item->list && e < item->blocks; e++)
    add_rest(item, item->list[e], tile);
  for (int64_t j = 0; k_mean && j < item->blocks; j++)
    if (!(mask[j / 32] >> j % 32 & 1))
      add_mean(item, j, tile);
  for (int64_t row = 0; h_sum && row < item->rows && !model_fault("no_first_order"); row++)
    add_first_order(h_sum, item->bh, item->q[row], &item->state[row]);
  free(tile);
}

static int64_t item_rows(int64_t begin, int64_t n_q) {
  int64_t rows = least(n_q - begin, QUERY);
  if (model_fault("unwritten"))
    rows--;
  return model_fault("outside") && begin + rows == n_q ? rows + 1 : rows;
}

struct launch {
  const union model_value *args;
  enum model_attend kernel;
  int64_t q_blocks; /* NTq; the argument of that name counts items, which may be pairs */
};

/* A walk in pairs takes the entries that both lists begin with from the first one. */
static void join_pair(const struct item *item, int64_t i, int64_t q_blocks, int32_t *list) {
  const int32_t *shared = pointer(item->args, PISA_ATTEND_shared);
  int64_t stride = integer(item->args, PISA_ATTEND_list_stride), pairs = blocks_of(q_blocks, 2);
  memcpy(list, item->list, (size_t)item->count * sizeof *list);
  if (i % 2)
    memcpy(list, item->list - stride,
           (size_t)least(shared[item->bh * pairs + i / 2], item->count) * sizeof *list);
}

/* Sequence, list and count of query block |i|; |copy| holds the list of a pair. */
static void find_list(const struct launch *launch, int64_t i, int32_t *copy, struct item *item) {
  const union model_value *args = item->args;
  bool edge = launch->kernel != MODEL_ATTEND, dense = launch->kernel == MODEL_DENSE;
  const int32_t *lists = pointer(args, PISA_ATTEND_lists),
                *counts = pointer(args, PISA_ATTEND_counts);
  int64_t index = item->bh * launch->q_blocks + i;
  item->keys = edge ? keys_of(args, PISA_ATTEND_lengths, PISA_ATTEND_n_k,
                              item->bh / integer(args, PISA_ATTEND_heads), "lengths_attend")
                    : integer(args, PISA_ATTEND_n_k);
  item->blocks = blocks_of(item->keys, KEY);
  item->list = lists && !dense ? lists + index * integer(args, PISA_ATTEND_list_stride) : NULL;
  item->count = item->list && edge && counts ? counts[index] : integer(args, PISA_ATTEND_keep);
  if (!item->list)
    item->count = item->blocks;
  if (!item->list || edge || !model_now.pairs)
    return;
  join_pair(item, i, launch->q_blocks, copy);
  item->list = copy;
}

/* Query block |index % q_blocks| of head |index / q_blocks|. */
static void attend_block(void *context, int thread, int64_t index) {
  const struct launch *launch = context;
  const union model_value *args = launch->args;
  int64_t i = index % launch->q_blocks;
  const uint32_t *masks = pointer(args, PISA_ATTEND_masks);
  struct item *item = calloc(1, sizeof *item);
  int32_t *copy = calloc((size_t)integer(args, PISA_ATTEND_keep) + 1, sizeof *copy);
  float gain = model_now.type == PISA_FP16 ? PISA_FP16_VARIANCE_GAIN : 1;
  (void)thread;
  if (!item || !copy)
    abort();
  item->args = args;
  item->bh = index / launch->q_blocks;
  item->first = i * QUERY;
  item->rows = item_rows(i * QUERY, integer(args, PISA_ATTEND_n_q));
  find_list(launch, i, copy, item);
  for (int64_t row = 0; row < item->rows; row++) {
    load_row(map_of(args, PISA_ATTEND_q), item->bh, i * QUERY + row, item->q[row]);
    for (int d = 0; d < D; d++)
      item->q_square[row][d] = widen(narrow(item->q[row][d] * item->q[row][d] / gain));
    item->state[row].m = -INFINITY;
  }
  attend_columns(item, masks ? masks + index * integer(args, PISA_ATTEND_mask_words) : NULL);
  for (int64_t row = 0; row < item->rows; row++)
    store_row(item, i * QUERY + row, &item->state[row]);
  free(copy);
  free(item);
}

void model_attend(const struct model_build *build, const union model_value *args,
                  enum model_attend kernel) {
  struct model_build here = *build;
  bool pairs = build->pairs && kernel == MODEL_ATTEND;
  if (kernel == MODEL_DENSE)
    here.query = PISA_DENSE_QUERY;
  model_enter(&here);
  struct launch launch = {args, kernel, blocks_of(integer(args, PISA_ATTEND_n_q), QUERY)};
  int64_t items = blocks_of(launch.q_blocks, pairs ? 2 : 1);
  if (integer(args, PISA_ATTEND_q_blocks) != items) /* what a kernel takes its items apart by */
    abort();
  int64_t heads = integer(args, PISA_ATTEND_items) / items;
  cpu_parallel(cpu_threads(0), heads * launch.q_blocks, attend_block, &launch);
}
