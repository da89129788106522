/* convert.c: bit patterns of bfloat16 and IEEE binary16 in, floats out, and back.
   A float is sign(1) exponent(8, bias 127) fraction(23); bf16 is its upper half; fp16 is 1, 5 (bias
   15), 10. */
#include "runtime/cpu/convert.h"

#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* |bits| >> |drop|, rounded to nearest even. */
static uint32_t shift_to_even(uint32_t bits, unsigned drop) {
  uint32_t half = (uint32_t)1 << (drop - 1);
  uint32_t odd = (bits >> drop) & 1;
  return (bits + half - 1 + odd) >> drop;
}

float cpu_from_bf16(uint16_t bits) {
  return float_of((uint32_t)bits << 16);
}

uint16_t cpu_to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if (value != value)
    return (uint16_t)(bits >> 16 | 0x40); /* quiet, so that a NaN of low bits does not become inf */
  return (uint16_t)shift_to_even(bits, 16);
}

float cpu_from_fp16(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0x1f)
    return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return float_of(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t cpu_to_fp16(float value) {
  uint32_t bits = bits_of(value);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) /* 2^16 and more, inf too */
    return (uint16_t)(sign | 0x7c00);
  if (magnitude >= 0x38800000) /* normal: 2^-14 and more; a carry may reach inf, as it should */
    return (uint16_t)(sign | shift_to_even(magnitude - ((uint32_t)(127 - 15) << 23), 13));
  if (magnitude < 0x33000000) /* less than half of the smallest subnormal, 2^-25 */
    return (uint16_t)sign;
  uint32_t exponent = magnitude >> 23, significand = (magnitude & 0x7fffff) | 0x800000;
  return (uint16_t)(sign | shift_to_even(significand, 126 - exponent)); /* in units of 2^-24 */
}

float cpu_widen(pisa_type type, uint16_t bits) {
  return type == PISA_BF16 ? cpu_from_bf16(bits) : cpu_from_fp16(bits);
}

uint16_t cpu_narrow(pisa_type type, float value) {
  return type == PISA_BF16 ? cpu_to_bf16(value) : cpu_to_fp16(value);
}

double cpu_round(pisa_type type, double value) {
  return (double)cpu_widen(type, cpu_narrow(type, (float)value));
}

void cpu_widen_row(pisa_type type, size_t n, const uint16_t *in, float *out) {
  if (type == PISA_BF16)
    for (size_t i = 0; i < n; i++)
      out[i] = cpu_from_bf16(in[i]);
  else
    for (size_t i = 0; i < n; i++)
      out[i] = cpu_from_fp16(in[i]);
}
