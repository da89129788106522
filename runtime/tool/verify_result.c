/* verify_result.c: what is tolerated and what the comparisons found; the first failures in words,
 * all of them counted. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "runtime/tool/verify.h"

struct verify_limits verify_limits_of(pisa_type type) {
  static const struct verify_limits limits[] = {
      [PISA_BF16] = {.o_rel = 4e-3, .h_sum_rel = 5e-3, .ulp = 0x1p-8},
      [PISA_FP16] = {.o_rel = 1e-3, .h_sum_rel = 1e-3, .ulp = 0x1p-11}};
  return limits[type];
}

void verify_result_init(struct verify_result *result) {
  memset(result, 0, sizeof *result);
  pthread_mutex_init(&result->lock, NULL);
}

void verify_result_free(struct verify_result *result) {
  pthread_mutex_destroy(&result->lock);
}

void verify_inherit(struct verify_result *result, const struct verify_result *other) {
  result->mean_ulp = other->mean_ulp;
  result->norm_rel = other->norm_rel;
  result->h_sum_rel = other->h_sum_rel;
  result->o_square_error = other->o_square_error;
  result->o_square = other->o_square;
  result->block_rel = other->block_rel;
  result->lse_abs = other->lse_abs;
  result->score_gap = other->score_gap;
  result->swaps = other->swaps;
  result->blocks_compared = other->blocks_compared;
  result->blocks = other->blocks;
  result->inherited = true;
}

void verify_fail(struct verify_result *result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&result->lock);
  if (result->n_failures < VERIFY_MAX_FAILURES)
    vsnprintf(result->failures[result->n_failures], VERIFY_FAILURE_LENGTH, format, arguments);
  result->n_failures++;
  pthread_mutex_unlock(&result->lock);
  va_end(arguments);
}

void verify_note(struct verify_result *result, double *largest, double value) {
  pthread_mutex_lock(&result->lock);
  if (!(value <= *largest))
    *largest = value;
  pthread_mutex_unlock(&result->lock);
}

double verify_o_rel(const struct verify_result *result) {
  return result->o_square_error == 0 ? 0 : sqrt(result->o_square_error / result->o_square);
}
