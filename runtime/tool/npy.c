/* npy.c: the header of a NumPy .npy file in, its array out; and the reverse.
   A file is "\x93NUMPY", a version (major, minor), the header's length (16 bits in version 1, 32 in
   2 and 3), the header, then the elements. The header is a Python dictionary with the keys descr,
   fortran_order and shape. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"
#include "runtime/tool/array.h"

enum { MAX_HEADER = 1 << 20, MAGIC = 6 };

struct header { /* what stands in the dictionary, and where the reader is */
  const char *path;
  const char *at;
  char descr[32];
  bool has_descr, has_order, has_shape, fortran;
  struct array *out;
  pisa_error *error;
};

static bool malformed(struct header *header, const char *what) {
  pisa_fail(header->error, PISA_CORRUPT, "'%s' has a malformed .npy header: %s", header->path,
            what);
  return false;
}

static bool next_is(struct header *header, char c) {
  while (isspace((unsigned char)*header->at))
    header->at++;
  if (*header->at != c)
    return false;
  header->at++;
  return true;
}

/* A quoted string without escapes. */
static bool read_string(struct header *header, char *out, size_t capacity) {
  char quote = next_is(header, '\'') ? '\'' : next_is(header, '"') ? '"' : '\0';
  size_t length = 0;
  if (!quote)
    return malformed(header, "expected a string");
  for (; *header->at && *header->at != quote; header->at++) {
    if (length + 1 == capacity)
      return malformed(header, "a string is too long");
    out[length++] = *header->at;
  }
  out[length] = '\0';
  return next_is(header, quote) || malformed(header, "a string does not end");
}

static bool read_descr(struct header *header) {
  if (next_is(header, '[')) {
    pisa_fail(header->error, PISA_UNSUPPORTED, "'%s' holds records, expected plain numbers",
              header->path);
    return false;
  }
  header->has_descr = true;
  return read_string(header, header->descr, sizeof header->descr);
}

static bool read_order(struct header *header) {
  next_is(header, ' ');
  header->has_order = true;
  header->fortran = strncmp(header->at, "True", 4) == 0;
  if (!header->fortran && strncmp(header->at, "False", 5) != 0)
    return malformed(header, "fortran_order is neither True nor False");
  header->at += header->fortran ? 4 : 5;
  return true;
}

static bool read_dimension(struct header *header) {
  struct array *out = header->out;
  int64_t value = 0;
  if (out->rank == ARRAY_MAX_RANK)
    return malformed(header, "more than 8 dimensions");
  if (!isdigit((unsigned char)*header->at))
    return malformed(header, "a dimension is not a number");
  for (; isdigit((unsigned char)*header->at); header->at++) {
    if (value > (INT64_MAX - 9) / 10)
      return malformed(header, "a dimension is too large");
    value = value * 10 + (*header->at - '0');
  }
  out->shape[out->rank++] = value;
  return true;
}

static bool read_shape(struct header *header) {
  header->out->rank = 0;
  header->has_shape = true;
  if (!next_is(header, '('))
    return malformed(header, "shape is not a tuple");
  while (!next_is(header, ')')) {
    if (!read_dimension(header))
      return false;
    if (next_is(header, ','))
      continue;
    return next_is(header, ')') || malformed(header, "shape does not end");
  }
  return true;
}

static bool read_item(struct header *header) {
  char key[32];
  if (!read_string(header, key, sizeof key))
    return false;
  if (!next_is(header, ':'))
    return malformed(header, "a key without a value");
  while (isspace((unsigned char)*header->at))
    header->at++;
  if (strcmp(key, "descr") == 0)
    return read_descr(header);
  if (strcmp(key, "fortran_order") == 0)
    return read_order(header);
  if (strcmp(key, "shape") == 0)
    return read_shape(header);
  return malformed(header, "an unknown key");
}

