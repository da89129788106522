/* model_kernels.h: what the kernels of runtime/abi.def do, on the host in float: the model driver
   runs these where a GPU would run compiled code. Independent of the oracle, so that `pisa verify`
   is tested against something that is right only to rounding; with a fault switched on, against
   something that is wrong. */
#ifndef PISA_TESTS_GPU_MODEL_KERNELS_H
#define PISA_TESTS_GPU_MODEL_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/cuda.h"

/* What the model driver keeps in the 128 bytes of a tensor map. All zero: no such array. */
struct model_map {
  uint16_t *data;    /* elements of the pack's type */
  int64_t extent[4]; /* D, rows, heads, batch */
  int64_t stride[4]; /* in elements; the first is 1 */
};

union model_value { /* one parameter of a kernel */
  CUtensorMap bytes;
  struct model_map map;
  uint64_t pointer;
  int32_t integer;
  int64_t wide;
  float number;
};

enum model_score { MODEL_MEAN, MODEL_HALF_VARIANCE, MODEL_LSE };
enum model_reduce { MODEL_SUM, MODEL_MAX, MODEL_LOG_SUM, MODEL_MASS, MODEL_MAX_MASS };

struct model_build { /* what a compiler would compile in */
  int head_dim, group, query, key;
  pisa_type type;
  bool key_variance;  /* h_norm2 holds tr C_j, not ||H_j||^2 */
  bool residual;      /* h_norm2 is written by the kernel residual */
  bool threshold;     /* blocks above a limit, in place of top-k */
  bool full_variance; /* sigma from the scores themselves */
  bool linear;        /* taylor 1: lists go on with what they do not list */
  bool second_order;  /* of a linear block: p gains e^(var / 2) */
  bool pairs;         /* lists union */
  bool causal;
  int page; /* of kernels that decode and select */
  /* block selection: */
  int leaf, children, keep, start;
  enum model_score score;
  enum model_reduce reduce;
  bool flat, first, previous, current;
};

/* From "... heads=4 kv_heads=2 head_dim=96 type=fp16 ..." anywhere in the text of the code. */
struct model_build model_read_build(const char *image);

/* Which of attend's kernels runs. */
enum model_attend { MODEL_ATTEND, MODEL_EDGE, MODEL_DENSE };

/* The parameters in the order of abi.def. One kernel runs at a time. */
void model_statistics(const struct model_build *build, const union model_value *args, int grid);
void model_residual(const struct model_build *build, const union model_value *args);
void model_route(const struct model_build *build, const union model_value *args);
void model_attend(const struct model_build *build, const union model_value *args,
                  enum model_attend kernel);

/* Block selection, after model_enter. */
void model_pyramid(const union model_value *args);
void model_walk(const union model_value *args);
void model_pick(const union model_value *args);
void model_flat(const union model_value *args);
void model_csr_count(const union model_value *args);
void model_csr_scan(const union model_value *args);
void model_csr_fill(const union model_value *args);
void model_attend_blocks(const union model_value *args);
void model_append(const union model_value *args);
void model_decode(const union model_value *args);
void model_decode_blocks(const union model_value *args); /* behind it, where there is an o */
void model_decode_attend(const union model_value *args);
void model_decode_merge(const union model_value *args);
void model_enter(const struct model_build *build);

/* Whether PISA_MODEL_FAULT names |fault|. */
bool model_fault(const char *fault);

#endif
