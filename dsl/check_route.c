/* The route clause: its kind, and the always-set. */
#include <string.h>

#include "dsl/arena.h"
#include "dsl/check.h"
#include "dsl/messages.h"
#include "dsl/number.h"

enum { MAX_WINDOW = 64 };

void check_route(struct checker *c, const struct field *field, struct ast_statement *s) {
  const struct ast_word *keyword = s->phrases->words, *kind = keyword->next;
  if (!check_once(c, field, keyword->span))
    return;
  c->spec->route.span = s->span;
  int value = ROUTE_NONE;
  if (!kind)
    diag_error(c->diag, keyword->span, E_NO_ROUTE_KIND, option_list(c->arena, route_options));
  else if (!option_find(route_options, kind->text, &value))
    diag_error(c->diag, kind->span, E_VALUE, "route", kind->text,
               option_list(c->arena, route_options),
               hint_option(c->arena, kind->text, route_options), field->clause);
  c->spec->route.kind = (enum spec_route)value;
  if (check_only_block(c, field, s, kind ? kind->next : NULL))
    check_block(c, s->phrases->block, HOME_ROUTE);
}

static const struct option block_words[] = {
    {"first", ALWAYS_FIRST},     {"last", ALWAYS_LAST},         {"previous", ALWAYS_PREVIOUS},
    {"current", ALWAYS_CURRENT}, {"diagonal", ALWAYS_DIAGONAL}, {NULL, 0}};
static const char *const always_words[] = {"none",     "first",  "last",   "previous", "current",
                                           "diagonal", "window", "tokens", NULL};

static void add_tokens(struct checker *c, struct span span, struct always_tokens tokens) {
  struct spec *spec = c->spec;
  for (int i = 0; i < spec->route.n_always; i++) {
    const struct always_tokens *old = &spec->route.always[i];
    if (old->kind == tokens.kind && old->begin == tokens.begin && old->end == tokens.end) {
      diag_error(c->diag, span, E_ALWAYS_TWICE);
      return;
    }
  }
  if (spec->route.n_always == SPEC_MAX_ALWAYS)
    diag_error(c->diag, span, E_ALWAYS_MANY, SPEC_MAX_ALWAYS);
  else
    spec->route.always[spec->route.n_always++] = tokens;
}

/* "0..512" to its two numbers. */
static struct always_tokens range_of(const char *text) {
  const char *dots = strchr(text, '.');
  struct always_tokens range = {ALWAYS_RANGE, 0, number_integer(dots + 2)};
  for (const char *digit = text; digit < dots && range.begin <= MAX_TOKENS; digit++)
    range.begin = range.begin * 10 + (*digit - '0');
  return range;
}

/* `tokens A..B`, `tokens first n`, `tokens last n` */
static void read_tokens(struct checker *c, const struct ast_phrase *phrase,
                        const struct ast_word *after) {
  struct always_tokens tokens = {ALWAYS_RANGE, 0, 0};
  const struct ast_word *last = after;
  if (after && after->kind == AST_RANGE)
    tokens = range_of(after->text);
  else if (after && after->next && after->next->kind == AST_INTEGER) {
    last = after->next;
    tokens.kind = strcmp(after->text, "last") == 0 ? ALWAYS_TOKENS_LAST : ALWAYS_TOKENS_FIRST;
    tokens.end = number_integer(last->text);
    if (tokens.kind == ALWAYS_TOKENS_FIRST && strcmp(after->text, "first") != 0)
      last = NULL;
  } else
    last = NULL;
  if (!last || last->next)
    diag_error(c->diag, phrase->span, E_ALWAYS_TOKENS);
  else if (tokens.begin >= tokens.end || tokens.end > MAX_TOKENS)
    diag_error(c->diag, phrase->span, E_ALWAYS_RANGE, MAX_TOKENS);
  else
    add_tokens(c, phrase->span, tokens);
}

static void read_window(struct checker *c, const struct ast_phrase *phrase,
                        const struct ast_word *after) {
  int64_t blocks =
      after && after->kind == AST_INTEGER && !after->next ? number_integer(after->text) : 0;
  if (blocks < 1 || blocks > MAX_WINDOW)
    diag_error(c->diag, phrase->span, E_ALWAYS_WINDOW, MAX_WINDOW);
  else if (c->spec->route.always_window > 0)
    diag_error(c->diag, phrase->span, E_ALWAYS_TWICE);
  else
    c->spec->route.always_window = (int)blocks;
}

static void read_always(struct checker *c, const struct ast_phrase *phrase,
                        const struct ast_word *word) {
  int flag;
  if (strcmp(word->text, "tokens") == 0)
    read_tokens(c, phrase, word->next);
  else if (strcmp(word->text, "window") == 0)
    read_window(c, phrase, word->next);
  else if (strcmp(word->text, "none") == 0 && !word->next)
    diag_error(c->diag, phrase->span, E_ALWAYS_ALONE);
  else if (word->next || !option_find(block_words, word->text, &flag))
    diag_error(c->diag, phrase->span, E_VALUE, "always", words_text(c->arena, word, NULL),
               ALWAYS_ALLOWED, hint(c->arena, word->text, always_words), "5.8");
  else if (c->spec->route.always_blocks & (unsigned)flag)
    diag_error(c->diag, phrase->span, E_ALWAYS_TWICE);
  else
    c->spec->route.always_blocks |= (unsigned)flag;
}

void check_always(struct checker *c, const struct field *field, struct ast_statement *s) {
  struct ast_phrase *phrase = s->phrases;
  if (!check_once(c, field, phrase->words->span))
    return;
  struct span span;
  const struct ast_word *word = check_value(c, field, s, &span);
  if (!word)
    return;
  c->spec->route.always_span = span_join(span, s->span);
  if (strcmp(word->text, "none") == 0 && !word->next && !phrase->next)
    return;
  struct ast_phrase first = *phrase; /* without the keyword */
  first.span.begin = word->span.begin;
  read_always(c, &first, word);
  for (phrase = phrase->next; phrase && c->diag->n_errors <= DIAG_MAX_ERRORS;
       phrase = phrase->next) {
    if (phrase->block)
      diag_error(c->diag, phrase->block->span, E_NO_BLOCK, field->name, field->clause);
    else
      read_always(c, phrase, phrase->words);
  }
}
