/* make_pack.c: writes the sample pack of tests/runtime with a method and a shape of choice; its
   code is for the model driver alone, which reads from it what a compiler would compile in. usage:
   make_pack METHOD FILE, METHOD one of the names below */
#include <stdio.h>
#include <string.h>

#include "tests/runtime/sample_pack.h"

#define ROUTE(term, budget) "top_k score=mean term=" term " budget=" budget
#define EIGHTH "density density=125/1000 keep=0 threshold=0/1 variance=diagonal"
#define ABOVE(tau, variance) "threshold density=0/1 keep=0 threshold=" tau " variance=" variance

#define MEAN ROUTE("none", EIGHTH)
#define KEY_VARIANCE ROUTE("log_key_variance", EIGHTH)
#define RESIDUAL ROUTE("log_residual", EIGHTH)
#define ATTEND(tail, mass) "selected=exact rest=" tail " mass=" mass
#define SECOND_ORDER(tail) ATTEND(tail, "second_order")

#define SHAPED(text) .shape = text " mask=none", .code = text "\n"
#define GROUPED SHAPED("heads=4 kv_heads=2 head_dim=96 type=bf16")
#define HALF SHAPED("heads=3 kv_heads=3 head_dim=128 type=fp16")
#define SMALL_SHAPE "heads=4 kv_heads=1 head_dim=64 type=fp16"
#define SMALL SHAPED(SMALL_SHAPE)

/* The code has what a compiler would compile in: words of the manifest that the driver reads. */
#define BLOCKED(text, more) .blocks = text " lists=separate", .code = text more "\n"
#define COARSE BLOCKED("query=128 key=128", " term=log_key_variance")
#define NARROW(more) BLOCKED("query=64 key=64", more)
#define PAIRED .blocks = "query=64 key=64 lists=union", .code = "query=64 key=64 lists=union\n"
#define SMALL_BLOCKED                                                                              \
  .shape = SMALL_SHAPE " mask=none", .blocks = "query=64 key=64 lists=separate",                   \
  .code = SMALL_SHAPE " query=64 key=64 term=log_key_variance\n"
#define GROUPED_PAIRED                                                                             \
  .shape = "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none",                                   \
  .blocks = "query=64 key=64 lists=union",                                                         \
  .code = "heads=4 kv_heads=2 head_dim=64 type=bf16 query=64 key=64 lists=union\n"

#define SELECT(heads, mask_and_type, sizes, route)                                                 \
  .shape = heads " " mask_and_type, .pyramid = sizes, .select = route,                             \
  .code = heads " " mask_and_type " " sizes " " route "\n"
#define WORDS(heads, more) .shape = heads " " more, .code = heads " " more "\n"
#define CAUSAL(type) "type=" type " mask=causal"
#define WALK(score, reduce, keep, stage)                                                           \
  "pyramid score=" score " reduce=" reduce " keep=" keep " start=0 leaf_stage=" stage              \
  " query_tile=4"
#define OPEN_SHAPE "heads=4 kv_heads=2 head_dim=64 type=bf16 mask=none"
#define OPEN_SIZES "leaf=32 group=2 page=0"
#define OPEN_ROUTE WALK("lse", "sum", "5", "clustered")
#define SMALL_HEADS "heads=4 kv_heads=2 head_dim=64"

