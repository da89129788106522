/* limits.c: in goes a valid spec; out comes every part of it that no kernel can do yet, each with
   what can be built instead. One function per clause of the language, so that a new kernel deletes
   lines here. */
#include "compiler/plan/limits.h"

#include "compiler/plan/plan.h"

void limit(struct limits *l, struct span where, const char *found, const char *possible) {
  if (l->n < MAX_LIMITS)
    l->at[l->n++] = (struct limit){where, found, possible};
}

static void shape(struct arena *arena, struct limits *l, const struct spec *spec) {
  if (spec->shape.head_dim > 128)
    limit(l, spec->shape.head_dim_span, arena_printf(arena, "head_dim %d", spec->shape.head_dim),
          "kernels exist for head_dim 64, 96 and 128");
  if (spec->shape.mask != MASK_NONE && spec->route.kind == ROUTE_TOP_K)
    limit(l, spec->shape.mask_span, "mask causal", "kernels of route top_k exist for mask none");
}

static void blocks(struct arena *arena, struct limits *l, const struct spec *spec) {
  if (spec->blocks.key > spec->blocks.query)
    limit(l, spec->blocks.key_span,
          arena_printf(arena, "key %d under query %d", spec->blocks.key, spec->blocks.query),
          "kernels exist for key blocks no longer than query blocks");
}

void limit_ranges(struct limits *l, const struct spec *spec) {
  unsigned flags = spec->route.always_blocks;
  int ranges = spec->route.n_always + !!(flags & ALWAYS_FIRST) + !!(flags & ALWAYS_LAST);
  if (ranges > PLAN_MAX_ALWAYS)
    limit(l, spec->route.always_span, "more than four forced ranges", "kernels take up to four");
}

static void route(struct limits *l, const struct spec *spec) {
  if (spec->route.score != SCORE_MEAN)
    limit(l, spec->route.score_span,
          spec->route.score == SCORE_LSE ? "score lse" : "score half_variance",
          "kernels exist for score mean");
  limit_ranges(l, spec);
}

/* Of `all exact`: the language refuses decode with route top_k. */
static void phases(struct arena *arena, struct limits *l, const struct spec *spec) {
  int dim = spec->shape.head_dim, group = spec->shape.heads / spec->shape.kv_heads;
  if (!spec->phases.decode)
    return;
  if (spec->pages.present && spec->phases.prefill)
    limit(l, spec->pages.span, "pages with prefill of all exact",
          "kernels that read every key in pages exist for phase decode alone");
  if (dim == 96)
    limit(l, spec->phases.decode_span, "phase decode with head_dim 96",
          "kernels exist for head_dim 64 and 128");
  if (group > 32)
    limit(l, spec->phases.decode_span,
          arena_printf(arena, "phase decode with %d query heads per key head", group),
          "kernels exist for at most 32");
}

static void half_tile(struct limits *l, const struct spec *spec) {
  static const char found[] = "half_tile on";
  struct span where = spec->half_tile_span;
  if (spec->attend.all_exact)
    limit(l, where, found, "kernels with half tiles exist for route top_k");
  else if (spec->blocks.query != 128 || spec->blocks.key != 64)
    limit(l, where, found, "kernels with half tiles exist for query 128 and key 64");
  else if (spec->attend.mass_second_order)
    limit(l, where, found, "kernels with half tiles exist for mass zeroth_order");
  else if (spec->attend.rest == TAIL_TAYLOR_1)
    limit(l, where, found, "kernels with half tiles exist for drop, taylor 0 and taylor hybrid");
  else if (spec->route.budget == BUDGET_THRESHOLD)
    limit(l, where, found, "with a threshold, lists are not all of one length");
}

static void lists_union(struct limits *l, const struct spec *spec) {
  static const char found[] = "lists union";
  if (spec->blocks.query != 64)
    limit(l, spec->lists_span, found, "kernels walk pairs of query blocks of 64 rows");
  else if (spec->attend.rest == TAIL_TAYLOR_1)
    limit(l, spec->lists_span, found, "taylor 1 reads every block: there is nothing to share");
  else if (spec->route.budget == BUDGET_THRESHOLD)
    limit(l, spec->lists_span, found, "with a threshold, lists are not all of one length");
}

static void schedule(struct limits *l, const struct spec *spec) {
  if (spec->half_tile)
    half_tile(l, spec);
  if (spec->lists == LISTS_UNION)
    lists_union(l, spec);
}

struct limits limits_of(struct arena *arena, const struct spec *spec) {
  struct limits l = {.n = 0};
  if (spec->route.kind == ROUTE_FLAT || spec->route.kind == ROUTE_PYRAMID) {
    limits_of_selection(arena, &l, spec);
    return l;
  }
  shape(arena, &l, spec);
  blocks(arena, &l, spec);
  if (spec->route.kind != ROUTE_NONE)
    route(&l, spec);
  phases(arena, &l, spec);
  schedule(&l, spec);
  return l;
}
