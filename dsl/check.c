/* Syntax tree in, checked spec out: blocks and statements are walked here, each word by the table
   of fields.c, then defaults.c fills in what was left out, rules.c judges what belongs together,
   choices.c reads tune and vary. */
#include "dsl/check.h"

#include <string.h>

#include "dsl/arena.h"
#include "dsl/messages.h"

enum { MAX_NAME = 64 }; /* letters of a spec's name; it becomes part of file names */

struct span written_at(const struct checker *c, const char *name, enum home home) {
  return c->seen[field_find(name, home) - fields];
}

bool was_written(const struct checker *c, const char *name, enum home home) {
  return !span_is_nowhere(written_at(c, name, home));
}

bool check_once(struct checker *c, const struct field *field, struct span span) {
  struct span *seen = &c->seen[field - fields];
  if (!span_is_nowhere(*seen)) {
    diag_error(c->diag, span, E_TWICE, field->name, field->clause);
    diag_also(c->diag, *seen, "it was given here");
    return false;
  }
  *seen = span;
  return true;
}

static struct span words_span(const struct ast_word *words) {
  struct span span = words->span;
  for (; words; words = words->next)
    span.end = words->span.end;
  return span;
}

const struct ast_word *check_value(struct checker *c, const struct field *field,
                                   const struct ast_statement *statement, struct span *span) {
  const struct ast_phrase *phrase = statement->phrases;
  const struct ast_word *words = phrase->words->next;
  if (field->lead && words && strcmp(words->text, field->lead) == 0)
    words = words->next;
  else if (field->lead) {
    diag_error(c->diag, phrase->words->span, E_LEAD, field->name, field->lead, field->clause);
    return NULL;
  }
  if (phrase->block) {
    diag_error(c->diag, phrase->block->span, E_NO_BLOCK, field->name, field->clause);
    return NULL;
  }
  if (!words) {
    diag_error(c->diag, phrase->words->span, E_NO_VALUE, field->name,
               field_allowed(c->arena, field), field->clause);
    return NULL;
  }
  *span = words_span(words);
  return words;
}

/* A plain word in the body: one value. */
static void read_plain(struct checker *c, const struct field *field,
                       const struct ast_statement *s) {
  struct span span;
  const struct ast_word *words = check_value(c, field, s, &span);
  if (s->phrases->next)
    diag_error(c->diag, s->phrases->next->span, E_ONE_VALUE, field->name, field->clause);
  else if (words)
    field_set(c, field, words, span, c->spec);
}

/* Exactly one word may say how many blocks are read. */
static bool check_budget(struct checker *c, const struct field *field, struct span span) {
  for (const struct field *f = fields; f < fields + N_FIELDS; f++) {
    if (f->budget && f != field && !span_is_nowhere(c->seen[f - fields])) {
      diag_error(c->diag, span, E_TWO_BUDGETS, field->name, f->name);
      diag_also(c->diag, c->seen[f - fields], "%s was given here", f->name);
      return false;
    }
  }
  return true;
}

static void unknown_word(struct checker *c, const struct ast_word *word, enum home home) {
  c->misspelt[home] = true;
  const char **names = field_names(c->arena, home);
  const char *near = hint(c->arena, word->text, names);
  diag_error(c->diag, word->span, E_UNKNOWN, word->text, home_names[home],
             list_text(c->arena, names), near, home_clauses[home]);
  const struct field *elsewhere = field_find_anywhere(word->text);
  if (elsewhere && elsewhere->home == HOME_SPEC)
    diag_also(c->diag, word->span, "'%s' is a clause of the spec: is a '}' missing before it?",
              word->text);
  else if (elsewhere)
    diag_also(c->diag, word->span, "'%s' is a word of %s (§%s)", word->text,
              home_names[elsewhere->home], elsewhere->clause);
}

