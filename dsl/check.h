/* check.h: what the chapters of the checker share. Private to dsl/. */
#ifndef PISA_DSL_CHECK_H
#define PISA_DSL_CHECK_H

#include "dsl/ast.h"
#include "dsl/diag.h"
#include "dsl/fields.h"
#include "dsl/spec.h"

struct arena;

enum { MAX_TOKENS = 1 << 30 }; /* highest token number a spec may name */

#define ALWAYS_ALLOWED                                                                             \
  "none, first, last, previous, current, diagonal, window N, tokens A..B, tokens first N, "        \
  "tokens last N"

struct checker {
  struct arena *arena;
  struct diag *diag;
  struct spec *spec;
  struct span seen[N_FIELDS]; /* where each word of the table was written; {0, 0}: it was not */
  bool misspelt[N_HOMES];     /* an unknown word was found there */
  bool damaged;               /* syntax errors: what is missing may be missing because of them */
  bool broken;                /* the body has errors: relations between its words are not judged */
  bool setting;               /* one value is being changed: every broken rule is its fault ... */
  struct span at;             /* ... and is reported here */
  const struct source *file;  /* while setting from --set: the file the other spans refer to */
  const struct ast_block *tune, *vary; /* read last, when the body is known; may be NULL */
};

/* Tree to checked spec; NULL when anything is wrong. |damaged|: the tree comes from a text with
 * syntax errors. */
struct spec *check(struct arena *arena, const struct ast_spec *ast, bool damaged,
                   struct diag *diag);

/* chapters, called by the table of words */
void check_clause(struct checker *, const struct field *,
                  struct ast_statement *); /* a word with only a block */
void check_route(struct checker *, const struct field *, struct ast_statement *);
void check_always(struct checker *, const struct field *, struct ast_statement *);
void check_all(struct checker *, const struct field *, struct ast_statement *);
void check_selected(struct checker *, const struct field *, struct ast_statement *);
void check_below(struct checker *, const struct field *, struct ast_statement *);
void check_phases(struct checker *, const struct field *, struct ast_statement *);
void check_choices(struct checker *, const struct field *,
                   struct ast_statement *); /* only remembers them */

/* Reads the statements of |block|, whose words stand in |home|. |block| may be NULL: nothing was
 * written. */
void check_block(struct checker *checker, const struct ast_block *block, enum home home);
/* Marks |field| as written at |span|; false after reporting when it was before. */
bool check_once(struct checker *checker, const struct field *field, struct span span);
/* |statement| is a keyword, the words |extra| that should not be there (NULL: none), and one block.
 */
bool check_only_block(struct checker *checker, const struct field *field,
                      const struct ast_statement *statement, const struct ast_word *extra);
/* Where the word |name| was written; {0, 0}: it was not. */
struct span written_at(const struct checker *checker, const char *name, enum home home);
bool was_written(const struct checker *checker, const char *name, enum home home);
/* The words of |statement| behind the keyword; NULL after reporting when there are none, several
 * phrases, or braces. */
const struct ast_word *check_value(struct checker *checker, const struct field *field,
                                   const struct ast_statement *statement, struct span *span);
/* The words from |words| up to |end| (NULL: to the end of the phrase), with one blank between. */
const char *words_text(struct arena *arena, const struct ast_word *words,
                       const struct ast_word *end);
/* "a, b, c" */
const char *list_text(struct arena *arena, const char *const *names);
const char *option_list(struct arena *arena, const struct option *options);
/* "; did you mean 'heads'?" or "" */
const char *hint(struct arena *arena, const char *word, const char *const *names);
const char *hint_option(struct arena *arena, const char *words, const struct option *options);

/* What was left out gets its default (before the rules). */
void fill_defaults(struct checker *checker);
/* Relations between words: what makes sense together. */
void check_rules(struct checker *checker);
/* Reports a broken rule at |span|, or where the value being set stands. */
void rule(struct checker *checker, struct span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* |spec| with |field| set to |words|, judged as a whole; false after reporting at |span|. */
bool try_value(struct checker *checker, const struct field *field, const struct ast_word *words,
               struct span span, struct spec *spec);
/* `all exact` leaves nothing to choose in |field|. */
bool is_moot(const struct spec *spec, const struct field *field);
/* tune and vary, after the body. */
void check_tune_and_vary(struct checker *checker);
/* Key blocks that the always-set may take of one list, at most, in a long sequence. */
int64_t always_count(const struct spec *spec);

#endif
