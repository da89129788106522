/* Units of dsl/ that goldens cannot show: exact numbers, distances, places, spans of the checked
   spec, and the calls that pisac does not make. */
#include <stdio.h>
#include <string.h>

#include "dsl/arena.h"
#include "dsl/dsl.h"
#include "dsl/number.h"
#include "dsl/suggest.h"
#include "dsl/text.h"

static int failures;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                              \
      failures++;                                                                                  \
    }                                                                                              \
  } while (0)

static const char body[] = "spec s {\n"
                           "  shape { heads 24; kv_heads 8; head_dim 128 }\n"
                           "  route top_k { density 0.150; score mean; always tokens 0..512 }\n"
                           "  attend { selected exact; rest taylor hybrid }\n"
                           "  tune { half_tile off, on }\n"
                           "  vary { density 0.10, 0.25 }\n"
                           "}\n";

static bool decimal_is(const char *text, int64_t num, int64_t den) {
  struct decimal value;
  return number_decimal(text, &value) && value.num == num && value.den == den;
}

static void test_numbers(void) {
  struct decimal value;
  CHECK(number_integer("0") == 0);
  CHECK(number_integer("9223372036854775807") == INT64_MAX);
  CHECK(number_integer("99999999999999999999") == INT64_MAX);
  CHECK(decimal_is("0.15", 15, 100));
  CHECK(decimal_is("0.1500000000000", 15, 100));
  CHECK(decimal_is("7", 7, 1));
  CHECK(decimal_is("7.000", 7, 1));
  CHECK(decimal_is("0.000000001", 1, 1000000000));
  CHECK(!number_decimal("0.0000000001", &value));
  CHECK(!number_decimal("1000000001", &value));
  CHECK(decimal_compare((struct decimal){1, 10}, (struct decimal){10, 100}) == 0);
  CHECK(decimal_compare((struct decimal){29, 100}, (struct decimal){3, 10}) < 0);
  CHECK(decimal_compare((struct decimal){999999999, 1000000000}, (struct decimal){1, 1}) < 0);
  CHECK(decimal_compare((struct decimal){2, 1}, (struct decimal){199, 100}) > 0);
}

static void test_suggestions(void) {
  static const char *const words[] = {"heads", "kv_heads", "head_dim", "type", NULL};
  CHECK(suggest("haeds", words) == words[0]);
  CHECK(suggest("kvheads", words) == words[1]);
  CHECK(suggest("head_dmi", words) == words[2]);
  CHECK(suggest("tpe", words) == words[3]);
  CHECK(suggest("mask", words) == NULL);
  CHECK(suggest("a_word_of_more_letters_than_any_that_we_know", words) == NULL);
}

static void test_places(struct arena *arena) {
  const struct source *source = source_make(arena, "x", "ab\n\ncd", 6);
  CHECK(source_place(source, 0).line == 1 && source_place(source, 0).column == 1);
  CHECK(source_place(source, 2).line == 1 && source_place(source, 2).column == 3);
  CHECK(source_place(source, 3).line == 2 && source_place(source, 3).column == 1);
  CHECK(source_place(source, 6).line == 3 && source_place(source, 6).column == 3);
  CHECK(source_line(source, 6).begin == 4 && source_line(source, 6).end == 6);
}

static bool covers(struct span span, const char *text) {
  return span.end - span.begin == strlen(text) &&
         strncmp(body + span.begin, text, strlen(text)) == 0;
}

static void test_spans(const struct spec *spec) {
  CHECK(covers(spec->name_span, "s"));
  CHECK(covers(spec->shape.kv_heads_span, "8"));
  CHECK(covers(spec->shape.type_span, "shape { heads 24; kv_heads 8; head_dim 128 }"));
  CHECK(covers(spec->blocks.query_span, "s"));
  CHECK(covers(spec->route.budget_span, "0.150"));
  CHECK(covers(spec->route.always_span, "tokens 0..512"));
  CHECK(covers(spec->attend.rest_span, "taylor hybrid"));
  CHECK(spec->n_choices == 2 && spec->choices[1].is_vary && spec->choices[1].n_values == 3);
  CHECK(covers(spec->choices[1].value_spans[0], "0.150"));
  CHECK(covers(spec->choices[1].value_spans[2], "0.25"));
  CHECK(strcmp(spec->choices[1].values[1], "0.1") == 0);
}

