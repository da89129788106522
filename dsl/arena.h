/* arena.h: memory of one compilation. Nothing is freed singly; arena_fini frees all. Out of memory
 * aborts. */
#ifndef PISA_DSL_ARENA_H
#define PISA_DSL_ARENA_H

#include <stddef.h>

struct arena {
  struct arena_chunk *head;
};

void arena_init(struct arena *arena);
void arena_fini(struct arena *arena);
/* |bytes| zeroed bytes, aligned for any type. */
void *arena_alloc(struct arena *arena, size_t bytes);
char *arena_strndup(struct arena *arena, const char *s, size_t n);
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, n) ((type *)arena_alloc((arena), sizeof(type) * (size_t)(n)))

#endif
