/* tune and vary in, choices out: lists of candidates, their default first. A candidate is legal
   when the spec with it instead of the body's value is. */
#include <string.h>

#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/messages.h"

enum {
  MAX_VARIANTS = 1024, /* of one spec, all choices combined */
  MAX_CANDIDATES = 64  /* of one list */
};

static void add_value(struct spec_choice *choice, const char *value, struct span span) {
  choice->values[choice->n_values] = value;
  choice->value_spans[choice->n_values++] = span;
}

static int count_phrases(const struct ast_statement *s) {
  int n = 0;
  for (const struct ast_phrase *phrase = s->phrases; phrase; phrase = phrase->next)
    n++;
  return n;
}

/* An empty list with room for the default and every phrase of |s|. */
static struct spec_choice new_choice(struct checker *c, const struct field *field,
                                     const struct ast_statement *s) {
  int n = count_phrases(s) + 1;
  return (struct spec_choice){.name = field->name,
                              .values = ARENA_ARRAY(c->arena, const char *, n),
                              .value_spans = ARENA_ARRAY(c->arena, struct span, n),
                              .is_vary = field->sort == SORT_VARY};
}

/* One candidate; |listed| are those before it. */
static void read_candidate(struct checker *c, const struct field *field,
                           const struct ast_word *words, struct span span,
                           struct spec_choice *choice, struct spec_choice *listed) {
  struct spec trial = *c->spec;
  if (!try_value(c, field, words, span, &trial))
    return;
  const char *value = field_canonical(c->arena, field, &trial);
  for (int i = 0; i < listed->n_values; i++) {
    if (strcmp(listed->values[i], value) == 0) {
      diag_error(c->diag, span, E_CANDIDATE_TWICE, value);
      diag_also(c->diag, listed->value_spans[i], "it was listed here");
      return;
    }
  }
  add_value(listed, value, span);
  if (choice->n_values == 0 || strcmp(choice->values[0], value) != 0)
    add_value(choice, value, span);
}

static struct span phrase_words_span(const struct ast_phrase *phrase) {
  return span_join(phrase->words->span, phrase->last_word->span);
}

/* |n| candidates: as they are listed, and again with the default among them. */
static bool check_length(struct checker *c, const struct field *field,
                         const struct ast_statement *s, int n) {
  if (n > MAX_CANDIDATES)
    diag_error(c->diag, s->phrases->words->span, E_CANDIDATES, field->name, n, MAX_CANDIDATES);
  return n <= MAX_CANDIDATES;
}

static void read_candidates(struct checker *c, const struct field *field,
                            const struct ast_statement *s) {
  struct span span;
  const struct ast_word *words = check_value(c, field, s, &span);
  if (!words)
    return;
  if (!check_length(c, field, s, count_phrases(s)))
    return;
  struct spec_choice choice = new_choice(c, field, s), listed = new_choice(c, field, s);
  if (!c->broken)
    add_value(&choice, field_canonical(c->arena, field, c->spec), *field_span(field, c->spec));
  read_candidate(c, field, words, span, &choice, &listed);
  for (const struct ast_phrase *phrase = s->phrases->next; phrase; phrase = phrase->next) {
    if (phrase->block)
      diag_error(c->diag, phrase->block->span, E_NO_BLOCK, field->name, field->clause);
    else
      read_candidate(c, field, phrase->words, phrase_words_span(phrase), &choice, &listed);
  }
  check_length(c, field, s, choice.n_values);
  c->spec->choices[c->spec->n_choices++] = choice;
}

/* Why |name| cannot be listed by tune or vary (|sort|). */
static void refuse_name(struct checker *c, const struct ast_word *name, enum field_sort sort) {
  bool tune = sort == SORT_TUNE;
  if (field_find_choice(name->text, tune ? SORT_VARY : SORT_TUNE)) {
    if (tune)
      diag_error(c->diag, name->span, E_NOT_TUNE, name->text);
    else
      diag_error(c->diag, name->span, E_NOT_VARY, name->text);
    return;
  }
  const char **names = field_choice_names(c->arena, sort);
  diag_error(c->diag, name->span, E_NO_CHOICE, tune ? "tune" : "vary", name->text,
             list_text(c->arena, names), hint(c->arena, name->text, names), tune ? "9.2" : "9.3");
}

static const struct spec_choice *find_choice(const struct spec *spec, const char *name) {
  for (int i = 0; i < spec->n_choices; i++)
    if (strcmp(spec->choices[i].name, name) == 0)
      return &spec->choices[i];
  return NULL;
}

static void read_choice(struct checker *c, const struct ast_statement *s, enum field_sort sort) {
  const struct ast_word *name = s->phrases->words;
  const struct field *field = field_find_choice(name->text, sort);
  if (!field)
    refuse_name(c, name, sort);
  else if (find_choice(c->spec, field->name))
    diag_error(c->diag, name->span, E_TWICE, field->name, sort == SORT_TUNE ? "9.2" : "9.3");
  else if (!c->broken && !is_moot(c->spec, field) && field->budget &&
           (enum spec_budget)(field->budget - 1) != c->spec->route.budget)
    diag_error(c->diag, name->span, E_OTHER_BUDGET, field->name);
  else
    read_candidates(c, field, s);
}

static int count_statements(const struct ast_block *block) {
  int n = 0;
  for (const struct ast_statement *s = block ? block->statements : NULL; s; s = s->next)
    n++;
  return n;
}

static void check_variants(struct checker *c) {
  int64_t n = 1;
  for (int i = 0; i < c->spec->n_choices && n <= MAX_VARIANTS; i++)
    n *= c->spec->choices[i].n_values > 0 ? c->spec->choices[i].n_values : 1;
  if (n > MAX_VARIANTS)
    diag_error(c->diag, c->spec->name_span, E_VARIANTS, MAX_VARIANTS);
}

void check_tune_and_vary(struct checker *c) {
  struct spec *spec = c->spec;
  int n = count_statements(c->tune) + count_statements(c->vary);
  spec->choices = ARENA_ARRAY(c->arena, struct spec_choice, n);
  for (const struct ast_statement *s = c->tune ? c->tune->statements : NULL; s; s = s->next)
    read_choice(c, s, SORT_TUNE);
  for (const struct ast_statement *s = c->vary ? c->vary->statements : NULL; s; s = s->next)
    read_choice(c, s, SORT_VARY);
  check_variants(c);
}
