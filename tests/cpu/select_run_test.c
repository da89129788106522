/* select_run_test.c: pisa_cpu_run of packs that select blocks, as an application calls it. In:
   packs by hand. Checked: lists, worth, o and lse against the definitions of select.h and
   attend_blocks.h sequence by sequence; that lengths, packed sequences, pages and decoding are
   other ways to say the same; and every row of a caller's pyramid. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/attend_blocks.h"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/select.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { B = 2, H = 4, HK = 2, G = 2, N = 300, D = 64, C = 16, K = 6, PAGE = 16, COLUMNS = 19 };
enum { POOL = 2 * B * COLUMNS };

struct arrays {
  _Alignas(16) uint16_t q[B * H * N * D], k[B * HK * N * D], v[B * HK * N * D];
  _Alignas(16) uint16_t k_pool[POOL * HK * PAGE * D], v_pool[POOL * HK * PAGE * D];
};
struct results {
  _Alignas(16) uint16_t o[B * H * N * D];
  float lse[B * H * N], worth[B * HK * N * K];
  int32_t blocks[B * HK * N * K];
};
static struct arrays in;
static struct results all, some;
static pisa_error error;

static uint64_t seed = 1;
static double uniform(void) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(seed >> 40) / (1 << 24) * 2 - 1;
}

static void fill(uint16_t *x, size_t n) {
  for (size_t i = 0; i < n; i++)
    x[i] = cpu_to_bf16((float)(2 * uniform()));
}

static pisa_pack *pack_of(const char *pyramid, const char *select, const char *mask) {
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.shape = mask, .pyramid = pyramid, .select = select}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  sample_free(&sample);
  return pack;
}

#define SHAPE(mask) "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=" mask
#define LSE "pyramid score=lse reduce=sum keep=6 start=0 leaf_stage=clustered query_tile=4"
#define MEAN "flat score=mean reduce=mass keep=6 start=0 leaf_stage=fused query_tile=4"
#define SIZES "leaf=16 group=2 page=0"

static pisa_tensor bhnd(void *data, int64_t heads, int64_t n) {
  return (pisa_tensor){data, {heads * n * D, n * D, D, 1}};
}

/* All N queries. */
static pisa_attention call_of(struct results *out) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = B,
                          .heads = H,
                          .kv_heads = HK,
                          .n_q = N,
                          .n_k = N,
                          .q = bhnd(in.q, H, N),
                          .k = bhnd(in.k, HK, N),
                          .v = bhnd(in.v, HK, N),
                          .o = bhnd(out->o, H, N),
                          .lse = out->lse,
                          .blocks = out->blocks,
                          .worth = out->worth};
}

static void run(const pisa_pack *pack, const pisa_attention *call) {
  const pisa_cpu_options options = {.struct_size = sizeof options, .threads = 3};
  CHECK_OK(pisa_cpu_run(pack, 0, call, &options, &error), error);
}

static double *widen(const uint16_t *x, int64_t n) {
  double *out = malloc((size_t)n * sizeof *out);
  for (int64_t i = 0; out && i < n; i++)
    out[i] = (double)cpu_from_bf16(x[i]);
  return out;
}

/* ---- against the definitions ---- */

static int n_wrong;

static void expect(bool right) {
  n_wrong += !right;
}

static void check_head(const struct selection *s, int64_t b, int64_t hk, int64_t keys) {
  static double o[N * D], lse[N], worth[N * K];
  static int32_t list[N * K];
  double *q = widen(in.q + (b * H + hk * G) * N * D, G * N * D);
  double *k = widen(in.k + (b * HK + hk) * N * D, N * D);
  double *v = widen(in.v + (b * HK + hk) * N * D, N * D);
  struct pyramid p = pyramid_of(PISA_BF16, D, C, 2);
  CHECK(pyramid_build(&p, k, keys) && select_sequence(s, &p, q, N, K, list, worth));
  for (int64_t i = 0; i < N * K; i++) {
    expect(all.blocks[(b * HK + hk) * N * K + i] == list[i]);
    expect(all.worth[(b * HK + hk) * N * K + i] == (float)worth[i]);
  }
  const struct blocks_head head = {k, v, keys, D, C, s->causal, s->scale};
  for (int64_t g = 0; g < G; g++) {
    const int64_t at = (b * H + hk * G + g) * N;
    attend_blocks_sequence(&head, q + g * N * D, N, list, K, o, lse);
    for (int64_t i = 0; i < N; i++)
      expect(all.lse[at + i] == (float)lse[i]);
    for (int64_t i = 0; i < N * D; i++)
      expect(all.o[at * D + i] == cpu_to_bf16((float)o[i]));
  }
  pyramid_free(&p);
  free(q);
  free(k);
  free(v);
}

