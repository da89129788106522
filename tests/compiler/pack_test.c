/* pack_test.c: the bytes of a pack, for code that is only text: shared parts, digests, marks, the
   lines that a variant repeats. The list of validated digests is this file's own. */
#include <stdio.h>
#include <string.h>

#include "compiler/pack/pack.h"
#include "compiler/pack/validation.h"
#include "dsl/arena.h"
#include "runtime/abi.def"
#include "runtime/sha256.h"

#define CHECK(condition)                                                                           \
  ((condition)                                                                                     \
       ? (void)0                                                                                   \
       : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), failures++, (void)0))
static int failures;

static char digest_a[PISA_SHA256_HEX + 1], digest_b[PISA_SHA256_HEX + 1];
const char *const validated_digests[] = {digest_a, digest_b, NULL};
const int n_validated_digests = 2;

static struct code code_of(const char *ptx, const char *cubin) {
  struct code code = {.report = {0}};
  text_init(&code.ptx);
  text_init(&code.cubin);
  text_puts(&code.ptx, ptx);
  text_puts(&code.cubin, cubin);
  return code;
}

static struct spec spec_of(enum spec_budget budget) {
  return (struct spec){
      .name = "two",
      .shape = {.heads = 2, .kv_heads = 2, .head_dim = 128},
      .blocks = {.query = 128, .key = 64},
      .route = {.kind = ROUTE_TOP_K, .budget = budget, .keep = 8, .density = {15, 100}},
      .attend = {.rest = TAIL_TAYLOR_0},
  };
}

/* Where the |n|th part line of |key| points to, and how many bytes it says. */
static const char *part(const struct text *pack, const char *key, int n, size_t *size) {
  const char *line = pack->data, *end = strstr(pack->data, "\nend\n") + strlen("\nend\n");
  for (int i = 0; i <= n; i++)
    line = strstr(line + 1, key);
  size_t offset = 0;
  CHECK(sscanf(line + strlen(key), " 0 %zu %zu", &offset, size) == 2);
  return end + offset;
}

static bool part_is(const struct text *pack, const char *key, int n, const char *expected) {
  size_t size;
  const char *bytes = part(pack, key, n, &size);
  return size == strlen(expected) && memcmp(bytes, expected, size) == 0;
}

static void writes(struct arena *arena) {
  struct spec by_density = spec_of(BUDGET_DENSITY), by_keep = spec_of(BUDGET_KEEP);
  struct plan *plans[] = {plan_choose(arena, &by_density, &target_sm90a, "density=0.15"),
                          plan_choose(arena, &by_keep, &target_sm90a, "keep=8"),
                          plan_choose(arena, &by_density, &target_sm90a, "density=0.15 other")};
  struct code a = code_of("ptx of a", "cubin"), b = code_of("ptx of b!", "");
  const struct code *code[] = {&a, &a, &b};
  struct variants variants = {.plans = plans, .n = 3};
  struct pack pack = {.spec = &by_density, .variants = &variants, .code = code, .compiler = "test"};
  struct text out;
  text_init(&out);
  pack_write(&pack, &out);

  size_t manifest_size = 0, size;
  char digest[PISA_SHA256_HEX + 1], expected[PISA_SHA256_HEX + 1];
  CHECK(sscanf(out.data, "PISA-PACK 3 %zu %64s", &manifest_size, digest) == 2);
  const char *manifest = strchr(out.data, '\n') + 1;
  pisa_sha256_hex(manifest, manifest_size, expected);
  CHECK(strcmp(digest, expected) == 0);
  CHECK(out.data + out.size == manifest + manifest_size + strlen("ptx of acubinptx of b!"));

  CHECK(part_is(&out, "\npart ptx", 0, "ptx of a"));
  CHECK(part(&out, "\npart ptx", 0, &size) == part(&out, "\npart ptx", 1, &size));
  CHECK(part_is(&out, "\npart cubin", 0, "cubin"));
  CHECK(part_is(&out, "\npart ptx", 2, "ptx of b!"));
  CHECK(strstr(out.data, "density=15/100 keep=0 threshold=0/1 variance=diagonal\n"
                         "attend selected=exact rest=taylor_0 mass=zeroth_order\n"));
  CHECK(strstr(out.data, "variant 1 keep=8\nroute top_k score=mean term=none budget=keep "
                         "density=0/1 keep=8 threshold=0/1 variance=diagonal\npart ptx"));
  CHECK(strstr(out.data, "\nvalidated no\n"));
  text_fini(&out);
  code_fini(&a);
  code_fini(&b);
}

