/* limits_selection.c: in goes a valid spec with route flat or pyramid; out comes every part of it
   that no kernel can do yet, one function per clause of the language. */
#include "compiler/plan/limits.h"
#include "compiler/plan/plan.h"

static void shape(struct arena *arena, struct limits *l, const struct spec *spec) {
  int dim = spec->shape.head_dim, group = spec->shape.heads / spec->shape.kv_heads;
  if (dim != 64 && dim != 128)
    limit(l, spec->shape.head_dim_span, arena_printf(arena, "head_dim %d", dim),
          "kernels of block selection exist for head_dim 64 and 128");
  if (group > 32)
    limit(l, spec->shape.kv_heads_span, arena_printf(arena, "%d query heads per key head", group),
          "kernels of block selection exist for at most 32");
}

static void route(struct limits *l, const struct spec *spec) {
  if (spec->route.budget == BUDGET_DENSITY)
    limit(l, spec->route.budget_span, "density with route flat",
          "the kernel keeps a number of leaves that is compiled in: keep");
  limit_ranges(l, spec);
}

static void attend(struct limits *l, const struct spec *spec) {
  if (spec->attend.rest != TAIL_DROP)
    limit(l, spec->attend.rest_span, "a tail for lists of single queries",
          "kernels exist for rest drop");
}

static void below(struct limits *l, const struct spec *spec) {
  if (spec->below.kind == BELOW_DENSE && spec->phases.prefill && spec->pages.present)
    limit(l, spec->below.span, "below with dense and pages",
          "kernels that attend densely find keys in one piece");
}

static void schedule(struct arena *arena, struct limits *l, const struct spec *spec) {
  int tile = plan_query_tile(spec);
  if (spec->phases.prefill && spec->phases.query_tile != tile)
    limit(l, spec->phases.query_tile_span,
          arena_printf(arena, "query_tile %d", spec->phases.query_tile),
          arena_printf(arena, "kernels handle as many queries as fill 64 rows with their heads: %d",
                       tile));
  if (spec->leaf_stage != LEAF_CLUSTERED)
    return;
  const char *why = plan_why_not_clustered(spec);
  if (why)
    limit(l, spec->leaf_stage_span, "leaf_stage clustered", why);
}

void limits_of_selection(struct arena *arena, struct limits *l, const struct spec *spec) {
  shape(arena, l, spec);
  route(l, spec);
  attend(l, spec);
  below(l, spec);
  schedule(arena, l, spec);
}
