/* readme_test.c: the README's C functions, compiled and linked as they stand there. A file that is
   no pack goes in; the status and the message that the README promises must come out. */
#include <pisa.h>
#include <stdio.h>
#include <string.h>

pisa_status load(const char *path, pisa_module **module, pisa_error *error);
pisa_status attend(const pisa_module *module, int64_t b, int64_t h, int64_t n, void *q, void *k,
                   void *v, void *o, void *workspace, size_t *bytes, void *stream,
                   pisa_error *error);

int main(int argc, char **argv) {
  pisa_module *module = NULL;
  pisa_error error;
  size_t bytes = 0;
  if (argc < 2)
    return 2;
  if (load(argv[1], &module, &error) != PISA_CORRUPT || module || !strlen(error.message)) {
    printf("a README loaded as a pack: %s\n", error.message);
    return 1;
  }
  if (attend(NULL, 1, 1, 1, NULL, NULL, NULL, NULL, NULL, &bytes, NULL, &error) !=
      PISA_INVALID_ARGUMENT) {
    printf("no module, but: %s\n", error.message);
    return 1;
  }
  return 0;
}