static void check_statement(struct checker *c, struct ast_statement *s, enum home home) {
  const struct ast_word *keyword = s->phrases->words;
  const struct field *field = field_find(keyword->text, home);
  if (!field)
    unknown_word(c, keyword, home);
  else if (field->budget && !check_budget(c, field, keyword->span))
    return;
  else if (field->kind == FIELD_CUSTOM)
    field->read(c, field, s);
  else if (check_once(c, field, keyword->span))
    read_plain(c, field, s);
}

void check_block(struct checker *c, const struct ast_block *block, enum home home) {
  struct ast_statement *s = block ? block->statements : NULL;
  for (; s && c->diag->n_errors <= DIAG_MAX_ERRORS; s = s->next)
    check_statement(c, s, home);
}

bool check_only_block(struct checker *c, const struct field *field, const struct ast_statement *s,
                      const struct ast_word *extra) {
  if (extra) {
    diag_error(c->diag, words_span(extra), E_EXTRA_WORDS, words_text(c->arena, extra, NULL),
               field->name, field->clause);
    return false;
  }
  const struct ast_phrase *second = s->phrases->next;
  if (second) {
    diag_error(c->diag, second->span, E_EXTRA_WORDS, words_text(c->arena, second->words, NULL),
               field->name, field->clause);
    return false;
  }
  if (!s->phrases->block) {
    diag_error(c->diag, s->span, E_NEEDS_BLOCK, field->name, field->clause);
    return false;
  }
  return true;
}

void check_clause(struct checker *c, const struct field *field, struct ast_statement *s) {
  if (!check_once(c, field, s->phrases->words->span) ||
      !check_only_block(c, field, s, s->phrases->words->next))
    return;
  *field_span(field, c->spec) = s->span;
  if (field->value)
    *(bool *)(void *)((char *)c->spec + field->value) = true;
  check_block(c, s->phrases->block, field->inside);
}

void check_choices(struct checker *c, const struct field *field, struct ast_statement *s) {
  if (!check_once(c, field, s->phrases->words->span) ||
      !check_only_block(c, field, s, s->phrases->words->next))
    return;
  if (strcmp(field->name, "tune") == 0)
    c->tune = s->phrases->block;
  else
    c->vary = s->phrases->block;
}

static void check_name(struct checker *c, const struct ast_word *name) {
  c->spec->name = name->text;
  c->spec->name_span = name->span;
  if (strlen(name->text) > MAX_NAME)
    diag_error(c->diag, name->span, E_LONG_NAME, strlen(name->text), MAX_NAME);
}

/* A word that has no default; it may be there, misspelt. */
static void require(struct checker *c, const char *name, enum home home, struct span span) {
  if (c->damaged || c->misspelt[home] || was_written(c, name, home))
    return;
  const struct field *field = field_find(name, home);
  diag_error(c->diag, span, E_MISSING, home_names[home], name, field->clause);
}

static void check_required(struct checker *c) {
  struct spec *spec = c->spec;
  require(c, "shape", HOME_SPEC, spec->name_span);
  require(c, "attend", HOME_SPEC, spec->name_span);
  if (was_written(c, "shape", HOME_SPEC)) {
    require(c, "heads", HOME_SHAPE, spec->shape.span);
    require(c, "head_dim", HOME_SHAPE, spec->shape.span);
  }
  if (was_written(c, "pages", HOME_SPEC))
    require(c, "size", HOME_PAGES, spec->pages.span);
}

struct spec *check(struct arena *arena, const struct ast_spec *ast, bool damaged,
                   struct diag *diag) {
  struct checker c = {
      .arena = arena, .diag = diag, .spec = ARENA_NEW(arena, struct spec), .damaged = damaged};
  int errors = diag->n_errors;
  if (ast->name)
    check_name(&c, ast->name);
  check_block(&c, ast->block, HOME_SPEC);
  check_required(&c);
  if (damaged || diag->n_errors > errors)
    c.broken = true;
  fill_defaults(&c);
  if (!c.broken)
    check_rules(&c);
  check_tune_and_vary(&c);
  return damaged || diag->n_errors > errors ? NULL : c.spec;
}
