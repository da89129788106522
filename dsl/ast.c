/* Constructors of the syntax tree, one per grammar action, and its printer. */
#include "dsl/ast.h"

#include "dsl/arena.h"
#include "dsl/text.h"

struct ast_word *ast_word(struct arena *arena, enum ast_word_kind kind, struct span span,
                          const char *text, size_t size) {
  struct ast_word *word = ARENA_NEW(arena, struct ast_word);
  *word = (struct ast_word){.kind = kind, .span = span, .text = arena_strndup(arena, text, size)};
  return word;
}

struct ast_word *ast_range(struct arena *arena, struct span span, const struct ast_word *begin,
                           const struct ast_word *end) {
  struct ast_word *word = ARENA_NEW(arena, struct ast_word);
  *word = (struct ast_word){.kind = AST_RANGE,
                            .span = span,
                            .text = arena_printf(arena, "%s..%s", begin->text, end->text)};
  return word;
}

struct ast_phrase *ast_phrase(struct arena *arena, struct ast_word *word) {
  struct ast_phrase *phrase = ARENA_NEW(arena, struct ast_phrase);
  *phrase = (struct ast_phrase){.span = word->span, .words = word, .last_word = word};
  return phrase;
}

struct ast_statement *ast_statement(struct arena *arena, struct ast_phrase *phrase) {
  struct ast_statement *statement = ARENA_NEW(arena, struct ast_statement);
  *statement =
      (struct ast_statement){.span = phrase->span, .phrases = phrase, .last_phrase = phrase};
  return statement;
}

struct ast_block *ast_block(struct arena *arena, struct span span) {
  struct ast_block *block = ARENA_NEW(arena, struct ast_block);
  block->span = span;
  return block;
}

struct ast_spec *ast_spec(struct arena *arena, struct span span, struct ast_word *name,
                          struct ast_block *block) {
  struct ast_spec *spec = ARENA_NEW(arena, struct ast_spec);
  *spec = (struct ast_spec){.span = span, .name = name, .block = block};
  return spec;
}

struct ast_phrase *ast_add_word(struct ast_phrase *phrase, struct ast_word *word) {
  phrase->last_word = phrase->last_word->next = word;
  phrase->span.end = word->span.end;
  return phrase;
}

struct ast_phrase *ast_add_block(struct ast_phrase *phrase, struct ast_block *block) {
  phrase->block = block;
  phrase->span.end = block->span.end;
  return phrase;
}

struct ast_statement *ast_add_phrase(struct ast_statement *statement, struct ast_phrase *phrase) {
  statement->last_phrase = statement->last_phrase->next = phrase;
  statement->span.end = phrase->span.end;
  return statement;
}

struct ast_block *ast_add_statement(struct ast_block *block, struct ast_statement *statement) {
  if (!statement)
    return block;
  if (block->last_statement)
    block->last_statement->next = statement;
  else
    block->statements = statement;
  block->last_statement = statement;
  return block;
}

struct ast_block *ast_close_block(struct ast_block *block, struct span braces) {
  block->span = braces;
  return block;
}

static const char *const kind_names[] = {"name", "integer", "decimal", "range", "plus"};

static void print_node(const char *kind, struct span span, int depth, struct text *out) {
  text_printf(out, "%*s%s [%zu, %zu)", 2 * depth, "", kind, span.begin, span.end);
}

static void print_block(const struct ast_block *block, int depth, struct text *out);

static void print_phrase(const struct ast_phrase *phrase, int depth, struct text *out) {
  print_node("phrase", phrase->span, depth, out);
  text_putc(out, '\n');
  for (const struct ast_word *word = phrase->words; word; word = word->next) {
    print_node(kind_names[word->kind], word->span, depth + 1, out);
    text_printf(out, " %s\n", word->text);
  }
  if (phrase->block)
    print_block(phrase->block, depth + 1, out);
}

static void print_block(const struct ast_block *block, int depth, struct text *out) {
  print_node("block", block->span, depth, out);
  text_putc(out, '\n');
  for (const struct ast_statement *s = block->statements; s; s = s->next) {
    print_node("statement", s->span, depth + 1, out);
    text_putc(out, '\n');
    for (const struct ast_phrase *phrase = s->phrases; phrase; phrase = phrase->next)
      print_phrase(phrase, depth + 2, out);
  }
}

void ast_print(const struct ast_spec *spec, struct text *out) {
  print_node("spec", spec->span, 0, out);
  text_printf(out, " %s\n", spec->name ? spec->name->text : "?");
  if (spec->block)
    print_block(spec->block, 1, out);
}
