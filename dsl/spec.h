/* spec.h: the checked spec, the contract between dsl/ and compiler/.

   Everything here is valid by construction: check.c and rules.c have verified every range and every
   relation, and defaults are filled in. Strings live in the arena of the parse. A span whose word
   was not written is that of the clause around it, or of the spec's name; one set by --set is {0,
   0}. */
#ifndef PISA_DSL_SPEC_H
#define PISA_DSL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "dsl/source.h" /* struct span */

enum spec_target { TARGET_SM_90A };
enum spec_type { TYPE_BF16, TYPE_FP16 };
enum spec_mask { MASK_NONE, MASK_CAUSAL };
enum spec_route { ROUTE_NONE, ROUTE_FLAT, ROUTE_TOP_K, ROUTE_PYRAMID };
enum spec_score { SCORE_MEAN, SCORE_HALF_VARIANCE, SCORE_LSE };
enum spec_term { TERM_NONE, TERM_LOG_COVARIANCE, TERM_LOG_RESIDUAL, TERM_LOG_KEY_VARIANCE };
enum spec_reduce { REDUCE_NONE, REDUCE_SUM, REDUCE_MAX, REDUCE_LSE, REDUCE_MASS, REDUCE_MAX_MASS };
enum spec_budget { BUDGET_KEEP, BUDGET_DENSITY, BUDGET_THRESHOLD };
enum spec_tail { TAIL_DROP, TAIL_TAYLOR_0, TAIL_TAYLOR_1, TAIL_TAYLOR_HYBRID };
enum spec_below { BELOW_NEVER, BELOW_DENSE, BELOW_FLAT };
enum spec_variance { VARIANCE_DIAGONAL, VARIANCE_FULL };
enum spec_lists { LISTS_SEPARATE, LISTS_UNION };
enum spec_leaf_stage { LEAF_AUTOMATIC, LEAF_CLUSTERED, LEAF_FUSED };

/* An exact non-negative decimal num / den; den is a power of ten, as small as can be. 0.150 is {15,
 * 100}. */
struct decimal {
  int64_t num, den;
};

/* Forced blocks. Block kinds are flags; token ranges are half-open and mark every block they touch.
 */
enum {
  ALWAYS_FIRST = 1,
  ALWAYS_LAST = 2,
  ALWAYS_PREVIOUS = 4,
  ALWAYS_CURRENT = 8,
  ALWAYS_DIAGONAL = 16
};
enum always_kind { ALWAYS_RANGE, ALWAYS_TOKENS_FIRST, ALWAYS_TOKENS_LAST };
enum { SPEC_MAX_ALWAYS = 4 };
struct always_tokens {
  enum always_kind kind;
  int64_t begin, end; /* tokens: [begin, end) for RANGE; end = n for FIRST and LAST (begin = 0) */
};

struct spec_choice {   /* one line of `tune` or `vary`: name and candidate values, default first */
  const char *name;    /* "half_tile", "query", "density", "leaf", ... */
  const char **values; /* canonical spelling, no blanks ("0.1", "taylor_hybrid"); default first, no
                          duplicates */
  struct span
      *value_spans; /* where each was written (the default's span is its line in the body) */
  int n_values;
  bool is_vary; /* true: changes results; false (tune): schedule only */
};

struct spec {
  const char *name;
  struct span name_span;
  enum spec_target target;
  struct span target_span;

  struct {
    int heads, kv_heads; /* kv_heads divides heads; defaults to heads */
    int head_dim;        /* 64, 96, 128 or 256 */
    enum spec_type type;
    enum spec_mask mask;
    struct span span, heads_span, head_dim_span, type_span, mask_span, kv_heads_span;
  } shape;

  struct {
    bool present;
    int query, key; /* rows of a query block, tokens of a key block */
    struct span span, query_span, key_span;
  } blocks;

  struct {
    bool present;
    int leaf, group; /* tokens per leaf (16, 32, 64, 128), children per node (2, 4, 8) */
    struct span span, leaf_span, group_span;
  } pyramid;

  struct {
    enum spec_route kind;
    enum spec_score score;
    enum spec_term term;
    enum spec_reduce reduce;
    enum spec_budget budget;
    int keep;                    /* BUDGET_KEEP */
    struct decimal density;      /* BUDGET_DENSITY: (0, 1] */
    struct decimal threshold;    /* BUDGET_THRESHOLD: standard deviations above the mean score */
    enum spec_variance variance; /* of the block means, for the threshold's standard deviation */
    int start_nodes; /* pyramid: first level scored densely, the highest of at most that many nodes;
                        0: root */
    int decode_start_nodes; /* the same in phase decode; 0: start_nodes, -1: root */
    unsigned always_blocks; /* ALWAYS_* flags */
    int always_window; /* key blocks at most that many away from the diagonal ones; 0: no window */
    struct always_tokens always[SPEC_MAX_ALWAYS];
    int n_always;
    struct span span, score_span, term_span, reduce_span, budget_span, variance_span, start_span,
        decode_start_span, always_span;
  } route;

  struct {
    bool all_exact; /* dense; route.kind is ROUTE_NONE then */
    enum spec_tail rest;
    bool mass_second_order;
    struct span span, all_span, rest_span, mass_span;
  } attend;

  struct {
    enum spec_below kind;
    int64_t tokens;
    struct span span;
  } below;

  struct {
    bool present; /* `phases` was written; default: prefill only */
    bool prefill, decode;
    int query_tile; /* prefill: queries handled together, 1..64; 0 with `route top_k` and `all
                       exact` */
    struct span span, prefill_span, decode_span, query_tile_span;
  } phases;

  struct {
    bool present; /* keys, values and pyramid are found through a block table */
    int size;     /* tokens per page: 16, 32, 64 or 128; 0 without pages */
    struct span span, size_span;
  } pages;

  /* Schedule: never changes a result beyond rounding. */
  bool half_tile; /* last tile of 64 columns when the block count is odd */
  enum spec_lists
      lists; /* 64-row query blocks: two neighbours walk their own lists, or the union of both */
  enum spec_leaf_stage leaf_stage; /* pyramid: leaves scored in clusters of queries, or within the
                                      walk; automatic: as can be built, clusters first */
  struct span schedule_span, half_tile_span, lists_span, leaf_stage_span;

  struct spec_choice *choices; /* tune and vary, in source order */
  int n_choices;
};

struct arena;
struct text;

/* Canonical, stable text of a spec (`pisac emit --stage spec`); also what spec_hash digests. */
void spec_print(const struct spec *spec, struct text *out);

#endif
