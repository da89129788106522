/* diag.h: what is wrong with a spec, where, and what to do about it.

   The only place that prints `file:line:col: error: ...`, the source line and carets. Messages are
   collected while a file is read and printed at the end, in the order of the text. A message says
   what was found, what is allowed and the clause of docs/LANGUAGE.md: "heads is 0; it must be a
   whole number from 1 to 4096 (§3.1)". */
#ifndef PISA_DSL_DIAG_H
#define PISA_DSL_DIAG_H

#include <stdbool.h>

#include "dsl/source.h"

struct arena;
struct text;
struct diag_message;

enum { DIAG_MAX_ERRORS = 100 }; /* kept and printed; the checker stops there */

struct diag {
  struct arena *arena;
  const struct source *source; /* file that spans of new messages refer to; NULL: none is open */
  struct diag_message *first, *last, *newest;
  int n_errors;      /* may be above DIAG_MAX_ERRORS */
  int n_notes;       /* stand-alone notes */
  bool world_failed; /* a file could not be read: not the spec's fault */
};

/* Starts an empty collection; messages and their text live in |arena|. */
void diag_init(struct diag *diag, struct arena *arena);
/* The user's spec is wrong at |span|. {0, 0} prints no line and no carets. */
void diag_error(struct diag *diag, struct span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Worth knowing, but the spec is good: a dropped candidate, for instance. */
void diag_note(struct diag *diag, struct span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A second place for the message just made; printed as a note below it. */
void diag_also(struct diag *diag, struct span span, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The world failed (no such file, no memory on the disk, ...). */
void diag_world(struct diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The sentence of the first one, without its place; NULL: there are none. */
const char *diag_first(const struct diag *diag);
/* All messages as text, for a person. */
void diag_print(const struct diag *diag, struct text *out);
/* All messages as one JSON object: {"errors": n, "messages": [{"severity", "file", "line",
   "column", "end_line", "end_column", "message", "notes": [...]}, ...]}. Columns count bytes from
   1; the end is exclusive. */
void diag_print_json(const struct diag *diag, struct text *out);
/* 0: nothing wrong; 1: the spec is wrong; 2: the world failed. The exit status of every command. */
int diag_status(const struct diag *diag);

#endif
