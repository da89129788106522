/* Relations between words: checked spec in, broken rules out. Each rule is a few lines and cites
   its clause. Ranges of single words are the table's business (fields.c). Runs on the body, on
   every listed candidate and on every --set. */
#include <stdarg.h>

#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/messages.h"
#include "dsl/text.h"

void rule(struct checker *c, struct span span, const char *format, ...) {
  struct text text;
  va_list args;
  text_init(&text);
  va_start(args, format);
  text_vprintf(&text, format, args);
  va_end(args);
  diag_error(c->diag, c->setting ? c->at : span, "%s", text.data);
  text_fini(&text);
}

static bool over_tokens(const struct spec *spec) {
  return spec->route.kind == ROUTE_FLAT || spec->route.kind == ROUTE_PYRAMID;
}

static const char *route_words(const struct spec *spec) {
  return option_words(route_options, (int)spec->route.kind);
}

static void rule_heads(struct checker *c, const struct spec *s) {
  if (s->shape.heads % s->shape.kv_heads != 0)
    rule(c, s->shape.kv_heads_span, E_KV_HEADS, s->shape.kv_heads, s->shape.heads);
}

/* `all exact` reads every block: nothing else of the method has a meaning. */
static void rule_dense(struct checker *c, const struct spec *s) {
  if (s->route.kind != ROUTE_NONE)
    rule(c, s->route.span, E_ALL_EXACT, "route");
  if (was_written(c, "selected", HOME_ATTEND))
    rule(c, written_at(c, "selected", HOME_ATTEND), E_ALL_EXACT, "selected");
  if (was_written(c, "rest", HOME_ATTEND))
    rule(c, s->attend.rest_span, E_ALL_EXACT, "rest");
  if (s->attend.mass_second_order)
    rule(c, s->attend.mass_span, E_ALL_EXACT, "mass");
  if (s->blocks.present)
    rule(c, s->blocks.span, E_ALL_EXACT, "blocks");
  if (s->pyramid.present)
    rule(c, s->pyramid.span, E_ALL_EXACT, "pyramid");
  if (s->below.kind != BELOW_NEVER)
    rule(c, s->below.span, E_ALL_EXACT, "below");
}

static void rule_sparse(struct checker *c, const struct spec *s) {
  if (!c->setting && !was_written(c, "selected", HOME_ATTEND))
    rule(c, s->attend.span, E_NO_SELECTED);
  if (s->route.kind == ROUTE_NONE)
    rule(c, s->attend.span, E_NO_ROUTE);
}

/* Query blocks belong to top_k, leaves to routes over single queries. */
static void rule_blocks(struct checker *c, const struct spec *s) {
  if (s->blocks.present && over_tokens(s))
    rule(c, s->blocks.span, E_BLOCKS_ROUTE, route_words(s));
  if (s->pyramid.present && s->route.kind == ROUTE_TOP_K)
    rule(c, s->pyramid.span, E_PYRAMID_ROUTE);
}

static void rule_score(struct checker *c, const struct spec *s) {
  if (s->route.term != TERM_NONE && s->route.kind != ROUTE_TOP_K)
    rule(c, s->route.term_span, E_TERM_ROUTE, option_words(term_options, (int)s->route.term),
         route_words(s));
  if (s->route.term != TERM_NONE && s->route.score != SCORE_MEAN)
    rule(c, s->route.term_span, E_TERM_SCORE, option_words(term_options, (int)s->route.term),
         option_words(score_options, (int)s->route.score));
  if (s->route.reduce != REDUCE_NONE && !over_tokens(s))
    rule(c, s->route.reduce_span, E_REDUCE_ROUTE);
  if (s->route.start_nodes > 0 && s->route.kind != ROUTE_PYRAMID)
    rule(c, s->route.start_span, E_START_ROUTE, route_words(s));
  if (s->route.decode_start_nodes != 0 && (s->route.kind != ROUTE_PYRAMID || !s->phases.decode))
    rule(c, s->route.decode_start_span, E_DECODE_START);
}

enum { MAX_KEEP = 64 }; /* of one query: its list is kept in registers */

static void rule_budget(struct checker *c, const struct spec *s) {
  if (!c->setting && !was_written(c, "keep", HOME_ROUTE) &&
      !was_written(c, "density", HOME_ROUTE) && !was_written(c, "threshold", HOME_ROUTE)) {
    rule(c, s->route.span, E_NO_BUDGET);
    return;
  }
  if (s->route.budget == BUDGET_DENSITY && s->route.kind == ROUTE_PYRAMID)
    rule(c, s->route.budget_span, E_DENSITY_ROUTE);
  if (s->route.budget == BUDGET_THRESHOLD && s->route.kind != ROUTE_TOP_K)
    rule(c, s->route.budget_span, E_THRESHOLD_ROUTE, route_words(s));
  if (s->route.budget != BUDGET_THRESHOLD && s->route.variance != VARIANCE_DIAGONAL)
    rule(c, s->route.variance_span, E_VARIANCE_BUDGET);
  if (s->route.budget == BUDGET_KEEP && over_tokens(s) && s->route.keep > MAX_KEEP)
    rule(c, s->route.budget_span, E_KEEP_ROUTE, s->route.keep, route_words(s), MAX_KEEP);
}