static bool read_dictionary(struct header *header) {
  if (!next_is(header, '{'))
    return malformed(header, "expected a dictionary");
  while (!next_is(header, '}')) {
    if (!read_item(header))
      return false;
    if (next_is(header, ','))
      continue;
    if (!next_is(header, '}'))
      return malformed(header, "the dictionary does not end");
    break;
  }
  if (!header->has_descr || !header->has_order || !header->has_shape)
    return malformed(header, "descr, fortran_order or shape is missing");
  return next_is(header, '\0') || malformed(header, "something follows the dictionary");
}

static const struct {
  const char *descr;
  enum array_type type;
} dtypes[] = {{"<f4", ARRAY_F32}, {"<f2", ARRAY_F16}, {"<u2", ARRAY_BF16}, {"<i4", ARRAY_I32}};

static pisa_status take_dtype(const struct header *header) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(header->descr, dtypes[i].descr) == 0) {
      header->out->type = dtypes[i].type;
      return PISA_OK;
    }
  return pisa_fail(
      header->error, PISA_UNSUPPORTED,
      "'%s' has dtype '%s', expected '<f4' (float32), '<f2' (float16), '<u2' (bfloat16 bits) or "
      "'<i4' (int32)%s",
      header->path, header->descr,
      header->descr[0] == '>' ? "; big-endian files are not read" : "");
}

static pisa_status parse(struct array_file *file, const char *text, struct array *out,
                         pisa_error *error) {
  struct header header = {.path = file->path, .at = text, .out = out, .error = error};
  if (!read_dictionary(&header))
    return error->status;
  if (header.fortran)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "'%s' is in Fortran order, expected C order (numpy.ascontiguousarray)",
                     file->path);
  return take_dtype(&header);
}

pisa_status npy_read(struct array_file *file, struct array *out, pisa_error *error) {
  unsigned char start[12] = {0};
  pisa_status status = array_file_read(file, start, MAGIC + 4, error);
  if (file->size < MAGIC + 4 || memcmp(start, "\x93NUMPY", MAGIC) != 0)
    return pisa_fail(error, PISA_CORRUPT, "'%s' is not a .npy file", file->path);
  if (start[MAGIC] < 1 || start[MAGIC] > 3)
    return pisa_fail(error, PISA_UNSUPPORTED, "'%s' is .npy version %d, expected 1, 2 or 3",
                     file->path, start[MAGIC]);
  size_t length = (size_t)start[8] | (size_t)start[9] << 8, offset = MAGIC + 4;
  if (!status && start[MAGIC] > 1) {
    status = array_file_read(file, start + MAGIC + 4, 2, error);
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    offset += 2;
  }
  if (status)
    return status;
  if (length > MAX_HEADER || (int64_t)(offset + length) > file->size)
    return pisa_fail(error, PISA_CORRUPT,
                     "'%s' is truncated or damaged: its header claims %zu bytes", file->path,
                     length);
  char *text = calloc(length + 1, 1);
  if (!text)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory");
  status = array_file_read(file, text, length, error);
  if (!status && strlen(text) != length)
    status = pisa_fail(error, PISA_CORRUPT, "'%s' has a zero byte in its header", file->path);
  if (!status)
    status = parse(file, text, out, error);
  free(text);
  return status ? status : array_file_data(file, (int64_t)(offset + length), out, error);
}

char *npy_header(const struct array *array, size_t *size) {
  enum { CAPACITY = 384 }; /* 8 dimensions of 19 digits fit */
  const char *descr = "";
  char *out = malloc(CAPACITY);
  if (!out)
    return NULL;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i].type == array->type)
      descr = dtypes[i].descr;
  memcpy(out, "\x93NUMPY\x01\x00", 8);
  int at = 10 + snprintf(out + 10, CAPACITY - 10,
                         "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int i = 0; i < array->rank; i++)
    at += snprintf(out + at, CAPACITY - (size_t)at, "%lld, ", (long long)array->shape[i]);
  at += snprintf(out + at, CAPACITY - (size_t)at, "), }");
  while ((at + 1) % 64 != 0)
    out[at++] = ' ';
  out[at++] = '\n';
  out[8] = (char)((at - 10) & 0xff);
  out[9] = (char)((at - 10) >> 8);
  *size = (size_t)at;
  return out;
}
