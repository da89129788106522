/* select_emit: prints the PTX of a kernel of block selection, or assembles it.

   select_emit ptx|assemble KERNEL [KEY=VALUE ...]

   KERNEL is a name of the table below, that of its field in struct plan_pyramid but for pyramid
   and flat. Keys, with what holds where they are not given:
       type=bf16|fp16 d=64 heads=16 (G) causal=1 leaf=64 children=2 keep=8 flat=0 start=0
       decode_start=START score=lse|mean|half_variance reduce=sum|max|lse|mass|max_mass previous=1
       current=1 first=TOKENS last=TOKENS range=BEGIN:END page=0 clustered=1 window=0
       depths=0 (levels a step of decode scores) dense=0 (decode_attend and decode_merge of
       attend all exact)
   first, last and range may come more than once, four in all; none is forced without them. window:
   leaves that csr_count and csr_fill count at once, where not 0 in place of the plan's. In front of
   the PTX, "// ENTRY shared BYTES threads THREADS" says how it is launched. `assemble` fails where
   ptxas reports more spills or other registers at entry than the plan says, or gives any warning;
   it exits 77 without ptxas. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/emit/context.h"
#include "compiler/emit/nvptx.h"
#include "compiler/emit/passes.h"
#include "compiler/emit/ptxas.h"
#include "compiler/kernels/kernels.h"
#include "compiler/plan/decode.h"
#include "dsl/arena.h"

enum { SKIPPED = 77 };

struct choice { /* KERNEL */
  const char *name;
  void (*emit)(struct ir *k, const struct plan_pyramid *plan);
  size_t launch; /* where its plan_kernel is */
};

static const struct choice choices[] = {
#define AT(field) offsetof(struct plan_pyramid, field)
    {"pyramid", kernel_pyramid, AT(build)},
    {"pyramid_top", kernel_pyramid_top, AT(top)},
    {"walk", kernel_walk, AT(walk)},
    {"cluster", kernel_cluster, AT(cluster)},
    {"scatter", kernel_scatter, AT(scatter)},
    {"leaf_score", kernel_leaf_score, AT(leaf_score)},
    {"pick", kernel_pick, AT(pick)},
    {"flat", kernel_flat, AT(flat_scan)},
    {"csr_count", kernel_csr_count, AT(csr_count)},
    {"csr_scan", kernel_csr_scan, AT(csr_scan)},
    {"csr_fill", kernel_csr_fill, AT(csr_fill)},
    {"attend_blocks", kernel_attend_blocks, AT(attend_blocks)},
    {"append", kernel_append, AT(append)},
    {"decode", kernel_decode, AT(decode_select)},
    {"decode_attend", kernel_decode_attend, AT(decode_attend)},
    {"decode_merge", kernel_decode_merge, AT(decode_merge)},
};

static int fail(const char *what, const char *word) {
  fprintf(stderr, "select_emit: %s %s\n", what, word);
  exit(1);
}

static const struct choice *choice_of(const char *name) {
  const struct choice *found = NULL;
  for (unsigned i = 0; i < sizeof choices / sizeof *choices; i++)
    if (strcmp(choices[i].name, name) == 0)
      found = &choices[i];
  if (!found)
    fail("no kernel", name);
  return found;
}

/* ---- KEY=VALUE ---- */

/* The place of |value| in |names|, which ends with NULL. */
static int place_of(const char *value, const char *const *names) {
  for (int i = 0; names[i]; i++)
    if (strcmp(names[i], value) == 0)
      return i;
  return fail("no value", value);
}

static void add_always(struct spec *spec, enum always_kind kind, const char *value) {
  const char *colon = strchr(value, ':');
  struct always_tokens tokens = {.kind = kind, .end = atoll(colon ? colon + 1 : value)};
  tokens.begin = colon ? atoll(value) : 0;
  if (spec->route.n_always == SPEC_MAX_ALWAYS)
    fail("too many forced ranges:", value);
  spec->route.always[spec->route.n_always++] = tokens;
}

