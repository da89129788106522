/* model_kernels.c: parameters of one kernel in, its outputs out, float throughout; see
 * model_kernels.h. */
#include "tests/gpu/model_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.def"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"

enum { MAX_D = 128, BLOCK = 64, QUERY = 128, PARTS = 8 };

/* What the running kernel was compiled for. */
static int D, group;
static pisa_type type;

static void enter(const struct model_build *build) {
  if (build->head_dim > MAX_D)
    abort();
  D = build->head_dim;
  group = build->group;
  type = build->type;
}

static float widen(uint16_t bits) {
  return cpu_widen(type, bits);
}

static uint16_t narrow(float value) {
  return cpu_narrow(type, value);
}

bool model_fault(const char *fault) {
  const char *wanted = getenv("PISA_MODEL_FAULT");
  return wanted && strcmp(wanted, fault) == 0;
}

static int32_t integer(const union model_value *args, int index) {
  return args[index].integer;
}

static void *pointer(const union model_value *args, int index) {
  return (void *)(uintptr_t)args[index].pointer;
}

static const struct model_map *map_of(const union model_value *args, int index) {
  return args[index].map.data ? &args[index].map : NULL;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Row |n| of head |bh|; rows behind the last one are zero, as TMA fills them. */
static void load_row(const struct model_map *map, int64_t bh, int64_t n, float *row) {
  int64_t b = bh / map->extent[2], h = bh % map->extent[2];
  const uint16_t *in = map->data + b * map->stride[3] + h * map->stride[2] + n * map->stride[1];
  for (int d = 0; d < D; d++)
    row[d] = n < map->extent[1] ? widen(in[d]) : 0;
}

/* ---- statistics ---- */

static void store_mean(const struct model_map *map, int64_t bh, int64_t block, uint16_t *out) {
  int64_t begin = block * BLOCK, rows = least(map->extent[1] - begin, BLOCK);
  float sum[MAX_D] = {0}, row[MAX_D];
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(map, bh, n, row);
    for (int d = 0; d < D; d++)
      sum[d] += row[d];
  }
  if (model_fault("short_mean"))
    rows = BLOCK;
  for (int d = 0; d < D; d++)
    out[d] = narrow(sum[d] / (float)rows);
}

/* H [MAX_D][MAX_D] += sum_n k_n^T v_n - ksum^T vsum / rows; returns its squared norm before the
 * addition.
 */
static float add_covariance(const struct model_map *k, const struct model_map *v, int64_t bh,
                            int64_t block, float *total) {
  static _Thread_local float H[MAX_D][MAX_D];
  int64_t begin = block * BLOCK, rows = least(k->extent[1] - begin, BLOCK);
  float key[MAX_D], value[MAX_D], key_sum[MAX_D] = {0}, value_sum[MAX_D] = {0}, squares = 0;
  memset(H, 0, sizeof H);
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(k, bh, n, key);
    load_row(v, bh, n, value);
    for (int r = 0; r < D; r++) {
      key_sum[r] += key[r];
      value_sum[r] += value[r];
      for (int c = 0; c < D; c++)
        H[r][c] += key[r] * value[c];
    }
  }
  for (int r = 0; r < D; r++)
    for (int c = 0; c < D; c++) {
      float h = H[r][c] - key_sum[r] / (float)rows * value_sum[c];
      squares += h * h;
      total[r * D + c] += h;
    }
  return squares;
}

/* The first CTA that works on head |bh|: CTAs take equal ranges of the |blocks| blocks of all
 * heads. */
static int64_t first_cta(int64_t bh, int64_t blocks, int64_t heads, int64_t grid) {
  return ((bh * blocks + 1) * grid - 1) / (heads * blocks);
}

struct statistics {
  const union model_value *args;
  int grid;
};

