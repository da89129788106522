/* manifest_method.h: the lines of a manifest that make a struct pisa_method (docs/ABI.md section
   2). manifest_method.c reads those of method piecewise, manifest_pyramid.c those of method
   pyramid. */
#ifndef PISA_RUNTIME_MANIFEST_METHOD_H
#define PISA_RUNTIME_MANIFEST_METHOD_H

#include "runtime/lines.h"
#include "runtime/method.h"

/* A method while its lines are read. */
struct pisa_draft {
  struct pisa_method method;
  bool routed; /* the route line is not 'none' */
};

/* From 'shape' to the last line before 'validated': all of a method, checked. */
bool pisa_method_read(struct pisa_lines *lines, struct pisa_draft *out);
/* Those of 'blocks', 'route', 'always' and 'attend' that a variant repeats; the result is checked
   again. */
bool pisa_method_read_changes(struct pisa_lines *lines, struct pisa_draft *draft);

/* The same of method pyramid; a variant may repeat 'pyramid', 'route', 'always' and 'attend'. */
bool pisa_pyramid_read(struct pisa_lines *lines, struct pisa_draft *out);
bool pisa_pyramid_read_changes(struct pisa_lines *lines, struct pisa_draft *draft);

/* ---- what both have ---- */

bool pisa_method_read_shape(struct pisa_lines *lines, struct pisa_method *method);
/* "prefill decode", or one of them. */
bool pisa_method_read_phases(struct pisa_lines *lines, struct pisa_method *method);
/* Field |name|: a power of two from |low| to |high|, or 0 where |low| is 0. */
bool pisa_method_read_power(struct pisa_lines *lines, const char *name, int low, int high,
                            int *out);
/* The 'always' lines here replace those read before; 'always none' replaces them by nothing. */
bool pisa_method_read_always(struct pisa_lines *lines, struct pisa_method *method);

#endif
