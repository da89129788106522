/* step.h: one op of the pisa dialect at a time. Private to dialect/. */
#ifndef PISA_DIALECT_STEP_H
#define PISA_DIALECT_STEP_H

#include "compiler/dialect/dialect.h"
#include "dsl/source.h"

enum { MAX_VALUES = 11 };

struct builder {
  struct context *context;
  const struct plan *plan;
  const struct source *source; /* NULL: ops have no locations */
  MlirBlock body;
};

struct step {
  const char *op, *name; /* "pisa.route", and what its results are called */
  struct span span;
  const char *attributes;
  int n_operands, n_results;
  MlirValue operands[MAX_VALUES];
  const char *results[MAX_VALUES]; /* "B, Hk, NT, D half"; "" when not wanted */
};

/* Appends |step|. */
MlirOperation step_append(const struct builder *b, const struct step *step);

MlirValue step_result(MlirOperation op, int i);

/* A location named |name| (it names the results when printed) at |span| of the spec. */
MlirLocation step_location(const struct builder *b, const char *name, struct span span);

/* The caller's q, k and v. */
MlirOperation step_input(const struct builder *b);

/* ", always = [" and the token ranges of the always-set; returns how many. */
int step_ranges(const struct spec *spec, struct text *out);

/* Short calls attend densely (method.c). */
void step_attend_below(const struct builder *b, MlirOperation qkv);

/* The steps of block selection (selection.c). */
void step_selection(const struct builder *b, MlirOperation qkv);

#endif