/* The words of ranking terms, masses and windows, and that a variant repeats the lines it changes.
 */
static void words(struct arena *arena) {
  struct spec one = spec_of(BUDGET_KEEP), two = spec_of(BUDGET_KEEP), three = spec_of(BUDGET_KEEP);
  one.route.always_window = 2;
  one.route.always_blocks = ALWAYS_FIRST;
  two.route.term = TERM_LOG_KEY_VARIANCE;
  two.route.always_blocks = ALWAYS_DIAGONAL;
  two.attend.mass_second_order = true;
  two.shape.type = TYPE_FP16;
  three.attend.rest = TAIL_DROP;
  struct plan *plans[] = {plan_choose(arena, &one, &target_sm90a, ""),
                          plan_choose(arena, &two, &target_sm90a, "two"),
                          plan_choose(arena, &three, &target_sm90a, "three")};
  struct code code = code_of("ptx", "");
  const struct code *codes[] = {&code, &code, &code};
  struct variants variants = {.plans = plans, .n = 3};
  struct pack pack = {.spec = &one, .variants = &variants, .code = codes, .compiler = "test"};
  struct text out;
  text_init(&out);
  pack_write(&pack, &out);
  CHECK(strstr(out.data, "keep=8 threshold=0/1 variance=diagonal\nalways first=1\nalways "
                         "window=2\nattend selected=exact "
                         "rest=taylor_0 mass=zeroth_order\n"));
  CHECK(strstr(
      out.data,
      "variant 1 two\nshape heads=2 kv_heads=2 head_dim=128 type=fp16 mask=none\n"
      "route top_k score=mean term=log_key_variance budget=keep "
      "density=0/1 keep=8 threshold=0/1 variance=diagonal\nalways window=0\nattend selected=exact "
      "rest=taylor_0 mass=second_order\npart"));
  CHECK(strstr(out.data, "variant 2 three\nalways none\nattend selected=exact rest=drop\npart"));
  text_fini(&out);
  code_fini(&code);
}

/* The lines of block selection, and those that a variant repeats. */
static struct spec selection(void) {
  return (struct spec){
      .name = "one",
      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
      .pyramid = {.leaf = 64, .group = 2},
      .route = {.kind = ROUTE_PYRAMID,
                .score = SCORE_LSE,
                .reduce = REDUCE_MAX_MASS,
                .keep = 8,
                .always_blocks = ALWAYS_FIRST | ALWAYS_PREVIOUS | ALWAYS_CURRENT},
      .below = {.kind = BELOW_FLAT, .tokens = 4096},
      .phases = {.prefill = true, .decode = true, .query_tile = 4},
      .pages = {.present = true, .size = 32},
  };
}

/* All kernels of a variant that walks, in this order. */
static void lists_kernels(struct arena *arena, const char *manifest) {
  static const char *const kernels[] = {"pyramid",       "pyramid_top", "walk",  "cluster",
                                        "scatter",       "leaf_score",  "pick",  "flat",
                                        "attend_blocks", "append",      "decode"};
  const char *at = manifest;
  for (unsigned i = 0; at && i < sizeof kernels / sizeof *kernels; i++)
    at = strstr(at,
                arena_printf(arena, "\nkernel %s entry=pisa_%s threads=", kernels[i], kernels[i]));
  CHECK(at && !strstr(manifest, "smem=dynamic"));
}

