/* array.h: arrays in files, .npy or .safetensors ("file.safetensors:name").

   An array is contiguous, C order, little-endian, of rank at most 8. Whatever a file says is
   checked against its size before anything is allocated. Failures fill |error|, which is never
   NULL: PISA_IO when a file cannot be read or written, PISA_CORRUPT when it is damaged or not what
   its name says, PISA_UNSUPPORTED when it is sound but of a kind that is not read. */
#ifndef PISA_TOOL_ARRAY_H
#define PISA_TOOL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/pisa.h"

enum array_type { ARRAY_F32, ARRAY_F16, ARRAY_BF16, ARRAY_I32 }; /* BF16 in .npy: uint16 */
enum { ARRAY_MAX_RANK = 8 };

struct array {
  enum array_type type;
  int rank;
  int64_t shape[ARRAY_MAX_RANK];
  void *data; /* owned */
};

pisa_status array_read(const char *path, struct array *out, pisa_error *error);
/* |name| is what the array is called in a .safetensors file whose path names none. */
pisa_status array_write(const char *path, const char *name, const struct array *array,
                        pisa_error *error);
/* Whether |path| ends as a file that can be written: before long work, not after it. */
pisa_status array_check_path(const char *path, pisa_error *error);
void array_free(struct array *array);

int64_t array_elements(const struct array *array);
size_t array_item_size(enum array_type type);
const char *array_type_name(enum array_type type); /* "float32", ... */
/* "[1, 24, 4608, 128]" into |text|. */
enum { ARRAY_SHAPE_TEXT = ARRAY_MAX_RANK * 22 + 3 };
void array_shape_text(const struct array *array, char text[ARRAY_SHAPE_TEXT]);

/* Float data as elements of a pack's type, rounded once; |out| has array_elements(array) of them.
 */
void array_to_type(const struct array *array, pisa_type type, uint16_t *out);
/* The reverse: |in| as the elements of |array|, whose type, shape and data are set. */
void array_from_type(struct array *array, pisa_type type, const uint16_t *in);

/* ---- the two formats; array.c picks by the path ---- */

struct array_file { /* an open file that is read from the start */
  const char *path;
  FILE *stream;
  int64_t size;
};
pisa_status array_file_read(struct array_file *file, void *out, size_t bytes, pisa_error *error);
/* Sets out->data to the file's bytes [offset, offset + what the array's shape needs). */
pisa_status array_file_data(struct array_file *file, int64_t offset, struct array *out,
                            pisa_error *error);
/* Bytes of the array; false when a dimension is negative or the product overflows. */
bool array_bytes(const struct array *array, int64_t *out);

pisa_status npy_read(struct array_file *file, struct array *out, pisa_error *error);
pisa_status safetensors_read(struct array_file *file, const char *name, struct array *out,
                             pisa_error *error);
/* Header of a file that holds |array|; malloc'ed, |size| bytes. NULL when memory runs out. */
char *npy_header(const struct array *array, size_t *size);
char *safetensors_header(const struct array *array, const char *name, size_t *size);

#endif
