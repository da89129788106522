/* quality_test.c: figures of scenes so simple that they can be worked out by hand. Logits are 0 or
   one number, values are constant in a block; heads of 64 unless told otherwise.
   usage: quality_test CASE */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/quality.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

enum { D = 64, MAX_HEADS = 4 };
#define REST " threshold=0/1 variance=diagonal"
#define PLAIN "top_k score=mean term=none budget=density density=5/10 keep=0" REST
#define WITH_H "top_k score=mean term=log_covariance budget=density density=5/10 keep=0" REST
#define RESIDUAL "top_k score=mean term=log_residual budget=density density=5/10 keep=0" REST
#define THRESHOLD                                                                                  \
  "top_k score=mean term=none budget=threshold density=0/1 keep=0 threshold=5/10 variance=full"
#define ALONE "heads=1 kv_heads=1 head_dim=64 type=bf16 mask=none"
#define SHARED "heads=2 kv_heads=1 head_dim=64 type=bf16 mask=none"

static void near(double got, double wanted, double slack, const char *what) {
  if (!(fabs(got - wanted) <= slack))
    fprintf(stderr, "%s is %.9g, expected %.9g\n", what, got, wanted);
  CHECK(fabs(got - wanted) <= slack);
}
#define NEAR(got, wanted) near(got, wanted, 1e-5, #got)

static void need(bool ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
  }
}

/* ---- scenes ---- */

struct scene {
  struct quality_scene scene;
  struct quality_head where[MAX_HEADS];
  struct quality_truth truth;
};

/* All zero. */
static void scene_make(struct scene *s, int64_t heads, int64_t kv_heads, int64_t n_q, int64_t n_k) {
  *s = (struct scene){.scene = {.name = "by hand",
                                .type = PISA_BF16,
                                .head_dim = D,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .n_q = n_q,
                                .n_k = n_k,
                                .scale = 1,
                                .n_wanted = heads}};
  s->scene.q = calloc((size_t)(heads * n_q * D), 2);
  s->scene.k = calloc((size_t)(kv_heads * n_k * D), 2);
  s->scene.v = calloc((size_t)(kv_heads * n_k * D), 2);
  s->scene.where = s->where;
  for (int64_t h = 0; h < heads; h++)
    s->where[h] = (struct quality_head){.h = h, .wanted = true};
}

static void scene_free(struct scene *s) {
  free(s->scene.q);
  free(s->scene.k);
  free(s->scene.v);
  quality_truth_free(&s->truth);
}

/* Tokens [begin, end) of one head get |value| in dimensions [0, dims). */
static void fill(uint16_t *head, int64_t begin, int64_t end, int dims, float value) {
  for (int64_t n = begin; n < end; n++)
    for (int d = 0; d < dims; d++)
      head[n * D + d] = cpu_to_bf16(value);
}

static void attend(struct scene *s) {
  pisa_error error = {0};
  need(!quality_truth_make(&s->scene, 2, NULL, NULL, &s->truth, &error), error.message);
}

/* ---- packs ---- */

struct method {
  struct quality_pack pack;
  struct quality_result result;
};

static void measure(struct method *m, const struct scene *s, const struct sample_spec *spec,
                    double density) {
  const struct quality_run run = {.ordinal = -1, .threads = 2};
  struct sample sample;
  pisa_error error = {0};
  *m = (struct method){.pack = {.label = "sample"}};
  sample_make(spec, &sample);
  need(!pisa_pack_read(sample.bytes, sample.size, &m->pack.pack, &error) &&
           !pisa_pack_variant(m->pack.pack, 0, &m->pack.chosen, &error) &&
           !quality_measure(&s->scene, &s->truth, &m->pack, density, &run, &m->result, &error),
       error.message);
  sample_free(&sample);
}

static void done(struct method *m) {
  quality_result_free(&m->result);
  pisa_pack_close(m->pack.pack);
}

static const struct sample_spec drop = {
    .shape = ALONE, .route = PLAIN, .attend = "selected=exact rest=drop"};
static const struct sample_spec order0 = {
    .shape = ALONE, .route = PLAIN, .attend = "selected=exact rest=taylor_0 mass=zeroth_order"};
static const struct sample_spec hybrid = {.shape = ALONE, .route = WITH_H};

/* ---- cases ---- */