static const struct {
  const char *name;
  struct sample_spec spec;
} specs[] = {
    {"walk",
     {SELECT(SMALL_HEADS, CAUSAL("bf16"), "leaf=64 group=2 page=0",
             WALK("lse", "sum", "8", "clustered"))}},
    {"walk_fused",
     {SELECT(SMALL_HEADS, CAUSAL("fp16"), "leaf=32 group=4 page=0",
             WALK("half_variance", "max", "6", "fused")),
      .below = "below tokens=4096 use=flat\n"}},
    {"walk_mass",
     {SELECT("heads=3 kv_heads=1 head_dim=128", CAUSAL("bf16"), "leaf=16 group=2 page=0",
             WALK("lse", "mass", "4", "clustered")),
      .phases = "prefill"}},
    {"walk_paged",
     {SELECT(SMALL_HEADS, CAUSAL("bf16"), "leaf=64 group=2 page=16",
             WALK("lse", "lse", "8", "fused"))}},
    {"flat",
     {SELECT(SMALL_HEADS, CAUSAL("bf16"), "leaf=64 group=2 page=0",
             "flat score=mean reduce=sum keep=8 start=0 leaf_stage=fused "
             "query_tile=4")}},
    {"walk_open",
     {.shape = OPEN_SHAPE,
      .pyramid = OPEN_SIZES,
      .select = OPEN_ROUTE,
      .code = OPEN_SHAPE " " OPEN_SIZES " " OPEN_ROUTE " always none\n",
      .always = "",
      .phases = "prefill"}},
    {"tuned", {.always = ""}},
    {"hybrid", {.always = "always range=60..70\nalways last=1\n"}},
    {"taylor0", {.attend = ATTEND("taylor_0", "zeroth_order")}},
    {"drop", {.attend = "selected=exact rest=drop", .route = MEAN}},
    {"mean", {.route = MEAN}},
    {"dense", {.dense = true}},
    {"grouped", {GROUPED}},
    {"half", {HALF}},
    {"small", {SMALL}},
    {"small_drop", {SMALL, .attend = "selected=exact rest=drop", .route = MEAN}},
    {"narrow", {NARROW("")}},
    {"coarse",
     {COARSE, .route = KEY_VARIANCE, .always = "always first=9\nalways window=1\n",
      .attend = SECOND_ORDER("taylor_0")}},
    {"spread", {.always = "always window=0\n", .attend = SECOND_ORDER("taylor_hybrid")}},
    {"small_spread",
     {SMALL_BLOCKED, .route = KEY_VARIANCE, .attend = SECOND_ORDER("taylor_hybrid")}},
    {"small_dense", {SMALL, .dense = true}},
    {"causal", {WORDS(SMALL_HEADS, CAUSAL("bf16")), .dense = true, .phases = "prefill decode"}},
    {"causal_paged",
     {.shape = "heads=3 kv_heads=1 head_dim=128 " CAUSAL("fp16"),
      .code = "heads=3 kv_heads=1 head_dim=128 " CAUSAL("fp16") " pages size=16\n",
      .dense = true,
      .phases = "decode",
      .pages = "pages size=16\n"}},
    {"walk_below",
     {SELECT(SMALL_HEADS, CAUSAL("bf16"), "leaf=64 group=2 page=0",
             WALK("lse", "sum", "8", "clustered")),
      .below = "below tokens=4096 use=dense\n"}},
    {"linear",
     {.attend = ATTEND("taylor_1", "zeroth_order"), .route = MEAN, .code = "rest=taylor_1\n"}},
    {"linear_spread",
     {.attend = SECOND_ORDER("taylor_1"),
      .always = "always window=0\n",
      .blocks = "query=64 key=64 lists=separate",
      .code = "query=64 key=64 rest=taylor_1 mass=second_order\n"}},
    {"residual",
     {.route = RESIDUAL,
      .attend = ATTEND("taylor_0", "zeroth_order"),
      .code = "term=log_residual\n"}},
    {"grouped_residual",
     {.shape = "heads=4 kv_heads=2 head_dim=96 type=bf16 mask=none",
      .route = RESIDUAL,
      .code = "heads=4 kv_heads=2 head_dim=96 type=bf16 term=log_residual\n"}},
    {"above",
     {.route = ROUTE("log_covariance", ABOVE("25/10", "diagonal")),
      .code = "budget=threshold variance=diagonal\n"}},
    {"above_plain",
     {.route = ROUTE("none", ABOVE("25/10", "diagonal")),
      .code = "budget=threshold variance=diagonal\n"}},
    {"above_full",
     {.route = ROUTE("none", ABOVE("15/10", "full")),
      .attend = "selected=exact rest=drop",
      .always = "always first=1\nalways window=0\n",
      .code = "budget=threshold variance=full\n"}},
    {"paired", {PAIRED}},
    {"paired_drop", {PAIRED, .route = MEAN, .attend = "selected=exact rest=drop"}},
    {"grouped_paired", {GROUPED_PAIRED, .always = "always window=1\n"}},
    {"short", {.below = "below tokens=2048 use=dense\n"}},
    {"narrow_short", {NARROW(""), .below = "below tokens=300 use=dense\n"}}};

/* The two variants as two schedules of one result. */
static void make_schedules(struct sample *pack) {
  struct sample first, second;
  sample_edit(pack, "variant 0 density=0.125", "variant 0 half_tile=off", &first);
  sample_edit(
      &first,
      "variant 1 density=0.25\nroute " ROUTE(
          "log_covariance", "density") " density=25/100 keep=0 threshold=0/1 variance=diagonal\n",
      "variant 1 half_tile=on\n", &second);
  sample_free(pack);
  sample_free(&first);
  *pack = second;
}

int main(int argc, char **argv) {
  struct sample pack;
  for (size_t i = 0; argc == 3 && i < sizeof specs / sizeof *specs; i++) {
    if (strcmp(argv[1], specs[i].name) != 0)
      continue;
    FILE *file = fopen(argv[2], "wb");
    if (!file)
      return 2;
    sample_make(&specs[i].spec, &pack);
    if (strcmp(argv[1], "tuned") == 0)
      make_schedules(&pack);
    size_t written = fwrite(pack.bytes, 1, pack.size, file);
    int ok = fclose(file) == 0 && written == pack.size;
    sample_free(&pack);
    return ok ? 0 : 2;
  }
  fprintf(stderr, "usage: make_pack METHOD FILE\n");
  return 1;
}
