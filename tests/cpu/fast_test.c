/* fast_test.c: the float executor against the oracle, over shapes, and its own promises (threads,
   strides, offsets). Lists are the oracle's where outputs are compared, so that a near tie cannot
   hide or cause a difference. */
#define _DEFAULT_SOURCE /* MAP_NORESERVE */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/cpu/job.h"
#include "tests/cpu/sample.h"

static void compare_head(const struct sample *sample, int64_t b, int64_t h, double limit) {
  const struct cpu_problem *p = &sample->problem;
  struct output want = run_head(sample, ORACLE, b, h, NULL),
                own = run_head(sample, FAST, b, h, NULL);
  struct output got = run_head(sample, FAST, b, h, want.lists);
  CHECK(memcmp(own.lists, want.lists, (size_t)(p->q_blocks * p->kept) * sizeof *want.lists) == 0);
  CHECK_AT_MOST(relative_error(got.o, want.o, p->n_q * p->head_dim), limit);
  CHECK_AT_MOST(largest_difference(got.lse, want.lse, p->n_q), limit);
  output_free(&want);
  output_free(&own);
  output_free(&got);
}

/* h_sum is stored rounded: where float and double fall on two sides of a rounding boundary, one of
   its elements differs by 2^-8, and o by some 1e-5. */
static void compare(struct shape shape, double spread, double limit) {
  for (int tail = DROP; tail < N_TAILS; tail++) {
    shape.tail = (enum tail)tail;
    struct sample sample = sample_new(shape, spread);
    for (int64_t h = 0; h < shape.heads; h++)
      compare_head(&sample, shape.batch - 1, h, tail == HYBRID ? 3 * limit : limit);
    sample_free(&sample);
  }
}

static void lengths(void) {
  static const int64_t n[] = {1, 2, 13, 63, 64, 65, 127, 128, 129, 193, 269, 272, 312, 319};
  for (size_t i = 0; i < sizeof n / sizeof *n; i++)
    compare(shape_of(n[i], n[i] > 128 ? 2 : 1), 1, 1e-5);
}

/* Many mean tiles, one exact block, queries that disagree: the running maximum moves again and
 * again. */
static void incoherent(void) {
  struct shape shape = shape_of(64 * 130 + 1, 1);
  shape.n_q = 256;
  compare(shape, 4, 1e-5);
}

/* Logits of some hundreds: a product of float rounds at 1e-7 of them, so o moves by 1e-5 to 1e-4.
 */
static void large(void) {
  compare(shape_of(400, 2), 100, 3e-4);
}

static void shapes(void) {
  static const int dims[] = {64, 96, 128, 256};
  for (int i = 0; i < 32; i++) {
    struct shape shape = shape_of(400, 2);
    shape.head_dim = dims[i % 4];
    shape.query = i & 4 ? 128 : 64;
    shape.key = i & 8 ? 128 : 64;
    shape.type = i & 16 ? PISA_FP16 : PISA_BF16;
    shape.n_q = 210;
    if (shape.key <= shape.query)
      compare(shape, 1, 1e-5);
  }
}

/* k_variance, like h_sum, may be rounded to either side; where q^2 k_variance is large, that moves
   a score by 2^-9 of it. */
static void second_order(void) {
  static const int blocks[][2] = {{128, 64}, {64, 64}, {128, 128}};
  for (int i = 0; i < 12; i++) {
    struct shape shape = shape_of(777, 2);
    shape.head_dim = i % 2 ? 96 : 64;
    shape.query = blocks[i % 3][0];
    shape.key = blocks[i % 3][1];
    shape.type = i < 6 ? PISA_BF16 : PISA_FP16;
    shape.n_q = 300;
    shape.second_order = true;
    shape.log_covariance = i % 4 == 0;
    shape.key_variance = i % 4 == 1;
    compare(shape, 1, 2e-5);
  }
}

