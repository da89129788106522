/* convert.h: the 16-bit types of a pack, to and from float.

   Rounding is to nearest, ties to even, in one step from float. Infinities stay infinite, a NaN
   stays a (quiet) NaN, values beyond the largest finite one become infinite, subnormals of the
   16-bit type are kept. */
#ifndef PISA_CPU_CONVERT_H
#define PISA_CPU_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/pisa.h"

float cpu_from_bf16(uint16_t bits);
float cpu_from_fp16(uint16_t bits);
uint16_t cpu_to_bf16(float value);
uint16_t cpu_to_fp16(float value);

float cpu_widen(pisa_type type, uint16_t bits);
uint16_t cpu_narrow(pisa_type type, float value);
/* The value |value| has once stored in |type|: what "rounded" means in every formula. A double
   passes through float first, as the accumulators of the GPU do. */
double cpu_round(pisa_type type, double value);

/* out[i] = widened in[i], n elements. */
void cpu_widen_row(pisa_type type, size_t n, const uint16_t *in, float *out);

#endif
