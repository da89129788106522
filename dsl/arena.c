/* Bump allocation in chunks that double; see arena.h. */
#include "dsl/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CHUNK = 1 << 16, ALIGNMENT = 16 };

struct arena_chunk {
  struct arena_chunk *next;
  size_t used, size;
  _Alignas(ALIGNMENT) char bytes[];
};

void arena_init(struct arena *arena) {
  arena->head = NULL;
}

void arena_fini(struct arena *arena) {
  for (struct arena_chunk *c = arena->head, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  arena->head = NULL;
}

static struct arena_chunk *grow(struct arena *arena, size_t bytes) {
  size_t size = arena->head ? arena->head->size * 2 : FIRST_CHUNK;
  if (size < bytes) {
    size = bytes;
  }
  struct arena_chunk *c = malloc(sizeof *c + size);
  if (!c) {
    fputs("pisa: out of memory\n", stderr);
    abort();
  }
  *c = (struct arena_chunk){.next = arena->head, .size = size};
  arena->head = c;
  return c;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
  size_t rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (rounded < bytes) {
    fputs("pisa: allocation too large\n", stderr);
    abort();
  }
  struct arena_chunk *c = arena->head;
  if (!c || c->size - c->used < rounded) {
    c = grow(arena, rounded);
  }
  void *p = c->bytes + c->used;
  c->used += rounded;
  return memset(p, 0, rounded);
}

char *arena_strndup(struct arena *arena, const char *s, size_t n) {
  char *copy = arena_alloc(arena, n + 1);
  if (n > 0) {
    memcpy(copy, s, n);
  }
  return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *s = arena_alloc(arena, (size_t)n + 1);
  vsnprintf(s, (size_t)n + 1, format, again);
  va_end(again);
  return s;
}
