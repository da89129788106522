/* model_route.c: parameters of route in, lists, masks, ids, counts and h_sum out, float throughout;
   see model_kernels.h. */
#include "tests/gpu/model_build.h"

struct head { /* one query head */
  const union model_value *args;
  int64_t bh, rows;      /* query blocks */
  int64_t keys, blocks;  /* that count: n_b, NT_b */
  int64_t stride;        /* NT: blocks of k_mean from head to head */
  float *score, *plain;  /* [NT] with its term, and without */
  bool *forced, *chosen; /* [NT] */
};

static void query_mean(const struct head *h, int64_t i, float *out) {
  const int64_t n_q = integer(h->args, PISA_ROUTE_n_q);
  const uint16_t *means =
      (const uint16_t *)pointer(h->args, PISA_ROUTE_q_mean) + h->bh * blocks_of(n_q, KEY) * D;
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

static int64_t kv_head(const struct head *h) {
  return model_fault("kv_head") ? 0 : h->bh / GROUP;
}

static void fill_scores(const struct head *h, const float *q) {
  const float *norms = pointer(h->args, PISA_ROUTE_h_norm2);
  const uint16_t *k_mean = pointer(h->args, PISA_ROUTE_k_mean);
  int64_t first = kv_head(h) * h->stride;
  for (int64_t j = 0; j < h->blocks; j++) {
    float dot = 0;
    for (int d = 0; d < D; d++)
      dot += q[d] * widen(k_mean[(first + j) * D + d]);
    h->plain[j] = h->score[j] = dot * h->args[PISA_ROUTE_scale].number;
    if (norms && !model_fault("no_term"))
      h->score[j] += term(norms + (first + j) * PARTS);
    if (isnan(h->score[j]))
      h->score[j] = -INFINITY;
  }
}

/* ---- the forced blocks ---- */

static void force(const struct head *h, int64_t begin, int64_t end) {
  for (int64_t j = most(begin, 0); j < least(end, h->blocks); j++)
    h->forced[j] = true;
}

/* Tokens [begin, end) of the sequence, or its last -begin. */
static void force_tokens(const struct head *h, int64_t begin, int64_t end) {
  if (begin < 0) {
    begin = most(h->keys + begin, 0);
    end = h->keys;
  }
  end = least(end, h->keys);
  if (begin < end)
    force(h, begin / KEY, blocks_of(end, KEY));
}

/* The blocks that the rows of query block |i| touch and some to each side. */
static void force_window(const struct head *h, int64_t i) {
  int64_t window = integer(h->args, PISA_ROUTE_window);
  int64_t late = model_fault("late_window");
  if (window >= 0)
    force(h, i * QUERY / KEY - window + late, (i + 1) * QUERY / KEY + window);
}

static void force_blocks(const struct head *h, int64_t i) {
  memset(h->forced, 0, (size_t)h->blocks * sizeof *h->forced);
  for (int a = PISA_ROUTE_always_0_begin;
       a <= PISA_ROUTE_always_3_begin && !model_fault("no_always"); a += 2)
    force_tokens(h, integer(h->args, a), integer(h->args, a + 1));
  force_window(h, i);
  for (int64_t j = 0; j < h->blocks; j++)
    if (h->forced[j])
      h->score[j] = INFINITY;
}

/* ---- which blocks ---- */

/* The best block not chosen yet; among equals the first one. */
static int64_t best(const struct head *h) {
  int64_t found = -1;
  for (int64_t j = 0; j < h->blocks; j++)
    if (!h->chosen[j] && (found < 0 || h->score[j] > h->score[found] ||
                          (model_fault("ties") && h->score[j] == h->score[found])))
      found = j;
  return found;
}

/* k of the sequence, or the forced blocks where those are more. */
static int64_t budget(const struct head *h) {
  int64_t num = integer(h->args, PISA_ROUTE_density_num), k = integer(h->args, PISA_ROUTE_budget);
  int64_t forced = 0;
  if (num)
    k = most(1, num * h->blocks / integer(h->args, PISA_ROUTE_density_den));
  for (int64_t j = 0; j < h->blocks; j++)
    forced += h->forced[j];
  if (model_fault("no_widening"))
    forced = 0;
  return least(h->blocks, most(k, forced));
}

static float full_sigma(const struct head *h, float mu) {
  float squares = 0;
  for (int64_t j = 0; j < h->blocks; j++)
    squares += (h->plain[j] - mu) * (h->plain[j] - mu);
  return sqrtf(squares / (float)h->blocks + 1e-6F);
}

/* From the variance of every component of the block means alone. */
static float diagonal_sigma(const struct head *h, const float *q) {
  const uint16_t *k_mean = pointer(h->args, PISA_ROUTE_k_mean);
  float scale = h->args[PISA_ROUTE_scale].number, sum = 0;
  for (int d = 0; d < D; d++) {
    const uint16_t *column = k_mean + kv_head(h) * h->stride * D + d;
    float mean = 0, squares = 0;
    for (int64_t j = 0; j < h->blocks; j++)
      mean += widen(column[j * D]) / (float)h->blocks;
    for (int64_t j = 0; j < h->blocks; j++)
      squares += (widen(column[j * D]) - mean) * (widen(column[j * D]) - mean);
    sum += q[d] * q[d] * squares / (float)h->blocks;
  }
  return sqrtf(scale * scale * sum + 1e-6F);
}

static void choose_above(const struct head *h, const float *q) {
  float mu = 0, threshold = h->args[PISA_ROUTE_threshold].number;
  int64_t n = 0;
  for (int64_t j = 0; j < h->blocks; j++)
    mu += h->plain[j] / (float)h->blocks;
  bool full = model_now.full_variance != model_fault("variance_kind");
  float limit = mu + threshold * (full ? full_sigma(h, mu) : diagonal_sigma(h, q));
  for (int64_t j = 0; j < h->blocks; j++) {
    h->chosen[j] = h->forced[j] || h->score[j] > limit;
    n += h->chosen[j];
  }
  if (n == 0 && !model_fault("none_above"))
    h->chosen[best(h)] = true;
}

/* The worst listed block makes way for the worst of all. */
static void list_wrongly(const struct head *h) {
  int64_t in = -1, out = -1;
  for (int64_t j = 0; j < h->blocks; j++) {
    if (h->chosen[j] && (in < 0 || h->score[j] < h->score[in]))
      in = j;
    if (!h->chosen[j] && (out < 0 || h->score[j] < h->score[out]))
      out = j;
  }
  if (out < 0)
    return;
  h->chosen[in] = false;
  h->chosen[out] = true;
}

/* What the caller lists, in whatever order and however often. */
static void choose_given(const struct head *h, int64_t i) {
  int64_t n = integer(h->args, PISA_ROUTE_n_given);
  const int32_t *given =
      (const int32_t *)pointer(h->args, PISA_ROUTE_given) + (h->bh * h->rows + i) * n;
  if (model_fault("given_last"))
    n--;
  for (int64_t e = 0; e < n; e++)
    if (given[e] >= 0 && given[e] < h->blocks)
      h->chosen[given[e]] = true;
}

static void choose(const struct head *h, int64_t i) {
  float q[MAX_D];
  memset(h->chosen, 0, (size_t)h->stride * sizeof *h->chosen);
  if (h->blocks == 0)
    return;
  if (pointer(h->args, PISA_ROUTE_given)) {
    choose_given(h, i);
    return;
  }
  query_mean(h, i, q);
  fill_scores(h, q);
  force_blocks(h, i);
  if (model_now.threshold)
    choose_above(h, q);
  else
    for (int64_t e = 0, k = budget(h); e < k; e++)
      h->chosen[best(h)] = true;
  if (model_fault("list"))
    list_wrongly(h);
}

/* ---- what is stored ---- */

static int32_t *list_of(const struct head *h, int64_t i) {
  return (int32_t *)pointer(h->args, PISA_ROUTE_lists) +
         (h->bh * h->rows + i) * integer(h->args, PISA_ROUTE_list_stride);
}

static void store_mask(const struct head *h, int64_t i) {
  int64_t words = integer(h->args, PISA_ROUTE_mask_words);
  uint32_t *mask = (uint32_t *)pointer(h->args, PISA_ROUTE_masks) + (h->bh * h->rows + i) * words;
  memset(mask, 0, (size_t)words * sizeof *mask);
  for (int64_t j = 0; j < 32 * words; j++)
    if (j < h->blocks ? h->chosen[j] : !model_fault("mask_padding"))
      mask[j / 32] |= 1U << j % 32;
}

static void store_ids(const struct head *h, int64_t i, const int32_t *list, int64_t count) {
  int64_t keep = integer(h->args, PISA_ROUTE_keep);
  int32_t *ids = pointer(h->args, PISA_ROUTE_ids);
  if (!ids)
    return;
  ids += (h->bh * h->rows + i) * keep;
  for (int64_t e = 0; e < keep; e++)
    ids[e] = e < count ? list[e] : model_fault("ids_padding") ? 0 : -1;
  if (model_fault("ids"))
    ids[0]++;
}

static void swap_entries(int32_t *list) {
  int32_t first = list[0];
  list[0] = list[1];
  list[1] = first;
}

static void store_row(const struct head *h, int64_t i) {
  int64_t stride = integer(h->args, PISA_ROUTE_list_stride), n = 0;
  int32_t *list = list_of(h, i), *counts = pointer(h->args, PISA_ROUTE_counts);
  for (int64_t j = 0; j < h->blocks; j++)
    if (h->chosen[j])
      list[n++] = (int32_t)j;
  int64_t count = n;
  for (int64_t j = 0; model_now.linear && !model_fault("no_rest") && j < h->blocks; j++)
    if (!h->chosen[j])
      list[n++] = (int32_t)j;
  memset(list + n, 0, (size_t)(stride - n) * sizeof *list);
  if (model_fault("list_padding"))
    list[n] = -1;
  store_ids(h, i, list, count);
  store_mask(h, i);
  if (count > 1 && model_fault("order"))
    swap_entries(list);
  counts[h->bh * h->rows + i] = (int32_t)(count - model_fault("count"));
}

/* ---- pairs of lists, walked together ---- */

static bool lists_block(const int32_t *list, int64_t count, int32_t block) {
  for (int64_t e = 0; e < count; e++)
    if (list[e] == block)
      return true;
  return false;
}

/* Moves the entries that |other| has too, all but |last|, to the front of |list|, |even| of them;
   order is kept. */
static void share(int32_t *list, int64_t count, const int32_t *other, int64_t other_count,
                  int32_t last, int64_t even) {
  int32_t *old = malloc((size_t)(count + 1) * sizeof *old);
  int64_t front = 0, back = even;
  if (!old)
    abort();
  memcpy(old, list, (size_t)count * sizeof *old);
  for (int64_t e = 0; e < count; e++)
    if (front < even && old[e] != last && lists_block(other, other_count, old[e]))
      list[front++] = old[e];
    else
      list[back++] = old[e];
  free(old);
}

/* Query blocks 2 p and 2 p + 1; the last one alone is its own partner. */
static void pair_lists(const struct head *h, int64_t p) {
  int64_t pairs = (h->rows + 1) / 2, a = 2 * p, b = least(2 * p + 1, h->rows - 1), common = 0;
  const int32_t *counts = (const int32_t *)pointer(h->args, PISA_ROUTE_counts) + h->bh * h->rows;
  int32_t *shared = (int32_t *)pointer(h->args, PISA_ROUTE_shared) + h->bh * pairs;
  int32_t *first = list_of(h, a), *second = list_of(h, b);
  int32_t last = h->keys % KEY ? (int32_t)h->blocks - 1 : -1;
  size_t bytes = (size_t)(counts[a] + 1) * sizeof *first;
  int32_t *before = malloc(bytes);
  if (!before)
    abort();
  memcpy(before, first, bytes);
  for (int64_t e = 0; e < counts[a]; e++)
    common += first[e] != last && lists_block(second, counts[b], first[e]);
  common -= common % 2;
  share(first, counts[a], second, counts[b], last, common);
  if (a != b)
    share(second, counts[b], before, counts[a], last, common);
  shared[p] = (int32_t)common + 2 * model_fault("shared");
  free(before);
}

/* ---- the kernel ---- */

static void route_head(void *context, int thread, int64_t bh) {
  const union model_value *args = *(const union model_value **)context;
  struct head h = {.args = args, .bh = bh};
  h.rows = blocks_of(integer(args, PISA_ROUTE_n_q), QUERY);
  h.stride = blocks_of(integer(args, PISA_ROUTE_n_k), KEY);
  h.keys = keys_of(args, PISA_ROUTE_lengths, PISA_ROUTE_n_k, bh / integer(args, PISA_ROUTE_heads),
                   "lengths_route");
  h.blocks = blocks_of(h.keys, KEY);
  h.score = calloc((size_t)h.stride, sizeof *h.score);
  h.plain = calloc((size_t)h.stride, sizeof *h.plain);
  h.forced = calloc((size_t)h.stride, sizeof *h.forced);
  h.chosen = calloc((size_t)h.stride, sizeof *h.chosen);
  (void)thread;
  if (!h.score || !h.plain || !h.forced || !h.chosen)
    abort();
  for (int64_t i = 0; i < h.rows; i++) {
    choose(&h, i);
    store_row(&h, i);
  }
  for (int64_t p = 0; model_now.pairs && p < (h.rows + 1) / 2; p++)
    pair_lists(&h, p);
  free(h.score);
  free(h.plain);
  free(h.forced);
  free(h.chosen);
}

/* h_scale is for a sequence of n_k keys. */
static float h_scale(const union model_value *args, int64_t bh) {
  int64_t b = bh * GROUP / integer(args, PISA_ROUTE_heads);
  int64_t keys = keys_of(args, PISA_ROUTE_lengths, PISA_ROUTE_n_k, b, "h_length");
  float scale = args[PISA_ROUTE_h_scale].number;
  return keys ? scale * (float)integer(args, PISA_ROUTE_n_k) / (float)keys : 0;
}

static void store_h_sum(const union model_value *args) {
  int64_t heads = integer(args, PISA_ROUTE_total_heads) / GROUP,
          blocks = integer(args, PISA_ROUTE_stat_blocks);
  int64_t grid = integer(args, PISA_ROUTE_stat_ctas);
  const float *parts = pointer(args, PISA_ROUTE_h_part);
  uint16_t *h_sum = pointer(args, PISA_ROUTE_h_sum);
  for (int64_t bh = 0; h_sum && bh < heads; bh++) {
    const float *sum = parts + (model_first_cta(bh, blocks, heads, grid) + bh) * D * D;
    for (int r = 0; r < D; r++)
      for (int c = 0; c < D; c++)
        h_sum[bh * D * D + (model_fault("h_sum") ? c * D + r : r * D + c)] =
            narrow(sum[r * D + c] * h_scale(args, bh));
  }
}

void model_route(const struct model_build *build, const union model_value *args) {
  model_enter(build);
  cpu_parallel(cpu_threads(0), integer(args, PISA_ROUTE_total_heads), route_head, &args);
  store_h_sum(args);
}