static void test_apply(struct arena *arena, const struct spec *base, struct diag *diag) {
  struct spec *spec = NULL;
  struct span nowhere = {0, 0}, where = base->choices[1].value_spans[1];
  const struct source *file = diag->source;
  CHECK(dsl_apply(arena, base, "density", "0.25", where, &spec, diag));
  CHECK(spec && spec->route.density.num == 25 && covers(spec->route.budget_span, "0.10"));
  CHECK(spec && spec->n_choices == 1 && base->n_choices == 2 && base->route.density.num == 15);
  CHECK(dsl_apply(arena, base, "keep", "8", nowhere, &spec, diag));
  CHECK(spec->route.budget == BUDGET_KEEP && span_is_nowhere(spec->route.budget_span));
  CHECK(strcmp(dsl_value(arena, spec, "rest"), "taylor_hybrid") == 0);
  CHECK(dsl_apply(arena, base, "score", "mean + log_covariance", nowhere, &spec, diag));
  CHECK(strcmp(dsl_value(arena, spec, "score"), "mean+log_covariance") == 0);
  CHECK(dsl_value(arena, spec, "heads") == NULL);
  CHECK(diag_status(diag) == 0 && diag->source == file);
}

/* A refused value leaves |out| alone, names the place, and gives the file back. */
static void test_refusals(struct arena *arena, const struct spec *base, struct diag *diag) {
  static const char *const bad[][2] = {{"density", "2"}, {"density", ""}, {"density", "0.1, 0.2"},
                                       {"heads", "3"},   {"", "1"},       {"keep", "}"}};
  const struct source *file = diag->source;
  struct spec *spec = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int errors = diag->n_errors;
    CHECK(!dsl_apply(arena, base, bad[i][0], bad[i][1], base->name_span, &spec, diag));
    CHECK(!dsl_apply(arena, base, bad[i][0], bad[i][1], (struct span){0, 0}, &spec, diag));
    CHECK(diag->n_errors >= errors + 2);
  }
  CHECK(spec == NULL && diag->source == file && diag_status(diag) == 1);
}

static void test_world(struct arena *arena) {
  struct diag diag;
  struct text text;
  text_init(&text);
  diag_init(&diag, arena);
  CHECK(dsl_load(arena, "no/such/file.pisa", &diag) == NULL && diag_status(&diag) == 2);
  diag_print(&diag, &text);
  CHECK(strcmp(text.data, "error: cannot read no/such/file.pisa: No such file or directory\n") ==
        0);
  CHECK(!dsl_format(arena, ".", &diag, &text) && diag_status(&diag) == 2);
  text_fini(&text);
}

/* Only the first hundred errors are kept. */
static void test_many_errors(struct arena *arena) {
  struct diag diag;
  struct text text;
  text_init(&text);
  diag_init(&diag, arena);
  for (int i = 0; i < 250; i++)
    text_puts(&text, "@ ");
  CHECK(dsl_parse(arena, "many", text.data, text.size, &diag) == NULL);
  CHECK(diag.n_errors > 100);
  text_clear(&text);
  diag_print(&diag, &text);
  CHECK(strstr(text.data, "only the first 100 errors are shown\n"));
  text_fini(&text);
}

int main(void) {
  struct arena arena;
  struct diag diag;
  arena_init(&arena);
  diag_init(&diag, &arena);
  test_numbers();
  test_suggestions();
  test_places(&arena);
  struct spec *spec = dsl_parse(&arena, "body", body, strlen(body), &diag);
  CHECK(spec);
  if (spec) {
    test_spans(spec);
    test_apply(&arena, spec, &diag);
    test_refusals(&arena, spec, &diag);
  }
  test_world(&arena);
  test_many_errors(&arena);
  arena_fini(&arena);
  return failures ? 1 : 0;
}
