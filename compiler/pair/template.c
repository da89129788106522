/* template.c: a template and its values in, text out; line by line. */
#include "compiler/pair/template.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_NESTED = 8 };

struct filling {
  const struct template_value *values;
  struct text *out;
  bool live[MAX_NESTED + 1]; /* of each open block, inside those around it; live[0]: the text */
  int depth;
};

static const char *find(const struct template_value *values, const char *name, size_t length) {
  while (values->name && (strlen(values->name) != length || strncmp(values->name, name, length)))
    values++;
  assert(values->name && "a template names a value that there is not");
  return values->text;
}

/* "a !b": whether all hold. */
static bool holds(const struct template_value *values, const char *words, const char *end) {
  bool all = true;
  while (words < end) {
    const bool negated = *words == '!';
    words += negated;
    const size_t length = strcspn(words, " \n");
    all = all && (find(values, words, length) != NULL) != negated;
    words += length;
    words += words < end && *words == ' ';
  }
  return all;
}

static bool starts(const char *line, const char *word) {
  return strncmp(line, word, strlen(word)) == 0;
}

static void direct(struct filling *f, const char *line, const char *end) {
  if (starts(line, "%if ")) {
    assert(f->depth < MAX_NESTED);
    f->live[f->depth + 1] = f->live[f->depth] && holds(f->values, line + strlen("%if "), end);
    f->depth++;
    return;
  }
  assert(f->depth > 0);
  if (starts(line, "%else\n"))
    f->live[f->depth] = f->live[f->depth - 1] && !f->live[f->depth];
  else
    f->depth--;
}

static void fill_line(struct filling *f, const char *line, const char *end) {
  while (line < end) {
    const char *hole = memchr(line, '@', (size_t)(end - line));
    text_append(f->out, line, (size_t)((hole ? hole : end) - line));
    if (!hole)
      return;
    const char *close = memchr(hole + 1, '@', (size_t)(end - hole - 1));
    assert(close && "a hole of a template is open");
    const char *text = find(f->values, hole + 1, (size_t)(close - hole - 1));
    assert(text && "a template shows a value that is not there");
    text_puts(f->out, text);
    line = close + 1;
  }
}

void template_fill(const char *template, const struct template_value *values, struct text *out) {
  struct filling f = {.values = values, .out = out, .live = {true}};
  for (const char *line = template, *end; *line; line = end) {
    const char *newline = strchr(line, '\n');
    assert(newline && "a template ends with its last line");
    end = newline + 1;
    if (*line == '%')
      direct(&f, line, newline);
    else if (f.live[f.depth])
      fill_line(&f, line, end);
  }
  assert(f.depth == 0);
}
