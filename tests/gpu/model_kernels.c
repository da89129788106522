/* model_kernels.c: parameters of statistics or route in, their outputs out, float throughout; see
   model_kernels.h. */
#include "tests/gpu/model_build.h"

struct model_build model_now;

void model_enter(const struct model_build *build) {
  if (build->head_dim > MAX_D || build->query > MAX_ROWS)
    abort();
  model_now = *build;
}

bool model_fault(const char *fault) {
  const char *wanted = getenv("PISA_MODEL_FAULT");
  return wanted && strcmp(wanted, fault) == 0;
}

/* ---- statistics ---- */

static void store_mean(const struct model_map *map, int64_t bh, int64_t block, uint16_t *out) {
  int64_t begin = block * KEY, rows = least(map->extent[1] - begin, KEY);
  float sum[MAX_D] = {0}, row[MAX_D];
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(map, bh, n, row);
    for (int d = 0; d < D; d++)
      sum[d] += row[d];
  }
  if (model_fault("short_mean"))
    rows = KEY;
  for (int d = 0; d < D; d++)
    out[d] = narrow(sum[d] / (float)rows);
}

/* H [MAX_D][MAX_D] += sum_n k_n^T v_n - ksum^T vsum / rows; returns its squared norm before the
 * addition.
 */
static float add_covariance(const struct model_map *k, const struct model_map *v, int64_t bh,
                            int64_t block, float *total) {
  static _Thread_local float H[MAX_D][MAX_D];
  int64_t begin = block * KEY, rows = least(k->extent[1] - begin, KEY);
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

/* The variance of each key column of |block|, as round(scale * variance) to |out| unless NULL;
   returns their sum, tr C_j. */
static float store_variance(const struct model_map *k, int64_t bh, int64_t block, float scale,
                            uint16_t *out) {
  int64_t begin = block * KEY, rows = least(k->extent[1] - begin, KEY);
  float row[MAX_D], sum[MAX_D] = {0}, squares[MAX_D] = {0}, trace = 0;
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(k, bh, n, row);
    for (int d = 0; d < D; d++) {
      sum[d] += row[d];
      squares[d] += row[d] * row[d];
    }
  }
  if (model_fault("short_variance"))
    rows = KEY;
  for (int d = 0; d < D; d++) {
    float mean = sum[d] / (float)rows, variance = squares[d] / (float)rows - mean * mean;
    trace += variance > 0 ? variance : 0;
    if (out)
      out[d] = narrow(variance > 0 ? scale * variance : 0);
  }
  return trace;
}

struct statistics {
  const union model_value *args;
  int grid;
};

/* All means of key/value head |bh| and of the query heads that share it. */
static void store_means(const union model_value *args, int64_t bh) {
  const struct model_map *q = map_of(args, PISA_STATISTICS_q), *k = map_of(args, PISA_STATISTICS_k);
  const struct model_map *v = map_of(args, PISA_STATISTICS_v);
  int64_t q_blocks = (q->extent[1] + KEY - 1) / KEY, k_blocks = (k->extent[1] + KEY - 1) / KEY;
  uint16_t *q_mean = pointer(args, PISA_STATISTICS_q_mean),
           *k_mean = pointer(args, PISA_STATISTICS_k_mean);
  uint16_t *v_mean = pointer(args, PISA_STATISTICS_v_mean);
  for (int64_t i = 0; i < GROUP * q_blocks; i++)
    store_mean(q, GROUP * bh + i / q_blocks, i % q_blocks,
               q_mean + (GROUP * bh * q_blocks + i) * D);
  for (int64_t j = 0; j < k_blocks; j++) {
    store_mean(k, bh, j, k_mean + (bh * k_blocks + j) * D);
    if (v_mean)
      store_mean(v, bh, j, v_mean + (bh * k_blocks + j) * D);
  }
  if (model_fault("mean"))
    q_mean[GROUP * bh * q_blocks * D] ^= 4;
}

static void store_norm(float *parts, float sum) {
  for (int part = 0; part < PARTS; part++)
    parts[part] = sum / PARTS;
  if (model_fault("norm"))
    *parts = 0;
}

static void store_variances(const union model_value *args, int64_t bh, int64_t k_blocks) {
  const float scale = args[PISA_STATISTICS_variance_scale].number;
  uint16_t *variance = pointer(args, PISA_STATISTICS_k_variance);
  float *norms = model_now.key_variance ? pointer(args, PISA_STATISTICS_h_norm2) : NULL;
  for (int64_t j = 0; (variance || norms) && j < k_blocks; j++) {
    int64_t at = bh * k_blocks + j;
    float trace = store_variance(map_of(args, PISA_STATISTICS_k), bh, j, scale,
                                 variance ? variance + at * D : NULL);
    if (norms)
      store_norm(norms + at * PARTS, trace);
  }
  if (variance && model_fault("variance"))
    variance[bh * k_blocks * D] ^= 4;
}

