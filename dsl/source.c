/* File text in, line and column of any byte out. Lines are counted only when a diagnostic asks. */
#include "dsl/source.h"

#include <errno.h>
#include <stdio.h>

#include "dsl/arena.h"
#include "dsl/text.h"

struct source *source_make(struct arena *arena, const char *name, const char *text, size_t size) {
  struct source *source = ARENA_NEW(arena, struct source);
  source->name = arena_printf(arena, "%s", name);
  source->text = arena_strndup(arena, text, size);
  source->size = size;
  return source;
}

/* 0, or an errno value. */
static int read_all(FILE *file, struct text *text) {
  char buffer[4096];
  size_t n;
  while ((n = fread(buffer, 1, sizeof buffer, file)) > 0) {
    text_append(text, buffer, n);
    if (text->size > SOURCE_MAX_BYTES)
      return EFBIG;
  }
  return ferror(file) ? errno : 0;
}

struct source *source_read(struct arena *arena, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return NULL;
  struct text text;
  text_init(&text);
  int error = read_all(file, &text);
  struct source *source = error ? NULL : source_make(arena, path, text.data, text.size);
  text_fini(&text);
  fclose(file);
  errno = error;
  return source;
}

struct place source_place(const struct source *source, size_t offset) {
  struct place place = {1, 1};
  for (size_t i = 0; i < offset && i < source->size; i++) {
    place.column++;
    if (source->text[i] == '\n')
      place = (struct place){place.line + 1, 1};
  }
  return place;
}

struct span source_line(const struct source *source, size_t offset) {
  struct span line = {offset, offset};
  while (line.begin > 0 && source->text[line.begin - 1] != '\n')
    line.begin--;
  while (line.end < source->size && source->text[line.end] != '\n')
    line.end++;
  if (line.end > line.begin && source->text[line.end - 1] == '\r')
    line.end--;
  return line;
}
