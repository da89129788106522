/* parser.y: tokens to a syntax tree (docs/LANGUAGE.md, chapter 1). The grammar only builds; check.c
   judges. LALR(1) without conflicts: do not raise %expect, mend the rule. */
%require "3.8"
%define api.pure full
%define api.prefix {pisa_yy}
%define api.token.prefix {TOK_}
%define api.location.type {struct span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {void *scanner}
%parse-param {struct parse *p}

%code requires {
#include "dsl/ast.h"
#include "dsl/parse.h"
}

%code provides {
/* flex asks for these names whatever the prefix */
#define YYSTYPE PISA_YYSTYPE
#define YYLTYPE PISA_YYLTYPE
}

%code {
#include "dsl/diag.h"
#include "dsl/messages.h"
#include "dsl/text.h"
#include "lexer.h"

#include <string.h>

/* A rule spans its first to its last symbol; an empty one sits behind the symbol before it. */
#define YYLLOC_DEFAULT(current, rhs, n)                                                            \
  ((current) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                                 \
                   : (struct span){YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

static void pisa_yyerror(const struct span *span, void *scanner, struct parse *p,
                         const char *message);
}

%union {
  struct ast_word *word;
  struct ast_phrase *phrase;
  struct ast_statement *statement;
  struct ast_block *block;
  struct ast_spec *spec;
}

%token <word> NAME "a word" INTEGER "a whole number" DECIMAL "a decimal" '+'
%token SPEC "'spec'" DOTDOT "'..'" END "the end of the statement" YYEOF 0 "the end of the text"
%token VALUE "a value" /* not in the text: comes first when one value is parsed, not a file */

%type <spec> spec
%type <block> block lines
%type <statement> line last open closed
%type <phrase> head phrase
%type <word> word

%%

text: spec                              { p->spec = $spec; }
    | spec error                        { p->spec = $spec; }
    | error
    | error block                       { p->spec = ast_spec(p->arena, @block, NULL, $block); }
    | VALUE phrase                      { p->phrase = $phrase; }
    | VALUE error
    ;

spec: SPEC NAME block                   { $$ = ast_spec(p->arena, @$, $NAME, $block); }
    | SPEC error block                  { $$ = ast_spec(p->arena, @$, NULL, $block); }
    ;

block: '{' '}'                          { $$ = ast_block(p->arena, @$); }
     | '{' lines '}'                    { $$ = ast_close_block($lines, @$); }
     | '{' last '}'                     { $$ = ast_add_statement(ast_block(p->arena, @$), $last); }
     | '{' lines last '}'               { $$ = ast_close_block(ast_add_statement($lines, $last),
                                                                 @$); }
     ;

lines: line                             { $$ = ast_add_statement(ast_block(p->arena, @$), $line); }
     | lines line                       { $$ = ast_add_statement($1, $line); }
     ;

/* A line break, ';' or '}' ends a statement. One with a syntax error is left out: no statement. */
line: END                               { $$ = NULL; }
    | open END
    | closed
    | error END                         { $$ = NULL; }
    | error block                       { $$ = NULL; }
    ;

/* The last statement before '}'. */
last: open
    | error                             { $$ = NULL; }
    ;

/* A statement whose last phrase has no braces ... */
open: head                              { $$ = ast_statement(p->arena, $head); }
    | open ',' phrase                   { $$ = ast_add_phrase($1, $phrase); }
    | closed ',' phrase                 { $$ = ast_add_phrase($1, $phrase); }
    ;

/* ... and one whose last phrase has. */
closed: head block                      { $$ = ast_statement(p->arena,
                                                                  ast_add_block($head, $block)); }
      | open ',' phrase block           { $$ = ast_add_phrase($1, ast_add_block($phrase, $block)); }
      | closed ',' phrase block         { $$ = ast_add_phrase($1, ast_add_block($phrase, $block)); }
      ;

head: NAME                              { $$ = ast_phrase(p->arena, $NAME); }
    | head word                         { $$ = ast_add_word($1, $word); }
    | head '+' word                     { $$ = ast_add_word(ast_add_word($1, $2), $word); }
    ;

phrase: word                            { $$ = ast_phrase(p->arena, $word); }
      | phrase word                     { $$ = ast_add_word($1, $word); }
      | phrase '+' word                 { $$ = ast_add_word(ast_add_word($1, $2), $word); }
      ;

word: NAME
    | INTEGER
    | DECIMAL
    | INTEGER DOTDOT INTEGER            { $$ = ast_range(p->arena, @$, $1, $3); }
    ;

%%

void parse_init(struct parse *p, struct arena *arena, const struct source *source,
                struct diag *diag) {
  *p = (struct parse){.arena = arena, .diag = diag, .source = source};
}

/* "'}'", "the end of the line", ... for the token at |span|. */
static void print_found(const struct parse *p, struct span span, struct text *out) {
  const char *text = p->source->text + span.begin;
  if (span.begin == p->source->size)
    text_puts(out, "the end of the text");
  else if (*text == '\n')
    text_puts(out, "the end of the line");
  else
    text_printf(out, "'%.*s'", (int)(span.end - span.begin), text);
}

enum { MAX_EXPECTED = 10 };

/* "a word, ',' or '}'" */
static void print_expected(const yypcontext_t *context, struct text *out) {
  yysymbol_kind_t expected[MAX_EXPECTED];
  int n = yypcontext_expected_tokens(context, expected, MAX_EXPECTED);
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", yysymbol_name(expected[i]));
}

/* Mistakes that have a sentence of their own. */
static bool report_known(const yypcontext_t *context, struct parse *p, struct span span,
                         const char *found) {
  if (yypcontext_token(context) == YYSYMBOL_SPEC)
    diag_error(p->diag, span, E_ONE_SPEC);
  else if (!p->has_spec && !p->wants_phrase)
    diag_error(p->diag, span, E_NO_SPEC, found);
  else if (p->has_block && !p->wants_phrase)
    diag_error(p->diag, span, E_AFTER_SPEC, found);
  else
    return false;
  return true;
}

static int yyreport_syntax_error(const yypcontext_t *context, void *scanner, struct parse *p) {
  (void)scanner;
  struct span span = *yypcontext_location(context);
  struct text found, expected;
  text_init(&found);
  text_init(&expected);
  print_found(p, span, &found);
  print_expected(context, &expected);
  if (!report_known(context, p, span, found.data))
    diag_error(p->diag, span, E_SYNTAX, expected.data, found.data);
  text_fini(&found);
  text_fini(&expected);
  return 0;
}

/* Only for a parser stack that is full, which PARSE_MAX_DEPTH rules out. */
static void pisa_yyerror(const struct span *span, void *scanner, struct parse *p,
                         const char *message) {
  (void)scanner;
  diag_error(p->diag, *span, E_SYNTAX, "a shorter text", message);
}

static void *scanner_open(struct parse *p) {
  static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors write */
  void *scanner;
  p->diag->source = p->source;
  if (strncmp(p->source->text, mark, strlen(mark)) == 0)
    p->offset = strlen(mark);
  if (pisa_yylex_init_extra(p, &scanner) != 0 ||
      !pisa_yy_scan_bytes(p->source->text + p->offset, (int)(p->source->size - p->offset), scanner))
    return NULL;
  return scanner;
}

static bool run(struct parse *p) {
  int errors = p->diag->n_errors;
  void *scanner = scanner_open(p);
  if (!scanner) {
    diag_world(p->diag, "out of memory");
    return false;
  }
  pisa_yyparse(scanner, p);
  pisa_yylex_destroy(scanner);
  return p->diag->n_errors == errors;
}

bool parse_file(struct parse *p) {
  return run(p);
}

bool parse_value(struct parse *p) {
  p->wants_phrase = true;
  return run(p);
}

static const char *token_kind(int token) {
  switch (token) {
  case TOK_NAME:
    return "name";
  case TOK_INTEGER:
    return "integer";
  case TOK_DECIMAL:
    return "decimal";
  case TOK_SPEC:
    return "spec";
  case TOK_END:
  case 0:
    return "end";
  case TOK_PISA_YYerror:
    return "bad";
  default:
    return "punctuation";
  }
}

bool parse_print_tokens(struct parse *p, struct text *out) {
  int errors = p->diag->n_errors;
  void *scanner = scanner_open(p);
  if (!scanner) {
    diag_world(p->diag, "out of memory");
    return false;
  }
  YYSTYPE value;
  struct span span;
  int token;
  do {
    token = pisa_yylex(&value, &span, scanner);
    struct place place = source_place(p->source, span.begin);
    struct text found;
    text_init(&found);
    print_found(p, span, &found);
    text_printf(out, "%d:%d %s %s\n", place.line, place.column, token_kind(token), found.data);
    text_fini(&found);
  } while (token != 0);
  pisa_yylex_destroy(scanner);
  return p->diag->n_errors == errors;
}