static void check_definition(const char *select, const char *shape, struct selection s,
                             const int32_t *lengths) {
  pisa_pack *pack = pack_of(SIZES, select, shape);
  pisa_attention call = call_of(&all);
  call.k_lengths = lengths;
  memset(&all, 0x55, sizeof all);
  run(pack, &call);
  n_wrong = 0;
  for (int64_t b = 0; b < B; b++)
    for (int64_t hk = 0; hk < HK; hk++)
      check_head(&s, b, hk, lengths ? lengths[b] : N);
  CHECK_INT(n_wrong, 0);
  pisa_pack_close(pack);
}

static void check_definitions(void) {
  static const int32_t lengths[B] = {0, 133};
  struct selection walk = {.causal = true,
                           .keep = K,
                           .score = SELECT_LSE,
                           .reduce = SELECT_SUM,
                           .previous = true,
                           .current = true,
                           .always = {{0, 1}},
                           .n_always = 1,
                           .scale = 0.125,
                           .heads = G};
  check_definition(LSE, SHAPE("causal"), walk, NULL);
  check_definition(LSE, SHAPE("causal"), walk, lengths); /* no keys; more queries than keys */
  struct selection flat = walk;
  flat.causal = false;
  flat.flat = true;
  flat.score = SELECT_MEAN;
  flat.reduce = SELECT_MASS;
  check_definition(MEAN, SHAPE("none"), flat, NULL);
}

/* Without o the lists are the same, and v is not looked at. */
static void check_selection(const pisa_pack *pack) {
  pisa_attention call = call_of(&some);
  memset(&some, 0x55, sizeof some);
  call.o = call.v = (pisa_tensor){0};
  call.lse = NULL;
  run(pack, &call);
  CHECK(!memcmp(some.blocks, all.blocks, sizeof all.blocks));
  CHECK(!memcmp(some.worth, all.worth, sizeof all.worth));
  CHECK(some.o[0] == 0x5555);
}

/* ---- other ways to say the same ---- */

/* Sequences of the second batch's first 100, 0 and 61 tokens, packed, against lengths. */
static void check_packed(const pisa_pack *pack) {
  static const int32_t starts[] = {0, 100, 100, 161}, wrong[] = {0, 100, 90, 161};
  enum { T = 161 };
  pisa_attention call = call_of(&some);
  call.batch = 3;
  call.n_q = call.n_k = T;
  call.q_starts = call.k_starts = starts;
  memset(&some, 0x55, sizeof some);
  run(pack, &call); /* rows 0 .. 160 of batch entry 0 */
  static const int64_t begin[] = {0, 100}, n[] = {100, 61};
  for (int s = 0; s < 2; s++) {
    pisa_attention one = call_of(&all);
    const size_t at = (size_t)begin[s] * D;
    one.batch = 1;
    one.n_q = one.n_k = n[s];
    one.q.data = in.q + at;
    one.k.data = in.k + at;
    one.v.data = in.v + at;
    run(pack, &one);
    for (int64_t h = 0; h < H; h++) {
      CHECK(!memcmp(all.lse + h * n[s], some.lse + h * T + begin[s], (size_t)n[s] * 4));
      CHECK(!memcmp(all.o + h * N * D, some.o + (h * N + begin[s]) * D, (size_t)n[s] * D * 2));
    }
    for (int64_t h = 0; h < HK; h++)
      CHECK(!memcmp(all.blocks + h * n[s] * K, some.blocks + (h * T + begin[s]) * K,
                    (size_t)(n[s] * K) * 4));
  }
  call.k_starts = wrong;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "k_starts must ascend from 0 to the number of rows, 161");
  call.k_starts = starts;
  call.n_q = 160;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "q_starts must ascend from 0 to the number of rows, 160");
}

