/* symbol.h: what a pair may be called. */
#ifndef PISA_PAIR_SYMBOL_H
#define PISA_PAIR_SYMBOL_H

/* Why |symbol| cannot begin the names of a pair, as the end of a sentence: "is a word of C or C++".
 * NULL: it can. */
const char *symbol_refused(const char *symbol);

#endif
