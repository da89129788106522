/* What the author left out. Every default is a clause of docs/LANGUAGE.md; some depend on the route
 * or the mask. */
#include "dsl/check.h"

static bool over_tokens(const struct spec *spec) {
  return spec->route.kind == ROUTE_FLAT || spec->route.kind == ROUTE_PYRAMID;
}

static void default_int(const struct checker *c, const char *name, enum home home, int *field,
                        int value) {
  if (!was_written(c, name, home))
    *field = value;
}

/* Under a causal mask a query always reads its own block: alone in lists of query blocks, with the
   sink and the block before it in lists of single queries (the convention of block-sparse language
   models). */
static void default_always(const struct checker *c, struct spec *spec) {
  if (was_written(c, "always", HOME_ROUTE) || spec->shape.mask != MASK_CAUSAL)
    return;
  if (over_tokens(spec))
    spec->route.always_blocks = ALWAYS_FIRST | ALWAYS_PREVIOUS | ALWAYS_CURRENT;
  else if (spec->route.kind == ROUTE_TOP_K)
    spec->route.always_blocks = ALWAYS_DIAGONAL;
}

/* As many queries as fill the 64 rows of a tile with their heads, in powers of two, of which a tile
   has 16 at once. */
static int default_query_tile(const struct spec *spec) {
  enum { TILE_ROWS = 64, TILE_HEADS = 16 };
  int heads = 1;
  while (heads < TILE_HEADS && heads * spec->shape.kv_heads < spec->shape.heads)
    heads *= 2;
  return TILE_ROWS / heads;
}

static void default_route(const struct checker *c, struct spec *spec) {
  if (!was_written(c, "score", HOME_ROUTE))
    spec->route.score = spec->route.kind == ROUTE_PYRAMID ? SCORE_LSE : SCORE_MEAN;
  if (!was_written(c, "reduce", HOME_ROUTE) && over_tokens(spec))
    spec->route.reduce = REDUCE_SUM;
  default_always(c, spec);
}

static void default_span(struct span *span, struct span clause, struct span name) {
  if (span_is_nowhere(*span))
    *span = span_is_nowhere(clause) ? name : clause;
}

/* A word that was not written is at its clause, a clause that was not written at the name of the
 * spec. */
static void default_spans(struct spec *spec) {
  struct span name = spec->name_span;
  struct span clauses[] = {[HOME_SPEC] = name,
                           [HOME_SHAPE] = spec->shape.span,
                           [HOME_BLOCKS] = spec->blocks.span,
                           [HOME_PYRAMID] = spec->pyramid.span,
                           [HOME_ROUTE] = spec->route.span,
                           [HOME_ATTEND] = spec->attend.span,
                           [HOME_PREFILL] = spec->phases.span,
                           [HOME_PAGES] = spec->pages.span,
                           [HOME_SCHEDULE] = spec->schedule_span};
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->span)
      default_span(field_span(f, spec), clauses[f->home], name);
  default_span(&spec->route.term_span, spec->route.score_span, name);
  default_span(&spec->attend.all_span, spec->attend.span, name);
  default_span(&spec->below.span, name, name);
  default_span(&spec->phases.span, name, name);
  default_span(&spec->phases.prefill_span, spec->phases.span, name);
  default_span(&spec->phases.decode_span, spec->phases.span, name);
}

void fill_defaults(struct checker *c) {
  struct spec *spec = c->spec;
  default_int(c, "kv_heads", HOME_SHAPE, &spec->shape.kv_heads, spec->shape.heads);
  default_int(c, "query", HOME_BLOCKS, &spec->blocks.query, 128);
  default_int(c, "key", HOME_BLOCKS, &spec->blocks.key, 64);
  default_int(c, "leaf", HOME_PYRAMID, &spec->pyramid.leaf, 64);
  default_int(c, "group", HOME_PYRAMID, &spec->pyramid.group, 2);
  if (spec->route.kind != ROUTE_NONE)
    default_route(c, spec);
  if (!spec->phases.present)
    spec->phases.prefill = true;
  if (over_tokens(spec) && spec->phases.prefill)
    default_int(c, "query_tile", HOME_PREFILL, &spec->phases.query_tile, default_query_tile(spec));
  default_spans(spec);
}
