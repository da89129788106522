/* safetensors.c: one named array of a .safetensors file in, the array out; and the reverse.
   A file is the header's length (64 bits, little-endian), the header, then the data. The header is
   a JSON object:
   {"name": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [begin, end]}, "__metadata__":
   {...}}, offsets counted from the end of the header. */
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"
#include "runtime/tool/array.h"
#include "runtime/tool/json.h"

enum { MAX_HEADER = 100 << 20, MAX_NAME = 512 };

static const struct {
  const char *name;
  enum array_type type;
} dtypes[] = {{"F32", ARRAY_F32}, {"F16", ARRAY_F16}, {"BF16", ARRAY_BF16}, {"I32", ARRAY_I32}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

struct entry { /* one tensor of the header */
  char dtype[16];
  bool has_dtype, has_shape, has_offsets;
  int64_t begin, end;
};

static bool read_shape(struct json *json, struct array *out) {
  out->rank = 0;
  if (!json_token(json, '['))
    return false;
  if (json_token(json, ']'))
    return true;
  do {
    if (out->rank == ARRAY_MAX_RANK || !json_unsigned(json, &out->shape[out->rank++]))
      return false;
  } while (json_token(json, ','));
  return json_token(json, ']');
}

static bool read_field(struct json *json, struct entry *entry, struct array *out) {
  char key[32];
  if (!json_string(json, key, sizeof key, NULL) || !json_token(json, ':'))
    return false;
  if (strcmp(key, "dtype") == 0)
    return entry->has_dtype = json_string(json, entry->dtype, sizeof entry->dtype, NULL);
  if (strcmp(key, "shape") == 0)
    return entry->has_shape = read_shape(json, out);
  if (strcmp(key, "data_offsets") == 0)
    return entry->has_offsets = json_token(json, '[') && json_unsigned(json, &entry->begin) &&
                                json_token(json, ',') && json_unsigned(json, &entry->end) &&
                                json_token(json, ']');
  return json_skip(json);
}

static bool read_entry(struct json *json, struct entry *entry, struct array *out) {
  *entry = (struct entry){0};
  if (!json_token(json, '{'))
    return false;
  do {
    if (!read_field(json, entry, out))
      return false;
  } while (json_token(json, ','));
  return json_token(json, '}') && entry->has_dtype && entry->has_shape && entry->has_offsets;
}

struct names { /* what the file holds, for the message when the wanted name is not there */
  int n;
  char text[400];
};

static void note_name(struct names *names, const char *name) {
  size_t used = strlen(names->text);
  if (names->n++ < 8)
    snprintf(names->text + used, sizeof names->text - used, "%s%.40s", used ? ", " : "", name);
  else if (names->n == 9)
    snprintf(names->text + used, sizeof names->text - used, ", ...");
}

/* Walks the header. When |name| is NULL the only tensor is taken. False when the header is
 * malformed. */
static bool find(struct json *json, const char *name, struct entry *entry, struct array *out,
                 bool *found, struct names *names) {
  if (!json_token(json, '{'))
    return false;
  if (json_token(json, '}'))
    return true;
  do {
    char key[MAX_NAME];
    size_t length;
    if (!json_string(json, key, sizeof key, &length) || !json_token(json, ':'))
      return false;
    bool wanted = strcmp(key, "__metadata__") != 0 && !*found &&
                  (!name || (length < sizeof key && strcmp(key, name) == 0));
    if (wanted ? !read_entry(json, entry, out) : !json_skip(json))
      return false;
    *found = *found || wanted;
    if (strcmp(key, "__metadata__") != 0)
      note_name(names, key);
  } while (json_token(json, ','));
  return json_token(json, '}');
}

static pisa_status take_dtype(const char *path, const struct entry *entry, struct array *out,
                              pisa_error *error) {
  for (int i = 0; i < N_DTYPES; i++)
    if (strcmp(dtypes[i].name, entry->dtype) == 0) {
      out->type = dtypes[i].type;
      return PISA_OK;
    }
  return pisa_fail(error, PISA_UNSUPPORTED, "'%s' has dtype %s, expected F32, F16 or BF16", path,
                   entry->dtype);
}

static pisa_status parse(struct array_file *file, const char *text, int64_t size, const char *name,
                         struct array *out, pisa_error *error) {
  struct json json = {text, text + size};
  struct entry entry = {0};
  struct names names = {0};
  bool found = false;
  int64_t bytes = 0;
  if (!find(&json, name, &entry, out, &found, &names))
    return pisa_fail(error, PISA_CORRUPT, "'%s' has a malformed .safetensors header", file->path);
  if (!found || (!name && names.n > 1))
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "'%s' has no array '%s'; write '%s:NAME' with one of: %s", file->path,
                     name ? name : "", file->path, names.n ? names.text : "(it is empty)");
  pisa_status status = take_dtype(file->path, &entry, out, error);
  if (status)
    return status;
  if (!array_bytes(out, &bytes) || entry.end < entry.begin || bytes != entry.end - entry.begin)
    return pisa_fail(error, PISA_CORRUPT, "'%s': the offsets of an array do not match its shape",
                     file->path);
  if (entry.end > file->size - 8 - size)
    return pisa_fail(error, PISA_CORRUPT, "'%s' is truncated: an array ends behind its %lld bytes",
                     file->path, (long long)file->size);
  return array_file_data(file, 8 + size + entry.begin, out, error);
}