static void selections(struct arena *arena) {
  struct spec one = selection(), two = one, three = one;
  two.pyramid.leaf = 128;
  two.route.score = SCORE_HALF_VARIANCE;
  two.route.reduce = REDUCE_SUM;
  two.route.decode_start_nodes = 128;
  three.route.always_blocks = ALWAYS_CURRENT;
  struct plan *plans[] = {plan_choose(arena, &one, &target_sm90a, ""),
                          plan_choose(arena, &two, &target_sm90a, "two"),
                          plan_choose(arena, &three, &target_sm90a, "three")};
  struct code code = code_of("ptx", "");
  const struct code *codes[] = {&code, &code, &code};
  struct variants variants = {.plans = plans, .n = 3};
  struct pack pack = {.spec = &one, .variants = &variants, .code = codes, .compiler = "test"};
  struct text out;
  text_init(&out);
  pack_write(&pack, &out);
  CHECK(strstr(out.data,
               "\nmethod pyramid\n"
               "shape heads=32 kv_heads=2 head_dim=64 type=bf16 mask=causal\n"
               "pyramid leaf=64 group=2 page=32\n"
               "route pyramid score=lse reduce=max_mass keep=8 start=0 leaf_stage=clustered "
               "query_tile=4\n"
               "always first=1\nalways previous\nalways current\n"
               "attend selected=exact rest=drop\n"
               "phases prefill decode\n"
               "below tokens=4096 use=flat\nvalidated no\nvariants 3\n"));
  CHECK(strstr(out.data, "variant 1 two\npyramid leaf=128 group=2 page=32\n"
                         "route pyramid score=half_variance reduce=sum keep=8 start=0 "
                         "leaf_stage=fused query_tile=4 decode_start=128\npart ptx"));
  CHECK(strstr(out.data, "variant 2 three\nalways current\npart ptx"));
  lists_kernels(arena, out.data);
  text_fini(&out);
  code_fini(&code);
}

static void write_one(struct arena *arena, const struct spec *spec, struct text *out) {
  struct plan *plan = plan_choose(arena, spec, &target_sm90a, "");
  struct code code = code_of("ptx", "");
  const struct code *codes[] = {&code};
  struct variants variants = {.plans = &plan, .n = 1};
  struct pack pack = {.spec = spec, .variants = &variants, .code = codes, .compiler = "test"};
  text_clear(out);
  pack_write(&pack, out);
  code_fini(&code);
}

/* Phases and pages of dense packs are lines of packs with phase decode alone. */
static void dense(struct arena *arena) {
  struct spec spec = {.name = "dense",
                      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
                      .blocks = {.query = 128, .key = 64},
                      .attend = {.all_exact = true},
                      .phases = {.prefill = true}};
  struct text out;
  text_init(&out);
  write_one(arena, &spec, &out);
  CHECK(strstr(out.data, "route none\nattend all=exact\nvalidated no\n"));
  CHECK(strstr(out.data, "kernel attend_edge") && !strstr(out.data, "kernel decode"));
  spec.phases.decode = true;
  write_one(arena, &spec, &out);
  CHECK(strstr(out.data, "attend all=exact\nphases prefill decode\nvalidated no\n"));
  CHECK(strstr(out.data, "kernel attend_edge") && strstr(out.data, "\nkernel decode_attend entry="
                                                                   "pisa_decode_attend threads="));
  CHECK(strstr(out.data, "\nkernel decode_merge ") && !strstr(out.data, "kernel append"));
  spec.phases.prefill = false;
  spec.pages.present = true;
  spec.pages.size = 16;
  write_one(arena, &spec, &out);
  CHECK(strstr(out.data, "attend all=exact\nphases decode\npages size=16\nvalidated no\n"));
  CHECK(!strstr(out.data, "kernel attend"));
  text_fini(&out);
}

