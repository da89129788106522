/* lines.c: a small reader of `key field name=value ...` lines. In: writable text, cut into strings
   in place. Out: the current line's key, words and numbers; or PISA_CORRUPT naming the line. */
#include "runtime/lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool pisa_lines_fail(struct pisa_lines *lines, const char *format, ...) {
  char sentence[512];
  va_list args;
  va_start(args, format);
  vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  pisa_fail(lines->error, PISA_CORRUPT, "%s line %d: %s", lines->of, lines->number, sentence);
  return false;
}

bool pisa_lines_open(struct pisa_lines *lines, char *text, size_t size, pisa_error *error) {
  return pisa_lines_open_as(lines, "manifest", text, size, error);
}

bool pisa_lines_open_as(struct pisa_lines *lines, const char *of, char *text, size_t size,
                        pisa_error *error) {
  *lines =
      (struct pisa_lines){.at = text, .end = text + size, .error = error, .number = 1, .of = of};
  if (size == 0 || text[size - 1] != '\n')
    return pisa_lines_fail(lines, "the %s does not end with a line break", of);
  for (size_t i = 0; i < size; i++) {
    if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~'))
      return pisa_lines_fail(lines, "byte %zu of the %s is not ASCII text", i, of);
    if (text[i] == '\n' && (i == 0 || text[i - 1] == '\n'))
      return pisa_lines_fail(lines, "the line is empty");
    lines->number += text[i] == '\n';
  }
  lines->number = 0;
  pisa_lines_next(lines);
  return true;
}

void pisa_lines_next(struct pisa_lines *lines) {
  lines->number++;
  lines->n_fields = 0;
  lines->key = NULL;
  lines->rest = NULL;
  if (lines->at == lines->end)
    return;
  char *stop = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
  *stop = '\0'; /* pisa_lines_open has seen that every line ends */
  lines->key = lines->at;
  lines->at = stop + 1;
  char *space = strchr(lines->key, ' ');
  lines->rest = space ? space + 1 : stop;
  if (space)
    *space = '\0';
}

bool pisa_lines_at(const struct pisa_lines *lines, const char *key) {
  return lines->key && !strcmp(lines->key, key);
}

bool pisa_lines_expect(struct pisa_lines *lines, const char *key) {
  if (!lines->key)
    return pisa_lines_fail(lines, "the %s ends where '%s' is expected", lines->of, key);
  if (strcmp(lines->key, key))
    return pisa_lines_fail(lines, "found '%.40s' where '%s' is expected", lines->key, key);
  return true;
}

bool pisa_lines_split(struct pisa_lines *lines, int n) {
  lines->n_fields = 0;
  for (char *word = lines->rest; word;) {
    char *space = strchr(word, ' ');
    if (space)
      *space = '\0';
    if (lines->n_fields == n || lines->n_fields == PISA_MAX_FIELDS || !*word)
      return pisa_lines_fail(lines, "'%s' must have %d fields", lines->key, n);
    lines->fields[lines->n_fields++] = word;
    word = space ? space + 1 : NULL;
  }
  if (lines->n_fields != n)
    return pisa_lines_fail(lines, "'%s' must have %d fields", lines->key, n);
  return true;
}

char *pisa_lines_value(struct pisa_lines *lines, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < lines->n_fields; i++)
    if (!strncmp(lines->fields[i], name, length) && lines->fields[i][length] == '=')
      return lines->fields[i] + length + 1;
  pisa_lines_fail(lines, "'%s' has no field '%s='", lines->key, name);
  return NULL;
}

bool pisa_lines_parse(struct pisa_lines *lines, const char *what, const char *text, int64_t low,
                      int64_t high, int64_t *out) {
  int64_t value = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9' && p - text < 18; p++) /* 18 digits always fit */
    value = value * 10 + (*p - '0');
  bool plain = p > text && !*p && (*text != '0' || p == text + 1);
  if (!plain || value < low || value > high)
    return pisa_lines_fail(lines,
                           "%s is '%.40s', must be a whole number from %" PRId64 " to %" PRId64,
                           what, text, low, high);
  *out = value;
  return true;
}

bool pisa_lines_number(struct pisa_lines *lines, const char *name, int64_t low, int64_t high,
                       int64_t *out) {
  const char *text = pisa_lines_value(lines, name);
  return text && pisa_lines_parse(lines, name, text, low, high, out);
}

bool pisa_lines_int(struct pisa_lines *lines, const char *name, int low, int high, int *out) {
  int64_t value;
  if (!pisa_lines_number(lines, name, low, high, &value))
    return false;
  *out = (int)value;
  return true;
}

bool pisa_lines_word(struct pisa_lines *lines, const char *name, const char *const *words, int n,
                     int *out) {
  const char *text = pisa_lines_value(lines, name);
  if (!text)
    return false;
  for (int i = 0; i < n; i++) {
    if (!strcmp(text, words[i])) {
      *out = i;
      return true;
    }
  }
  return pisa_lines_fail(lines, "%s is '%.40s', which this library does not know", name, text);
}

bool pisa_lines_digest(struct pisa_lines *lines, const char *text) {
  if (strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
    return pisa_lines_fail(lines, "'%.70s' is not a sha256 of 64 hexadecimal digits", text);
  return true;
}