static void statistics_head(void *context, int thread, int64_t bh) {
  const struct statistics *s = context;
  const union model_value *args = s->args;
  const struct model_map *k = map_of(args, PISA_STATISTICS_k), *v = map_of(args, PISA_STATISTICS_v);
  float *norms = model_now.key_variance ? NULL : pointer(args, PISA_STATISTICS_h_norm2),
        *parts = pointer(args, PISA_STATISTICS_h_part);
  int64_t k_blocks = (k->extent[1] + KEY - 1) / KEY;
  float *total = calloc((size_t)(D * D), sizeof *total);
  (void)thread;
  store_means(args, bh);
  store_variances(args, bh, k_blocks);
  for (int64_t j = 0; (norms || parts) && j < k_blocks; j++) {
    float squares = add_covariance(k, v, bh, j, total);
    if (norms)
      store_norm(norms + (bh * k_blocks + j) * PARTS, squares);
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
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_STATISTICS_total_heads), statistics_head, &s);
}

/* ---- route ---- */

static void query_mean(const uint16_t *means, int64_t i, int64_t n_q, float *out) {
  if (QUERY == KEY) {
    for (int d = 0; d < D; d++)
      out[d] = widen(means[i * D + d]);
    return;
  }
  int64_t begin = i * QUERY, a = least(n_q - begin, KEY), b = least(n_q - begin, QUERY) - a;
  for (int d = 0; d < D; d++) {
    float first = widen(means[2 * i * D + d]), second = b ? widen(means[(2 * i + 1) * D + d]) : 0;
    out[d] = widen(narrow(((float)a * first + (float)b * second) / (float)(a + b)));
  }
}

static float term(const float *parts) {
  float sum = 0;
  for (int part = 0; part < PARTS; part++)
    sum += parts[part];
  return model_now.key_variance ? logf(fmaxf(sum, 1e-8F)) : logf(sqrtf(sum) + 1e-5F);
}

/* The blocks that the rows of query block |i| touch and some to each side. */
static void force_window(int32_t window, int64_t i, int64_t blocks, float *score) {
  int64_t begin = i * QUERY / KEY - window, end = (i + 1) * QUERY / KEY + window;
  if (model_fault("late_window"))
    begin++;
  for (int64_t j = begin > 0 ? begin : 0; window >= 0 && j < least(end, blocks); j++)
    score[j] = INFINITY;
}

static void fill_scores(const union model_value *args, int64_t bh, int64_t i, int64_t blocks,
                        float *score) {
  int64_t n_q = integer(args, PISA_ROUTE_n_q), q_blocks = (n_q + KEY - 1) / KEY;
  const uint16_t *q_mean = pointer(args, PISA_ROUTE_q_mean),
                 *k_mean = pointer(args, PISA_ROUTE_k_mean);
  const float *norms = pointer(args, PISA_ROUTE_h_norm2);
  float q[MAX_D];
  int64_t shared = model_fault("kv_head") ? 0 : bh / GROUP;
  query_mean(q_mean + bh * q_blocks * D, i, n_q, q);
  for (int64_t j = 0; j < blocks; j++) {
    float dot = 0;
    for (int d = 0; d < D; d++)
      dot += q[d] * widen(k_mean[(shared * blocks + j) * D + d]);
    score[j] = dot * args[PISA_ROUTE_scale].number;
    if (norms && !model_fault("no_term"))
      score[j] += term(norms + (shared * blocks + j) * PARTS);
    if (isnan(score[j]))
      score[j] = -INFINITY;
  }
  for (int a = PISA_ROUTE_always_0_begin;
       a <= PISA_ROUTE_always_3_begin && !model_fault("no_always"); a += 2)
    for (int64_t j = integer(args, a); j < integer(args, a + 1); j++)
      score[j] = INFINITY;
  force_window(integer(args, PISA_ROUTE_window), i, blocks, score);
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
  int64_t blocks = (integer(args, PISA_ROUTE_n_k) + KEY - 1) / KEY;
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
  int64_t heads = integer(args, PISA_ROUTE_total_heads) / GROUP,
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
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_ROUTE_total_heads), route_head, &args);
  store_h_sum(args);
}