static void set_flag(unsigned *flags, unsigned flag, const char *value) {
  *flags = atoi(value) ? *flags | flag : *flags & ~flag;
}

static void set_number(const char *key, const char *value, struct spec *spec) {
  const struct {
    const char *key;
    int *to;
  } numbers[] = {
      {"d", &spec->shape.head_dim},  {"heads", &spec->shape.heads},
      {"leaf", &spec->pyramid.leaf}, {"children", &spec->pyramid.group},
      {"keep", &spec->route.keep},   {"start", &spec->route.start_nodes},
      {"page", &spec->pages.size},
  };
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strcmp(numbers[i].key, key) == 0) {
      *numbers[i].to = atoi(value);
      return;
    }
  fail("no key", key);
}

static void set_key(const char *key, const char *value, struct spec *spec, int *decode_start) {
  static const char *const types[] = {"bf16", "fp16", NULL};
  static const char *const scores[] = {"mean", "half_variance", "lse", NULL};
  static const char *const reduces[] = {"none", "sum", "max", "lse", "mass", "max_mass", NULL};
  if (strcmp(key, "type") == 0)
    spec->shape.type = (enum spec_type)place_of(value, types);
  else if (strcmp(key, "score") == 0)
    spec->route.score = (enum spec_score)place_of(value, scores);
  else if (strcmp(key, "reduce") == 0)
    spec->route.reduce = (enum spec_reduce)place_of(value, reduces);
  else if (strcmp(key, "causal") == 0)
    spec->shape.mask = atoi(value) ? MASK_CAUSAL : MASK_NONE;
  else if (strcmp(key, "flat") == 0)
    spec->route.kind = atoi(value) ? ROUTE_FLAT : ROUTE_PYRAMID;
  else if (strcmp(key, "clustered") == 0)
    spec->leaf_stage = atoi(value) ? LEAF_CLUSTERED : LEAF_FUSED;
  else if (strcmp(key, "previous") == 0)
    set_flag(&spec->route.always_blocks, ALWAYS_PREVIOUS, value);
  else if (strcmp(key, "current") == 0)
    set_flag(&spec->route.always_blocks, ALWAYS_CURRENT, value);
  else if (strcmp(key, "first") == 0)
    add_always(spec, ALWAYS_TOKENS_FIRST, value);
  else if (strcmp(key, "last") == 0)
    add_always(spec, ALWAYS_TOKENS_LAST, value);
  else if (strcmp(key, "range") == 0)
    add_always(spec, ALWAYS_RANGE, value);
  else if (strcmp(key, "decode_start") == 0)
    *decode_start = atoi(value);
  else
    set_number(key, value, spec);
}

static struct plan_pyramid plan_of(int n, char **words) {
  struct spec spec = {.name = "test", .target = TARGET_SM_90A};
  spec.shape.heads = 16;
  spec.shape.kv_heads = 1;
  spec.shape.head_dim = 64;
  spec.shape.mask = MASK_CAUSAL;
  spec.pyramid.present = true;
  spec.pyramid.leaf = 64;
  spec.pyramid.group = 2;
  spec.route.kind = ROUTE_PYRAMID;
  spec.route.score = SCORE_LSE;
  spec.route.reduce = REDUCE_SUM;
  spec.route.keep = 8;
  spec.leaf_stage = LEAF_CLUSTERED;
  spec.route.always_blocks = ALWAYS_PREVIOUS | ALWAYS_CURRENT;
  spec.phases.present = spec.phases.prefill = spec.phases.decode = true;
  int decode_start = -1, window = 0, depths = 0, dense = 0;
  for (int i = 0; i < n; i++) {
    char *equals = strchr(words[i], '=');
    if (!equals)
      fail("no = in", words[i]);
    *equals = '\0';
    if (strcmp(words[i], "window") == 0)
      window = atoi(equals + 1);
    else if (strcmp(words[i], "depths") == 0)
      depths = atoi(equals + 1);
    else if (strcmp(words[i], "dense") == 0)
      dense = atoi(equals + 1);
    else
      set_key(words[i], equals + 1, &spec, &decode_start);
  }
  spec.pages.present = spec.pages.size > 0;
  if (decode_start >= 0)
    spec.route.decode_start_nodes = decode_start > 0 ? decode_start : -1; /* -1: root */
  spec.blocks.key = spec.pyramid.leaf;
  if (dense)
    return plan_decode_dense(&spec);
  struct plan_pyramid plan = plan_pyramid_choose(&spec, &target_sm90a);
  plan.decode_depths = depths;
  plan.decode_select.smem_bytes = decode_bytes(&plan);
  if (window > 0) {
    plan.csr_count.smem_bytes = 4 * window;
    plan.csr_fill.smem_bytes = 8 * window;
  }
  return plan;
}

