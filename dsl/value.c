/* Words of a value in, a field of the spec set; and back. Shared by the body, tune, vary and --set.
 */
#include <string.h>

#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/messages.h"
#include "dsl/number.h"
#include "dsl/text.h"

static void *value_of(const struct field *field, struct spec *spec) {
  return (char *)spec + field->value;
}

static const void *value_in(const struct field *field, const struct spec *spec) {
  return (const char *)spec + field->value;
}

const char *field_allowed(struct arena *arena, const struct field *field) {
  if (field->allowed)
    return field->allowed;
  if (field->options)
    return option_list(arena, field->options);
  struct text text;
  text_init(&text);
  for (const int *n = field->numbers; *n; n++)
    text_printf(&text, "%s%d", n == field->numbers ? "" : ", ", *n);
  const char *list = arena_strndup(arena, text.data, text.size);
  text_fini(&text);
  return list;
}

static bool is_one(const struct ast_word *words, enum ast_word_kind kind) {
  return words->kind == kind && !words->next;
}

static bool set_int(const struct field *field, const struct ast_word *words, struct spec *spec) {
  if (!is_one(words, AST_INTEGER))
    return false;
  int64_t value = number_integer(words->text);
  bool allowed = value >= field->min && value <= field->max;
  for (const int *n = field->numbers; n && *n; n++)
    allowed = allowed || value == *n;
  if (allowed)
    *(int *)value_of(field, spec) = (int)value;
  return allowed;
}

static bool set_decimal(const struct field *field, const struct ast_word *words,
                        struct spec *spec) {
  struct decimal value;
  if ((!is_one(words, AST_INTEGER) && !is_one(words, AST_DECIMAL)) ||
      !number_decimal(words->text, &value))
    return false;
  if (value.num == 0 || decimal_compare(value, (struct decimal){field->max, 1}) > 0)
    return false;
  *(struct decimal *)value_of(field, spec) = value;
  return true;
}

static bool set_option(const struct field *field, const char *text, struct spec *spec) {
  int value;
  if (!option_find(field->options, text, &value))
    return false;
  if (field->kind == FIELD_SWITCH)
    *(bool *)value_of(field, spec) = value != 0;
  else
    *(int *)value_of(field, spec) = value;
  return true;
}

/* The word for no number: decode_start follows start unless it says root. */
static bool is_decode_start(const struct field *field) {
  return field->value == offsetof(struct spec, route.decode_start_nodes);
}

static bool set_start(const struct field *field, const struct ast_word *words, struct spec *spec) {
  int *nodes = value_of(field, spec);
  const char *word = is_one(words, AST_NAME) ? words->text : "";
  if (strcmp(word, "root") == 0)
    *nodes = is_decode_start(field) ? -1 : 0;
  else if (is_decode_start(field) && strcmp(word, "same") == 0)
    *nodes = 0;
  else
    return set_int(field, words, spec);
  return true;
}

/* `mean`, `mean + log covariance` */
static bool set_score(struct checker *c, const struct field *field, const struct ast_word *words,
                      struct span span, struct spec *spec) {
  const struct ast_word *plus = words;
  while (plus && plus->kind != AST_PLUS)
    plus = plus->next;
  int score, term = TERM_NONE;
  const char *text = words_text(c->arena, words, plus);
  if (!option_find(score_options, text, &score)) {
    rule(c, span, E_VALUE, "score", text, option_list(c->arena, score_options),
         hint_option(c->arena, text, score_options), field->clause);
    return false;
  }
  text = plus ? words_text(c->arena, plus->next, NULL) : "";
  if (plus && !option_find(term_options, text, &term)) {
    rule(c, span, E_VALUE, "the term of a score", text, option_list(c->arena, term_options),
         hint_option(c->arena, text, term_options), "5.3");
    return false;
  }
  spec->route.score = (enum spec_score)score;
  spec->route.term = (enum spec_term)term;
  spec->route.term_span = span;
  return true;
}

static bool set_plain(const struct field *field, const struct ast_word *words, const char *text,
                      struct spec *spec) {
  switch (field->kind) {
  case FIELD_RANGE:
  case FIELD_SET:
    return set_int(field, words, spec);
  case FIELD_OPTION:
  case FIELD_SWITCH:
    return set_option(field, text, spec);
  case FIELD_DECIMAL:
    return set_decimal(field, words, spec);
  case FIELD_START:
    return set_start(field, words, spec);
  case FIELD_SCORE:
  case FIELD_CUSTOM:
    break;
  }
  return false;
}

/* Setting a word of a clause that was not written is as good as writing the clause. */
static void mark_clause(const struct field *field, struct spec *spec) {
  for (const struct field *f = fields; f < fields + N_FIELDS; f++)
    if (f->read == check_clause && f->inside == field->home && f->value)
      *(bool *)(void *)((char *)spec + f->value) = true;
}

bool field_set(struct checker *c, const struct field *field, const struct ast_word *words,
               struct span span, struct spec *spec) {
  if (field->kind == FIELD_SCORE) {
    if (!set_score(c, field, words, span, spec))
      return false;
  } else {
    const char *text = words_text(c->arena, words, NULL);
    if (!set_plain(field, words, text, spec)) {
      const char *near = field->options ? hint_option(c->arena, text, field->options) : "";
      rule(c, span, E_VALUE, field->name, text, field_allowed(c->arena, field), near,
           field->clause);
      return false;
    }
  }
  if (field->budget)
    spec->route.budget = (enum spec_budget)(field->budget - 1);
  mark_clause(field, spec);
  *field_span(field, spec) = span;
  return true;
}

void field_print(const struct field *field, const struct spec *spec, struct text *out) {
  const void *value = value_in(field, spec);
  switch (field->kind) {
  case FIELD_RANGE:
  case FIELD_SET:
    text_printf(out, "%d", *(const int *)value);
    break;
  case FIELD_OPTION:
    text_puts(out, option_words(field->options, *(const int *)value));
    break;
  case FIELD_SWITCH:
    text_puts(out, option_words(field->options, *(const bool *)value));
    break;
  case FIELD_DECIMAL:
    decimal_print(*(const struct decimal *)value, out);
    break;
  case FIELD_SCORE:
    text_puts(out, option_words(score_options, (int)spec->route.score));
    if (spec->route.term != TERM_NONE)
      text_printf(out, " + %s", option_words(term_options, (int)spec->route.term));
    break;
  case FIELD_START:
    if (*(const int *)value > 0)
      text_printf(out, "%d", *(const int *)value);
    else
      text_puts(out, is_decode_start(field) && *(const int *)value == 0 ? "same" : "root");
    break;
  case FIELD_CUSTOM:
    break;
  }
}

const char *field_canonical(struct arena *arena, const struct field *field,
                            const struct spec *spec) {
  struct text text;
  text_init(&text);
  field_print(field, spec, &text);
  char *canonical = arena_strndup(arena, text.data, text.size);
  text_fini(&text);
  char *to = canonical;
  for (const char *from = canonical; *from; from++) {
    bool by_plus = *from == ' ' && (from[1] == '+' || (to > canonical && to[-1] == '+'));
    if (!by_plus)
      *to++ = *from == ' ' ? '_' : *from;
  }
  *to = '\0';
  return canonical;
}
