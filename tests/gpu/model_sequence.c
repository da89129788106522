/* model_sequence.c: arguments that all kernels of block selection have in; sequences and their rows
 * out.
 */
#include "tests/gpu/model_select.h"

static int64_t long_integer(const union model_value *args, int index) {
  return args[index].wide;
}

struct model_sequence model_sequence_at(const union model_value *args, int64_t b) {
  const int32_t *q_starts = pointer(args, PISA_SEQUENCE_q_starts),
                *k_starts = pointer(args, PISA_SEQUENCE_k_starts);
  int64_t n_q = integer(args, PISA_SEQUENCE_n_q), n_k = integer(args, PISA_SEQUENCE_n_k);
  struct model_sequence s = {b, n_q, b * n_q, b * n_k, n_k, 0, n_q, args};
  if (q_starts) {
    s.first = q_starts[b];
    s.queries = q_starts[b + 1] - s.first;
    s.k_begin = k_starts[b];
    s.room = k_starts[b + 1] - s.k_begin;
    s.k_begin -= s.k_begin > 0 && model_fault("starts");
  }
  s.keys = q_starts ? s.room
                    : keys_of(args, PISA_SEQUENCE_lengths, PISA_SEQUENCE_n_k, b, "lengths_select");
  return s;
}

/* Row |n| of an array whose pointer is argument |array|. */
uint16_t *model_row(const struct model_sequence *s, int array, bool key, int64_t head, int64_t n) {
  const int32_t *pages = pointer(s->args, PISA_SEQUENCE_pages);
  int64_t entry = s->b, columns = integer(s->args, PISA_SEQUENCE_page_columns);
  if (pointer(s->args, PISA_SEQUENCE_q_starts)) {
    entry = 0;
    n += key ? s->k_begin : s->first;
  } else if (key && pages) {
    entry = model_fault("pages") ? s->b : pages[s->b * columns + n / model_now.page];
    n %= model_now.page;
  }
  char *start = pointer(s->args, array);
  return (uint16_t *)(void *)(start + entry * long_integer(s->args, array + 1) +
                              head * long_integer(s->args, array + 2) +
                              n * long_integer(s->args, array + 3));
}

void model_widen_row(const uint16_t *in, float *out) {
  for (int d = 0; d < D; d++)
    out[d] = widen(in[d]);
}

int64_t model_out_row(const struct model_sequence *s, int64_t heads, int64_t head, int64_t n) {
  bool packed = pointer(s->args, PISA_SEQUENCE_q_starts) != NULL;
  return packed ? head * s->n_q + s->first + n : (s->b * heads + head) * s->n_q + n;
}
