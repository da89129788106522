/* model_statistics.c: parameters of statistics or residual in, their outputs out, float throughout;
   see model_kernels.h. */
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

struct kv { /* keys and values of one key/value head */
  const struct model_map *k, *v;
  int64_t bh, keys; /* of which so many count */
};

/* Of the rows of |block| before row |end|; zeros where there are none. */
static void store_mean(const struct model_map *map, int64_t bh, int64_t block, int64_t end,
                       uint16_t *out) {
  int64_t begin = block * KEY, rows = least(end - begin, KEY);
  float sum[MAX_D] = {0}, row[MAX_D];
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(map, bh, n, row);
    for (int d = 0; d < D; d++)
      sum[d] += row[d];
  }
  if (model_fault("short_mean"))
    rows = KEY;
  for (int d = 0; d < D; d++)
    out[d] = rows > 0 ? narrow(sum[d] / (float)rows) : 0;
}

/* H [D, D] = sum_n k_n^T v_n - ksum^T vsum / rows of |block|. */
static void covariance(const struct kv *kv, int64_t block, float *H) {
  int64_t begin = block * KEY, rows = least(kv->keys - begin, KEY);
  float key[MAX_D], value[MAX_D], key_sum[MAX_D] = {0}, value_sum[MAX_D] = {0};
  memset(H, 0, (size_t)(D * D) * sizeof *H);
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(kv->k, kv->bh, n, key);
    load_row(kv->v, kv->bh, n, value);
    for (int r = 0; r < D; r++) {
      key_sum[r] += key[r];
      value_sum[r] += value[r];
      for (int c = 0; c < D; c++)
        H[r * D + c] += key[r] * value[c];
    }
  }
  for (int r = 0; rows > 0 && r < D; r++)
    for (int c = 0; c < D; c++)
      H[r * D + c] -= key_sum[r] / (float)rows * value_sum[c];
}

/* Squared distance of H [D, D] from |center| [D, D] times |factor|. */
static float distance2(const float *H, const float *center, float factor) {
  float squares = 0;
  for (int e = 0; e < D * D; e++) {
    float h = H[e] - (center ? center[e] * factor : 0);
    squares += h * h;
  }
  return squares;
}

int64_t model_first_cta(int64_t bh, int64_t blocks, int64_t heads, int64_t grid) {
  return ((bh * blocks + 1) * grid - 1) / (heads * blocks);
}

/* The variance of each key column of |block|, as round(scale * variance) to |out| unless NULL;
   returns their sum, tr C_j. */
static float store_variance(const struct kv *kv, int64_t block, float scale, uint16_t *out) {
  int64_t begin = block * KEY, rows = least(kv->keys - begin, KEY);
  float row[MAX_D], sum[MAX_D] = {0}, squares[MAX_D] = {0}, trace = 0;
  for (int64_t n = begin; n < begin + rows; n++) {
    load_row(kv->k, kv->bh, n, row);
    for (int d = 0; d < D; d++) {
      sum[d] += row[d];
      squares[d] += row[d] * row[d];
    }
  }
  if (model_fault("short_variance"))
    rows = KEY;
  for (int d = 0; d < D; d++) {
    float mean = sum[d] / (float)rows, variance = squares[d] / (float)rows - mean * mean;
    variance = rows > 0 && variance > 0 ? variance : 0;
    trace += variance;
    if (out)
      out[d] = narrow(scale * variance);
  }
  return trace;
}

static void store_norm(float *parts, float sum) {
  for (int part = 0; part < PARTS; part++)
    parts[part] = sum / PARTS;
  if (model_fault("norm"))
    *parts = 0;
}

/* ---- statistics ---- */

struct statistics {
  const union model_value *args;
  int grid;
};

/* All means of key/value head |bh| and of the query heads that share it. */
static void store_means(const union model_value *args, const struct kv *kv) {
  const struct model_map *q = map_of(args, PISA_STATISTICS_q);
  int64_t bh = kv->bh, q_blocks = blocks_of(q->extent[1], KEY),
          k_blocks = blocks_of(kv->k->extent[1], KEY);
  uint16_t *q_mean = pointer(args, PISA_STATISTICS_q_mean),
           *k_mean = pointer(args, PISA_STATISTICS_k_mean);
  uint16_t *v_mean = pointer(args, PISA_STATISTICS_v_mean);
  for (int64_t i = 0; i < GROUP * q_blocks; i++)
    store_mean(q, GROUP * bh + i / q_blocks, i % q_blocks, q->extent[1],
               q_mean + (GROUP * bh * q_blocks + i) * D);
  for (int64_t j = 0; j < k_blocks; j++) {
    store_mean(kv->k, bh, j, kv->keys, k_mean + (bh * k_blocks + j) * D);
    if (v_mean)
      store_mean(kv->v, bh, j, kv->keys, v_mean + (bh * k_blocks + j) * D);
  }
  if (model_fault("mean"))
    q_mean[GROUP * bh * q_blocks * D] ^= 4;
}

