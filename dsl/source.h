/* source.h: the text of one .pisa file, and places in it. */
#ifndef PISA_DSL_SOURCE_H
#define PISA_DSL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

struct arena;

enum { SOURCE_MAX_BYTES = 1 << 20 }; /* a longer file is no spec */

/* A half-open range of byte offsets [begin, end) into the source text. {0, 0} means "nowhere in the
 * file". */
struct span {
  size_t begin, end;
};

struct source {
  const char *name; /* as shown in diagnostics: the path, or "--set" */
  const char *text; /* NUL-terminated; may hold other NULs */
  size_t size;      /* without the terminator */
};

struct place {
  int line, column; /* from 1; columns count bytes */
};

/* Copies |name| and |text| into |arena|. */
struct source *source_make(struct arena *arena, const char *name, const char *text, size_t size);
/* Reads the file |path|; NULL with errno set when it cannot be read (EFBIG: above
 * SOURCE_MAX_BYTES). */
struct source *source_read(struct arena *arena, const char *path);
/* Place of |offset|, which may be |size| (end of file). */
struct place source_place(const struct source *source, size_t offset);
/* The line that holds |offset|, without its line break. */
struct span source_line(const struct source *source, size_t offset);

static inline bool span_is_nowhere(struct span span) {
  return span.begin == 0 && span.end == 0;
}

static inline struct span span_join(struct span a, struct span b) {
  return (struct span){a.begin, b.end};
}

#endif