/* All means of key/value head |bh| and of the query heads that share it. */
static void store_means(const union model_value *args, int64_t bh) {
  const struct model_map *q = map_of(args, PISA_STATISTICS_q), *k = map_of(args, PISA_STATISTICS_k);
  const struct model_map *v = map_of(args, PISA_STATISTICS_v);
  int64_t q_blocks = (q->extent[1] + BLOCK - 1) / BLOCK,
          k_blocks = (k->extent[1] + BLOCK - 1) / BLOCK;
  uint16_t *q_mean = pointer(args, PISA_STATISTICS_q_mean),
           *k_mean = pointer(args, PISA_STATISTICS_k_mean);
  uint16_t *v_mean = pointer(args, PISA_STATISTICS_v_mean);
  for (int64_t i = 0; i < group * q_blocks; i++)
    store_mean(q, group * bh + i / q_blocks, i % q_blocks,
               q_mean + (group * bh * q_blocks + i) * D);
  for (int64_t j = 0; j < k_blocks; j++) {
    store_mean(k, bh, j, k_mean + (bh * k_blocks + j) * D);
    if (v_mean)
      store_mean(v, bh, j, v_mean + (bh * k_blocks + j) * D);
  }
  if (model_fault("mean"))
    q_mean[group * bh * q_blocks * D] ^= 4;
}

static void statistics_head(void *context, int thread, int64_t bh) {
  const struct statistics *s = context;
  const union model_value *args = s->args;
  const struct model_map *k = map_of(args, PISA_STATISTICS_k), *v = map_of(args, PISA_STATISTICS_v);
  float *norms = pointer(args, PISA_STATISTICS_h_norm2),
        *parts = pointer(args, PISA_STATISTICS_h_part);
  int64_t k_blocks = (k->extent[1] + BLOCK - 1) / BLOCK;
  float *total = calloc((size_t)(D * D), sizeof *total);
  (void)thread;
  store_means(args, bh);
  for (int64_t j = 0; (norms || parts) && j < k_blocks; j++) {
    float squares = add_covariance(k, v, bh, j, total);
    for (int part = 0; norms && part < PARTS; part++)
      norms[(bh * k_blocks + j) * PARTS + part] = squares / PARTS;
    if (norms && model_fault("norm"))
      norms[(bh * k_blocks + j) * PARTS] = 0;
  }
  if (parts) {
    int64_t heads = integer(args, PISA_STATISTICS_total_heads),
            blocks = integer(args, PISA_STATISTICS_blocks);
    memcpy(parts + (first_cta(bh, blocks, heads, s->grid) + bh) * D * D, total,
           (size_t)(D * D) * sizeof *total);
  }
  free(total);
}

void model_statistics(const struct model_build *build, const union model_value *args, int grid) {
  struct statistics s = {args, grid};
  enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_STATISTICS_total_heads), statistics_head, &s);
}

/* ---- route ---- */

static void query_mean(const uint16_t *means, int64_t i, int64_t n_q, float *out) {
  int64_t begin = i * QUERY, a = least(n_q - begin, BLOCK), b = least(n_q - begin, QUERY) - a;
  for (int d = 0; d < D; d++) {
    float first = widen(means[2 * i * D + d]), second = b ? widen(means[(2 * i + 1) * D + d]) : 0;
    out[d] = widen(narrow(((float)a * first + (float)b * second) / (float)(a + b)));
  }
}

static void fill_scores(const union model_value *args, int64_t bh, int64_t i, int64_t blocks,
                        float *score) {
  int64_t n_q = integer(args, PISA_ROUTE_n_q), q_blocks = (n_q + BLOCK - 1) / BLOCK;
  const uint16_t *q_mean = pointer(args, PISA_ROUTE_q_mean),
                 *k_mean = pointer(args, PISA_ROUTE_k_mean);
  const float *norms = pointer(args, PISA_ROUTE_h_norm2);
  float q[MAX_D];
  int64_t shared = model_fault("kv_head") ? 0 : bh / group;
  query_mean(q_mean + bh * q_blocks * D, i, n_q, q);
  for (int64_t j = 0; j < blocks; j++) {
    float dot = 0, squares = 0;
    for (int d = 0; d < D; d++)
      dot += q[d] * widen(k_mean[(shared * blocks + j) * D + d]);
    score[j] = dot * args[PISA_ROUTE_scale].number;
    for (int part = 0; norms && part < PARTS; part++)
      squares += norms[(shared * blocks + j) * PARTS + part];
    if (norms && !model_fault("no_term"))
      score[j] += logf(sqrtf(squares) + 1e-5F);
    if (isnan(score[j]))
      score[j] = -INFINITY;
  }
  for (int a = PISA_ROUTE_always_0_begin;
       a <= PISA_ROUTE_always_3_begin && !model_fault("no_always"); a += 2)
    for (int64_t j = integer(args, a); j < integer(args, a + 1); j++)
      score[j] = INFINITY;
}

