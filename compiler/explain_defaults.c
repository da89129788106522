/* explain_defaults.c: in goes a spec; out come the words it did not write, with the values they
   got. A word that was not written has the place of the clause around it (dsl/spec.h). */
#include "compiler/explain.h"
#include "dsl/text.h"

static bool same(struct span a, struct span b) {
  return a.begin == b.begin && a.end == b.end;
}

static void word(struct text *out, size_t *start, const char *name, const char *value) {
  text_printf(out, "%s%s %s", out->size > *start ? ", " : "", name, value);
}

static void number(struct text *out, size_t *start, const char *name, int value) {
  text_printf(out, "%s%s %d", out->size > *start ? ", " : "", name, value);
}

/* Words of query blocks and of how they are attended. */
static void blocks(const struct spec *spec, struct text *out, size_t *start) {
  if (!spec->blocks.present || same(spec->blocks.query_span, spec->blocks.span))
    number(out, start, "query", spec->blocks.query);
  if (!spec->blocks.present || same(spec->blocks.key_span, spec->blocks.span))
    number(out, start, "key", spec->blocks.key);
  bool routed = spec->route.kind != ROUTE_NONE;
  if (routed && same(spec->route.score_span, spec->route.span))
    word(out, start, "score", "mean");
  if (routed && spec->route.budget == BUDGET_THRESHOLD &&
      same(spec->route.variance_span, spec->route.span))
    word(out, start, "variance", "diagonal");
  if (routed && spec->route.n_always == 0 && spec->route.always_blocks == 0 &&
      spec->route.always_window == 0 && same(spec->route.always_span, spec->route.span))
    word(out, start, "always", "none");
  bool taylor = !spec->attend.all_exact && spec->attend.rest != TAIL_DROP;
  if (taylor && same(spec->attend.mass_span, spec->attend.span))
    word(out, start, "mass", "zeroth_order");
}

/* Words of lists for single queries. */
static void selection(const struct spec *spec, struct text *out, size_t *start) {
  bool walks = spec->route.kind == ROUTE_PYRAMID, clause = spec->pyramid.present;
  if (!clause || same(spec->pyramid.leaf_span, spec->pyramid.span))
    number(out, start, "leaf", spec->pyramid.leaf);
  if (!clause || same(spec->pyramid.group_span, spec->pyramid.span))
    number(out, start, "group", spec->pyramid.group);
  if (same(spec->route.score_span, spec->route.span))
    word(out, start, "score", walks ? "lse" : "mean");
  if (same(spec->route.reduce_span, spec->route.span))
    word(out, start, "reduce heads", "sum");
  if (same(spec->route.always_span, spec->route.span))
    word(out, start, "always",
         spec->shape.mask == MASK_CAUSAL ? "first, previous, current" : "none");
  if (walks && same(spec->route.start_span, spec->route.span))
    word(out, start, "start", "root");
  if (walks && spec->phases.decode && same(spec->route.decode_start_span, spec->route.span))
    word(out, start, "decode_start", "same");
  if (walks && spec->leaf_stage == LEAF_AUTOMATIC)
    word(out, start, "leaf_stage", "automatic");
}

void explain_defaults(const struct spec *spec, struct text *out) {
  size_t start = out->size;
  if (same(spec->shape.kv_heads_span, spec->shape.span))
    number(out, &start, "kv_heads", spec->shape.kv_heads);
  if (same(spec->shape.type_span, spec->shape.span))
    word(out, &start, "type", spec->shape.type == TYPE_BF16 ? "bf16" : "fp16");
  if (same(spec->shape.mask_span, spec->shape.span))
    word(out, &start, "mask", spec->shape.mask == MASK_NONE ? "none" : "causal");
  if (spec->route.kind == ROUTE_FLAT || spec->route.kind == ROUTE_PYRAMID)
    selection(spec, out, &start);
  else
    blocks(spec, out, &start);
  if (spec->below.kind == BELOW_NEVER)
    word(out, &start, "below", "never");
  if (!spec->phases.present)
    word(out, &start, "phases", "prefill");
  if (out->size == start)
    text_puts(out, "none taken");
}
