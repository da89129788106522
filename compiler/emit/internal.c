/* internal.c: in goes what MLIR or LLVM said about a module of ours; nothing comes out, the process
 * ends. */
#include "compiler/emit/internal.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void internal_error(const char *stage, const char *why) {
  fprintf(stderr, "pisac: internal error: %s: %s\n", stage, why);
  fprintf(stderr, "pisac: this is a bug of pisac, not of the spec\n");
  abort();
}