/* Two blocks of equal weight with values 1 and 3: dense gives 2; the first alone gives 1. */
static void uniform(void) {
  struct scene s;
  struct method m;
  scene_make(&s, 1, 1, 128, 128);
  fill(s.scene.v, 0, 64, D, 1);
  fill(s.scene.v, 64, 128, D, 3);
  attend(&s);
  NEAR((double)s.truth.o[0], 2);
  NEAR(s.truth.rounding, 0);
  NEAR(s.truth.spread.inside, 0);
  NEAR(s.truth.spread.between, 0);
  measure(&m, &s, &drop, 0.5);
  NEAR(m.result.listed, 1);
  CHECK_INT(m.result.k_blocks, 2);
  NEAR(m.result.all.error, 0.5);
  NEAR(m.result.blocks[0], 0.5);
  NEAR(m.result.all.psnr, 20 * log10(2)); /* max 2, rmse 1 */
  NEAR(m.result.all.recall, 1);           /* equal blocks: the lower index counts as heavier */
  NEAR(m.result.all.mass, 0.5);
  NEAR(m.result.all.best_mass, 0.5);
  NEAR(m.result.read, 0.5);
  NEAR(m.result.cost, 0.5 + 1.0 * 2 / (2 * 128 * 128));
  done(&m);
  measure(&m, &s, &order0, 0.5); /* keys are equal within blocks, so order 0 is exact */
  NEAR(m.result.all.error, 0);
  NEAR(m.result.cost, 0.5 + 1.0 * 2 / (2 * 128 * 128) + 2.0 / 128);
  done(&m);
  measure(&m, &s, &hybrid, 0); /* the spec's budget, a half */
  NEAR(m.result.listed, 1);
  NEAR(m.result.all.error, 0);
  NEAR(m.result.cost, 0.5 + 1.0 * 2 / (2 * 128 * 128) + 2.0 / 128 + 2 * 64.0 / (2 * 128));
  done(&m);
  scene_free(&s);
}

/* Blocks of 64 and 32 keys with values 0 and 3, 130 queries: dense gives 1. */
static void ragged(void) {
  struct scene s;
  struct method m;
  scene_make(&s, 1, 1, 130, 96);
  fill(s.scene.v, 64, 96, D, 3);
  attend(&s);
  NEAR((double)s.truth.o[129 * D], 1);
  measure(&m, &s, &drop, 0.5);
  CHECK_INT(m.result.q_blocks, 2);
  NEAR(m.result.all.error, 1);
  NEAR(m.result.blocks[1], 1);
  NEAR(m.result.all.mass, 2.0 / 3);
  NEAR(m.result.read, 2.0 / 3);
  done(&m);
  scene_free(&s);
}

/* Half of the queries have logit +L with block 1 and -L with block 2, half the reverse, all have 0
   with block 0. Their mean is zero, so all scores are equal and block 0 is listed, the lightest:
   a share of 1 / (1 + 2 cosh L) each. Values 0, 1, 1: what is listed gives 0. */
static void wrong_list(void) {
  struct scene s;
  struct method m;
  const float l = cpu_from_bf16(cpu_to_bf16(0.6931F));
  scene_make(&s, 1, 1, 128, 192);
  fill(s.scene.q, 0, 32, 1, 1);
  fill(s.scene.q, 32, 64, 1, -1);
  fill(s.scene.q, 64, 96, 1, 1);
  fill(s.scene.q, 96, 128, 1, -1);
  fill(s.scene.k, 64, 128, 1, l);
  fill(s.scene.k, 128, 192, 1, -l);
  fill(s.scene.v, 64, 192, D, 1);
  attend(&s);
  double whole = 1 + 2 * cosh((double)l);
  NEAR((double)s.truth.o[0], 1 - 1 / whole);
  NEAR(s.truth.spread.inside, 0);
  NEAR(s.truth.spread.between, sqrt(2.0 / 3) * (double)l);
  measure(&m, &s, &drop, 0.34);
  NEAR(m.result.listed, 1);
  NEAR(m.result.all.error, 1);
  NEAR(m.result.all.recall, 0);
  NEAR(m.result.all.mass, 1 / whole);
  NEAR(m.result.all.best_mass, cosh((double)l) / whole);
  done(&m);
  measure(&m, &s, &drop, 0.67); /* blocks 0 and 1; 1 and 2 are the heaviest */
  NEAR(m.result.all.recall, 0.5);
  NEAR(m.result.recalls[0], 0.5);
  NEAR(m.result.all.mass, (1 + cosh((double)l)) / whole);
  done(&m);
  scene_free(&s);
}

/* Two query heads read one key head; only the second is wanted. Its logits spread inside block 1:
   +-1 by halves. */
static void shared_keys(void) {
  struct scene s;
  struct method m;
  struct sample_spec spec = drop;
  spec.shape = SHARED;
  scene_make(&s, 2, 1, 128, 128);
  s.where[0].wanted = false;
  s.scene.n_wanted = 1;
  fill(s.scene.q + 128 * D, 0, 128, 1, 1);
  fill(s.scene.k, 64, 96, 1, 1);
  fill(s.scene.k, 96, 128, 1, -1);
  fill(s.scene.v, 64, 128, D, 1);
  attend(&s);
  NEAR(s.truth.spreads[0].inside, 0);
  NEAR(s.truth.spreads[1].inside, sqrt(0.5)); /* variances 0 and 1 */
  NEAR(s.truth.spread.inside, sqrt(0.5));
  double share = cosh(1) / (1 + cosh(1)); /* of block 1 */
  NEAR((double)s.truth.o[128 * D], share);
  measure(&m, &s, &spec, 0.5); /* the means are equal: block 0, whose values are 0 */
  NEAR(m.result.all.error, 1);
  NEAR(m.result.heads[1].error, 1);
  NEAR(m.result.heads[0].error, 0); /* not looked at */
  NEAR(m.result.all.mass, 1 - share);
  NEAR(m.result.all.best_mass, share);
  NEAR(m.result.all.recall, 0);
  done(&m);
  scene_free(&s);
}

