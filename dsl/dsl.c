/* The calls of dsl.h as lists of steps: read, parse, check, print. */
#include "dsl/dsl.h"

#include <errno.h>
#include <string.h>

#include "dsl/arena.h"
#include "dsl/ast.h"
#include "dsl/check.h"
#include "dsl/parse.h"
#include "dsl/text.h"

static const struct source *open_source(struct arena *arena, const char *path, struct diag *diag) {
  const struct source *source = source_read(arena, path);
  if (!source && errno == EFBIG)
    diag_world(diag, "cannot read %s: longer than %d bytes is no spec", path, SOURCE_MAX_BYTES);
  else if (!source)
    diag_world(diag, "cannot read %s: %s", path, strerror(errno));
  return source;
}

static struct spec *load(struct arena *arena, const struct source *source, struct diag *diag) {
  struct parse parse;
  parse_init(&parse, arena, source, diag);
  bool whole = parse_file(&parse);
  return parse.spec ? check(arena, parse.spec, !whole, diag) : NULL;
}

struct spec *dsl_load(struct arena *arena, const char *path, struct diag *diag) {
  const struct source *source = open_source(arena, path, diag);
  return source ? load(arena, source, diag) : NULL;
}

struct spec *dsl_parse(struct arena *arena, const char *name, const char *text, size_t size,
                       struct diag *diag) {
  return load(arena, source_make(arena, name, text, size), diag);
}

bool dsl_print_tokens(struct arena *arena, const char *path, struct diag *diag, struct text *out) {
  const struct source *source = open_source(arena, path, diag);
  if (!source)
    return false;
  struct parse parse;
  parse_init(&parse, arena, source, diag);
  return parse_print_tokens(&parse, out);
}

static bool parse_path(struct parse *parse, struct arena *arena, const char *path,
                       struct diag *diag) {
  const struct source *source = open_source(arena, path, diag);
  if (!source)
    return false;
  parse_init(parse, arena, source, diag);
  return parse_file(parse);
}

bool dsl_print_ast(struct arena *arena, const char *path, struct diag *diag, struct text *out) {
  struct parse parse;
  if (!parse_path(&parse, arena, path, diag))
    return false;
  ast_print(parse.spec, out);
  return true;
}

bool dsl_format(struct arena *arena, const char *path, struct diag *diag, struct text *out) {
  struct parse parse;
  if (!parse_path(&parse, arena, path, diag))
    return false;
  format_print(arena, &parse, out);
  return true;
}