/* Forced blocks beside the diagonal: fewer and more query rows than keys. */
static void windows(void) {
  static const int blocks[][2] = {{128, 64}, {64, 64}, {128, 128}};
  for (int i = 0; i < 12; i++) {
    struct shape shape = shape_of(i % 2 ? 300 : 1000, 4);
    shape.query = blocks[i % 3][0];
    shape.key = blocks[i % 3][1];
    shape.n_q = 650;
    shape.kept = shape.key == 64 ? 4 : 3;
    shape.key_variance = i % 4 < 2;
    shape.log_covariance = false;
    shape.windowed = true;
    shape.window = i % 2;
    compare(shape, 1, 1e-5);
  }
}

static void heads(void) {
  static const struct {
    int64_t batch, heads, kv_heads, n_q, n_k;
  } sizes[] = {{2, 6, 2, 260, 260}, {1, 4, 2, 300, 130}, {1, 4, 1, 130, 300}, {2, 8, 2, 65, 257}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct shape shape = shape_of(sizes[i].n_k, 2);
    shape.batch = sizes[i].batch;
    shape.heads = sizes[i].heads;
    shape.kv_heads = sizes[i].kv_heads;
    shape.n_q = sizes[i].n_q;
    shape.head_dim = i % 2 ? 96 : 64;
    shape.type = i / 2 % 2 ? PISA_FP16 : PISA_BF16;
    compare(shape, 1, 1e-5);
  }
}

/* ||H_j - Hbar|| in float, thresholds of either kind. */
static void routers(void) {
  for (int i = 0; i < 12; i++) {
    struct shape shape = shape_of(i % 2 ? 640 : 777, 2);
    shape.query = i % 4 < 2 ? 128 : 64;
    shape.type = i < 6 ? PISA_BF16 : PISA_FP16;
    shape.log_residual = i % 3 == 0;
    shape.log_covariance = false;
    shape.threshold = i % 3 != 0;
    shape.full_variance = i % 3 == 1;
    shape.tau = 0.5;
    if (shape.threshold)
      shape.kept = 13;
    compare(shape, 1, 1e-5);
  }
}

/* Every sequence of a batch, in turn and backwards: what a longer one left behind does not count.
 */
static void sequences(void) {
  static const int32_t n[] = {300, 17, 0, 129, 256, 64};
  for (int i = 0; i < 4 * N_TAILS; i++) {
    struct shape shape = shape_of(300, 2);
    shape.tail = (enum tail)(i / 4);
    shape.batch = 6;
    shape.heads = 4;
    shape.kv_heads = i % 2 ? 2 : 4;
    shape.n_q = 70;
    shape.query = shape.key = i % 4 < 2 ? 64 : 128;
    shape.type = i % 4 == 1 ? PISA_FP16 : PISA_BF16;
    shape.second_order = i % 4 == 2;
    shape.lengths = n;
    struct sample sample = sample_new(shape, 1);
    for (int64_t b = 0; b < 6; b++)
      compare_head(&sample, b, b % 4, 3e-5);
    sample_free(&sample);
  }
}

/* ---- whole jobs ---- */

struct result {
  uint16_t *o;
  float *lse;
  int32_t *blocks;
};

static struct result run_job(const struct sample *sample, int threads, bool oracle,
                             const int32_t *lists) {
  const struct cpu_problem *p = &sample->problem;
  int64_t rows = p->batch * p->heads * p->n_q,
          lists_size = p->batch * p->heads * p->q_blocks * p->kept;
  struct result result = {.o = sample->o,
                          .lse = calloc((size_t)rows, sizeof(float)),
                          .blocks = calloc((size_t)lists_size, sizeof(int32_t))};
  struct cpu_job job = {.problem = p,
                        .oracle = oracle,
                        .threads = threads,
                        .lists = lists,
                        .n_listed = lists ? p->kept : 0,
                        .lse = result.lse,
                        .blocks = result.blocks};
  CHECK(result.lse && result.blocks);
  memset(sample->o, 0xff, (size_t)sample->q_size * sizeof *sample->o);
  CHECK(cpu_job_run(&job));
  return result;
}

static void result_free(struct result *result) {
  free(result->lse);
  free(result->blocks);
}

static struct shape two_heads(void) {
  struct shape shape = shape_of(333, 2);
  shape.batch = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  return shape;
}

