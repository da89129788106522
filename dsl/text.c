/* A growing string; see text.h. */
#include "dsl/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(struct text *text, size_t more) {
  size_t needed = text->size + more + 1;
  if (needed <= text->capacity) {
    return;
  }
  size_t capacity = text->capacity ? text->capacity * 2 : 256;
  if (capacity < needed) {
    capacity = needed;
  }
  char *data = realloc(text->data, capacity);
  if (!data) {
    fputs("pisa: out of memory\n", stderr);
    abort();
  }
  text->data = data;
  text->capacity = capacity;
}

void text_init(struct text *text) {
  *text = (struct text){0};
  reserve(text, 0);
  text->data[0] = '\0';
}

void text_fini(struct text *text) {
  free(text->data);
  *text = (struct text){0};
}

void text_clear(struct text *text) {
  text->size = 0;
  text->data[0] = '\0';
}

void text_append(struct text *text, const char *bytes, size_t n) {
  reserve(text, n);
  if (n > 0) {
    memcpy(text->data + text->size, bytes, n);
  }
  text->size += n;
  text->data[text->size] = '\0';
}

void text_puts(struct text *text, const char *s) {
  text_append(text, s, strlen(s));
}

void text_putc(struct text *text, char c) {
  text_append(text, &c, 1);
}

void text_vprintf(struct text *text, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  reserve(text, (size_t)n);
  vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
  va_end(again);
  text->size += (size_t)n;
}

void text_printf(struct text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  text_vprintf(text, format, args);
  va_end(args);
}
