/* explain.h: what a spec does and costs, for a person. */
#ifndef PISA_EXPLAIN_H
#define PISA_EXPLAIN_H

#include "compiler/plan/variants.h"

enum { EXPLAIN_TOKENS = 8192 }; /* when the user names no length */

/* Appends the method, its defaults, the cost of variant 0 at |tokens| and everything that was not
 * built. */
void explain(struct arena *arena, const struct variants *variants, int64_t tokens,
             struct text *out);

/* The words of the language that |spec| left to their defaults, as a list: "kv_heads 24, always
 * none". */
void explain_defaults(const struct spec *spec, struct text *out);

/* The page of a plan that selects blocks, without variants (explain_selection.c). */
void explain_selection(const struct plan *plan, int64_t tokens, struct text *out);

/* Its first part, the method alone. */
void explain_selection_method(const struct plan *plan, struct text *out);

/* What both pages are made of: name, target and shape; phases and pages; forced token ranges,
   |block| being what they are ranges of; three figures and a unit of 1000 (1.88T, 64.5M, 0) in a
   column. */
void explain_shape(const struct plan *plan, struct text *out);
void explain_phases(const struct spec *spec, struct text *out);
void explain_ranges(const struct spec *spec, const char *block, struct text *out);
void explain_cell(struct text *out, int width, double value);

#endif
