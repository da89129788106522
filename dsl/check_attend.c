/* The clauses attend, below and phases. */
#include <string.h>

#include "dsl/check.h"
#include "dsl/messages.h"
#include "dsl/number.h"

/* `all exact`, `selected exact`: the one word that may follow. */
static bool read_exact(struct checker *c, const struct field *field,
                       const struct ast_statement *s) {
  struct span span;
  const struct ast_word *word = check_value(c, field, s, &span);
  if (!word)
    return false;
  if (!word->next && !s->phrases->next && strcmp(word->text, "exact") == 0)
    return true;
  static const char *const exact[] = {"exact", NULL};
  diag_error(c->diag, span, E_VALUE, field->name, words_text(c->arena, word, NULL), "exact",
             hint(c->arena, word->text, exact), field->clause);
  return false;
}

void check_all(struct checker *c, const struct field *field, struct ast_statement *s) {
  if (!check_once(c, field, s->phrases->words->span) || !read_exact(c, field, s))
    return;
  c->spec->attend.all_exact = true;
  c->spec->attend.all_span = s->span;
}

void check_selected(struct checker *c, const struct field *field, struct ast_statement *s) {
  if (check_once(c, field, s->phrases->words->span))
    read_exact(c, field, s);
}

/* `below 4096 tokens use dense` */
void check_below(struct checker *c, const struct field *field, struct ast_statement *s) {
  struct span span;
  if (!check_once(c, field, s->phrases->words->span))
    return;
  const struct ast_word *number = check_value(c, field, s, &span);
  if (!number)
    return;
  const struct ast_word *tokens = number->next, *use = tokens ? tokens->next : NULL;
  const struct ast_word *path = use ? use->next : NULL;
  int kind = BELOW_NEVER;
  int64_t n = number->kind == AST_INTEGER ? number_integer(number->text) : 0;
  if (!path || path->next || s->phrases->next || strcmp(tokens->text, "tokens") != 0 ||
      strcmp(use->text, "use") != 0)
    diag_error(c->diag, s->span, E_BELOW);
  else if (n < 1 || n > MAX_TOKENS)
    diag_error(c->diag, number->span, E_BELOW_TOKENS, number->text, MAX_TOKENS);
  else if (!option_find(below_options, path->text, &kind))
    diag_error(c->diag, path->span, E_VALUE, "below", path->text,
               option_list(c->arena, below_options),
               hint_option(c->arena, path->text, below_options), field->clause);
  c->spec->below.kind = (enum spec_below)kind;
  c->spec->below.tokens = n;
  c->spec->below.span = s->span;
}

static void read_phase(struct checker *c, const struct ast_phrase *phrase,
                       const struct ast_word *word) {
  static const char *const names[] = {"prefill", "decode", NULL};
  bool prefill = strcmp(word->text, "prefill") == 0, decode = strcmp(word->text, "decode") == 0;
  bool *phase = prefill ? &c->spec->phases.prefill : &c->spec->phases.decode;
  struct span *span = prefill ? &c->spec->phases.prefill_span : &c->spec->phases.decode_span;
  if ((!prefill && !decode) || word->next) {
    diag_error(c->diag, word->span, E_VALUE, "phases", words_text(c->arena, word, NULL),
               "prefill, decode", hint(c->arena, word->text, names), "8.1");
    return;
  }
  if (*phase) {
    diag_error(c->diag, word->span, E_TWICE, word->text, "8.1");
    diag_also(c->diag, *span, "it was given here");
    return;
  }
  *phase = true;
  *span = word->span;
  if (prefill)
    check_block(c, phrase->block, HOME_PREFILL);
  else if (phrase->block)
    diag_error(c->diag, phrase->block->span, E_NO_BLOCK, "decode", "8.1");
}

void check_phases(struct checker *c, const struct field *field, struct ast_statement *s) {
  const struct ast_phrase *phrase = s->phrases;
  if (!check_once(c, field, phrase->words->span))
    return;
  c->spec->phases.present = true;
  c->spec->phases.span = s->span;
  if (phrase->words->next)
    read_phase(c, phrase, phrase->words->next);
  else
    diag_error(c->diag, phrase->words->span, E_NO_VALUE, field->name, field->allowed,
               field->clause);
  for (phrase = phrase->next; phrase; phrase = phrase->next)
    read_phase(c, phrase, phrase->words);
}
