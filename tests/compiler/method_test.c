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
  CHECK(!strstr(lowered.data, "pisa.input") && strstr(lowered.data, "@pisa_attend_edge"));
  text_fini(&lowered);
  mlirModuleDestroy(module);
  arena_fini(&arena);
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
  struct spec dense = {.name = "dense",
                       .shape = {.heads = 24, .kv_heads = 24, .head_dim = 128},
                       .blocks = {.query = 128, .key = 64},
                       .attend = {.all_exact = true}};
  runs(&context, &dense, "pisa_attend pisa_attend_edge ", &method);
  if (argc > 1)
    fputs(method.data, stdout);

  text_fini(&method);
  text_fini(&asked);
  context_fini(&context);
  return failures != 0;
}
