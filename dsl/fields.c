/* The table of words, in the order of docs/LANGUAGE.md, and looking it up. value.c sets and prints
 * what it describes. */
#include "dsl/fields.h"

#include <string.h>

#include "dsl/arena.h"
#include "dsl/check.h"

const char *const home_names[] = {"a spec", "shape",   "blocks", "pyramid", "route",
                                  "attend", "prefill", "pages",  "schedule"};

const char *const home_clauses[] = {"2.3", "3", "4.1", "4.2", "5", "6", "8.2", "8.3", "9.1"};

static const int head_dims[] = {64, 96, 128, 256, 0};
static const int block_sizes[] = {64, 128, 0};
static const int leaf_sizes[] = {16, 32, 64, 128, 0}; /* of a page too */
static const int groups[] = {2, 4, 8, 0};

static const struct option targets[] = {{"sm_90a", TARGET_SM_90A}, {NULL, 0}};
static const struct option types[] = {{"bf16", TYPE_BF16}, {"fp16", TYPE_FP16}, {NULL, 0}};
static const struct option masks[] = {{"none", MASK_NONE}, {"causal", MASK_CAUSAL}, {NULL, 0}};
static const struct option switches[] = {{"off", 0}, {"on", 1}, {NULL, 0}};
static const struct option reductions[] = {{"sum", REDUCE_SUM},           {"max", REDUCE_MAX},
                                           {"lse", REDUCE_LSE},           {"mass", REDUCE_MASS},
                                           {"max mass", REDUCE_MAX_MASS}, {NULL, 0}};
static const struct option variances[] = {
    {"diagonal", VARIANCE_DIAGONAL}, {"full", VARIANCE_FULL}, {NULL, 0}};
static const struct option tails[] = {{"drop", TAIL_DROP},
                                      {"taylor 0", TAIL_TAYLOR_0},
                                      {"taylor 1", TAIL_TAYLOR_1},
                                      {"taylor hybrid", TAIL_TAYLOR_HYBRID},
                                      {NULL, 0}};
static const struct option masses[] = {{"zeroth_order", 0}, {"second_order", 1}, {NULL, 0}};
static const struct option lists[] = {
    {"separate", LISTS_SEPARATE}, {"union", LISTS_UNION}, {NULL, 0}};
static const struct option leaf_stages[] = {
    {"automatic", LEAF_AUTOMATIC}, {"clustered", LEAF_CLUSTERED}, {"fused", LEAF_FUSED}, {NULL, 0}};
const struct option route_options[] = {
    {"flat", ROUTE_FLAT}, {"top_k", ROUTE_TOP_K}, {"pyramid", ROUTE_PYRAMID}, {NULL, 0}};
const struct option score_options[] = {
    {"mean", SCORE_MEAN}, {"half_variance", SCORE_HALF_VARIANCE}, {"lse", SCORE_LSE}, {NULL, 0}};
const struct option term_options[] = {{"log covariance", TERM_LOG_COVARIANCE},
                                      {"log residual", TERM_LOG_RESIDUAL},
                                      {"log key_variance", TERM_LOG_KEY_VARIANCE},
                                      {NULL, 0}};
const struct option below_options[] = {{"dense", BELOW_DENSE}, {"flat", BELOW_FLAT}, {NULL, 0}};

#define AT(member, place)                                                                          \
  .value = offsetof(struct spec, member), .span = offsetof(struct spec, place)
#define RANGE(low, high) .min = low, .max = high, .allowed = "whole numbers from " #low " to " #high
#define DECIMAL(high)                                                                              \
  .max = high, .allowed = "decimals above 0 and at most " #high ", of at most 9 places"
#define CLAUSE(home, place)                                                                        \
  .read = check_clause, .inside = home, .span = offsetof(struct spec, place)
#define PRESENT(member) .value = offsetof(struct spec, member)
#define BUDGET(kind) .budget = 1 + kind

