/* tuning_page_test.c: the C of docs/tuning.md, compiled as it stands there, on the fake driver.
   usage: tuning_page_test PACK: with a table in which variant 3 is the best of density 0.25, which
   is recorded with density 0.5. */
#include <stdio.h>

#include "runtime/pisa.h"

pisa_status choose(const pisa_pack *pack, pisa_attention *call, int *variant, pisa_error *error);
pisa_status open_context(void);

int main(int argc, char **argv) {
  pisa_error error = {0};
  pisa_pack *pack = NULL;
  int variant = -1;
  pisa_attention call = {.struct_size = sizeof call, .batch = 1, .heads = 4, .n_k = 300};
  if (argc != 2)
    return 2;
  pisa_status status = pisa_pack_open(argv[1], &pack, &error);
  if (!status)
    status = open_context();
  if (!status)
    status = choose(pack, &call, &variant, &error);
  printf("%d %s variant %d density %g\n", (int)status, error.message, variant, call.density);
  pisa_pack_close(pack);
  return status != PISA_OK;
}
