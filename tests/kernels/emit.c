/* emit: prints the PTX of the kernels that a plan asks for, or assembles it.

   emit ptx|assemble drop|taylor_0[_second]|taylor_1[_second]|taylor_hybrid[_second]|dense
                     mean|log_covariance|log_residual|log_key_variance 64|128
                     [bf16|fp16 64|96|128 GROUP [64|128]]

   _second counts the spread of a mean's keys. Behind the second word: _window lets blocks around
   the diagonal be forced, _threshold_diagonal and _threshold_full read what is above a limit,
   _union walks pairs of lists, _causal hides later keys (dense alone: the edge kernel). Numbers are
   the rows of a query block, head_dim, how many query heads share a key/value head and the keys of
   a block. In front of the PTX, "// ENTRY shared BYTES" says what each launch takes. `assemble`
   fails where ptxas reports spills of statistics or route, more of attend than its budget, other
   registers at entry than the plan says, or gives any warning; it exits 77 without ptxas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/emit/context.h"
#include "compiler/emit/nvptx.h"
#include "compiler/emit/passes.h"
#include "compiler/emit/ptxas.h"
#include "compiler/kernels/kernels.h"
#include "dsl/arena.h"

enum { SKIPPED = 77 };

enum { TAIL = 2, TERM, QUERY, TYPE, HEAD_DIM, GROUP, KEY, N_WORDS };

static enum spec_term term_of(const char *word) {
  return strncmp(word, "log_covariance", 14) == 0     ? TERM_LOG_COVARIANCE
         : strncmp(word, "log_residual", 12) == 0     ? TERM_LOG_RESIDUAL
         : strncmp(word, "log_key_variance", 16) == 0 ? TERM_LOG_KEY_VARIANCE
                                                      : TERM_NONE;
}

static struct spec spec_of(char **word, int n_words) {
  bool has_shape = n_words > TYPE;
  struct spec spec = {.name = "test", .target = TARGET_SM_90A};
  spec.shape.kv_heads = 2;
  spec.shape.heads = 2 * (has_shape ? atoi(word[GROUP]) : 1);
  spec.shape.head_dim = has_shape ? atoi(word[HEAD_DIM]) : 128;
  spec.shape.type = has_shape && strcmp(word[TYPE], "fp16") == 0 ? TYPE_FP16 : TYPE_BF16;
  spec.attend.all_exact = strcmp(word[TAIL], "dense") == 0;
  spec.attend.rest = strcmp(word[TAIL], "drop") == 0           ? TAIL_DROP
                     : strncmp(word[TAIL], "taylor_0", 8) == 0 ? TAIL_TAYLOR_0
                     : strncmp(word[TAIL], "taylor_1", 8) == 0 ? TAIL_TAYLOR_1
                                                               : TAIL_TAYLOR_HYBRID;
  spec.attend.mass_second_order = strstr(word[TAIL], "_second") != NULL;
  spec.blocks.present = true;
  spec.blocks.query = atoi(word[QUERY]);
  spec.blocks.key = n_words > KEY ? atoi(word[KEY]) : 64;
  spec.route.kind = spec.attend.all_exact ? ROUTE_NONE : ROUTE_TOP_K;
  spec.route.term = term_of(word[TERM]);
  spec.route.always_window = strstr(word[TERM], "_window") != NULL;
  spec.route.budget = strstr(word[TERM], "_threshold") ? BUDGET_THRESHOLD : BUDGET_DENSITY;
  spec.route.variance = strstr(word[TERM], "_full") ? VARIANCE_FULL : VARIANCE_DIAGONAL;
  spec.shape.mask = strstr(word[TERM], "_causal") ? MASK_CAUSAL : MASK_NONE;
  spec.half_tile = strstr(word[TERM], "_half") != NULL;
  spec.lists = strstr(word[TERM], "_union") ? LISTS_UNION : LISTS_SEPARATE;
  return spec;
}

static void print_shared(const struct plan_kernel *plan) {
  if (plan->entry) {
    printf("// %s shared %d\n", plan->entry, plan->smem_bytes);
  }
}

static void make_ptx(const struct plan *plan, struct text *ptx) {
  struct context context;
  context_init(&context);
  MlirModule module = mlirModuleCreateEmpty(mlirLocationUnknownGet(context.mlir));
  struct ir k;
  ir_init(&k, context.mlir, module);
  if (plan->routed) {
    kernel_statistics(&k, &plan->statistics);
    if (plan->wants_residual) {
      kernel_residual(&k, &plan->residual);
    }
    kernel_route(&k, &plan->route);
  }
  if (!plan->attend_edge.causal) {
    kernel_attend(&k, &plan->attend);
  }
  kernel_attend(&k, &plan->attend_edge);
  passes_run(&context, module);
  nvptx_emit(&context, module, plan->target->name, plan->target->ptx_version, NULL, ptx);
  mlirModuleDestroy(module);
  context_fini(&context);
}

static int wrong(const struct plan_kernel *plan, const struct ptxas_report *report) {
  const struct ptxas_kernel *k = plan->entry ? ptxas_kernel_find(report, plan->entry) : NULL;
  if (!k) { /* not wanted */
    return 0;
  }
  int spills = k->spill_stores + k->spill_loads, entry = plan->entry_registers;
  printf("%s: %d registers, %d bytes of spills\n", plan->entry, k->registers, spills);
  return spills > plan->spill_budget || (entry && k->registers != entry);
}

static int assemble(const struct plan *plan, const struct text *ptx, struct arena *arena) {
  struct ptxas ptxas = ptxas_find(arena, plan->target->ptx_version);
  if (!ptxas.path) {
    printf("not assembled: %s\n", ptxas.why_not);
    return SKIPPED;
  }
  struct text cubin, why;
  text_init(&cubin);
  text_init(&why);
  struct ptxas_report report = {0};
  bool ok = ptxas_assemble(&ptxas, plan->target->name, ptx, arena, &cubin, &report, &why);
  printf("%s", ok ? "" : why.data);
  for (int i = 0; i < report.n_warnings; i++) {
    printf("%s\n", report.warnings[i]);
  }
  int failed = !ok + report.n_warnings + wrong(&plan->statistics.kernel, &report) +
               wrong(&plan->residual.kernel, &report) + wrong(&plan->route.kernel, &report) +
               (plan->attend_edge.causal ? 0 : wrong(&plan->attend.kernel, &report)) +
               wrong(&plan->attend_edge.kernel, &report);
  text_fini(&cubin);
  text_fini(&why);
  return failed != 0;
}

int main(int argc, char **argv) {
  if (argc != TYPE && argc != KEY && argc != N_WORDS) {
    fprintf(stderr, "usage: emit ptx|assemble TAIL TERM QUERY [TYPE HEAD_DIM GROUP [KEY]]\n");
    return 1;
  }
  struct spec spec = spec_of(argv, argc);
  struct arena arena;
  arena_init(&arena);
  const struct plan *plan = plan_choose(&arena, &spec, &target_sm90a, "");
  struct text ptx;
  text_init(&ptx);
  make_ptx(plan, &ptx);
  int status = 0;
  if (strcmp(argv[1], "assemble") == 0) {
    status = assemble(plan, &ptx, &arena);
  } else {
    print_shared(&plan->statistics.kernel);
    print_shared(&plan->residual.kernel);
    print_shared(&plan->attend.kernel);
    print_shared(&plan->attend_edge.kernel);
    fwrite(ptx.data, 1, ptx.size, stdout);
  }
  text_fini(&ptx);
  arena_fini(&arena);
  return status;
}