/* A head of a group has what it has alone with a copy of the keys and values it shares. */
static void groups(void) {
  struct shape shape = two_heads();
  shape.n_q = 140;
  shape.type = PISA_FP16;
  struct sample grouped = sample_new(shape, 1);
  shape.kv_heads = shape.heads;
  struct sample plain = sample_new(shape, 1);
  const struct cpu_problem *x = &grouped.problem, *y = &plain.problem;
  for (int64_t e = 0; e < plain.k_size; e++) {
    int64_t d = e % 64, n = e / 64 % 333, h = e / 64 / 333 % 4, b = e / 64 / 333 / 4;
    *element(&y->k, b, h, n, d) = *element(&x->k, b, h / 2, n, d);
    *element(&y->v, b, h, n, d) = *element(&x->v, b, h / 2, n, d);
  }
  for (int oracle = 0; oracle < 2; oracle++) {
    struct result p = run_job(&grouped, 2, oracle, NULL), q = run_job(&plain, 2, oracle, NULL);
    CHECK(memcmp(p.o, q.o, (size_t)plain.q_size * sizeof *p.o) == 0);
    CHECK(memcmp(p.lse, q.lse, 2 * 4 * 140 * sizeof *p.lse) == 0);
    CHECK(memcmp(p.blocks, q.blocks, 2 * 4 * 2 * 2 * sizeof *p.blocks) == 0);
    result_free(&p);
    result_free(&q);
  }
  sample_free(&grouped);
  sample_free(&plain);
}

/* Same bits whatever the number of threads. */
static void threads(void) {
  struct sample one = sample_new(two_heads(), 1), many = sample_new(two_heads(), 1);
  struct result a = run_job(&one, 1, false, NULL), b = run_job(&many, 5, false, NULL);
  CHECK(memcmp(a.o, b.o, (size_t)one.q_size * sizeof *a.o) == 0);
  CHECK(memcmp(a.lse, b.lse, 2 * 4 * 333 * sizeof *a.lse) == 0);
  CHECK(memcmp(a.blocks, b.blocks, 2 * 4 * 3 * 2 * sizeof *a.blocks) == 0);
  result_free(&a);
  result_free(&b);
  sample_free(&one);
  sample_free(&many);
}

/* BNHD holds what BHND does, with its indices exchanged. */
static void layout(void) {
  struct shape shape = two_heads();
  struct sample bhnd = sample_new(shape, 1);
  shape.bnhd = true;
  struct sample bnhd = sample_new(shape, 1);
  const struct cpu_problem *x = &bhnd.problem, *y = &bnhd.problem;
  for (int64_t e = 0; e < bhnd.q_size; e++) {
    int64_t d = e % 64, n = e / 64 % 333, h = e / 64 / 333 % 4, b = e / 64 / 333 / 4;
    *element(&y->q, b, h, n, d) = *element(&x->q, b, h, n, d);
    *element(&y->k, b, h / 2, n, d) = *element(&x->k, b, h / 2, n, d);
    *element(&y->v, b, h / 2, n, d) = *element(&x->v, b, h / 2, n, d);
  }
  struct result p = run_job(&bhnd, 2, false, NULL), q = run_job(&bnhd, 2, false, NULL);
  for (int64_t e = 0; e < bhnd.q_size; e++) {
    int64_t d = e % 64, n = e / 64 % 333, h = e / 64 / 333 % 4, b = e / 64 / 333 / 4;
    CHECK(*element(&y->o, b, h, n, d) == *element(&x->o, b, h, n, d));
  }
  CHECK(memcmp(p.lse, q.lse, 2 * 4 * 333 * sizeof *p.lse) == 0);
  result_free(&p);
  result_free(&q);
  sample_free(&bhnd);
  sample_free(&bnhd);
}

/* The job of either executor writes every element, and hands back the lists it was given, padding
 * included. */
