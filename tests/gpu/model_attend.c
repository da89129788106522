/* model_attend.c: parameters of attend in, o and lse out, column by column in float; see
   model_kernels.h. */
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
  bool spread; /* of a mean: |variance| counts */
  float key[MAX_ROWS][MAX_D], value[MAX_ROWS][MAX_D], variance[MAX_D];
};

static void load_tile(const struct model_map *k, const struct model_map *v, int64_t bh,
                      int64_t begin, int64_t n, struct tile *tile) {
  tile->n = n;
  tile->spread = false;
  for (int64_t i = 0; i < n; i++) {
    load_row(k, bh, begin + i, tile->key[i]);
    load_row(v, bh, begin + i, tile->value[i]);
  }
}

struct item { /* one query block */
  int64_t rows;
  float q[MAX_ROWS + 1][MAX_D]; /* one more for the fault "outside" */
  float q_square[MAX_ROWS + 1][MAX_D];
  struct state state[MAX_ROWS + 1];
};

/* All columns of |tile| for all rows; |bias| in base 2. */
static void add_tile(const struct tile *tile, float c, float bias, bool mean, struct item *item) {
  for (int64_t row = 0; row < item->rows; row++)
    for (int64_t i = 0; i < tile->n; i++) {
      float product = dot(item->q[row], tile->key[i]);
      if (tile->spread)
        product += dot(item->q_square[row], tile->variance);
      add_column(&item->state[row], c * product + bias, tile->value[i], mean);
    }
}

static void add_tokens(const union model_value *args, int64_t bh, int64_t block, struct tile *tile,
                       struct item *item) {
  int64_t n = least(integer(args, PISA_ATTEND_n_k) - block * KEY, KEY);
  if (model_fault("no_mask"))
    n = KEY;
  load_tile(map_of(args, PISA_ATTEND_k), map_of(args, PISA_ATTEND_v), bh / GROUP, block * KEY, n,
            tile);
  add_tile(tile, args[PISA_ATTEND_scale_log2].number, 0, false, item);
}

static void add_mean(const union model_value *args, int64_t bh, int64_t block, struct tile *tile,
                     struct item *item) {
  int64_t length = least(integer(args, PISA_ATTEND_n_k) - block * KEY, KEY);
  if (model_fault("bias"))
    length = KEY;
  load_tile(map_of(args, PISA_ATTEND_k_mean), map_of(args, PISA_ATTEND_v_mean), bh / GROUP, block,
            1, tile);
  const struct model_map *variance = map_of(args, PISA_ATTEND_k_variance);
  tile->spread = variance && !model_fault("no_spread");
  if (tile->spread)
    load_row(variance, bh / GROUP, block, tile->variance);
  add_tile(tile, args[PISA_ATTEND_scale_log2].number, log2f((float)length), true, item);
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

static void store_row(const union model_value *args, int64_t bh, int64_t n,
                      const struct state *state) {
  const struct model_map *o = map_of(args, PISA_ATTEND_o);
  int64_t b = bh / o->extent[2], h = bh % o->extent[2], n_q = o->extent[1];
  uint16_t *out = o->data + b * o->stride[3] + h * o->stride[2] + n * o->stride[1];
  float *lse = pointer(args, PISA_ATTEND_lse);
  for (int d = 0; d < D; d++)
    out[d] = narrow(state->acc[d] / state->l);
  if (lse)
    lse[bh * n_q + n] =
        (state->m + log2f(state->l)) * 0.69314718F + (model_fault("lse") ? 0.002F : 0);
}

static void attend_columns(const union model_value *args, int64_t bh, const int32_t *list,
                           const uint32_t *mask, struct item *item) {
  int64_t blocks = (integer(args, PISA_ATTEND_n_k) + KEY - 1) / KEY,
          keep = integer(args, PISA_ATTEND_keep);
  const struct model_map *h_sum = map_of(args, PISA_ATTEND_h_sum),
                         *k_mean = map_of(args, PISA_ATTEND_k_mean);
  struct tile *tile = malloc(sizeof *tile);
  if (!tile)
    abort();
  for (int64_t e = 0; e < keep; e++)
    add_tokens(args, bh, list ? list[e] : e, tile, item);
  for (int64_t j = 0; k_mean && j < blocks; j++)
    if (!(mask[j / 32] >> j % 32 & 1))
      add_mean(args, bh, j, tile, item);
  for (int64_t row = 0; h_sum && row < item->rows && !model_fault("no_first_order"); row++)
    add_first_order(h_sum, bh, item->q[row], &item->state[row]);
  free(tile);
}

static int64_t item_rows(int64_t begin, int64_t n_q) {
  int64_t rows = least(n_q - begin, QUERY);
  if (model_fault("unwritten"))
    rows--;
  return model_fault("outside") && begin + rows == n_q ? rows + 1 : rows;
}

static void attend_item(void *context, int thread, int64_t index) {
  const union model_value *args = *(const union model_value **)context;
  int64_t q_blocks = integer(args, PISA_ATTEND_q_blocks), bh = index / q_blocks,
          begin = index % q_blocks * QUERY;
  const int32_t *lists = pointer(args, PISA_ATTEND_lists);
  const uint32_t *masks = pointer(args, PISA_ATTEND_masks);
  struct item *item = calloc(1, sizeof *item);
  (void)thread;
  if (!item)
    abort();
  item->rows = item_rows(begin, integer(args, PISA_ATTEND_n_q));
  for (int64_t row = 0; row < item->rows; row++) {
    load_row(map_of(args, PISA_ATTEND_q), bh, begin + row, item->q[row]);
    for (int d = 0; d < D; d++)
      item->q_square[row][d] = widen(narrow(item->q[row][d] * item->q[row][d]));
    item->state[row].m = -INFINITY;
  }
  attend_columns(args, bh, lists ? lists + index * integer(args, PISA_ATTEND_list_stride) : NULL,
                 masks ? masks + index * integer(args, PISA_ATTEND_mask_words) : NULL, item);
  for (int64_t row = 0; row < item->rows; row++)
    store_row(args, bh, begin + row, &item->state[row]);
  free(item);
}

void model_attend(const struct model_build *build, const union model_value *args) {
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_ATTEND_items), attend_item, &args);
}
