/* ast.h: the syntax tree. Shape only: words, phrases, statements and blocks; what they mean is
   check.c's business.

       phases  prefill { query_tile 4 }, decode          one statement
       ------------------------------------------------
       phases prefill { query_tile 4 }   decode          its phrases, separated by commas
       ------ -------                    ------          their words
                      {              }                   the block of the first phrase, with one
   statement

   Every node lives in the arena of the parse and knows its place. */
#ifndef PISA_DSL_AST_H
#define PISA_DSL_AST_H

#include "dsl/source.h"

struct arena;
struct text;

enum ast_word_kind { AST_NAME, AST_INTEGER, AST_DECIMAL, AST_RANGE, AST_PLUS };

struct ast_word {
  enum ast_word_kind kind;
  struct span span;
  const char *text; /* as written; a range is "begin..end" without blanks */
  struct ast_word *next;
};

struct ast_block;

struct ast_phrase {
  struct span span;
  struct ast_word *words, *last_word; /* at least one */
  struct ast_block *block;            /* NULL: no braces */
  struct ast_phrase *next;
};

struct ast_statement {
  struct span span;
  struct ast_phrase *phrases, *last_phrase; /* at least one; its first word is the keyword */
  struct ast_statement *next;
};

struct ast_block {
  struct span span;                                  /* braces included */
  struct ast_statement *statements, *last_statement; /* may be NULL */
};

struct ast_spec {
  struct span span;
  struct ast_word *name;   /* NULL when the file has a syntax error there */
  struct ast_block *block; /* NULL likewise */
};

struct ast_word *ast_word(struct arena *arena, enum ast_word_kind kind, struct span span,
                          const char *text, size_t size);
struct ast_word *ast_range(struct arena *arena, struct span span, const struct ast_word *begin,
                           const struct ast_word *end);
struct ast_phrase *ast_phrase(struct arena *arena, struct ast_word *word);
struct ast_statement *ast_statement(struct arena *arena, struct ast_phrase *phrase);
struct ast_block *ast_block(struct arena *arena, struct span span);
struct ast_spec *ast_spec(struct arena *arena, struct span span, struct ast_word *name,
                          struct ast_block *block);

/* Each appends at the end, or completes, and returns its first argument. */
struct ast_phrase *ast_add_word(struct ast_phrase *phrase, struct ast_word *word);
struct ast_phrase *ast_add_block(struct ast_phrase *phrase, struct ast_block *block);
struct ast_statement *ast_add_phrase(struct ast_statement *statement, struct ast_phrase *phrase);
/* |statement| NULL: it had a syntax error, nothing is appended */
struct ast_block *ast_add_statement(struct ast_block *block, struct ast_statement *statement);
struct ast_block *ast_close_block(struct ast_block *block, struct span braces);

/* One line a node, indented, with byte offsets (`pisac emit --stage ast`). */
void ast_print(const struct ast_spec *spec, struct text *out);

#endif
