/* parse.h: state of one reading of one text, shared by lexer.l and parser.y, and what the rest of
 * dsl/ may call. */
#ifndef PISA_DSL_PARSE_H
#define PISA_DSL_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "dsl/source.h"

struct arena;
struct ast_phrase;
struct ast_spec;
struct diag;
struct text;

enum { PARSE_MAX_DEPTH = 8 }; /* open braces; the language itself needs three */

struct parse {
  struct arena *arena;
  struct diag *diag;
  const struct source *source;
  size_t offset;                     /* of the next byte */
  int depth;                         /* open braces */
  struct span open[PARSE_MAX_DEPTH]; /* where they are */
  bool has_spec;                     /* "spec" was read, */
  bool has_block;                    /* and its '}' */
  bool continues;                    /* after ',' or '+': a line break does not end the statement */
  bool stopped;                      /* nested too deep: the rest of the text is not read */
  bool wants_phrase;                 /* the text is one value (--set), not a file: */
  bool announced;                    /* the lexer's first token says so to the parser */
  struct span *comments;             /* '#' to the end of the line, in source order */
  int n_comments, comments_capacity;
  struct ast_spec *spec;     /* result; NULL when there is none */
  struct ast_phrase *phrase; /* result when wants_phrase */
};

void parse_init(struct parse *parse, struct arena *arena, const struct source *source,
                struct diag *diag);
/* Reads a whole file. False when it has syntax errors (all reported); |parse->spec| then holds what
 * could be read. */
bool parse_file(struct parse *parse);
/* Reads one value of `--set name=value`; |parse->phrase| is the result. */
bool parse_value(struct parse *parse);
/* One token a line: place, kind, text. */
bool parse_print_tokens(struct parse *parse, struct text *out);

/* The layout of `pisac fmt` of what |parse| read without errors. */
void format_print(struct arena *arena, const struct parse *parse, struct text *out);

#endif
