/* number.h: digits to exact numbers. */
#ifndef PISA_DSL_NUMBER_H
#define PISA_DSL_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "dsl/spec.h" /* struct decimal */

struct text;

enum { DECIMAL_PLACES = 9 }; /* digits behind the point; the runtime reads a density to as many */

/* Digits only; stops growing at INT64_MAX. */
int64_t number_integer(const char *digits);
/* "15", "0.150" ({15, 100}); false: more than DECIMAL_PLACES places that are not 0, or above 10^9.
 */
bool number_decimal(const char *text, struct decimal *out);
/* -1, 0, 1 for a < b, a = b, a > b. */
int decimal_compare(struct decimal a, struct decimal b);
/* "0.15", "1"; the text that number_decimal reads back. */
void decimal_print(struct decimal value, struct text *out);

#endif
