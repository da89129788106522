/* internal.h: the end of a compilation that is our own fault. */
#ifndef PISA_EMIT_INTERNAL_H
#define PISA_EMIT_INTERNAL_H

/* Prints "pisac: internal error: |stage|: |why|" to stderr and aborts. Never for a wrong spec (a
   diagnostic) and never for the world (a status): only for a module, a pass or a translation that
   must not fail and did. */
_Noreturn void internal_error(const char *stage, const char *why);

#endif
