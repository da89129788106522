/* template.h: text with holes. In a template @name@ is a value's text, and lines from `%if a !b` to
   `%else` or `%end` stand only where value a is there and b is not; blocks nest. */
#ifndef PISA_PAIR_TEMPLATE_H
#define PISA_PAIR_TEMPLATE_H

#include "dsl/text.h"

struct template_value {
  const char *name; /* NULL ends a list */
  const char *text; /* NULL: not there, only to be asked for */
};

/* Appends |template| with its holes filled. A template that names no value of |values|, or whose
 * blocks do not match, is a mistake of ours. */
void template_fill(const char *template, const struct template_value *values, struct text *out);

#endif