/* Key j of batch b in page 37 (b COLUMNS + j / PAGE) mod POOL. */
static int32_t page_of(int64_t b, int64_t column) {
  return (int32_t)(37 * (b * COLUMNS + column) % POOL);
}

static void fill_pool(const uint16_t *x, uint16_t *pool) {
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < HK; h++)
      for (int64_t j = 0; j < N; j++)
        memcpy(pool + ((page_of(b, j / PAGE) * HK + h) * PAGE + j % PAGE) * D,
               x + ((b * HK + h) * N + j) * D, D * sizeof *x);
}

static void check_pages(const pisa_pack *plain) {
  static const int32_t lengths[B] = {N, N - 7};
  int32_t pages[B * COLUMNS];
  pisa_pack *pack = pack_of("leaf=16 group=2 page=16", LSE, SHAPE("causal"));
  pisa_attention call = call_of(&all);
  call.k_lengths = lengths;
  run(plain, &call);
  for (int i = 0; i < B * COLUMNS; i++)
    pages[i] = page_of(i / COLUMNS, i % COLUMNS);
  fill_pool(in.k, in.k_pool);
  fill_pool(in.v, in.v_pool);
  call = call_of(&some);
  call.k = bhnd(in.k_pool, HK, PAGE);
  call.v = bhnd(in.v_pool, HK, PAGE);
  call.n_k = COLUMNS * PAGE;
  call.pages = pages;
  call.page_columns = COLUMNS;
  call.k_lengths = lengths;
  memset(&some, 0x55, sizeof some);
  run(pack, &call);
  CHECK(!memcmp(&all, &some, sizeof all));
  pages[COLUMNS - 1] = -1;
  CHECK_FAILS(pisa_cpu_run(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "pages[0, 18] is -1, must not be negative");
  pisa_pack_close(pack);
}

/* The last three queries of each sequence, decoded. */
static void check_decode(const pisa_pack *pack) {
  enum { LAST = 3 };
  pisa_attention call = call_of(&all);
  run(pack, &call);
  call = call_of(&some);
  call.n_q = LAST;
  call.phase = PISA_DECODE;
  call.q.data = in.q + (N - LAST) * D;
  run(pack, &call);
  for (int64_t h = 0; h < B * H; h++) {
    CHECK(!memcmp(all.o + (h * N + N - LAST) * D, some.o + h * N * D, LAST * D * 2));
    CHECK(!memcmp(all.lse + h * N + N - LAST, some.lse + h * LAST, LAST * 4));
  }
  for (int64_t h = 0; h < B * HK; h++)
    CHECK(!memcmp(all.blocks + (h * N + N - LAST) * K, some.blocks + h * LAST * K, LAST * K * 4));
}

/* ---- the caller's pyramid ---- */

/* Mean of keys [begin, end), rounded, or their sum. */
static double keys_sum(int64_t b, int64_t hk, int64_t begin, int64_t end, int d) {
  double sum = 0;
  for (int64_t j = begin; j < end; j++)
    sum += (double)cpu_from_bf16(in.k[((b * HK + hk) * N + j) * D + d]);
  return sum;
}

static int64_t at_most(int64_t a, int64_t most) {
  return a < most ? a : most;
}

/* Every level of sequence |b| with |keys| keys; |stale| is what rows of nodes that are not full
   still hold, or NULL. */
static void check_nodes(const char *pyramid, const char *stale, int64_t b, int64_t hk,
                        int64_t keys) {
  const int64_t rows = 4 * (B * N / (2 * C)) + 128 * B + 32;
  int64_t row = hk * rows + 4 * (b * N / (2 * C)) + 128 * b, m = (N + C - 1) / C;
  for (int64_t size = C;; size *= 2, m = (m + 1) / 2) {
    for (int64_t node = 0; node * size < keys; node++) {
      const int64_t begin = node * size, end = at_most(begin + size, keys);
      const uint16_t *got = (const uint16_t *)(const void *)pyramid;
      const uint16_t *old = (const uint16_t *)(const void *)stale;
      for (int d = 0; d < D; d++) {
        const int64_t pair = (row + node) / 2, odd = (row + node) % 2;
        const int64_t at = pair * 2 * D + d / 32 * 64 + odd * 32 + d % 32;
        double mean = keys_sum(b, hk, begin, end, d) / (double)(end - begin);
        expect(got[at] == (stale && end < begin + size ? old[at] : cpu_to_bf16((float)mean)));
      }
    }
    row += (m + 3) / 4 * 4;
    if (m == 1)
      break;
  }
}

static void check_open(const char *pyramid, int64_t b, int64_t hk, int64_t keys) {
  const int64_t rows = 4 * (B * N / (2 * C)) + 128 * B + 32;
  const float *open = (const float *)(const void *)(pyramid + HK * rows * D * 2);
  open += (b * HK + hk) * 32 * D;
  int64_t child = 1, size = C;
  for (int l = 0; l < 32; l++, child = size, size *= 2)
    for (int d = 0; d < D; d++)
      expect(open[l * D + d] ==
             (float)keys_sum(b, hk, keys / size * size, keys / child * child, d));
}

/* Prefill of all but |N_NEW| keys, then those: as if all had been there. */
static void check_pyramid(const pisa_pack *pack, bool completed) {
  enum { N_NEW = 15 };
  static const int32_t before[B] = {N - N_NEW, 100 - N_NEW}, after[B] = {N, 100};
  size_t bytes = 0;
  pisa_attention call = call_of(&some);
  CHECK_OK(pisa_pyramid_size(pack, 0, &call, &bytes, &error), error);
  char *pyramid = aligned_alloc(256, (bytes + 255) / 256 * 256), *old = malloc(bytes);
  memset(pyramid, 0x11, bytes);
  call.pyramid = pyramid;
  call.k_lengths = before;
  run(pack, &call);
  n_wrong = 0;
  for (int64_t i = 0; i < B * HK; i++) {
    check_nodes(pyramid, NULL, i / HK, i % HK, before[i / HK]);
    check_open(pyramid, i / HK, i % HK, before[i / HK]);
  }
  CHECK_INT(n_wrong, 0);
  memcpy(old, pyramid, bytes);
  call.phase = PISA_DECODE;
  run(pack, &call); /* nothing new */
  CHECK(!memcmp(old, pyramid, bytes));
  call.k_lengths = after;
  call.n_new = N_NEW;
  call.append_completed = completed;
  run(pack, &call);
  for (int64_t i = 0; i < B * HK; i++) {
    check_nodes(pyramid, completed ? old : NULL, i / HK, i % HK, after[i / HK]);
    check_open(pyramid, i / HK, i % HK, after[i / HK]);
  }
  CHECK_INT(n_wrong, 0);
  free(pyramid);
  free(old);
}

static int64_t last_done;
static void count_progress(void *user, int64_t done, int64_t total) {
  *(int64_t *)user = total;
  CHECK(done == ++last_done);
}

static void check_progress(const pisa_pack *pack) {
  int64_t total = 0;
  const pisa_cpu_options options = {
      .struct_size = sizeof options, .progress = count_progress, .user = &total};
  const pisa_attention call = call_of(&some);
  CHECK_OK(pisa_cpu_run(pack, 0, &call, &options, &error), error);
  CHECK(total == B * HK * N && last_done == total);
}

int main(void) {
  fill(in.q, sizeof in.q / 2);
  fill(in.k, sizeof in.k / 2);
  fill(in.v, sizeof in.v / 2);
  check_definitions();
  pisa_pack *pack = pack_of(SIZES, LSE, SHAPE("causal"));
  const pisa_attention call = call_of(&all);
  run(pack, &call);
  check_selection(pack);
  check_packed(pack);
  check_pages(pack);
  check_decode(pack);
  check_pyramid(pack, false);
  check_pyramid(pack, true);
  check_progress(pack);
  pisa_pack_close(pack);
  return check_result();
}