/* Which names of blocks make sense: a block of queries has a diagonal, a single query a current
 * block. */
static void rule_always_names(struct checker *c, const struct spec *s) {
  unsigned blocks = s->route.always_blocks;
  struct span span = s->route.always_span;
  if (s->route.kind == ROUTE_TOP_K && (blocks & (ALWAYS_PREVIOUS | ALWAYS_CURRENT)))
    rule(c, span, E_ALWAYS_CURRENT, blocks & ALWAYS_CURRENT ? "current" : "previous",
         blocks & ALWAYS_CURRENT ? "diagonal" : "window 1");
  if (over_tokens(s) && (blocks & ALWAYS_DIAGONAL))
    rule(c, span, E_ALWAYS_DIAGONAL, "diagonal", route_words(s));
  if (over_tokens(s) && s->route.always_window > 0)
    rule(c, span, E_ALWAYS_DIAGONAL, "window", route_words(s));
}

static bool always_is_none(const struct spec *s) {
  return s->route.always_blocks == 0 && s->route.n_always == 0 && s->route.always_window == 0;
}

static void rule_always_causal(struct checker *c, const struct spec *s) {
  bool last = (s->route.always_blocks & ALWAYS_LAST) != 0;
  for (int i = 0; i < s->route.n_always; i++)
    last = last || s->route.always[i].kind == ALWAYS_TOKENS_LAST;
  if (s->shape.mask != MASK_CAUSAL)
    return;
  if (always_is_none(s))
    rule(c, s->route.always_span, E_ALWAYS_NONE);
  if (last)
    rule(c, s->route.always_span, E_ALWAYS_LAST);
}

static void rule_always_fits(struct checker *c, const struct spec *s) {
  int64_t count = always_count(s);
  if (s->route.budget == BUDGET_KEEP && s->route.keep < count)
    rule(c, s->route.budget_span, E_KEEP_ALWAYS, s->route.keep, (long long)count);
}

static void rule_tail(struct checker *c, const struct spec *s) {
  bool causal = s->shape.mask == MASK_CAUSAL, taylor = s->attend.rest != TAIL_DROP;
  if (s->attend.mass_second_order && !taylor)
    rule(c, s->attend.mass_span, E_MASS_TAIL);
  if (causal && s->attend.rest == TAIL_TAYLOR_HYBRID)
    rule(c, s->attend.rest_span, E_HYBRID_CAUSAL);
  bool own =
      (s->route.always_blocks & (ALWAYS_CURRENT | ALWAYS_DIAGONAL)) || s->route.always_window > 0;
  if (causal && taylor && !own)
    rule(c, s->attend.rest_span, E_TAIL_CAUSAL);
}

static void rule_route(struct checker *c, const struct spec *s) {
  rule_blocks(c, s);
  rule_score(c, s);
  rule_budget(c, s);
  rule_always_names(c, s);
  rule_always_causal(c, s);
  rule_always_fits(c, s);
  rule_tail(c, s);
  if (s->below.kind == BELOW_FLAT && s->route.kind != ROUTE_PYRAMID)
    rule(c, s->below.span, E_BELOW_FLAT, route_words(s));
}

static void rule_phases(struct checker *c, const struct spec *s) {
  if (s->phases.decode && s->shape.mask != MASK_CAUSAL)
    rule(c, s->phases.decode_span, E_DECODE_MASK);
  if (s->phases.decode && s->route.kind == ROUTE_TOP_K)
    rule(c, s->phases.decode_span, E_DECODE_ROUTE);
  if (s->phases.query_tile > 0 && (!over_tokens(s) || !s->phases.prefill))
    rule(c, s->phases.query_tile_span, E_QUERY_TILE);
  if (s->pages.present && !s->phases.decode)
    rule(c, s->pages.span, E_PAGES_DECODE);
}

static void rule_schedule(struct checker *c, const struct spec *s) {
  if (s->half_tile && over_tokens(s))
    rule(c, s->half_tile_span, E_SCHEDULE, "half_tile", "`route top_k` or `all exact`");
  if (s->lists != LISTS_SEPARATE && s->route.kind != ROUTE_TOP_K)
    rule(c, s->lists_span, E_SCHEDULE, "lists", "`route top_k`");
  if (s->leaf_stage != LEAF_AUTOMATIC && s->route.kind != ROUTE_PYRAMID)
    rule(c, s->leaf_stage_span, E_SCHEDULE, "leaf_stage", "`route pyramid`");
}

void check_rules(struct checker *c) {
  const struct spec *s = c->spec;
  rule_heads(c, s);
  if (s->attend.all_exact)
    rule_dense(c, s);
  else
    rule_sparse(c, s);
  if (s->route.kind != ROUTE_NONE && !s->attend.all_exact)
    rule_route(c, s);
  rule_phases(c, s);
  rule_schedule(c, s);
}
