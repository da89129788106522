/* text.h: a growing string. Always NUL-terminated once text_init has run; out of memory aborts. */
#ifndef PISA_DSL_TEXT_H
#define PISA_DSL_TEXT_H

#include <stdarg.h>
#include <stddef.h>

struct text {
  char *data; /* owned; freed by text_fini */
  size_t size, capacity;
};

void text_init(struct text *text);
void text_fini(struct text *text);
void text_clear(struct text *text);
void text_append(struct text *text, const char *bytes, size_t n);
void text_puts(struct text *text, const char *s);
void text_putc(struct text *text, char c);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(struct text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

#endif