/* The best block not chosen yet; among equals the first one. */
static int64_t best(const float *score, const bool *chosen, int64_t blocks) {
  int64_t found = -1;
  for (int64_t j = 0; j < blocks; j++)
    if (!chosen[j] &&
        (found < 0 || score[j] > score[found] || (model_fault("ties") && score[j] == score[found])))
      found = j;
  return found;
}

/* The worst listed block makes way for the worst of all. */
static void list_wrongly(const float *score, bool *chosen, int64_t blocks) {
  int64_t in = -1, out = -1;
  for (int64_t j = 0; j < blocks; j++) {
    if (chosen[j] && (in < 0 || score[j] < score[in]))
      in = j;
    if (!chosen[j] && (out < 0 || score[j] < score[out]))
      out = j;
  }
  if (out < 0)
    return;
  chosen[in] = false;
  chosen[out] = true;
}

static void store_list(const union model_value *args, int64_t row, int64_t blocks,
                       const bool *chosen) {
  int64_t keep = integer(args, PISA_ROUTE_keep), stride = integer(args, PISA_ROUTE_list_stride);
  int64_t words = integer(args, PISA_ROUTE_mask_words), n = 0;
  int32_t *list = (int32_t *)pointer(args, PISA_ROUTE_lists) + row * stride;
  uint32_t *mask = (uint32_t *)pointer(args, PISA_ROUTE_masks) + row * words;
  int32_t *ids = pointer(args, PISA_ROUTE_ids);
  memset(mask, 0, (size_t)words * sizeof *mask);
  for (int64_t j = 0; j < 32 * words; j++) {
    bool listed = j < blocks && chosen[j];
    if (listed)
      list[n++] = (int32_t)j;
    if (listed || (j >= blocks && !model_fault("mask_padding")))
      mask[j / 32] |= 1U << j % 32;
  }
  memset(list + n, 0, (size_t)(stride - n) * sizeof *list);
  if (model_fault("list_padding"))
    list[n] = -1;
  if (ids)
    memcpy(ids + row * keep, list, (size_t)keep * sizeof *ids);
  if (ids && model_fault("ids"))
    ids[row * keep]++;
}

static void route_head(void *context, int thread, int64_t bh) {
  const union model_value *args = *(const union model_value **)context;
  int64_t blocks = (integer(args, PISA_ROUTE_n_k) + BLOCK - 1) / BLOCK;
  int64_t rows = (integer(args, PISA_ROUTE_n_q) + QUERY - 1) / QUERY;
  float *score = calloc((size_t)blocks, sizeof *score);
  bool *chosen = calloc((size_t)blocks, sizeof *chosen);
  (void)thread;
  for (int64_t i = 0; i < rows; i++) {
    fill_scores(args, bh, i, blocks, score);
    memset(chosen, 0, (size_t)blocks * sizeof *chosen);
    for (int64_t e = 0; e < integer(args, PISA_ROUTE_keep); e++)
      chosen[best(score, chosen, blocks)] = true;
    if (model_fault("list"))
      list_wrongly(score, chosen, blocks);
    store_list(args, bh * rows + i, blocks, chosen);
  }
  free(score);
  free(chosen);
}

