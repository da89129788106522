/* fields.h: every word of the language as one table: where it may stand, what it may be set to, its
   clause.

   A word with a plain value (number, decimal, one of a list) is a row and no code; check.c has the
   functions of the others. tune, vary and --set go through the same rows, so a value is legal there
   exactly when it is in the body. */
#ifndef PISA_DSL_FIELDS_H
#define PISA_DSL_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsl/ast.h"
#include "dsl/spec.h"

struct checker;
struct text;

/* The blocks that words stand in. */
enum home {
  HOME_SPEC,
  HOME_SHAPE,
  HOME_BLOCKS,
  HOME_PYRAMID,
  HOME_ROUTE,
  HOME_ATTEND,
  HOME_PREFILL,
  HOME_PAGES,
  HOME_SCHEDULE,
  N_HOMES
};

enum field_kind {
  FIELD_CUSTOM,  /* |read| does it all */
  FIELD_RANGE,   /* int in [min, max] */
  FIELD_SET,     /* int, one of |numbers| */
  FIELD_OPTION,  /* enum, one of |options| */
  FIELD_SWITCH,  /* bool, one of |options| */
  FIELD_DECIMAL, /* struct decimal above 0, at most |max| */
  FIELD_SCORE,   /* score, or score + term */
  FIELD_START    /* root, or a number of nodes; decode_start: same, too */
};

/* Whether tune or vary may list it: a schedule choice never changes a result, a method choice does.
 */
enum field_sort { SORT_FIXED, SORT_TUNE, SORT_VARY };

struct option {
  const char *words; /* as written: "taylor hybrid"; NULL ends a list */
  int value;
};

struct field {
  const char *name;
  enum home home;
  enum field_kind kind;
  enum field_sort sort;
  const char *clause;  /* of docs/LANGUAGE.md: "3.1" */
  const char *allowed; /* for messages: "whole numbers from 1 to 4096" */
  int64_t min, max;
  const int *numbers; /* ends with 0 */
  const struct option *options;
  size_t value, span; /* offsets into struct spec */
  enum home
      inside; /* clause that is only a block: the home of its words; |value|: its `present`, or 0 */
  const char *lead; /* word between name and value: `reduce heads sum`; NULL: none */
  int budget; /* 1 + enum spec_budget when setting it chooses that budget; 0: none of the budgets */
  void (*read)(struct checker *checker, const struct field *field, struct ast_statement *statement);
};

extern const struct field fields[];
enum { N_FIELDS = 39 };

extern const char *const home_names[], *const home_clauses[]; /* by enum home */
extern const struct option route_options[], score_options[], term_options[], below_options[];

/* The row of |name| in |home|, or NULL. */
const struct field *field_find(const char *name, enum home home);
/* The first row of that name, wherever it stands, or NULL. */
const struct field *field_find_anywhere(const char *name);
/* The row that tune (SORT_TUNE) or vary (SORT_VARY) mean by |name|; NULL when there is none of that
 * sort. */
const struct field *field_find_choice(const char *name, enum field_sort sort);
/* The names in |home|, ending with NULL. */
const char **field_names(struct arena *arena, enum home home);
const char **field_choice_names(struct arena *arena, enum field_sort sort);

/* Sets |field| of |spec| to the words from |words| on (to the end of their phrase; at |span| as a
   whole). False after reporting to the checker's diag. */
bool field_set(struct checker *checker, const struct field *field, const struct ast_word *words,
               struct span span, struct spec *spec);
/* The value of |field| as the language writes it: "taylor hybrid", "0.15". */
void field_print(const struct field *field, const struct spec *spec, struct text *out);
/* The same without blanks, as choices, packs and --set spell it: "taylor_hybrid",
 * "mean+log_covariance". */
const char *field_canonical(struct arena *arena, const struct field *field,
                            const struct spec *spec);

/* "64, 96, 128, 256": what |field| may be, for messages. */
const char *field_allowed(struct arena *arena, const struct field *field);
/* The value of the option that |words| spell, in *|out|; false when none does. */
bool option_find(const struct option *options, const char *words, int *out);
/* Its inverse; "none" for a value that is not among |options|: what a route has no use for. */
const char *option_words(const struct option *options, int value);
/* Where the word |field| was written. */
struct span *field_span(const struct field *field, struct spec *spec);

#endif