/* `below N tokens use dense` of block selection: its kernel is the last. */
static void dense_below(struct arena *arena) {
  struct spec spec = {
      .name = "short",
      .shape = {.heads = 32, .kv_heads = 2, .head_dim = 64, .mask = MASK_CAUSAL},
      .pyramid = {.leaf = 64, .group = 2},
      .route = {.kind = ROUTE_FLAT, .keep = 8, .always_blocks = ALWAYS_CURRENT},
      .below = {.kind = BELOW_DENSE, .tokens = 2048},
      .phases = {.prefill = true, .query_tile = 4},
  };
  struct text out;
  text_init(&out);
  write_one(arena, &spec, &out);
  CHECK(strstr(out.data, "phases prefill\nbelow tokens=2048 use=dense\nvalidated no\n"));
  const char *last = strstr(out.data, "\nkernel attend_blocks ");
  CHECK(last && strstr(last, "\nkernel dense_edge entry=pisa_dense_edge threads=384 "));
  CHECK(!strstr(out.data, "kernel dense "));
  text_fini(&out);
}

/* Thresholds, pairs, and the kernels that only some methods have. */
static void all_kernels(struct arena *arena) {
  struct spec one = spec_of(BUDGET_THRESHOLD), two = spec_of(BUDGET_KEEP);
  one.route.threshold = (struct decimal){25, 10};
  one.route.variance = VARIANCE_FULL;
  one.route.term = TERM_LOG_RESIDUAL;
  one.attend.rest = TAIL_TAYLOR_1;
  one.below.kind = BELOW_DENSE;
  one.below.tokens = 2048;
  two.blocks.query = 64;
  two.lists = LISTS_UNION;
  two.below = one.below;
  struct plan *plans[] = {plan_choose(arena, &one, &target_sm90a, ""),
                          plan_choose(arena, &two, &target_sm90a, "two")};
  struct code code = code_of("ptx", "");
  const struct code *codes[] = {&code, &code};
  struct variants variants = {.plans = plans, .n = 2};
  struct pack pack = {.spec = &one, .variants = &variants, .code = codes, .compiler = "test"};
  struct text out;
  text_init(&out);
  pack_write(&pack, &out);
  CHECK(strstr(out.data, "blocks query=128 key=64 lists=separate\nroute top_k score=mean "
                         "term=log_residual budget=threshold density=0/1 keep=0 threshold=25/10 "
                         "variance=full\nattend selected=exact rest=taylor_1 mass=zeroth_order\n"
                         "below tokens=2048 use=dense\nvalidated no\n"));
  CHECK(strstr(out.data, "variant 1 two\nblocks query=64 key=64 lists=union\nroute"));
  const char *at = out.data;
  static const char *const kernels[] = {"statistics",  "residual", "route",     "attend",
                                        "attend_edge", "dense",    "dense_edge"};
  for (int i = 0; at && i < 7; i++) {
    char line[64];
    snprintf(line, sizeof line, "\nkernel %s entry=pisa_%s ", kernels[i], kernels[i]);
    at = strstr(at, line);
  }
  CHECK(at && at < strstr(out.data, "variant 1"));
  CHECK(!strstr(strstr(out.data, "variant 1"), "kernel residual"));
  CHECK(!strstr(strstr(out.data, "variant 1"), "below"));
  CHECK(plans[0]->dense.tile_q == PISA_DENSE_QUERY);
  text_fini(&out);
  code_fini(&code);
}

