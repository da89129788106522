/* method_test.c: plan -> pisa ops -> kernels, with kernels that only note what they were asked for.
 */
#include <stdio.h>
#include <string.h>

#include "compiler/dialect/dialect.h"
#include "compiler/ir/ir.h"
#include "compiler/kernels/kernels.h"
#include "dsl/arena.h"

#define CHECK(condition)                                                                           \
  ((condition)                                                                                     \
       ? (void)0                                                                                   \
       : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), failures++, (void)0))
static int failures;
static struct text asked; /* entries in order */

static void note(struct ir *k, const struct plan_kernel *kernel) {
  kernel_begin(k, 0, NULL);
  kernel_end(k, kernel->entry, kernel->threads, 1);
  text_printf(&asked, "%s ", kernel->entry);
}

void kernel_statistics(struct ir *k, const struct plan_statistics *plan) {
  note(k, &plan->kernel);
}

void kernel_residual(struct ir *k, const struct plan_residual *plan) {
  note(k, &plan->kernel);
}

void kernel_route(struct ir *k, const struct plan_route *plan) {
  note(k, &plan->kernel);
}

void kernel_attend(struct ir *k, const struct plan_attend *plan) {
  note(k, &plan->kernel);
}

void kernel_pyramid(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->build);
}

void kernel_pyramid_top(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->top);
}

void kernel_walk(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->walk);
}

void kernel_cluster(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->cluster);
}

void kernel_scatter(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->scatter);
}

void kernel_leaf_score(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->leaf_score);
}

void kernel_pick(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->pick);
}

void kernel_flat(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->flat_scan);
}

void kernel_attend_blocks(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->attend_blocks);
}

void kernel_csr_count(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->csr_count);
}

void kernel_csr_scan(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->csr_scan);
}

void kernel_csr_fill(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->csr_fill);
}

void kernel_append(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->append);
}

void kernel_decode(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->decode_select);
}

void kernel_decode_attend(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->decode_attend);
}

void kernel_decode_merge(struct ir *k, const struct plan_pyramid *plan) {
  note(k, &plan->decode_merge);
}

static struct spec hybrid(void) {
  return (struct spec){
      .name = "hybrid",
      .shape = {.heads = 24, .kv_heads = 24, .head_dim = 128},
      .blocks = {.present = true, .query = 128, .key = 64},
      .route = {.kind = ROUTE_TOP_K,
                .term = TERM_LOG_COVARIANCE,
                .budget = BUDGET_DENSITY,
                .density = {125, 1000},
                .always_blocks = ALWAYS_LAST,
                .always = {{.kind = ALWAYS_RANGE, .begin = 0, .end = 512}},
                .n_always = 1},
      .attend = {.rest = TAIL_TAYLOR_HYBRID},
  };
}

static void runs(struct context *context, const struct spec *spec, const char *expected,
                 struct text *method) {
  struct arena arena;
  arena_init(&arena);
  struct plan *plan = plan_choose(&arena, spec, &target_sm90a, "");
  MlirModule module = method_build(context, plan, NULL);
  method_print(module, method);
  text_clear(&asked);
  method_lower(context, module, plan);
  CHECK(strcmp(asked.data, expected) == 0);
  struct text lowered;
  text_init(&lowered);
  mlirOperationPrint(mlirModuleGetOperation(module), text_of_mlir, &lowered);
  CHECK(!strstr(lowered.data, "pisa.input"));
  CHECK(strstr(lowered.data, plan->selects    ? "@pisa_attend_blocks"
                             : plan->prefills ? "@pisa_attend_edge"
                                              : "@pisa_decode_attend"));
  text_fini(&lowered);
  mlirModuleDestroy(module);
  arena_fini(&arena);
}

static struct spec pyramid(void) {
  return (struct spec){
      .name = "pyramid",
      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
      .pyramid = {.leaf = 64, .group = 2},
      .route = {.kind = ROUTE_PYRAMID,
                .score = SCORE_LSE,
                .reduce = REDUCE_MASS,
                .keep = 8,
                .decode_start_nodes = 128,
                .always_blocks = ALWAYS_FIRST | ALWAYS_PREVIOUS | ALWAYS_CURRENT},
      .phases = {.prefill = true, .decode = true},
  };
}

