/* verify_input.c: a kind of input and a seed in, q, k and v out. Rows are drawn independently, each
   from its own generator. */
#include <math.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/tool/random.h"
#include "runtime/tool/verify.h"

/* VERIFY_GAIN: q k is of size 1/4, v reaches 1000 and follows k, so that the first-order term is
   most of o; all weights are alike, so g comes near NT. */
#define GAIN_Q 1000.0F
#define GAIN_K 0x1p-12F
#define GAIN_V 250.0F
/* VERIFY_SMOOTH: tokens that share what most of a query is. */
enum { CALM_TOKENS = 512 };
#define FAINT_V 0x1p-10F
enum stream {
  STREAM_Q,
  STREAM_K,
  STREAM_V,
  STREAM_CENTRE,
  STREAM_PERMUTE,
  STREAM_CALM,
  STREAM_LISTS
};

struct fill {
  struct verify_inputs *inputs;
  enum verify_input kind;
  pisa_type type;
  uint64_t seed;
};

/* [D] normals for row |n| of head |bh| of an array. */
static void draw(const struct fill *fill, enum stream stream, int64_t bh, int64_t n, float *row) {
  uint64_t index = (uint64_t)bh << 32 | (uint64_t)n;
  struct random random = random_at(fill->seed, (uint64_t)stream, index);
  random_normals(&random, fill->inputs->q.d, row);
}

static void scale_row(float *row, int64_t d, float factor) {
  for (int64_t i = 0; i < d; i++)
    row[i] *= factor;
}

/* Centres that last for many query blocks. */
static void add_calm(const struct fill *fill, int64_t bh, int64_t n, float *row) {
  float calm[CPU_MAX_HEAD_DIM];
  draw(fill, STREAM_CALM, bh, n / CALM_TOKENS, calm);
  for (int64_t i = 0; i < fill->inputs->q.d; i++)
    row[i] = calm[i] + 0.5F * row[i];
}

static void query_row(const struct fill *fill, int64_t bh, int64_t n, float *row) {
  const struct verify_tensor *q = &fill->inputs->q;
  draw(fill, STREAM_Q, bh, n, row);
  if (fill->kind == VERIFY_LARGE)
    scale_row(row, q->d, 30);
  if (fill->kind == VERIFY_INCOHERENT) /* logits of block means then have a deviation of 3 */
    scale_row(row, q->d, 3);
  if (fill->kind == VERIFY_GAIN)
    scale_row(row, q->d, GAIN_Q);
  if (fill->kind == VERIFY_SMOOTH)
    add_calm(fill, bh, n, row);
  if (fill->kind == VERIFY_NONFINITE && n == q->n / 100)
    row[7] = NAN;
  if (fill->kind == VERIFY_NONFINITE && n == q->n / 2)
    row[9] = INFINITY;
}

/* The row that row |n| repeats: itself but for VERIFY_TIES. */
static int64_t source_row(const struct fill *fill, int64_t n) {
  int64_t key = fill->inputs->key, blocks = (fill->inputs->k.n + key - 1) / key;
  int64_t period = blocks / 2 * key;
  return fill->kind == VERIFY_TIES && n >= period ? n - period : n;
}

/* Blocks with centres of their own; what is left of |row| is their spread. */
static void add_centre(const struct fill *fill, int64_t bh, int64_t block, float *row) {
  int64_t d = fill->inputs->k.d;
  float centre[CPU_MAX_HEAD_DIM];
  draw(fill, STREAM_CENTRE, bh, block, centre);
  for (int64_t i = 0; i < d; i++) {
    float spread = fill->kind == VERIFY_SPREAD ? (float)(1 + (block * 5 + i) % 7) / 4 : 0.5F;
    row[i] = centre[i] + (fill->kind == VERIFY_EQUAL_KEYS ? 0 : spread * row[i]);
  }
}

static void key_row(const struct fill *fill, int64_t bh, int64_t n, float *row) {
  int64_t d = fill->inputs->k.d;
  draw(fill, STREAM_K, bh, fill->kind == VERIFY_SAME_KEYS ? 0 : source_row(fill, n), row);
  if (fill->kind == VERIFY_GAIN)
    scale_row(row, d, GAIN_K);
  if (fill->kind == VERIFY_INCOHERENT || fill->kind == VERIFY_SPREAD ||
      fill->kind == VERIFY_SMOOTH || fill->kind == VERIFY_EQUAL_KEYS)
    add_centre(fill, bh, n / fill->inputs->key, row);
}

static void value_row(const struct fill *fill, int64_t bh, int64_t n, float *row) {
  int64_t d = fill->inputs->v.d;
  float key[CPU_MAX_HEAD_DIM];
  bool constant = fill->kind == VERIFY_CONSTANT_V;
  draw(fill, STREAM_V, bh, constant ? 0 : source_row(fill, n), row);
  if (fill->kind == VERIFY_FAINT)
    scale_row(row, d, FAINT_V);
  if (fill->kind != VERIFY_FIRST_ORDER && fill->kind != VERIFY_GAIN)
    return;
  float size = (float)(1 + n / fill->inputs->key * 5 % 7) /
               3; /* differs from block to block, and ||H_j|| with it */
  key_row(fill, bh, n, key);
  if (fill->kind == VERIFY_GAIN) {
    size = GAIN_V;
    scale_row(key, d, 1 / GAIN_K);
  }
  for (int64_t i = 0; i < d; i++) /* another order of the dimensions: H_j is no symmetric matrix */
    row[i] = size * (0.3F * row[i] + key[(i + 3) % d]);
}

