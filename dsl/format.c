/* Syntax tree and comments in, the one layout out (docs/LANGUAGE.md, 1.6): formatting twice is
   formatting once.

   The tree becomes lines first; padding is added when all are known. A block that was written on
   one line stays on one line if that fits. Keywords of lines with braces are padded to the longest
   of a run of lines; so are comments behind code. A comment inside a statement moves in front of
   it. */
#include <string.h>

#include "dsl/arena.h"
#include "dsl/ast.h"
#include "dsl/dsl.h"
#include "dsl/parse.h"
#include "dsl/text.h"

enum { WIDTH = 100, INDENT = 2 };

struct line {
  int depth;
  bool blank_before;
  size_t keyword;      /* letters of the keyword to pad; 0: none */
  const char *code;    /* "" when the line is only a comment */
  const char *comment; /* NULL: none */
  size_t column;       /* of a comment behind code */
};

struct format {
  struct arena *arena;
  const struct parse *parse;
  struct line *lines;
  int n_lines, capacity;
  int n_comments;   /* written so far */
  size_t end;       /* source offset behind what was written last */
  bool fresh;       /* a block was just opened: no blank line */
  struct text code; /* of the line being written */
  size_t keyword;   /* of that line */
};

static int count_breaks(const struct format *f, size_t begin, size_t end) {
  int n = 0;
  for (size_t i = begin; i < end; i++)
    n += f->parse->source->text[i] == '\n';
  return n;
}

static void add_line(struct format *f, struct line line, size_t source_begin) {
  if (f->n_lines == f->capacity) {
    struct line *lines = ARENA_ARRAY(f->arena, struct line, 2 * f->capacity + 16);
    if (f->n_lines > 0)
      memcpy(lines, f->lines, (size_t)f->n_lines * sizeof *lines);
    f->lines = lines;
    f->capacity = 2 * f->capacity + 16;
  }
  line.blank_before = !f->fresh && count_breaks(f, f->end, source_begin) > 1;
  f->lines[f->n_lines++] = line;
  f->fresh = false;
}

/* Ends the line being written; |source| is what of the source it stands for. */
static void end_line(struct format *f, int depth, struct span source) {
  struct line line = {.depth = depth,
                      .keyword = f->keyword,
                      .code = arena_strndup(f->arena, f->code.data, f->code.size)};
  add_line(f, line, source.begin);
  f->end = source.end;
  f->keyword = 0;
  text_clear(&f->code);
}

/* Writes the comments before |offset|: behind the last line when they were on it, else on lines of
 * their own. */
static void write_comments(struct format *f, size_t offset, int depth) {
  for (; f->n_comments < f->parse->n_comments; f->n_comments++) {
    struct span span = f->parse->comments[f->n_comments];
    if (span.begin >= offset)
      return;
    const char *text =
        arena_strndup(f->arena, f->parse->source->text + span.begin, span.end - span.begin);
    struct line *last = f->n_lines > 0 ? &f->lines[f->n_lines - 1] : NULL;
    if (last && !last->comment && count_breaks(f, f->end, span.begin) == 0)
      last->comment = text;
    else
      add_line(f, (struct line){.depth = depth, .code = "", .comment = text}, span.begin);
    f->end = span.end;
  }
}

static void print_statement(const struct ast_statement *s, struct text *out);

static void print_phrase(const struct ast_phrase *phrase, struct text *out) {
  for (const struct ast_word *word = phrase->words; word; word = word->next)
    text_printf(out, "%s%s", word == phrase->words ? "" : " ", word->text);
  if (!phrase->block)
    return;
  text_puts(out, " { ");
  for (const struct ast_statement *s = phrase->block->statements; s; s = s->next) {
    print_statement(s, out);
    text_puts(out, s->next ? "; " : " ");
  }
  text_putc(out, '}');
}

/* All on one line. */
static void print_statement(const struct ast_statement *s, struct text *out) {
  for (const struct ast_phrase *phrase = s->phrases; phrase; phrase = phrase->next) {
    print_phrase(phrase, out);
    text_puts(out, phrase->next ? ", " : "");
  }
}

static bool has_comment(const struct format *f, struct span span) {
  int i = f->n_comments; /* those before are written, and so lie in front */
  while (i < f->parse->n_comments && f->parse->comments[i].begin < span.begin)
    i++;
  return i < f->parse->n_comments && f->parse->comments[i].end <= span.end;
}

/* Must |s| be written over several lines? */
static bool is_long(struct format *f, const struct ast_statement *s, int depth) {
  bool has_block = false, broken = false;
  for (const struct ast_phrase *phrase = s->phrases; phrase; phrase = phrase->next) {
    const struct ast_block *block = phrase->block;
    has_block = has_block || (block && block->statements);
    broken = broken || (block && (block->statements || has_comment(f, block->span)) &&
                        count_breaks(f, block->span.begin, block->span.end) > 0);
  }
  text_clear(&f->code);
  print_statement(s, &f->code);
  size_t width = (size_t)(INDENT * depth) + f->code.size;
  return broken || (has_block && width > WIDTH);
}