/* Which kernels there are, and in which order. */
static void selections(struct context *context, struct text *method) {
  struct spec spec = pyramid();
  text_clear(method);
  runs(context, &spec,
       "pisa_pyramid pisa_pyramid_top pisa_walk pisa_cluster pisa_scatter pisa_leaf_score "
       "pisa_pick pisa_csr_count pisa_csr_scan pisa_csr_fill pisa_attend_blocks pisa_append "
       "pisa_decode ",
       method);
  CHECK(strstr(method->data, "[\"tokens first 1\", \"previous\", \"current\"]"));
  CHECK(strstr(method->data, "start = \"root\"") && strstr(method->data, "at most 128 nodes"));
  CHECK(strstr(method->data, "R, slots, G"));
  spec.route.score = SCORE_MEAN;
  spec.phases.decode = false;
  spec.below.kind = BELOW_FLAT;
  spec.below.tokens = 4096;
  text_clear(method);
  runs(context, &spec,
       "pisa_pyramid pisa_pyramid_top pisa_flat pisa_walk pisa_csr_count pisa_csr_scan "
       "pisa_csr_fill pisa_attend_blocks ",
       method);
  CHECK(strstr(method->data, "below = 4096") && strstr(method->data, "\"fused\""));
  spec.route.kind = ROUTE_FLAT;
  spec.below.kind = BELOW_NEVER;
  runs(context, &spec,
       "pisa_pyramid pisa_pyramid_top pisa_flat pisa_csr_count pisa_csr_scan pisa_csr_fill "
       "pisa_attend_blocks ",
       method);
  spec.below.kind = BELOW_DENSE;
  runs(context, &spec,
       "pisa_pyramid pisa_pyramid_top pisa_flat pisa_csr_count pisa_csr_scan pisa_csr_fill "
       "pisa_attend_blocks pisa_dense_edge ",
       method);
  CHECK(strstr(method->data, "\"pisa.attend_below\""));
}

static void dense(struct context *context, struct text *method) {
  struct spec spec = {.name = "dense",
                      .shape = {.heads = 24, .kv_heads = 24, .head_dim = 128},
                      .blocks = {.query = 128, .key = 64},
                      .attend = {.all_exact = true}};
  runs(context, &spec, "pisa_attend pisa_attend_edge ", method);
  spec.shape.mask = MASK_CAUSAL;
  spec.phases.prefill = spec.phases.decode = true;
  text_clear(method);
  runs(context, &spec, "pisa_attend_edge pisa_decode_attend pisa_decode_merge ", method);
  spec.phases.prefill = false;
  text_clear(method);
  runs(context, &spec, "pisa_decode_attend pisa_decode_merge ", method);
  CHECK(strstr(method->data, "\"pisa.decode_attend_all\""));
  CHECK(!strstr(method->data, "\"pisa.attend_all\""));
}

int main(int argc, char **argv) {
  (void)argv;
  struct context context;
  context_init(&context);
  dialect_load(&context);
  text_init(&asked);
  struct text method;
  text_init(&method);

  struct spec spec = hybrid();
  runs(&context, &spec, "pisa_statistics pisa_route pisa_attend pisa_attend_edge ", &method);
  CHECK(strstr(method.data, "\"tokens last 1\", \"tokens 0..512\""));
  CHECK(strstr(method.data, "density 125/1000"));
  spec.attend.rest = TAIL_DROP;
  runs(&context, &spec, "pisa_statistics pisa_route pisa_attend pisa_attend_edge ", &method);
  spec = hybrid();
  spec.route.always_window = 2;
  spec.route.term = TERM_LOG_KEY_VARIANCE;
  spec.attend.mass_second_order = true;
  text_clear(&method);
  runs(&context, &spec, "pisa_statistics pisa_route pisa_attend pisa_attend_edge ", &method);
  CHECK(strstr(method.data, "\"tokens 0..512\", \"window 2\"]"));
  CHECK(strstr(method.data, "mass = \"second order\"") && strstr(method.data, "log key_variance"));
  /* variances, their sums, sums of H_j: all wanted; only pairs have shared entries */
  const char *none = strstr(method.data, "!pisa.none");
  CHECK(none && none > strstr(method.data, "\"pisa.route\""));
  spec = hybrid();
  spec.route.term = TERM_LOG_RESIDUAL;
  spec.route.budget = BUDGET_THRESHOLD;
  spec.route.threshold = (struct decimal){25, 10};
  text_clear(&method);
  runs(&context, &spec, "pisa_statistics pisa_residual pisa_route pisa_attend pisa_attend_edge ",
       &method);
  CHECK(strstr(method.data, "budget = \"threshold 25/10, variance diagonal\""));
  spec = hybrid();
  spec.blocks.query = 64;
  spec.lists = LISTS_UNION;
  spec.below.kind = BELOW_DENSE;
  spec.below.tokens = 1024;
  text_clear(&method);
  runs(&context, &spec,
       "pisa_statistics pisa_route pisa_attend pisa_attend_edge pisa_dense pisa_dense_edge ",
       &method);
  CHECK(strstr(method.data, "order = \"shared first\"") && strstr(method.data, "\"union\""));
  CHECK(strstr(method.data, "\"pisa.attend_below\"") && strstr(method.data, "tokens = 1024"));
  dense(&context, &method);
  selections(&context, &method);
  if (argc > 1)
    fputs(method.data, stdout);

  text_fini(&method);
  text_fini(&asked);
  context_fini(&context);
  return failures != 0;
}
