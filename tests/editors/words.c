/* words.c: prints the words of the language as its own tables have them, a line each: "clause
   shape", "field heads", "value bf16". Values of several words are there with blanks and with '_'
   between them (docs/LANGUAGE.md 1.6). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "dsl/fields.h"

static void print_word(const char *kind, const char *word, size_t n) {
  if (n > 0 && islower((unsigned char)*word))
    printf("%s %.*s\n", kind, (int)n, word);
}

/* Each word of |text| in lower case: of "window N, tokens A..B" window and tokens. */
static void print_words(const char *text) {
  while (*text) {
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    print_word("value", text, n);
    text += n ? n : 1;
  }
}

static void print_joined(const char *words) {
  printf("value ");
  for (; *words; words++)
    putchar(*words == ' ' ? '_' : *words);
  putchar('\n');
}

static void print_options(const struct option *options) {
  for (; options && options->words; options++) {
    print_words(options->words);
    print_joined(options->words);
  }
}

/* Of "same, root, whole numbers from 8 to 1024" what stands alone. */
static void print_alone(const char *allowed) {
  while (*allowed) {
    const size_t n = strcspn(allowed, ",");
    if (!memchr(allowed, ' ', n))
      print_word("value", allowed, n);
    allowed += n;
    allowed += strspn(allowed, ", ");
  }
}

static void print_field(const struct field *field) {
  printf("%s %s\n", field->home == HOME_SPEC ? "clause" : "field", field->name);
  if (field->lead)
    printf("value %s\n", field->lead);
  print_options(field->options);
  if (field->kind == FIELD_CUSTOM && field->allowed)
    print_words(field->allowed);
  if (field->kind == FIELD_START)
    print_alone(field->allowed);
}

int main(void) {
  for (int i = 0; i < N_FIELDS; i++)
    print_field(&fields[i]);
  print_options(route_options);
  print_options(score_options);
  print_options(term_options);
  print_options(below_options);
  return 0;
}