static void store_h_sum(const union model_value *args) {
  int64_t heads = integer(args, PISA_ROUTE_total_heads) / group,
          blocks = integer(args, PISA_ROUTE_stat_blocks);
  int64_t grid = integer(args, PISA_ROUTE_stat_ctas);
  const float *parts = pointer(args, PISA_ROUTE_h_part);
  uint16_t *h_sum = pointer(args, PISA_ROUTE_h_sum);
  for (int64_t bh = 0; h_sum && bh < heads; bh++) {
    const float *sum = parts + (first_cta(bh, blocks, heads, grid) + bh) * D * D;
    for (int r = 0; r < D; r++)
      for (int c = 0; c < D; c++)
        h_sum[bh * D * D + (model_fault("h_sum") ? c * D + r : r * D + c)] =
            narrow(sum[r * D + c] * args[PISA_ROUTE_h_scale].number);
  }
}

void model_route(const struct model_build *build, const union model_value *args) {
  enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_ROUTE_total_heads), route_head, &args);
  store_h_sum(args);
}

/* ---- attend ---- */

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
  float key[BLOCK][MAX_D], value[BLOCK][MAX_D];
};

static void load_tile(const struct model_map *k, const struct model_map *v, int64_t bh,
                      int64_t begin, int64_t n, struct tile *tile) {
  tile->n = n;
  for (int64_t i = 0; i < n; i++) {
    load_row(k, bh, begin + i, tile->key[i]);
    load_row(v, bh, begin + i, tile->value[i]);
  }
}

struct item { /* one query block */
  int64_t rows;
  float q[QUERY + 1][MAX_D]; /* one more for the fault "outside" */
  struct state state[QUERY + 1];
};

/* All columns of |tile| for all rows; |bias| in base 2. */
static void add_tile(const struct tile *tile, float c, float bias, bool mean, struct item *item) {
  for (int64_t row = 0; row < item->rows; row++)
    for (int64_t i = 0; i < tile->n; i++)
      add_column(&item->state[row], c * dot(item->q[row], tile->key[i]) + bias, tile->value[i],
                 mean);
}

static void add_tokens(const union model_value *args, int64_t bh, int64_t block, struct tile *tile,
                       struct item *item) {
  int64_t n = least(integer(args, PISA_ATTEND_n_k) - block * BLOCK, BLOCK);
  if (model_fault("no_mask"))
    n = BLOCK;
  load_tile(map_of(args, PISA_ATTEND_k), map_of(args, PISA_ATTEND_v), bh / group, block * BLOCK, n,
            tile);
  add_tile(tile, args[PISA_ATTEND_scale_log2].number, 0, false, item);
}

static void add_mean(const union model_value *args, int64_t bh, int64_t block, struct tile *tile,
                     struct item *item) {
  int64_t length = least(integer(args, PISA_ATTEND_n_k) - block * BLOCK, BLOCK);
  if (model_fault("bias"))
    length = BLOCK;
  load_tile(map_of(args, PISA_ATTEND_k_mean), map_of(args, PISA_ATTEND_v_mean), bh / group, block,
            1, tile);
  add_tile(tile, args[PISA_ATTEND_scale_log2].number, log2f((float)length), true, item);
}

/* g q is rounded as a tensor core takes it, so the gain has to leave g before. */
static void add_first_order(const struct model_map *h_sum, int64_t bh, const float *q,
                            struct state *state) {
  float row[MAX_D], gain = type == PISA_FP16 ? PISA_FP16_H_GAIN : 1;
  float before = model_fault("late_gain") ? 1 : gain;
  for (int r = 0; r < D; r++) {
    float gq = widen(narrow(state->g / before * q[r]));
    load_row(h_sum, bh / group, r, row);
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
  int64_t blocks = (integer(args, PISA_ATTEND_n_k) + BLOCK - 1) / BLOCK,
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
    item->state[row].m = -INFINITY;
  }
  attend_columns(args, bh, lists ? lists + index * integer(args, PISA_ATTEND_list_stride) : NULL,
                 masks ? masks + index * integer(args, PISA_ATTEND_mask_words) : NULL, item);
  for (int64_t row = 0; row < item->rows; row++)
    store_row(args, bh, begin + row, &item->state[row]);
  free(item);
}

void model_attend(const struct model_build *build, const union model_value *args) {
  enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_ATTEND_items), attend_item, &args);
}
