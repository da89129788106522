/* spec.h: the checked spec, the contract between dsl/ and compiler/.

   Everything here is valid by construction: check.c has verified every range and every relation, and has
   filled in every default. Strings live in the arena of the parse. Clause numbers refer to docs/LANGUAGE.md. */
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

/* An exact non-negative decimal num / den; den is a power of ten. 0.15 is {15, 100}. */
struct decimal {
  int64_t num, den;
};

/* Forced blocks. Block kinds are flags; token ranges are half-open and mark every block they touch. */
enum { ALWAYS_FIRST = 1, ALWAYS_LAST = 2, ALWAYS_PREVIOUS = 4, ALWAYS_CURRENT = 8, ALWAYS_DIAGONAL = 16 };
enum always_kind { ALWAYS_RANGE, ALWAYS_TOKENS_FIRST, ALWAYS_TOKENS_LAST };
enum { SPEC_MAX_ALWAYS = 4 };
struct always_tokens {
  enum always_kind kind;
  int64_t begin, end; /* tokens: [begin, end) for RANGE; end = n for FIRST and LAST (begin = 0) */
};

struct spec_choice {        /* one line of `tune` or `vary`: name and candidate values, default first */
  const char *name;         /* "half_tile", "query", "density", "leaf", ... */
  const char **values;      /* as written in the source, canonical spelling; default first, no duplicates */
  struct span *value_spans; /* where each was written (the default's span is its line in the body) */
  int n_values;
  bool is_vary; /* true: changes results; false (tune): schedule only */
};

struct spec {
  const char *name;
  struct span name_span;
  enum spec_target target;

  struct {
    int heads, kv_heads; /* kv_heads divides heads; defaults to heads */
    int head_dim;        /* 64, 96, 128 or 256 */
    enum spec_type type;
    enum spec_mask mask;
    struct span span, head_dim_span, type_span, mask_span, kv_heads_span;
  } shape;

  struct {
    bool present;
    int query, key; /* rows of a query block, tokens of a key block */
    struct span span, query_span, key_span;
  } blocks;

  struct {
    bool present;
    int leaf, group; /* tokens per leaf, children per node */
    struct span span;
  } pyramid;

  struct {
    enum spec_route kind;
    enum spec_score score;
    enum spec_term term;
    enum spec_reduce reduce;
    enum spec_budget budget;
    int keep;               /* BUDGET_KEEP */
    struct decimal density; /* BUDGET_DENSITY: (0, 1] */
    struct decimal threshold;
    unsigned always_blocks; /* ALWAYS_* flags */
    struct always_tokens always[SPEC_MAX_ALWAYS];
    int n_always;
    struct span span, score_span, term_span, reduce_span, budget_span, always_span;
  } route;

  struct {
    bool all_exact; /* dense; route.kind is ROUTE_NONE then */
    enum spec_tail rest;
    bool mass_second_order;
    struct span span, rest_span, mass_span;
  } attend;

  struct {
    enum spec_below kind;
    int64_t tokens;
    struct span span;
  } below;

  struct {
    bool present; /* `phases` was written; default: prefill only */
    bool prefill, decode;
    int query_tile; /* prefill query_tile; 0 when not given */
    struct span span, prefill_span, decode_span;
  } phases;

  bool half_tile; /* schedule hint: last tile of 64 columns when the block count is odd (clause of `tune half_tile`) */

  struct spec_choice *choices; /* tune and vary, in source order */
  int n_choices;
};

struct arena;
struct text;

/* Canonical, stable text of a spec (`pisac emit --stage spec`); also what spec_hash digests. */
void spec_print(const struct spec *spec, struct text *out);

#endif