/* Block 2 of four scores 2, the others 0: mu = 0.5, sigma = 0.87, so it alone is above the limit of
   0.93. Values are 1 there and 0 elsewhere. */
static void threshold(void) {
  struct scene s;
  struct method m;
  const struct sample_spec spec = {
      .shape = ALONE, .route = THRESHOLD, .attend = "selected=exact rest=drop"};
  scene_make(&s, 1, 1, 128, 256);
  fill(s.scene.q, 0, 128, 1, 1);
  fill(s.scene.k, 128, 192, 1, 2);
  fill(s.scene.v, 128, 192, D, 1);
  attend(&s);
  measure(&m, &s, &spec, 0.25);
  NEAR(m.result.density, 0); /* not for a threshold */
  NEAR(m.result.listed, 1);
  NEAR(m.result.read, 0.25);
  NEAR(m.result.all.recall, 1);
  NEAR(m.result.all.mass, exp(2) / (3 + exp(2)));
  NEAR(m.result.all.error, 3 / exp(2)); /* dense is e^2 / (3 + e^2), this is 1 */
  done(&m);
  scene_free(&s);
}

/* Order 1 computes what dense attention does, and a residual H_j twice. */
static void cost(void) {
  struct scene s;
  struct method m;
  const struct sample_spec order1 = {
      .shape = ALONE, .route = PLAIN, .attend = "selected=exact rest=taylor_1 mass=second_order"};
  const struct sample_spec residual = {
      .shape = ALONE, .route = RESIDUAL, .attend = "selected=exact rest=drop"};
  const struct sample_spec below = {
      .shape = ALONE, .route = PLAIN, .below = "below tokens=129 use=dense\n"};
  scene_make(&s, 1, 1, 128, 128);
  fill(s.scene.v, 0, 128, D, 1);
  attend(&s);
  measure(&m, &s, &order1, 0.5);
  NEAR(m.result.cost, 1 + 1.0 * 2 / (2 * 128 * 128));
  NEAR(m.result.all.error, 0);
  done(&m);
  measure(&m, &s, &residual, 0.5);
  NEAR(m.result.cost, 0.5 + 1.0 * 2 / (2 * 128 * 128) + 2 * 64.0 / (2 * 128));
  done(&m);
  measure(&m, &s, &below, 0.5); /* too short to be routed */
  NEAR(m.result.cost, 1);
  NEAR(m.result.read, 1);
  NEAR(m.result.all.error, 0);
  done(&m);
  scene_free(&s);
}

/* Everything is read: no error, and every block is found. */
static void perfect_of(float value) {
  struct scene s;
  struct method m;
  const struct sample_spec dense = {.shape = ALONE, .dense = true};
  scene_make(&s, 1, 1, 128, 128);
  fill(s.scene.v, 0, 128, D, value);
  attend(&s);
  measure(&m, &s, &dense, 0.5);
  NEAR(m.result.density, 0); /* a dense pack has none */
  NEAR(m.result.all.error, 0);
  CHECK(m.result.all.psnr == INFINITY);
  NEAR(m.result.all.recall, 1);
  NEAR(m.result.all.mass, 1);
  NEAR(m.result.cost, 1);
  done(&m);
  measure(&m, &s, &drop, 1);
  NEAR(m.result.all.recall, 1);
  NEAR(m.result.read, 1);
  done(&m);
  scene_free(&s);
}
static void perfect(void) {
  perfect_of(1);
  perfect_of(0); /* also where there is nothing to be wrong about */
}

/* Nothing can be compared with what is not a number. */
static void infinite(void) {
  struct scene s;
  pisa_error error = {0};
  scene_make(&s, 1, 1, 128, 128);
  fill(s.scene.v, 70, 71, D, INFINITY);
  CHECK_FAILS(quality_truth_make(&s.scene, 1, NULL, NULL, &s.truth, &error), PISA_INVALID_ARGUMENT,
              error, "not finite in row 0");
  scene_free(&s);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"uniform", uniform},         {"ragged", ragged},   {"wrong_list", wrong_list},
               {"shared_keys", shared_keys}, {"perfect", perfect}, {"infinite", infinite},
               {"threshold", threshold},     {"cost", cost}};
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return check_result();
    }
  fprintf(stderr, "usage: quality_test CASE\n");
  return 2;
}