static void write_statement(struct format *f, const struct ast_statement *s, int depth);

/* "{", the statements, and the beginning of the line of "}". */
static void write_block(struct format *f, const struct ast_block *block, size_t begin, int depth) {
  write_comments(f, block->span.begin, depth);
  text_putc(&f->code, '{');
  end_line(f, depth, (struct span){begin, block->span.begin + 1});
  f->fresh = true;
  for (const struct ast_statement *s = block->statements; s; s = s->next)
    write_statement(f, s, depth + 1);
  write_comments(f, block->span.end - 1, depth + 1);
  text_putc(&f->code, '}');
  f->fresh = true; /* no blank line before '}' */
}

static void write_long(struct format *f, const struct ast_statement *s, int depth) {
  size_t begin = s->span.begin;
  text_clear(&f->code);
  for (const struct ast_phrase *phrase = s->phrases; phrase; phrase = phrase->next) {
    for (const struct ast_word *word = phrase->words; word; word = word->next)
      text_printf(&f->code, "%s%s", word == phrase->words ? "" : " ", word->text);
    if (phrase->block) {
      text_putc(&f->code, ' ');
      write_block(f, phrase->block, begin, depth);
      begin = phrase->block->span.end - 1;
    }
    text_puts(&f->code, phrase->next ? ", " : "");
  }
  end_line(f, depth, (struct span){begin, s->span.end});
}

static void write_statement(struct format *f, const struct ast_statement *s, int depth) {
  write_comments(f, s->span.begin, depth);
  if (is_long(f, s, depth)) {
    write_long(f, s, depth);
    return;
  }
  write_comments(f, s->span.end, depth);
  if (strchr(f->code.data, '{'))
    f->keyword = strlen(s->phrases->words->text);
  end_line(f, depth, s->span);
}

static void write_spec(struct format *f, const struct ast_spec *spec) {
  write_comments(f, spec->span.begin, 0);
  text_printf(&f->code, "spec %s ", spec->name->text);
  write_block(f, spec->block, spec->span.begin, 0);
  end_line(f, 0, (struct span){spec->block->span.end - 1, spec->block->span.end});
  write_comments(f, f->parse->source->size + 1, 0);
}

/* Lines [i, result) stand together: one depth, no blank line, and no line of several between them.
 */
static int run_end(const struct format *f, int i) {
  int end = i + 1;
  while (end < f->n_lines && f->lines[end].depth == f->lines[i].depth &&
         !f->lines[end].blank_before)
    end++;
  return end;
}

static size_t longest_keyword(const struct format *f, int begin, int end) {
  size_t longest = 0;
  for (int i = begin; i < end; i++)
    if (f->lines[i].keyword > longest)
      longest = f->lines[i].keyword;
  return longest;
}

static void pad_keywords(struct format *f) {
  for (int i = 0; i < f->n_lines;) {
    int end = run_end(f, i);
    size_t longest = longest_keyword(f, i, end);
    for (; i < end; i++) {
      struct line *line = &f->lines[i];
      if (line->keyword > 0)
        line->code = arena_printf(f->arena, "%.*s%*s%s", (int)line->keyword, line->code,
                                  (int)(longest - line->keyword), "", line->code + line->keyword);
    }
  }
}

static bool has_both(const struct line *line) {
  return line->comment && *line->code;
}

static size_t code_width(const struct line *line) {
  return (size_t)(INDENT * line->depth) + strlen(line->code);
}

/* Comments behind code stand in one column as long as line follows line. */
static void align_comments(struct format *f) {
  for (int i = 0; i < f->n_lines;) {
    int begin = i;
    size_t widest = 0;
    for (; i < f->n_lines && has_both(&f->lines[i]); i++) {
      if (i > begin && f->lines[i].blank_before)
        break;
      size_t width = code_width(&f->lines[i]);
      widest = width > widest ? width : widest;
    }
    for (int k = begin; k < i; k++)
      f->lines[k].column = widest + 2;
    i += i == begin;
  }
}

static void print_lines(const struct format *f, struct text *out) {
  for (int i = 0; i < f->n_lines; i++) {
    const struct line *line = &f->lines[i];
    text_printf(out, "%s%*s%s", line->blank_before && i > 0 ? "\n" : "", INDENT * line->depth, "",
                line->code);
    if (has_both(line))
      text_printf(out, "%*s", (int)(line->column - code_width(line)), "");
    text_printf(out, "%s\n", line->comment ? line->comment : "");
  }
}

void format_print(struct arena *arena, const struct parse *parse, struct text *out) {
  struct format f = {.arena = arena, .parse = parse, .fresh = true};
  text_init(&f.code);
  write_spec(&f, parse->spec);
  pad_keywords(&f);
  align_comments(&f);
  print_lines(&f, out);
  text_fini(&f.code);
}
