/* Checked spec in, its canonical text out: a .pisa text that says everything, defaults included, in
   a fixed order. It reads back as the same spec, and spec_hash is the digest of it. */
#include "dsl/spec.h"

#include "dsl/fields.h"
#include "dsl/text.h"

/* "; name value" for the words |names| of |home|; ends with NULL. */
static void print_words(const struct spec *spec, enum home home, const char *const *names,
                        struct text *out) {
  for (const char *const *name = names; *name; name++) {
    const struct field *field = field_find(*name, home);
    text_printf(out, "%s%s%s%s ", name == names ? "" : "; ", *name, field->lead ? " " : "",
                field->lead ? field->lead : "");
    field_print(field, spec, out);
  }
}

static void print_clause(const struct spec *spec, const char *clause, enum home home,
                         const char *const *names, struct text *out) {
  text_printf(out, "  %s { ", clause);
  print_words(spec, home, names, out);
  text_puts(out, " }\n");
}

static const char *const shape_words[] = {"heads", "kv_heads", "head_dim", "type", "mask", NULL};
static const char *const block_words[] = {"query", "key", NULL};
static const char *const pyramid_words[] = {"leaf", "group", NULL};
static const char *const attend_words[] = {"rest", "mass", NULL};
static const char *const page_words[] = {"size", NULL};

static void print_tokens(const struct always_tokens *tokens, struct text *out) {
  long long begin = (long long)tokens->begin, end = (long long)tokens->end;
  if (tokens->kind == ALWAYS_RANGE)
    text_printf(out, "tokens %lld..%lld", begin, end);
  else
    text_printf(out, "tokens %s %lld", tokens->kind == ALWAYS_TOKENS_FIRST ? "first" : "last", end);
}

static void print_always(const struct spec *spec, struct text *out) {
  static const struct option names[] = {{"first", ALWAYS_FIRST},       {"last", ALWAYS_LAST},
                                        {"previous", ALWAYS_PREVIOUS}, {"current", ALWAYS_CURRENT},
                                        {"diagonal", ALWAYS_DIAGONAL}, {NULL, 0}};
  const char *separator = "; always ";
  for (const struct option *name = names; name->words; name++) {
    if (spec->route.always_blocks & (unsigned)name->value) {
      text_printf(out, "%s%s", separator, name->words);
      separator = ", ";
    }
  }
  if (spec->route.always_window > 0) {
    text_printf(out, "%swindow %d", separator, spec->route.always_window);
    separator = ", ";
  }
  for (int i = 0; i < spec->route.n_always; i++) {
    text_puts(out, separator);
    print_tokens(&spec->route.always[i], out);
    separator = ", ";
  }
  if (separator[0] == ';')
    text_puts(out, "; always none");
}

static void print_budget(const struct spec *spec, struct text *out) {
  static const char *const budgets[][3] = {[BUDGET_KEEP] = {"keep", NULL},
                                           [BUDGET_DENSITY] = {"density", NULL},
                                           [BUDGET_THRESHOLD] = {"threshold", "variance", NULL}};
  print_words(spec, HOME_ROUTE, budgets[spec->route.budget], out);
}

static void print_route(const struct spec *spec, struct text *out) {
  static const char *const by_block[] = {"score", NULL};
  static const char *const by_query[] = {"score", "reduce", NULL};
  static const char *const by_walk[] = {"score", "reduce", "start", NULL};
  static const char *const by_steps[] = {"score", "reduce", "start", "decode_start", NULL};
  static const char *const *const words[] = {
      [ROUTE_TOP_K] = by_block, [ROUTE_FLAT] = by_query, [ROUTE_PYRAMID] = by_walk};
  text_printf(out, "  route %s { ", option_words(route_options, (int)spec->route.kind));
  print_budget(spec, out);
  text_puts(out, "; ");
  bool steps = spec->route.kind == ROUTE_PYRAMID && spec->phases.decode;
  print_words(spec, HOME_ROUTE, steps ? by_steps : words[spec->route.kind], out);
  print_always(spec, out);
  text_puts(out, " }\n");
}

static void print_sparse(const struct spec *spec, struct text *out) {
  if (spec->route.kind == ROUTE_TOP_K)
    print_clause(spec, "blocks", HOME_BLOCKS, block_words, out);
  else
    print_clause(spec, "pyramid", HOME_PYRAMID, pyramid_words, out);
  print_route(spec, out);
  text_puts(out, "  attend { selected exact; ");
  print_words(spec, HOME_ATTEND, attend_words, out);
  text_puts(out, " }\n");
}

static void print_phases(const struct spec *spec, struct text *out) {
  text_puts(out, "  phases ");
  if (spec->phases.prefill && spec->phases.query_tile > 0)
    text_printf(out, "prefill { query_tile %d }", spec->phases.query_tile);
  else if (spec->phases.prefill)
    text_puts(out, "prefill");
  if (spec->phases.decode)
    text_puts(out, spec->phases.prefill ? ", decode" : "decode");
  text_putc(out, '\n');
}

static void print_schedule(const struct spec *spec, struct text *out) {
  static const char *const dense[] = {"half_tile", NULL};
  static const char *const by_block[] = {"half_tile", "lists", NULL};
  static const char *const by_walk[] = {"leaf_stage", NULL};
  static const char *const *const words[] = {[ROUTE_NONE] = dense,
                                             [ROUTE_TOP_K] = by_block,
                                             [ROUTE_FLAT] = NULL,
                                             [ROUTE_PYRAMID] = by_walk};
  if (words[spec->route.kind])
    print_clause(spec, "schedule", HOME_SCHEDULE, words[spec->route.kind], out);
}

static void print_choices(const struct spec *spec, bool is_vary, struct text *out) {
  const char *separator = is_vary ? "  vary { " : "  tune { ";
  for (int i = 0; i < spec->n_choices; i++) {
    const struct spec_choice *choice = &spec->choices[i];
    if (choice->is_vary != is_vary)
      continue;
    const struct field *field = field_find_choice(choice->name, is_vary ? SORT_VARY : SORT_TUNE);
    text_printf(out, "%s%s%s%s", separator, choice->name, field->lead ? " " : "",
                field->lead ? field->lead : "");
    for (int k = 0; k < choice->n_values; k++)
      text_printf(out, "%s %s", k == 0 ? "" : ",", choice->values[k]);
    separator = "; ";
  }
  if (separator[0] == ';')
    text_puts(out, " }\n");
}

void spec_print(const struct spec *spec, struct text *out) {
  text_printf(out, "spec %s {\n  target ", spec->name);
  field_print(field_find("target", HOME_SPEC), spec, out);
  text_putc(out, '\n');
  print_clause(spec, "shape", HOME_SHAPE, shape_words, out);
  if (spec->attend.all_exact)
    text_puts(out, "  attend { all exact }\n");
  else
    print_sparse(spec, out);
  if (spec->below.kind != BELOW_NEVER)
    text_printf(out, "  below %lld tokens use %s\n", (long long)spec->below.tokens,
                option_words(below_options, (int)spec->below.kind));
  print_phases(spec, out);
  if (spec->pages.present)
    print_clause(spec, "pages", HOME_PAGES, page_words, out);
  print_schedule(spec, out);
  print_choices(spec, false, out);
  print_choices(spec, true, out);
  text_puts(out, "}\n");
}