static void store(const struct fill *fill, const float *row, int64_t d, uint16_t *out) {
  for (int64_t i = 0; i < d; i++)
    out[i] = cpu_narrow(fill->type, row[i]);
}

static void fill_queries(void *context, int thread, int64_t n) {
  const struct fill *fill = context;
  const struct verify_tensor *q = &fill->inputs->q;
  float row[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t bh = 0; bh < q->batch * q->heads; bh++) {
    query_row(fill, bh, n, row);
    store(fill, row, q->d, verify_row(q, bh / q->heads, bh % q->heads, n));
  }
}

/* Rows of k and v of sequence |b| that count: its length within 0 to n_k. */
static int64_t keys_of(const struct verify_inputs *inputs, int64_t b) {
  int64_t all = inputs->k.n, own = inputs->lengths ? inputs->lengths[b] : all;
  return own < 0 ? 0 : own < all ? own : all;
}

/* Finite, and felt wherever it gets in. */
static void huge_row(const struct fill *fill, int64_t n, float *row) {
  for (int64_t i = 0; i < fill->inputs->k.d; i++)
    row[i] = ((n + i) % 2 ? -1 : 1) * (fill->type == PISA_FP16 ? 0x1p15F : 0x1p60F);
}

static void fill_keys(void *context, int thread, int64_t n) {
  const struct fill *fill = context;
  const struct verify_tensor *k = &fill->inputs->k, *v = &fill->inputs->v;
  float key[CPU_MAX_HEAD_DIM], value[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t bh = 0; bh < k->batch * k->heads; bh++) {
    int64_t b = bh / k->heads, h = bh % k->heads;
    key_row(fill, bh, n, key);
    value_row(fill, bh, n, value);
    if (n >= keys_of(fill->inputs, b)) {
      huge_row(fill, n, key);
      huge_row(fill, n + 1, value);
    }
    store(fill, key, k->d, verify_row(k, b, h, n));
    store(fill, value, v->d, verify_row(v, b, h, n));
  }
}

void verify_fill(struct verify_inputs *inputs, enum verify_input kind, pisa_type type,
                 uint64_t seed) {
  struct fill fill = {inputs, kind, type, seed};
  cpu_parallel(cpu_threads(0), inputs->q.n, fill_queries, &fill);
  cpu_parallel(cpu_threads(0), inputs->k.n, fill_keys, &fill);
}

static void swap_rows(uint16_t *a, uint16_t *b, int64_t d) {
  uint16_t row[CPU_MAX_HEAD_DIM];
  size_t bytes = (size_t)d * sizeof *row;
  if (a == b)
    return;
  memcpy(row, a, bytes);
  memcpy(a, b, bytes);
  memcpy(b, row, bytes);
}

/* A random order of the tokens of one block of one head (Fisher and Yates). */
static void permute_block(struct verify_inputs *inputs, struct random *random, int64_t b, int64_t h,
                          int64_t begin) {
  const struct verify_tensor *k = &inputs->k, *v = &inputs->v;
  int64_t left = keys_of(inputs, b) - begin, rows = left < inputs->key ? left : inputs->key;
  for (int64_t i = rows - 1; i > 0; i--) {
    int64_t j = random_below(random, i + 1);
    swap_rows(verify_row(k, b, h, begin + i), verify_row(k, b, h, begin + j), k->d);
    swap_rows(verify_row(v, b, h, begin + i), verify_row(v, b, h, begin + j), v->d);
  }
}

void verify_permute(struct verify_inputs *inputs, uint64_t seed) {
  struct random random = random_at(seed, STREAM_PERMUTE, 0);
  for (int64_t bh = 0; bh < inputs->k.batch * inputs->k.heads; bh++)
    for (int64_t begin = 0; begin < inputs->k.n; begin += inputs->key)
      permute_block(inputs, &random, bh / inputs->k.heads, bh % inputs->k.heads, begin);
}

/* Ids in no order, some twice, some that no block has. */
static void mixed_list(struct random *random, int64_t n, int64_t blocks, int32_t *list) {
  for (int64_t e = 0; e < n; e++) {
    int64_t id = random_below(random, blocks + 6) - 3;
    list[e] = (int32_t)(e > 0 && random_below(random, 4) == 0 ? list[e - 1] : id);
  }
  if (random_below(random, 4) == 0) /* what the type holds */
    list[random_below(random, n)] = INT32_MAX;
  if (random_below(random, 4) == 0)
    list[random_below(random, n)] = INT32_MIN;
}

void verify_fill_lists(enum verify_given given, int64_t rows, int64_t n, int64_t blocks,
                       uint64_t seed, int32_t *lists) {
  for (int64_t row = 0; row < rows; row++, lists += n) {
    struct random random = random_at(seed, STREAM_LISTS, (uint64_t)row);
    int64_t kind = given == VERIFY_MIXED ? random_below(&random, 8) : given == VERIFY_NOTHING;
    if (given == VERIFY_MIXED && kind > 1) {
      mixed_list(&random, n, blocks, lists);
      continue;
    }
    for (int64_t e = 0; e < n; e++) /* of kind 0 everything, of kind 1 nothing */
      lists[e] = kind == 1 ? -1 : (int32_t)(n - 1 - e);
  }
}