static void given_lists(void) {
  struct shape shape = shape_of(333, 3);
  struct sample sample = sample_new(shape, 1);
  const int32_t lists[9] = {0, 2, 5, 1, 4, -1, 3, -1, -1};
  uint16_t *first = calloc((size_t)sample.q_size, sizeof *first);
  CHECK(first);
  for (int oracle = 0; oracle < 2; oracle++) {
    struct result result = run_job(&sample, 2, oracle, lists);
    double worst = 0;
    CHECK(memcmp(result.blocks, lists, sizeof lists) == 0);
    for (int64_t e = 0; oracle && e < sample.q_size; e++) {
      double want = get(&sample, &sample.problem.o, 0, 0, e / 64, e % 64);
      uint16_t keep = sample.o[e];
      sample.o[e] = first[e];
      worst = fmax(worst, fabs(get(&sample, &sample.problem.o, 0, 0, e / 64, e % 64) - want));
      sample.o[e] = keep;
    }
    CHECK_AT_MOST(worst, 0x1p-6); /* one unit in the last place of bf16 below 4 */
    memcpy(first, sample.o, (size_t)sample.q_size * sizeof *first);
    result_free(&result);
  }
  free(first);
  sample_free(&sample);
}

/* The lists that come out of a call, given back, change nothing. */
static void lists_back(void) {
  static const int32_t n[] = {333, 150};
  for (int oracle = 0; oracle < 2; oracle++) {
    struct shape shape = two_heads();
    shape.lengths = n;
    struct sample sample = sample_new(shape, 1);
    struct result routed = run_job(&sample, 2, oracle, NULL);
    uint16_t *o = calloc((size_t)sample.q_size, sizeof *o);
    CHECK(o);
    memcpy(o, sample.o, (size_t)sample.q_size * sizeof *o);
    struct result given = run_job(&sample, 2, oracle, routed.blocks);
    CHECK(memcmp(given.o, o, (size_t)sample.q_size * sizeof *o) == 0);
    CHECK(memcmp(given.lse, routed.lse, 2 * 4 * 333 * sizeof *given.lse) == 0);
    CHECK(memcmp(given.blocks, routed.blocks, 2 * 4 * 3 * 2 * sizeof *given.blocks) == 0);
    free(o);
    result_free(&routed);
    result_free(&given);
    sample_free(&sample);
  }
}

static int64_t last_done, calls;
static void count(void *user, int64_t done, int64_t total) {
  CHECK(user == &calls && done == last_done + 1 && total == 2 * 4 * 3);
  last_done = done;
  calls++;
}

static void progress(void) {
  struct sample sample = sample_new(two_heads(), 1);
  struct cpu_job job = {
      .problem = &sample.problem, .threads = 3, .progress = count, .user = &calls};
  CHECK(cpu_job_run(&job) && calls == 2 * 4 * 3);
  sample_free(&sample);
}

/* Heads 2^31 elements apart, in memory that is reserved but never touched between them. */
static void far_apart(void) {
  struct shape shape = shape_of(130, 1);
  shape.heads = shape.kv_heads = 2;
  struct sample near = sample_new(shape, 1), far = sample_new(shape, 1);
  const int64_t apart = (int64_t)1 << 31;
  size_t bytes = (size_t)(apart + 130 * 64) * sizeof(uint16_t);
  uint16_t *base =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(base != MAP_FAILED);
  memcpy(base, near.q, 130 * 64 * sizeof *base);
  memcpy(base + apart, near.q + 130 * 64, 130 * 64 * sizeof *base);
  far.problem.q.data = base;
  far.problem.q.stride[1] = apart;
  struct result a = run_job(&near, 1, false, NULL), b = run_job(&far, 1, false, NULL);
  CHECK(memcmp(a.o, b.o, (size_t)near.q_size * sizeof *a.o) == 0);
  munmap(base, bytes);
  result_free(&a);
  result_free(&b);
  sample_free(&near);
  sample_free(&far);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"lengths", lengths},
    {"incoherent", incoherent},
    {"large", large},
    {"shapes", shapes},
    {"heads", heads},
    {"threads", threads},
    {"layout", layout},
    {"given_lists", given_lists},
    {"second_order", second_order},
    {"windows", windows},
    {"groups", groups},
    {"progress", progress},
    {"far_apart", far_apart},
    {"routers", routers},
    {"sequences", sequences},
    {"lists_back", lists_back},
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: fast_test CASE\n");
  return 2;
}
