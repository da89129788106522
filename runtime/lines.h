/* lines.h: reads a manifest, or a table of measurements, line by line: key, fields, numbers, and
   errors that name the line.

   The functions return false after a failure and then have filled the error; they stop at the
   first. */
#ifndef PISA_RUNTIME_LINES_H
#define PISA_RUNTIME_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum { PISA_MAX_FIELDS = 12 };

struct pisa_lines {
  char *at, *end; /* what is not read yet; cut into strings as it is read */
  int number;     /* of the current line, from 1 */
  const char *of; /* what messages call the text: "manifest" */
  char *key;      /* first word of the current line; NULL behind the last line */
  char *rest;     /* what follows the key and one space; "" when nothing does */
  int n_fields;   /* words of |rest|, after pisa_lines_split */
  char *fields[PISA_MAX_FIELDS];
  pisa_error *error; /* may be NULL */
};

/* Starts on |size| writable bytes and reads the first line. Refuses what is not lines of ASCII. */
bool pisa_lines_open(struct pisa_lines *lines, char *text, size_t size, pisa_error *error);
/* The same of another text than a manifest; |of| names it in messages. */
bool pisa_lines_open_as(struct pisa_lines *lines, const char *of, char *text, size_t size,
                        pisa_error *error);
/* Moves to the next line. */
void pisa_lines_next(struct pisa_lines *lines);
/* Whether the current line's key is |key|. */
bool pisa_lines_at(const struct pisa_lines *lines, const char *key);
/* Requires that the current line's key is |key|. */
bool pisa_lines_expect(struct pisa_lines *lines, const char *key);
/* Cuts |rest| into exactly |n| words, single spaces between them. */
bool pisa_lines_split(struct pisa_lines *lines, int n);

/* The value of field `name=value`; NULL (and an error) when there is none. */
char *pisa_lines_value(struct pisa_lines *lines, const char *name);
/* The same as a decimal number from |low| to |high|. */
bool pisa_lines_number(struct pisa_lines *lines, const char *name, int64_t low, int64_t high,
                       int64_t *out);
bool pisa_lines_int(struct pisa_lines *lines, const char *name, int low, int high, int *out);
/* The same as one of |n| words; |out| gets its index. */
bool pisa_lines_word(struct pisa_lines *lines, const char *name, const char *const *words, int n,
                     int *out);
/* A decimal number without sign or leading zeros; |what| names it in the message. */
bool pisa_lines_parse(struct pisa_lines *lines, const char *what, const char *text, int64_t low,
                      int64_t high, int64_t *out);
/* Whether |text| is 64 lower-case hexadecimal digits. */
bool pisa_lines_digest(struct pisa_lines *lines, const char *text);

/* Fills the error with the line's number and the sentence; false. */
bool pisa_lines_fail(struct pisa_lines *lines, const char *format, ...) PISA_PRINTF(2, 3);

#endif
