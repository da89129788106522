/* model_select.h: sequences of the kernels of block selection as the model driver sees them. */
#ifndef PISA_TESTS_GPU_MODEL_SELECT_H
#define PISA_TESTS_GPU_MODEL_SELECT_H

#include "tests/gpu/model_build.h"

struct model_sequence { /* runtime/pyramid.def */
  int64_t b, queries, first, k_begin, room, keys;
  int64_t n_q; /* argument of that name */
  const union model_value *args;
};

struct model_sequence model_sequence_at(const union model_value *args, int64_t b);
/* Row |n| of the array whose pointer is argument |array| and whose strides follow it; |key|: of
   keys or values, which pages may hold. */
uint16_t *model_row(const struct model_sequence *s, int array, bool key, int64_t head, int64_t n);
void model_widen_row(const uint16_t *in, float *out);
/* Row of the caller's arrays with |heads| heads. */
int64_t model_out_row(const struct model_sequence *s, int64_t heads, int64_t head, int64_t n);

#endif
