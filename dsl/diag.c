/* Messages in, text or JSON out, sorted by place; see diag.h. */
#include "dsl/diag.h"

#include <stdarg.h>
#include <string.h>

#include "dsl/arena.h"
#include "dsl/text.h"

enum level { LEVEL_ERROR, LEVEL_NOTE };

struct diag_message {
  enum level level;
  const struct source *source; /* NULL: the message is about no file */
  struct span span;
  const char *text;
  struct diag_message *also; /* further places, in order */
  struct diag_message *next;
};

static const char *const level_names[] = {"error", "note"};

void diag_init(struct diag *diag, struct arena *arena) {
  *diag = (struct diag){.arena = arena};
}

static struct diag_message *make(struct diag *diag, enum level level, struct span span,
                                 const char *format, va_list args) {
  struct text text;
  text_init(&text);
  text_vprintf(&text, format, args);
  struct diag_message *m = ARENA_NEW(diag->arena, struct diag_message);
  *m = (struct diag_message){.level = level,
                             .source = diag->source,
                             .span = span,
                             .text = arena_strndup(diag->arena, text.data, text.size)};
  text_fini(&text);
  return m;
}

/* Is |a| to be printed after |b|? Messages of other sources keep their order of arrival. */
static bool comes_after(const struct diag_message *a, const struct diag_message *b) {
  return a->source == b->source && a->span.begin > b->span.begin;
}

/* Keeps the list sorted by place; equal places keep their order. Most messages come in order. */
static void insert(struct diag *diag, struct diag_message *m) {
  struct diag_message **at = &diag->first;
  if (diag->last && !comes_after(diag->last, m))
    at = &diag->last->next;
  while (*at && !comes_after(*at, m))
    at = &(*at)->next;
  m->next = *at;
  *at = m;
  if (!m->next)
    diag->last = m;
  diag->newest = m;
}

const char *diag_first(const struct diag *diag) {
  return diag->first ? diag->first->text : NULL;
}

void diag_error(struct diag *diag, struct span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (diag->n_errors++ < DIAG_MAX_ERRORS)
    insert(diag, make(diag, LEVEL_ERROR, span, format, args));
  else
    diag->newest = NULL;
  va_end(args);
}

void diag_note(struct diag *diag, struct span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  insert(diag, make(diag, LEVEL_NOTE, span, format, args));
  va_end(args);
  diag->n_notes++;
}

void diag_also(struct diag *diag, struct span span, const char *format, ...) {
  if (!diag->newest)
    return;
  va_list args;
  va_start(args, format);
  struct diag_message **at = &diag->newest->also;
  while (*at)
    at = &(*at)->next;
  *at = make(diag, LEVEL_NOTE, span, format, args);
  va_end(args);
}

void diag_world(struct diag *diag, const char *format, ...) {
  const struct source *source = diag->source;
  diag->source = NULL;
  va_list args;
  va_start(args, format);
  insert(diag, make(diag, LEVEL_ERROR, (struct span){0, 0}, format, args));
  va_end(args);
  diag->source = source;
  diag->world_failed = true;
}

int diag_status(const struct diag *diag) {
  if (diag->world_failed)
    return 2;
  return diag->n_errors > 0 ? 1 : 0;
}

/* The source line, and carets under the part of |span| that lies on it. */
static void print_line(const struct diag_message *m, struct text *out) {
  const char *text = m->source->text;
  struct span line = source_line(m->source, m->span.begin);
  text_puts(out, "    ");
  for (size_t i = line.begin; i < line.end; i++)
    text_putc(out, text[i] ? text[i] : ' ');
  text_puts(out, "\n    ");
  for (size_t i = line.begin; i < m->span.begin; i++)
    text_putc(out, text[i] == '\t' ? '\t' : ' ');
  size_t end = m->span.end < line.end ? m->span.end : line.end;
  for (size_t i = m->span.begin; i == m->span.begin || i < end; i++)
    text_putc(out, '^');
  text_putc(out, '\n');
}

static void print_message(const struct diag_message *m, struct text *out) {
  bool placed = m->source && !span_is_nowhere(m->span);
  if (m->source)
    text_printf(out, "%s:", m->source->name);
  if (placed) {
    struct place place = source_place(m->source, m->span.begin);
    text_printf(out, "%d:%d:", place.line, place.column);
  }
  text_printf(out, "%s%s: %s\n", m->source ? " " : "", level_names[m->level], m->text);
  if (placed)
    print_line(m, out);
  for (const struct diag_message *also = m->also; also; also = also->next)
    print_message(also, out);
}

void diag_print(const struct diag *diag, struct text *out) {
  for (const struct diag_message *m = diag->first; m; m = m->next)
    print_message(m, out);
  if (diag->n_errors > DIAG_MAX_ERRORS)
    text_printf(out, "only the first %d errors are shown\n", DIAG_MAX_ERRORS);
}

static void print_json_string(const char *s, struct text *out) {
  text_putc(out, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c < 0x20)
      text_printf(out, "\\u%04x", (unsigned)c);
    else
      text_putc(out, *s);
  }
  text_putc(out, '"');
}

static void print_json_place(const struct diag_message *m, struct text *out) {
  struct place begin = source_place(m->source, m->span.begin);
  struct place end = source_place(m->source, m->span.end);
  text_printf(out, ", \"line\": %d, \"column\": %d, \"end_line\": %d, \"end_column\": %d",
              begin.line, begin.column, end.line, end.column);
}

static void print_json_message(const struct diag_message *m, struct text *out) {
  text_printf(out, "{\"severity\": \"%s\"", level_names[m->level]);
  if (m->source) {
    text_puts(out, ", \"file\": ");
    print_json_string(m->source->name, out);
    if (!span_is_nowhere(m->span))
      print_json_place(m, out);
  }
  text_puts(out, ", \"message\": ");
  print_json_string(m->text, out);
  text_puts(out, ", \"notes\": [");
  for (const struct diag_message *also = m->also; also; also = also->next) {
    print_json_message(also, out);
    text_puts(out, also->next ? ", " : "");
  }
  text_puts(out, "]}");
}

void diag_print_json(const struct diag *diag, struct text *out) {
  text_printf(out, "{\"errors\": %d, \"messages\": [",
              diag->n_errors + (diag->world_failed ? 1 : 0));
  for (const struct diag_message *m = diag->first; m; m = m->next) {
    text_puts(out, m == diag->first ? "\n  " : ",\n  ");
    print_json_message(m, out);
  }
  text_puts(out, diag->first ? "\n]}\n" : "]}\n");
}
