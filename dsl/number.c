/* Exact numbers from digits: no floating point, so that 0.29 of 100 blocks is 29. */
#include "dsl/number.h"

#include <string.h>

#include "dsl/text.h"

int64_t number_integer(const char *digits) {
  int64_t value = 0;
  for (; *digits; digits++) {
    int digit = *digits - '0';
    if (value > (INT64_MAX - digit) / 10)
      return INT64_MAX;
    value = value * 10 + digit;
  }
  return value;
}

bool number_decimal(const char *text, struct decimal *out) {
  enum {
    LIMIT = 1000000000
  }; /* 10^9 in front of the point, and 10^9 as denominator, fit 63 bits */
  struct decimal value = {0, 1};
  for (; *text && *text != '.'; text++) {
    value.num = value.num * 10 + (*text - '0');
    if (value.num > LIMIT)
      return false;
  }
  size_t places = *text ? strlen(text + 1) : 0;
  while (places > 0 && text[places] == '0')
    places--;
  if (places > DECIMAL_PLACES)
    return false;
  for (size_t i = 1; i <= places; i++) {
    value.num = value.num * 10 + (text[i] - '0');
    value.den *= 10;
  }
  *out = value;
  return true;
}

int decimal_compare(struct decimal a, struct decimal b) {
  int64_t whole_a = a.num / a.den, whole_b = b.num / b.den;
  int64_t part_a = a.num % a.den * b.den, part_b = b.num % b.den * a.den; /* below 10^18 each */
  if (whole_a != whole_b)
    return whole_a < whole_b ? -1 : 1;
  return part_a < part_b ? -1 : part_a > part_b;
}

void decimal_print(struct decimal value, struct text *out) {
  text_printf(out, "%lld", (long long)(value.num / value.den));
  if (value.den == 1)
    return;
  text_putc(out, '.');
  int64_t part = value.num % value.den;
  for (int64_t den = value.den / 10; den > 0; den /= 10) {
    text_putc(out, (char)('0' + part / den));
    part %= den;
  }
}
