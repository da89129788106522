/* status.h: how the runtime reports that the world failed. A function that fails returns
   `pisa_fail(error, status, sentence)`; a caller that knows more prefixes it with pisa_add_context.
 */
#ifndef PISA_RUNTIME_STATUS_H
#define PISA_RUNTIME_STATUS_H

#include "runtime/pisa.h"

#if defined(__GNUC__)
#define PISA_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define PISA_PRINTF(format_index, first)
#endif

/* Fills |error| (may be NULL) with |status| and the formatted sentence; returns |status|. */
pisa_status pisa_fail(pisa_error *error, pisa_status status, const char *format, ...)
    PISA_PRINTF(3, 4);

/* Puts "context: " before the message of |error| (may be NULL) and returns its argument |status|.
   What no longer fits is cut at the end of the message, never of the context. */
pisa_status pisa_add_context(pisa_error *error, pisa_status status, const char *format, ...)
    PISA_PRINTF(3, 4);

/* Clears |error| (may be NULL): every public function calls it first. */
void pisa_clear(pisa_error *error);

#endif