static void store_variances(const union model_value *args, const struct kv *kv, int64_t k_blocks) {
  const float scale = args[PISA_STATISTICS_variance_scale].number;
  uint16_t *variance = pointer(args, PISA_STATISTICS_k_variance);
  float *norms = model_now.key_variance ? pointer(args, PISA_STATISTICS_h_norm2) : NULL;
  for (int64_t j = 0; (variance || norms) && j < k_blocks; j++) {
    int64_t at = kv->bh * k_blocks + j;
    float trace = store_variance(kv, j, scale, variance ? variance + at * D : NULL);
    if (norms)
      store_norm(norms + at * PARTS, trace);
  }
  if (variance && model_fault("variance"))
    variance[kv->bh * k_blocks * D] ^= 4;
}

static void store_covariances(const struct statistics *s, const struct kv *kv, int64_t k_blocks) {
  const union model_value *args = s->args;
  bool others = model_now.key_variance || model_now.residual;
  float *norms = others ? NULL : pointer(args, PISA_STATISTICS_h_norm2),
        *parts = pointer(args, PISA_STATISTICS_h_part);
  size_t bytes = (size_t)(D * D) * sizeof(float);
  float *total = calloc(1, bytes), *H = malloc(bytes);
  if (!total || !H)
    abort();
  for (int64_t j = 0; (norms || parts) && j < k_blocks; j++) {
    covariance(kv, j, H);
    for (int e = 0; e < D * D; e++)
      total[e] += H[e];
    if (norms)
      store_norm(norms + (kv->bh * k_blocks + j) * PARTS, distance2(H, NULL, 0));
  }
  if (parts) {
    int64_t heads = integer(args, PISA_STATISTICS_total_heads),
            blocks = integer(args, PISA_STATISTICS_blocks);
    memcpy(parts + (model_first_cta(kv->bh, blocks, heads, s->grid) + kv->bh) * D * D, total,
           bytes);
  }
  free(total);
  free(H);
}

static void statistics_head(void *context, int thread, int64_t bh) {
  const struct statistics *s = context;
  const union model_value *args = s->args;
  struct kv kv = {map_of(args, PISA_STATISTICS_k), map_of(args, PISA_STATISTICS_v), bh,
                  keys_of(args, PISA_STATISTICS_lengths, PISA_STATISTICS_n_k,
                          bh / integer(args, PISA_STATISTICS_heads), "lengths_statistics")};
  int64_t k_blocks = blocks_of(kv.k->extent[1], KEY);
  (void)thread;
  store_means(args, &kv);
  store_variances(args, &kv, k_blocks);
  store_covariances(s, &kv, k_blocks);
}

void model_statistics(const struct model_build *build, const union model_value *args, int grid) {
  struct statistics s = {args, grid};
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_STATISTICS_total_heads), statistics_head, &s);
}

/* ---- residual ---- */

static void residual_head(void *context, int thread, int64_t bh) {
  const union model_value *args = *(const union model_value **)context;
  int64_t heads = integer(args, PISA_RESIDUAL_total_heads),
          blocks = integer(args, PISA_RESIDUAL_blocks);
  struct kv kv = {map_of(args, PISA_RESIDUAL_k), map_of(args, PISA_RESIDUAL_v), bh,
                  keys_of(args, PISA_RESIDUAL_lengths, PISA_RESIDUAL_n_k,
                          bh / integer(args, PISA_RESIDUAL_heads), "lengths_residual")};
  int64_t slot = bh + model_first_cta(bh, integer(args, PISA_RESIDUAL_stat_blocks), heads,
                                      integer(args, PISA_RESIDUAL_stat_ctas));
  const float *sum = (const float *)pointer(args, PISA_RESIDUAL_h_part) + slot * D * D;
  float *norms = (float *)pointer(args, PISA_RESIDUAL_h_norm2) + bh * blocks * PARTS;
  float *H = malloc((size_t)(D * D) * sizeof *H);
  int64_t own = blocks_of(kv.keys, KEY);
  float factor = own && !model_fault("residual") ? 1 / (float)own : 0;
  (void)thread;
  if (!H)
    abort();
  for (int64_t j = 0; j < blocks; j++) {
    if (j < own)
      covariance(&kv, j, H);
    store_norm(norms + j * PARTS, j < own ? distance2(H, sum, factor) : 0);
  }
  free(H);
}

void model_residual(const struct model_build *build, const union model_value *args) {
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_RESIDUAL_total_heads), residual_head, &args);
}
