/* parse_fuzz.c: text that nobody meant to be a spec. In: arbitrary bytes. Out: nothing; a crash, a
   sanitizer's report or a broken promise is the finding. Promises: a text is accepted or has an
   error with a place in it; what is accepted prints and formats to texts that mean the same; every
   candidate that tune and vary list is legal. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/arena.h"
#include "dsl/dsl.h"
#include "dsl/parse.h"
#include "dsl/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what) {
  if (condition)
    return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

/* The canonical text of |text|, which must be a good spec; to |out|. */
static void respell(struct arena *arena, const struct text *text, struct text *out) {
  struct diag diag;
  diag_init(&diag, arena);
  const struct spec *spec = dsl_parse(arena, "again", text->data, text->size, &diag);
  require(spec && diag_status(&diag) == 0, "what is printed is accepted");
  spec_print(spec, out);
}

static bool format(struct arena *arena, const char *text, size_t size, struct text *out) {
  struct diag diag;
  struct parse parse;
  diag_init(&diag, arena);
  parse_init(&parse, arena, source_make(arena, "format", text, size), &diag);
  if (!parse_file(&parse))
    return false;
  format_print(arena, &parse, out);
  return true;
}

static void check_layout(struct arena *arena, const char *data, size_t size,
                         const struct text *canonical) {
  struct text once, twice, spelt;
  text_init(&once);
  text_init(&twice);
  text_init(&spelt);
  if (format(arena, data, size, &once)) {
    require(format(arena, once.data, once.size, &twice), "a formatted text has no syntax error");
    require(strcmp(once.data, twice.data) == 0, "formatting twice is formatting once");
  }
  if (canonical) {
    respell(arena, &once, &spelt);
    require(strcmp(spelt.data, canonical->data) == 0, "formatting keeps the meaning");
  }
  text_fini(&once);
  text_fini(&twice);
  text_fini(&spelt);
}

static void check_choices(struct arena *arena, const struct spec *spec, struct diag *diag) {
  struct spec *applied;
  for (int i = 0; i < spec->n_choices; i++) {
    const struct spec_choice *choice = &spec->choices[i];
    for (int k = 0; k < choice->n_values; k++)
      require(dsl_apply(arena, spec, choice->name, choice->values[k], choice->value_spans[k],
                        &applied, diag),
              "a listed candidate is legal");
  }
}

static void check_messages(const struct diag *diag) {
  struct text text;
  text_init(&text);
  diag_print(diag, &text);
  require(strstr(text.data, "error: ") != NULL, "a refused text has an error");
  text_clear(&text);
  diag_print_json(diag, &text);
  require(text.size > 0, "JSON");
  text_fini(&text);
}

static void check_good(struct arena *arena, const char *data, size_t size, const struct spec *spec,
                       struct diag *diag) {
  struct text canonical, again;
  text_init(&canonical);
  text_init(&again);
  spec_print(spec, &canonical);
  respell(arena, &canonical, &again);
  require(strcmp(canonical.data, again.data) == 0, "the canonical text reads back as itself");
  check_layout(arena, data, size, &canonical);
  check_choices(arena, spec, diag);
  text_fini(&canonical);
  text_fini(&again);
}

/* "name=value" behind the first NUL is a --set option. */
static void check_set(struct arena *arena, const struct spec *spec, const char *option) {
  struct diag diag;
  struct spec *out;
  diag_init(&diag, arena);
  const char *equals = strchr(option, '=');
  if (!equals)
    return;
  const char *name = arena_strndup(arena, option, (size_t)(equals - option));
  bool good = dsl_apply(arena, spec, name, equals + 1, (struct span){0, 0}, &out, &diag);
  require(good == (diag.n_errors == 0), "a value is set, or there is an error");
}

static void print_tokens(struct arena *arena, const struct source *source) {
  struct text text;
  struct diag diag;
  struct parse parse;
  diag_init(&diag, arena);
  parse_init(&parse, arena, source, &diag);
  text_init(&text);
  parse_print_tokens(&parse, &text);
  text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { MAX_INPUT = 1 << 14 };
  if (size > MAX_INPUT)
    return 0;
  struct arena arena;
  struct diag diag;
  arena_init(&arena);
  diag_init(&diag, &arena);
  const char *text = arena_strndup(&arena, (const char *)data, size);
  const char *option = memchr(text, 0, size);
  size_t length = option ? (size_t)(option - text) : size;
  const struct spec *spec = dsl_parse(&arena, "input", text, length, &diag);
  require((spec != NULL) == (diag.n_errors == 0), "accepted, or errors");
  if (spec)
    check_good(&arena, text, length, spec, &diag);
  else {
    check_messages(&diag);
    check_layout(&arena, text, length, NULL);
  }
  if (spec && option)
    check_set(&arena, spec, option + 1);
  print_tokens(&arena, source_make(&arena, "tokens", text, size));
  arena_fini(&arena);
  return 0;
}
