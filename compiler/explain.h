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

#endif