/* clang-format off */
const struct field fields[] = {
  /* name, place, kind, whether tune or vary may list it, clause, ... */
  {"target",   HOME_SPEC, FIELD_OPTION, SORT_FIXED, "2.2", .options = targets,
   AT(target, target_span)},
  {"shape",    HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "3",   CLAUSE(HOME_SHAPE, shape.span)},
  {"blocks",   HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "4.1", CLAUSE(HOME_BLOCKS, blocks.span),
   PRESENT(blocks.present)},
  {"pyramid",  HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "4.2", CLAUSE(HOME_PYRAMID, pyramid.span),
   PRESENT(pyramid.present)},
  {"route",    HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "5.1", .read = check_route},
  {"attend",   HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "6",   CLAUSE(HOME_ATTEND, attend.span)},
  {"below",    HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "7",   .read = check_below,
   .allowed = "N tokens use dense, N tokens use flat"},
  {"phases",   HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "8.1", .read = check_phases,
   .allowed = "prefill, decode"},
  {"pages",    HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "8.3", CLAUSE(HOME_PAGES, pages.span),
   PRESENT(pages.present)},
  {"schedule", HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "9.1", CLAUSE(HOME_SCHEDULE, schedule_span)},
  {"tune",     HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "9.2", .read = check_choices},
  {"vary",     HOME_SPEC, FIELD_CUSTOM, SORT_FIXED, "9.3", .read = check_choices},

  {"heads",    HOME_SHAPE, FIELD_RANGE,  SORT_FIXED, "3.1", RANGE(1, 4096),
   AT(shape.heads, shape.heads_span)},
  {"kv_heads", HOME_SHAPE, FIELD_RANGE,  SORT_FIXED, "3.2", RANGE(1, 4096),
   AT(shape.kv_heads, shape.kv_heads_span)},
  {"head_dim", HOME_SHAPE, FIELD_SET,    SORT_FIXED, "3.3", .numbers = head_dims,
   AT(shape.head_dim, shape.head_dim_span)},
  {"type",     HOME_SHAPE, FIELD_OPTION, SORT_VARY,  "3.4", .options = types,
   AT(shape.type, shape.type_span)},
  {"mask",     HOME_SHAPE, FIELD_OPTION, SORT_FIXED, "3.5", .options = masks,
   AT(shape.mask, shape.mask_span)},

  {"query",    HOME_BLOCKS,  FIELD_SET, SORT_VARY, "4.1", .numbers = block_sizes,
   AT(blocks.query, blocks.query_span)},
  {"key",      HOME_BLOCKS,  FIELD_SET, SORT_VARY, "4.1", .numbers = block_sizes,
   AT(blocks.key, blocks.key_span)},
  {"leaf",     HOME_PYRAMID, FIELD_SET, SORT_VARY, "4.2", .numbers = leaf_sizes,
   AT(pyramid.leaf, pyramid.leaf_span)},
  {"group",    HOME_PYRAMID, FIELD_SET, SORT_VARY, "4.2", .numbers = groups,
   AT(pyramid.group, pyramid.group_span)},

  {"score",     HOME_ROUTE, FIELD_SCORE,   SORT_VARY,  "5.2", .options = score_options,
   AT(route.score, route.score_span)},
  {"reduce",    HOME_ROUTE, FIELD_OPTION,  SORT_VARY,  "5.4", .options = reductions,
   .lead = "heads", AT(route.reduce, route.reduce_span)},
  {"keep",      HOME_ROUTE, FIELD_RANGE,   SORT_VARY,  "5.5", RANGE(1, 65536),
   BUDGET(BUDGET_KEEP), AT(route.keep, route.budget_span)},
  {"density",   HOME_ROUTE, FIELD_DECIMAL, SORT_VARY,  "5.6", DECIMAL(1),
   BUDGET(BUDGET_DENSITY), AT(route.density, route.budget_span)},
  {"threshold", HOME_ROUTE, FIELD_DECIMAL, SORT_VARY,  "5.7", DECIMAL(100),
   BUDGET(BUDGET_THRESHOLD), AT(route.threshold, route.budget_span)},
  {"variance",  HOME_ROUTE, FIELD_OPTION,  SORT_VARY,  "5.7", .options = variances,
   AT(route.variance, route.variance_span)},
  {"always",    HOME_ROUTE, FIELD_CUSTOM,  SORT_FIXED, "5.8", .read = check_always,
   .allowed = ALWAYS_ALLOWED, AT(route.always, route.always_span)},
  {"start",     HOME_ROUTE, FIELD_START,   SORT_VARY,  "5.9", .min = 8, .max = 1024,
   .allowed = "root, whole numbers from 8 to 1024", AT(route.start_nodes, route.start_span)},
  {"decode_start", HOME_ROUTE, FIELD_START, SORT_VARY, "5.9", .min = 8, .max = 1024,
   .allowed = "same, root, whole numbers from 8 to 1024",
   AT(route.decode_start_nodes, route.decode_start_span)},

  {"all",      HOME_ATTEND, FIELD_CUSTOM, SORT_FIXED, "6.1", .read = check_all, .allowed = "exact"},
  {"selected", HOME_ATTEND, FIELD_CUSTOM, SORT_FIXED, "6.2", .read = check_selected,
   .allowed = "exact"},
  {"rest",     HOME_ATTEND, FIELD_OPTION, SORT_VARY,  "6.3", .options = tails,
   AT(attend.rest, attend.rest_span)},
  {"mass",     HOME_ATTEND, FIELD_SWITCH, SORT_VARY,  "6.4", .options = masses,
   AT(attend.mass_second_order, attend.mass_span)},

  {"query_tile", HOME_PREFILL,  FIELD_RANGE,  SORT_TUNE,  "8.2", RANGE(1, 64),
   AT(phases.query_tile, phases.query_tile_span)},
  {"size",       HOME_PAGES,    FIELD_SET,    SORT_FIXED, "8.3", .numbers = leaf_sizes,
   AT(pages.size, pages.size_span)},
  {"half_tile",  HOME_SCHEDULE, FIELD_SWITCH, SORT_TUNE,  "9.1", .options = switches,
   AT(half_tile, half_tile_span)},
  {"lists",      HOME_SCHEDULE, FIELD_OPTION, SORT_TUNE,  "9.1", .options = lists,
   AT(lists, lists_span)},
  {"leaf_stage", HOME_SCHEDULE, FIELD_OPTION, SORT_TUNE,  "9.1", .options = leaf_stages,
   AT(leaf_stage, leaf_stage_span)},
};
/* clang-format on */
_Static_assert(sizeof fields / sizeof *fields == N_FIELDS, "N_FIELDS counts the rows");

