/* A finished spec and one value in, the spec with that value out, judged as a whole: --set, and the
   choices of a variant. */
#include "dsl/dsl.h"

#include <string.h>

#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/messages.h"
#include "dsl/parse.h"

/* `all exact` leaves nothing to choose in these. */
bool is_moot(const struct spec *spec, const struct field *field) {
  return spec->attend.all_exact && (field->home == HOME_ROUTE || field->home == HOME_ATTEND ||
                                    field->home == HOME_BLOCKS || field->home == HOME_PYRAMID);
}

bool try_value(struct checker *c, const struct field *field, const struct ast_word *words,
               struct span span, struct spec *spec) {
  struct checker trial = *c;
  trial.setting = true;
  trial.at = span;
  trial.spec = spec;
  int errors = c->diag->n_errors;
  if (is_moot(spec, field))
    rule(&trial, span, E_ALL_EXACT, field->name);
  else if (field_set(&trial, field, words, span, spec) && !c->broken)
    check_rules(&trial);
  return c->diag->n_errors == errors;
}

static const struct field *find_settable(const char *name) {
  const struct field *field = field_find_choice(name, SORT_TUNE);
  return field ? field : field_find_choice(name, SORT_VARY);
}

const char *dsl_value(struct arena *arena, const struct spec *spec, const char *name) {
  const struct field *field = find_settable(name);
  return field ? field_canonical(arena, field, spec) : NULL;
}

struct span *dsl_span(struct spec *spec, const char *name) {
  const struct field *field = find_settable(name);
  return field ? field_span(field, spec) : NULL;
}

static const char *settable_names(struct arena *arena) {
  return arena_printf(arena, "%s, %s", list_text(arena, field_choice_names(arena, SORT_TUNE)),
                      list_text(arena, field_choice_names(arena, SORT_VARY)));
}

/* The choices of |base| without |name|. */
static void drop_choice(struct arena *arena, const struct spec *base, const char *name,
                        struct spec *out) {
  out->choices = ARENA_ARRAY(arena, struct spec_choice, base->n_choices);
  out->n_choices = 0;
  for (int i = 0; i < base->n_choices; i++)
    if (strcmp(base->choices[i].name, name) != 0)
      out->choices[out->n_choices++] = base->choices[i];
}

/* The words of |value|, read from the text "name=value", which diag's messages then refer to. */
static const struct ast_phrase *read_value(struct arena *arena, const char *name, const char *value,
                                           struct diag *diag) {
  const char *text = arena_printf(arena, "%s=%s", name, value);
  struct parse parse;
  parse_init(&parse, arena, source_make(arena, "--set", text, strlen(text)), diag);
  parse.offset = strlen(name) + 1;
  return parse_value(&parse) ? parse.phrase : NULL;
}

bool dsl_apply(struct arena *arena, const struct spec *base, const char *name, const char *value,
               struct span where, struct spec **out, struct diag *diag) {
  const struct source *file = diag->source;
  const struct field *field = find_settable(name);
  const struct ast_phrase *phrase = read_value(arena, name, value, diag);
  struct span name_span = {0, strlen(name)};
  bool by_option = span_is_nowhere(where);
  struct checker c = {.arena = arena, .diag = diag};
  struct spec *spec = ARENA_NEW(arena, struct spec);
  *spec = *base;
  bool good = false;
  if (!by_option)
    diag->source = file;
  if (!field)
    diag_error(diag, by_option ? name_span : where, E_NO_SET, name, settable_names(arena));
  else if (phrase)
    good = try_value(&c, field, phrase->words,
                     by_option ? span_join(phrase->words->span, phrase->last_word->span) : where,
                     spec);
  diag->source = file;
  if (!good)
    return false;
  *field_span(field, spec) = where;
  drop_choice(arena, base, name, spec);
  *out = spec;
  return true;
}
