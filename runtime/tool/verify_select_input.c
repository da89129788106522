/* verify_select_input.c: a kind of input and a seed in, q, k and v out. Rows are drawn
   independently, each from its own generator. */
#include <math.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/tool/random.h"
#include "runtime/tool/verify_select.h"

/* Keys share centres with all keys of a run of 32, 256, ...: nodes of every level differ. */
enum { CENTRES = 5, FIRST_RUN = 32, RUN_GROWTH = 8 };
#define CENTRE 0.6F
#define SPREAD 0.5F
/* Queries so large that logits of such keys have a deviation of 3, and of 60. */
#define LOUD 2.2F
#define LOUDEST 45.0F
/* SELECT_COPIES: leaves that differ, of 128 tokens or less. */
enum { COPIED = 512 };
#define NEEDLE 6.0F
#define BEHIND 1e4F /* what lies behind the keys of a sequence */
enum stream { STREAM_Q = 100, STREAM_K, STREAM_V, STREAM_CENTRE, STREAM_NEEDLE };

struct fill {
  struct select_arrays *arrays;
  enum select_input kind;
  pisa_type type;
  uint64_t seed;
  int64_t step;
};

uint16_t *select_query(const struct select_arrays *a, int64_t b, int64_t h, int64_t n) {
  return a->packed ? verify_row(&a->q, 0, h, a->sequence[b].first + n) : verify_row(&a->q, b, h, n);
}

uint16_t *select_key(const struct select_arrays *a, const struct verify_tensor *t, int64_t b,
                     int64_t h, int64_t n) {
  if (a->page)
    return verify_row(t, a->pages[b * a->page_columns + n / a->page], h, n % a->page);
  return a->packed ? verify_row(t, 0, h, a->sequence[b].k_first + n) : verify_row(t, b, h, n);
}

static void draw(const struct fill *fill, enum stream stream, int64_t b, int64_t h, int64_t n,
                 float *row) {
  uint64_t index = (uint64_t)(b * fill->arrays->q.heads + h) << 32 | (uint64_t)n;
  struct random random = random_at(fill->seed, (uint64_t)stream, index);
  random_normals(&random, fill->arrays->q.d, row);
}

static void store(const struct fill *fill, const float *row, uint16_t *out) {
  for (int64_t d = 0; d < fill->arrays->q.d; d++)
    out[d] = cpu_narrow(fill->type, row[d]);
}

static void query_row(const struct fill *fill, int64_t b, int64_t h, int64_t n, float *row) {
  const struct select_arrays *a = fill->arrays;
  float needle[CPU_MAX_HEAD_DIM];
  draw(fill, STREAM_Q, b, h, n + (fill->step << 20), row);
  draw(fill, STREAM_NEEDLE, 0, 0, 0, needle);
  float loud = fill->kind == SELECT_LARGE ? LOUDEST : fill->kind == SELECT_NORMAL ? 1 : LOUD;
  for (int64_t d = 0; d < a->q.d; d++) {
    row[d] *= loud;
    if (fill->kind == SELECT_NEEDLE)
      row[d] = 0.5F * row[d] + needle[d];
    if (fill->kind == SELECT_NAN && h == 0 && n == a->sequence[b].n_q / 2)
      row[d] = NAN;
  }
}

static void add_centres(const struct fill *fill, int64_t b, int64_t h, int64_t n, float *row) {
  float centre[CPU_MAX_HEAD_DIM];
  int64_t run = FIRST_RUN;
  for (int64_t d = 0; d < fill->arrays->q.d; d++)
    row[d] *= SPREAD;
  for (int level = 0; level < CENTRES; level++, run *= RUN_GROWTH) {
    draw(fill, STREAM_CENTRE, b, h, n / run + ((int64_t)level << 28), centre);
    for (int64_t d = 0; d < fill->arrays->q.d; d++)
      row[d] += CENTRE * centre[d];
  }
}

static void key_row(const struct fill *fill, int64_t b, int64_t h, int64_t n, float *row) {
  const struct select_arrays *a = fill->arrays;
  int64_t source = fill->kind == SELECT_COPIES ? n % COPIED : fill->kind == SELECT_CONSTANT ? 0 : n;
  draw(fill, STREAM_K, b, h, source, row);
  if (fill->kind != SELECT_NORMAL)
    add_centres(fill, b, h, source, row);
  if (fill->kind != SELECT_NEEDLE || n != a->sequence[b].keys / 3)
    return;
  draw(fill, STREAM_NEEDLE, 0, 0, 0, row);
  for (int64_t d = 0; d < a->q.d; d++)
    row[d] *= NEEDLE;
}

static void fill_query(void *context, int thread, int64_t task) {
  const struct fill *fill = context;
  const struct select_arrays *a = fill->arrays;
  int64_t b = task / a->q.heads, h = task % a->q.heads;
  float row[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t n = 0; n < a->sequence[b].n_q; n++) {
    query_row(fill, b, h, n, row);
    store(fill, row, select_query(a, b, h, n));
  }
}

static void fill_keys(void *context, int thread, int64_t task) {
  const struct fill *fill = context;
  const struct select_arrays *a = fill->arrays;
  int64_t b = task / a->k.heads, h = task % a->k.heads;
  float k[CPU_MAX_HEAD_DIM], v[CPU_MAX_HEAD_DIM];
  (void)thread;
  for (int64_t n = 0; n < a->sequence[b].room; n++) {
    key_row(fill, b, h, n, k);
    draw(fill, STREAM_V, b, h, n, v);
    for (int64_t d = 0; n >= a->sequence[b].keys && d < a->q.d; d++)
      k[d] = v[d] = BEHIND;
    store(fill, k, select_key(a, &a->k, b, h, n));
    store(fill, v, select_key(a, &a->v, b, h, n));
  }
}

void select_fill_queries(struct select_arrays *a, enum select_input kind, pisa_type type,
                         uint64_t seed, int64_t step) {
  struct fill fill = {a, kind, type, seed, step};
  cpu_parallel(cpu_threads(0), a->batch * a->q.heads, fill_query, &fill);
}

void select_fill(struct select_arrays *a, enum select_input kind, pisa_type type, uint64_t seed) {
  struct fill fill = {a, kind, type, seed, 0};
  select_fill_queries(a, kind, type, seed, 0);
  cpu_parallel(cpu_threads(0), a->batch * a->k.heads, fill_keys, &fill);
}