/* ---- the kernel ---- */

static void make_ptx(const struct choice *choice, const struct plan_pyramid *plan,
                     struct text *ptx) {
  struct context context;
  context_init(&context);
  MlirModule module = mlirModuleCreateEmpty(mlirLocationUnknownGet(context.mlir));
  struct ir k;
  ir_init(&k, context.mlir, module);
  choice->emit(&k, plan);
  passes_run(&context, module);
  nvptx_emit(&context, module, target_sm90a.name, target_sm90a.ptx_version, NULL, ptx);
  mlirModuleDestroy(module);
  context_fini(&context);
}

static int wrong(const struct plan_kernel *launch, const struct ptxas_report *report) {
  const struct ptxas_kernel *k = ptxas_kernel_find(report, launch->entry);
  if (!k) {
    printf("%s: not assembled\n", launch->entry);
    return 1;
  }
  int spills = k->spill_stores + k->spill_loads, entry = launch->entry_registers;
  printf("%s: %d registers, %d bytes of spills\n", launch->entry, k->registers, spills);
  return spills > launch->spill_budget || (entry && k->registers != entry);
}

static int assemble(const struct plan_kernel *launch, const struct text *ptx, struct arena *arena) {
  struct ptxas ptxas = ptxas_find(arena, target_sm90a.ptx_version);
  if (!ptxas.path) {
    printf("not assembled: %s\n", ptxas.why_not);
    return SKIPPED;
  }
  struct text cubin, why;
  text_init(&cubin);
  text_init(&why);
  struct ptxas_report report = {0};
  bool ok = ptxas_assemble(&ptxas, target_sm90a.name, ptx, arena, &cubin, &report, &why);
  printf("%s", ok ? "" : why.data);
  for (int i = 0; i < report.n_warnings; i++)
    printf("%s\n", report.warnings[i]);
  int failed = !ok + report.n_warnings + wrong(launch, &report);
  text_fini(&cubin);
  text_fini(&why);
  return failed != 0;
}

int main(int argc, char **argv) {
  if (argc < 3)
    return fail("usage: select_emit ptx|assemble", "KERNEL [KEY=VALUE ...]");
  const struct choice *choice = choice_of(argv[2]);
  const struct plan_pyramid plan = plan_of(argc - 3, argv + 3);
  const struct plan_kernel *launch = (const void *)((const char *)&plan + choice->launch);
  struct arena arena;
  arena_init(&arena);
  struct text ptx;
  text_init(&ptx);
  make_ptx(choice, &plan, &ptx);
  int status = 0;
  if (strcmp(argv[1], "assemble") == 0) {
    status = assemble(launch, &ptx, &arena);
  } else {
    printf("// %s shared %d threads %d\n", launch->entry, launch->smem_bytes, launch->threads);
    fwrite(ptx.data, 1, ptx.size, stdout);
  }
  text_fini(&ptx);
  arena_fini(&arena);
  return status;
}
