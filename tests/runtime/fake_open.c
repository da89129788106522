/* fake_open.c: the test's side of the fake driver. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/runtime/fake_cuda.h"

const struct fake_cuda *fake_open(void) {
  const char *path = getenv("PISA_LIBCUDA");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  const struct fake_cuda *fake = library ? dlsym(library, "fake_cuda") : NULL;
  if (!fake) {
    fprintf(stderr, "PISA_LIBCUDA must name the fake driver\n");
    exit(1);
  }
  fake->reset();
  return fake;
}
