#ifndef PISA_RUNTIME_PYTHON_DLPACK_H
#define PISA_RUNTIME_PYTHON_DLPACK_H
/* dlpack.h: what repeat.c uses of DLPack 1.x (dmlc/dlpack), whose tables tensors of torch 2.10 on
   have as __dlpack_c_exchange_api__ of their type: a capsule "dlpack_exchange_api". Layouts are
   those of its binary interface; functions that are not called here are only counted. */

#include <stdint.h>

enum { DLPACK_MAJOR = 1 };
enum { DLPACK_CPU = 1, DLPACK_CUDA = 2 };

typedef struct {
  int32_t type; /* DLPACK_CUDA */
  int32_t number;
} dlpack_device;

typedef struct {
  uint8_t code; /* 2: float, 4: bfloat, 0: int */
  uint8_t bits;
  uint16_t lanes;
} dlpack_type;

/* Shape and strides, the latter in elements, are the tensor's own: valid while nobody else runs. */
typedef struct {
  void *data;
  dlpack_device device;
  int32_t dimensions;
  dlpack_type type;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset; /* from |data| to the first element */
} dlpack_tensor;

typedef struct dlpack_header {
  uint32_t major, minor;
  struct dlpack_header *older; /* NULL, or the table of an earlier major version */
} dlpack_header;

typedef void dlpack_unused(void);

/* Both: 0, or -1 with a Python exception set. */
typedef int dlpack_look(void *object, dlpack_tensor *out);
typedef int dlpack_stream(int32_t device_type, int32_t device, void **out);

typedef struct {
  dlpack_header header;
  dlpack_unused *make, *share, *take;
  dlpack_look *look;             /* a tensor, as it lies; may be NULL */
  dlpack_stream *current_stream; /* that of the calling thread */
} dlpack_exchange;

#endif
