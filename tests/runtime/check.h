/* check.h: a test is a main() that counts failed checks and returns 1 if there were any. */
#ifndef PISA_TESTS_RUNTIME_CHECK_H
#define PISA_TESTS_RUNTIME_CHECK_H

#include <stdbool.h>

#include "runtime/pisa.h"

#define CHECK(condition) check_true(condition, #condition, __FILE__, __LINE__)
/* Two whole numbers are equal. */
#define CHECK_INT(got, wanted) check_int(got, wanted, #got, __FILE__, __LINE__)
/* |call| (which fills |error|) gives |wanted|, and the message contains |words|. */
#define CHECK_FAILS(call, wanted, error, words)                                                    \
  check_fails(call, wanted, &(error), words, #call, __FILE__, __LINE__)
/* |call| gives PISA_OK and leaves the message empty. */
#define CHECK_OK(call, error) check_fails(call, PISA_OK, &(error), "", #call, __FILE__, __LINE__)

void check_true(bool condition, const char *text, const char *file, int line);
void check_int(long long got, long long wanted, const char *text, const char *file, int line);
void check_fails(pisa_status got, pisa_status wanted, const pisa_error *error, const char *words,
                 const char *text, const char *file, int line);
/* What main returns; prints the number of checks. */
int check_result(void);

#endif
