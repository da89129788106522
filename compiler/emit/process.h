/* process.h: run a program and hear what it says; temporary folders. */
#ifndef PISA_EMIT_PROCESS_H
#define PISA_EMIT_PROCESS_H

#include <stdbool.h>

#include "dsl/text.h"

/* Runs |argv| (NULL-terminated; argv[0] is a path) and appends its stdout and stderr to |heard|.
   Returns its exit status, or -1 when it could not be started or was killed; then a reason is
   appended to |heard|. */
int process_run(const char *const *argv, struct text *heard);

/* Whole files. On failure false, with "path: reason" appended to |why|. */
bool file_read(const char *path, struct text *out, struct text *why);
bool file_write(const char *path, const char *bytes, size_t size, struct text *why);

/* A fresh folder under TMPDIR or /tmp, its path in |path|. */
bool folder_temporary(char *path, size_t capacity, struct text *why);

#endif
