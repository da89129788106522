/* suggest.h: "did you mean". */
#ifndef PISA_DSL_SUGGEST_H
#define PISA_DSL_SUGGEST_H

/* The one of |words| (ending with NULL) nearest to |word| by edit distance (a swap of neighbours
   counts one), first one on ties; NULL when none is near enough: at most a third of the word's
   letters, at least one, may differ. */
const char *suggest(const char *word, const char *const *words);

#endif