/* Everything that decides code is in the text that decides whether two variants share it. */
static void tells_code_apart(struct arena *arena) {
  struct spec specs[] = {spec_of(BUDGET_KEEP),     spec_of(BUDGET_KEEP), spec_of(BUDGET_KEEP),
                         spec_of(BUDGET_KEEP),     spec_of(BUDGET_KEEP), spec_of(BUDGET_KEEP),
                         spec_of(BUDGET_KEEP),     spec_of(BUDGET_KEEP), spec_of(BUDGET_KEEP),
                         spec_of(BUDGET_KEEP),     spec_of(BUDGET_KEEP), spec_of(BUDGET_THRESHOLD),
                         spec_of(BUDGET_THRESHOLD)};
  enum { N = sizeof specs / sizeof *specs };
  specs[1].attend.mass_second_order = true;
  specs[2].route.term = TERM_LOG_KEY_VARIANCE;
  specs[3].route.always_window = 1;
  specs[4].blocks.key = 128;
  specs[5].blocks.query = 64;
  specs[6].blocks.query = 64;
  specs[6].lists = LISTS_UNION;
  specs[7].half_tile = true;
  specs[8].route.term = TERM_LOG_RESIDUAL;
  specs[9].attend.rest = TAIL_TAYLOR_1;
  specs[10].below.kind = BELOW_DENSE;
  specs[12].route.variance = VARIANCE_FULL;
  struct text text[N];
  for (int i = 0; i < N; i++) {
    text_init(&text[i]);
    plan_print_kernels(plan_choose(arena, &specs[i], &target_sm90a, ""), &text[i]);
    for (int j = 0; j < i; j++)
      CHECK(strcmp(text[i].data, text[j].data) != 0);
  }
  for (int i = 0; i < N; i++)
    text_fini(&text[i]);
}

static void marks(struct arena *arena) {
  struct spec spec = spec_of(BUDGET_KEEP);
  struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  struct variants variants = {.plans = &plan, .n = 1};
  struct code good = code_of("good ptx", "good cubin"), half = code_of("good ptx", "other cubin");
  const struct code *code = &good;
  pisa_sha256_hex("good ptx", 8, digest_a);
  pisa_sha256_hex("good cubin", 10, digest_b);
  if (strcmp(digest_a, digest_b) > 0) {
    char swap[sizeof digest_a];
    memcpy(swap, digest_a, sizeof swap);
    memcpy(digest_a, digest_b, sizeof swap);
    memcpy(digest_b, swap, sizeof swap);
  }
  struct pack pack = {.spec = &spec, .variants = &variants, .code = &code, .compiler = "test"};
  CHECK(pack_is_validated(&pack));
  code = &half;
  CHECK(!pack_is_validated(&pack));
  code_fini(&good);
  code_fini(&half);
}

static void holds_to_the_plan(struct arena *arena) {
  struct spec spec = spec_of(BUDGET_KEEP);
  struct plan *plan = plan_choose(arena, &spec, &target_sm90a, "");
  struct ptxas_kernel kernels[] = {{.entry = "pisa_statistics", .registers = 168},
                                   {.entry = "pisa_route", .registers = 77},
                                   {.entry = "pisa_attend", .registers = 168},
                                   {.entry = "pisa_attend_edge", .registers = 168}};
  struct ptxas_report report = {.kernels = kernels, .n_kernels = 4};
  struct text why;
  text_init(&why);
  CHECK(code_check(plan, &report, &why));
  kernels[0].registers = 128;
  kernels[1].spill_loads = 4;
  kernels[2].stack = 64;
  report.n_kernels = 3;
  report.warnings = (const char *[]){"ptxas info : (C7510) Potential Performance Loss"};
  report.n_warnings = 1;
  CHECK(!code_check(plan, &report, &why));
  CHECK(strstr(why.data, "pisa_statistics: 128 registers at entry, the plan needs 168"));
  CHECK(strstr(why.data, "pisa_route: 4 bytes of spills, the plan allows 0"));
  CHECK(strstr(why.data, "pisa_attend: 64 bytes of stack"));
  CHECK(strstr(why.data, "pisa_attend_edge: ptxas did not report it"));
  CHECK(strstr(why.data, "C7510"));
  text_fini(&why);
}

int main(void) {
  struct arena arena;
  arena_init(&arena);
  writes(&arena);
  words(&arena);
  selections(&arena);
  dense(&arena);
  dense_below(&arena);
  all_kernels(&arena);
  tells_code_apart(&arena);
  marks(&arena);
  holds_to_the_plan(&arena);
  arena_fini(&arena);
  return failures != 0;
}
