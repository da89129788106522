/* check.c: counts checks and prints the failed ones. */
#include "tests/runtime/check.h"

#include <stdio.h>
#include <string.h>

static int n_checks, n_failed;

void check_true(bool condition, const char *text, const char *file, int line) {
  n_checks++;
  if (condition)
    return;
  n_failed++;
  fprintf(stderr, "%s:%d: %s is false\n", file, line, text);
}

void check_int(long long got, long long wanted, const char *text, const char *file, int line) {
  n_checks++;
  if (got == wanted)
    return;
  n_failed++;
  fprintf(stderr, "%s:%d: %s is %lld, must be %lld\n", file, line, text, got, wanted);
}

void check_fails(pisa_status got, pisa_status wanted, const pisa_error *error, const char *words,
                 const char *text, const char *file, int line) {
  n_checks++;
  bool said = wanted ? *words && strstr(error->message, words) : !*error->message;
  if (got == wanted && error->status == wanted && said)
    return;
  n_failed++;
  fprintf(stderr, "%s:%d: %s\n  gives '%s' (%s)\n  must be '%s' with '%s'\n", file, line, text,
          pisa_status_name(got), error->message, pisa_status_name(wanted), words);
}

int check_result(void) {
  printf("%d checks, %d failed\n", n_checks, n_failed);
  return n_failed != 0;
}
