/* array.c: paths and arrays in, arrays and files out. The formats are npy.c's and safetensors.c's.
 */
#include "runtime/tool/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/cpu/convert.h"
#include "runtime/size.h"
#include "runtime/status.h"

static const struct {
  const char *name;
  size_t size;
} types[] = {[ARRAY_F32] = {"float32", 4},
             [ARRAY_F16] = {"float16", 2},
             [ARRAY_BF16] = {"bfloat16", 2},
             [ARRAY_I32] = {"int32", 4}};

size_t array_item_size(enum array_type type) {
  return types[type].size;
}

const char *array_type_name(enum array_type type) {
  return types[type].name;
}

int64_t array_elements(const struct array *array) {
  int64_t n = 1;
  for (int i = 0; i < array->rank; i++)
    n *= array->shape[i];
  return n;
}

bool array_bytes(const struct array *array, int64_t *out) {
  int64_t n = (int64_t)array_item_size(array->type);
  for (int i = 0; i < array->rank; i++)
    if (array->shape[i] < 0 || !pisa_multiply(n, array->shape[i], &n))
      return false;
  *out = n;
  return true;
}

void array_shape_text(const struct array *array, char text[ARRAY_SHAPE_TEXT]) {
  int at = snprintf(text, ARRAY_SHAPE_TEXT, "[");
  for (int i = 0; i < array->rank; i++)
    at += snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, "%s%lld", i ? ", " : "",
                   (long long)array->shape[i]);
  snprintf(text + at, ARRAY_SHAPE_TEXT - (size_t)at, "]");
}

void array_free(struct array *array) {
  free(array->data);
  array->data = NULL;
}

/* ---- paths ---- */

static bool ends_with(const char *text, size_t length, const char *end) {
  size_t n = strlen(end);
  return length >= n && strncmp(text + length - n, end, n) == 0;
}

/* Length of the file's part of |path|; |name| gets what stands behind "….safetensors:", NULL when
 * nothing. */
static size_t split_path(const char *path, const char **name) {
  const char *mark = strstr(path, ".safetensors:");
  *name = NULL;
  if (!mark)
    return strlen(path);
  *name = strchr(mark, ':') + 1;
  return (size_t)(*name - 1 - path);
}

static bool is_safetensors(const char *path) {
  const char *name;
  return ends_with(path, split_path(path, &name), ".safetensors");
}

pisa_status array_check_path(const char *path, pisa_error *error) {
  if (is_safetensors(path) || ends_with(path, strlen(path), ".npy"))
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "'%s' must end in .npy, .safetensors or .safetensors:name", path);
}

/* ---- reading ---- */

pisa_status array_file_read(struct array_file *file, void *out, size_t bytes, pisa_error *error) {
  if (fread(out, 1, bytes, file->stream) == bytes)
    return PISA_OK;
  if (ferror(file->stream))
    return pisa_fail(error, PISA_IO, "cannot read '%s': %s", file->path, strerror(errno));
  return pisa_fail(error, PISA_CORRUPT, "'%s' is truncated: it ends after %lld bytes", file->path,
                   (long long)file->size);
}

pisa_status array_file_data(struct array_file *file, int64_t offset, struct array *out,
                            pisa_error *error) {
  char shape[ARRAY_SHAPE_TEXT];
  int64_t bytes = 0;
  array_shape_text(out, shape);
  if (!array_bytes(out, &bytes) || bytes > file->size - offset)
    return pisa_fail(error, PISA_CORRUPT,
                     "'%s' is too short: %s of %s do not fit in its %lld bytes", file->path, shape,
                     array_type_name(out->type), (long long)file->size);
  if (fseeko(file->stream, (off_t)offset, SEEK_SET) != 0)
    return pisa_fail(error, PISA_IO, "cannot read '%s': %s", file->path, strerror(errno));
  out->data = malloc(bytes ? (size_t)bytes : 1);
  if (!out->data)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory for the %lld bytes of '%s'",
                     (long long)bytes, file->path);
  pisa_status status = array_file_read(file, out->data, (size_t)bytes, error);
  if (status)
    array_free(out);
  return status;
}

static pisa_status open_file(const char *path, struct array_file *out, pisa_error *error) {
  struct stat info;
  *out = (struct array_file){.path = path, .stream = fopen(path, "rb")};
  if (!out->stream)
    return pisa_fail(error, PISA_IO, "cannot open '%s': %s", path, strerror(errno));
  if (fstat(fileno(out->stream), &info) == 0 && S_ISREG(info.st_mode)) {
    out->size = (int64_t)info.st_size;
    return PISA_OK;
  }
  fclose(out->stream);
  return pisa_fail(error, PISA_IO, "'%s' is not a regular file", path);
}

pisa_status array_read(const char *path, struct array *out, pisa_error *error) {
  const char *name;
  struct array_file file;
  char *file_path = strdup(path);
  *out = (struct array){0};
  if (!file_path)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory");
  file_path[split_path(path, &name)] = '\0';
  pisa_status status = open_file(file_path, &file, error);
  if (!status) {
    status = is_safetensors(path) ? safetensors_read(&file, name, out, error)
                                  : npy_read(&file, out, error);
    fclose(file.stream);
  }
  free(file_path);
  return status;
}

/* ---- writing ---- */

static pisa_status write_file(const char *path, const char *header, size_t header_size,
                              const struct array *array, pisa_error *error) {
  size_t bytes = (size_t)array_elements(array) * array_item_size(array->type);
  FILE *stream = fopen(path, "wb");
  if (!stream)
    return pisa_fail(error, PISA_IO, "cannot write '%s': %s", path, strerror(errno));
  bool ok = fwrite(header, 1, header_size, stream) == header_size &&
            fwrite(array->data, 1, bytes, stream) == bytes;
  ok = fclose(stream) == 0 && ok;
  return ok ? PISA_OK : pisa_fail(error, PISA_IO, "cannot write '%s': %s", path, strerror(errno));
}

pisa_status array_write(const char *path, const char *name, const struct array *array,
                        pisa_error *error) {
  const char *own_name;
  size_t header_size = 0;
  pisa_status status = array_check_path(path, error);
  if (status)
    return status;
  char *file_path = strdup(path), *header = NULL;
  if (file_path) {
    file_path[split_path(path, &own_name)] = '\0';
    header = is_safetensors(path)
                 ? safetensors_header(array, own_name ? own_name : name, &header_size)
                 : npy_header(array, &header_size);
  }
  status = header ? write_file(file_path, header, header_size, array, error)
                  : pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory");
  free(header);
  free(file_path);
  return status;
}

/* ---- elements ---- */

void array_to_type(const struct array *array, pisa_type type, uint16_t *out) {
  int64_t n = array_elements(array);
  const uint16_t *halves = array->data;
  const float *floats = array->data;
  for (int64_t i = 0; i < n; i++) {
    float value = array->type == ARRAY_F32   ? floats[i]
                  : array->type == ARRAY_F16 ? cpu_from_fp16(halves[i])
                                             : cpu_from_bf16(halves[i]);
    out[i] = cpu_narrow(type, value);
  }
}

void array_from_type(struct array *array, pisa_type type, const uint16_t *in) {
  int64_t n = array_elements(array);
  uint16_t *halves = array->data;
  float *floats = array->data;
  for (int64_t i = 0; i < n; i++) {
    float value = cpu_widen(type, in[i]);
    if (array->type == ARRAY_F32)
      floats[i] = value;
    else
      halves[i] = array->type == ARRAY_F16 ? cpu_to_fp16(value) : cpu_to_bf16(value);
  }
}