const struct field *field_find(const char *name, enum home home) {
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->home == home && strcmp(f->name, name) == 0)
      return f;
  return NULL;
}

const struct field *field_find_anywhere(const char *name) {
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (strcmp(f->name, name) == 0)
      return f;
  return NULL;
}

const struct field *field_find_choice(const char *name, enum field_sort sort) {
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->sort == sort && strcmp(f->name, name) == 0)
      return f;
  return NULL;
}

const char **field_names(struct arena *arena, enum home home) {
  const char **names = ARENA_ARRAY(arena, const char *, N_FIELDS + 1);
  int n = 0;
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->home == home)
      names[n++] = f->name;
  return names;
}

const char **field_choice_names(struct arena *arena, enum field_sort sort) {
  const char **names = ARENA_ARRAY(arena, const char *, N_FIELDS + 1);
  int n = 0;
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->sort == sort)
      names[n++] = f->name;
  return names;
}

struct span *field_span(const struct field *field, struct spec *spec) {
  return (struct span *)(void *)((char *)spec + field->span);
}

/* Blanks and '_' between words are the same: "taylor hybrid" is "taylor_hybrid". */
static bool same_words(const char *a, const char *b) {
  for (; *a && *b; a++, b++)
    if (*a != *b && !(*a == ' ' && *b == '_') && !(*a == '_' && *b == ' '))
      return false;
  return *a == *b;
}

bool option_find(const struct option *options, const char *words, int *out) {
  for (; options->words; options++) {
    if (same_words(options->words, words)) {
      *out = options->value;
      return true;
    }
  }
  return false;
}

const char *option_words(const struct option *options, int value) {
  while (options->words && options->value != value)
    options++;
  return options->words ? options->words : "none";
}