pisa_status safetensors_read(struct array_file *file, const char *name, struct array *out,
                             pisa_error *error) {
  unsigned char bytes[8];
  uint64_t size = 0;
  pisa_status status = array_file_read(file, bytes, sizeof bytes, error);
  if (status)
    return status;
  for (int i = 7; i >= 0; i--)
    size = size << 8 | bytes[i];
  if (size > MAX_HEADER || (int64_t)size > file->size - 8)
    return pisa_fail(error, PISA_CORRUPT,
                     "'%s' is not a .safetensors file: its header claims %llu bytes", file->path,
                     (unsigned long long)size);
  char *text = malloc(size + 1);
  if (!text)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "no memory");
  status = array_file_read(file, text, (size_t)size, error);
  if (!status)
    status = parse(file, text, (int64_t)size, name, out, error);
  free(text);
  return status;
}

/* |name| as the inside of a JSON string. */
static void escape_name(const char *name, char *out) {
  for (; *name; name++) {
    unsigned char c = (unsigned char)*name;
    if (c < 0x20) {
      out += sprintf(out, "\\u%04x", c);
    } else {
      if (c == '"' || c == '\\')
        *out++ = '\\';
      *out++ = (char)c;
    }
  }
  *out = '\0';
}

char *safetensors_header(const struct array *array, const char *name, size_t *size) {
  size_t capacity = 6 * strlen(name) + 512;
  char shape[ARRAY_SHAPE_TEXT], *out = malloc(capacity), *escaped = malloc(capacity);
  const char *dtype = "";
  if (!out || !escaped) {
    free(out);
    free(escaped);
    return NULL;
  }
  for (int i = 0; i < N_DTYPES; i++)
    if (dtypes[i].type == array->type)
      dtype = dtypes[i].name;
  array_shape_text(array, shape);
  escape_name(name, escaped);
  long long bytes = (long long)array_elements(array) * (long long)array_item_size(array->type);
  size_t at =
      8 + (size_t)snprintf(out + 8, capacity - 8,
                           "{\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%lld]}}",
                           escaped, dtype, shape, bytes);
  while (at % 8 != 0)
    out[at++] = ' ';
  for (int i = 0; i < 8; i++)
    out[i] = (char)((at - 8) >> 8 * i & 0xff);
  *size = at;
  free(escaped);
  return out;
}
