/* select.h: block selection (family PISA_PYRAMID) and decoding: what a call is checked for beside
   what shape.h says, and the numbers of docs/ABI.md section 6 that follow from its sizes. */
#ifndef PISA_RUNTIME_SELECT_H
#define PISA_RUNTIME_SELECT_H

#include "runtime/limits.h"

/* Everything of a call but its arrays. */
pisa_status pisa_select_sizes(const struct pisa_method *method, const pisa_attention *call,
                              struct pisa_shape *out, pisa_error *error);

/* The fields that only block selection has, on a call of another pack: they must be zero, but for
   the phase and pages of packs that decode. */
pisa_status pisa_select_unused(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error);

/* Of phase decode of a dense pack all but |splits| is 0. */
struct pisa_select_numbers {      /* letters as in abi.def; not checked to fit 32 bits */
  int64_t node_rows;              /* P */
  int64_t spans, leaves, parents; /* NS, NL, NP */
  int64_t chunk, segments;        /* NSEG */
  int64_t item_room;
  int64_t splits;                  /* of decode_attend */
  int64_t csr_chunk, csr_segments; /* of a key head */
};
struct pisa_select_numbers pisa_select_numbers(const struct pisa_method *method,
                                               const struct pisa_shape *shape, int sm_count);

/* PISA_UNSUPPORTED, naming the number that does not fit the kernels' 32-bit counters;
   PISA_INVALID_ARGUMENT where a call that the CPU can serve lacks what the GPU needs. */
pisa_status pisa_select_limits(const struct pisa_method *method, const struct pisa_shape *shape,
                               const struct pisa_limits *limits, pisa_error *error);

#endif
