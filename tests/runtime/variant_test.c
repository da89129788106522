/* variant_test.c: settings choose the variant that has them and is otherwise like variant 0. */
#include "runtime/pack.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

static void check_two(const pisa_pack *pack) {
  pisa_error error;
  int found = -1;
  const char *quarter[] = {"density=0.25"}, *eighth[] = {"density=0.125"};
  const char *half[] = {"density=0.5"}, *unknown[] = {"tile=3"}, *prefix[] = {"dens=0.25"};
  const char *twice[] = {"density=0.25", "density=0.125"}, *bare[] = {"density"}, *empty[] = {"=1"};
  const char *longer[] = {"density=00.2500"}, *shorter[] = {"density=0.2"};
  const char *odd[] = {"density=.25"}, *dots[] = {"density=0.25."}, *more[] = {"density=0.251"};
  const char *spaced[] = {"density=0.25 x=1"}, *null[] = {NULL};
  CHECK_OK(pisa_pack_find_variant(pack, NULL, 0, &found, &error), error);
  CHECK_INT(found, 0);
  CHECK_OK(pisa_pack_find_variant(pack, quarter, 1, &found, &error), error);
  CHECK_INT(found, 1);
  CHECK_OK(pisa_pack_find_variant(pack, eighth, 1, &found, &error), error);
  CHECK_INT(found, 0);
  found = 7;
  CHECK_OK(pisa_pack_find_variant(pack, longer, 1, &found, &error), error); /* the same number */
  CHECK_INT(found, 1);
  const char *const *const others[] = {shorter, odd, dots, more};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    CHECK_FAILS(pisa_pack_find_variant(pack, others[i], 1, &found, &error), PISA_UNSUPPORTED, error,
                "no variant has these settings");
  found = 7;
  CHECK_FAILS(pisa_pack_find_variant(pack, half, 1, &found, &error), PISA_UNSUPPORTED, error,
              "'density=0.125', 'density=0.25'");
  CHECK_FAILS(pisa_pack_find_variant(pack, unknown, 1, &found, &error), PISA_UNSUPPORTED, error,
              "no variant has these settings");
  CHECK_FAILS(pisa_pack_find_variant(pack, prefix, 1, &found, &error), PISA_UNSUPPORTED, error,
              "there are");
  CHECK_FAILS(pisa_pack_find_variant(pack, twice, 2, &found, &error), PISA_UNSUPPORTED, error,
              "there are");
  CHECK_INT(found, 7);
  CHECK_FAILS(pisa_pack_find_variant(pack, bare, 1, &found, &error), PISA_INVALID_ARGUMENT, error,
              "setting 0 is 'density', must be name=value");
  CHECK_FAILS(pisa_pack_find_variant(pack, empty, 1, &found, &error), PISA_INVALID_ARGUMENT, error,
              "'=1'");
  CHECK_FAILS(pisa_pack_find_variant(pack, spaced, 1, &found, &error), PISA_INVALID_ARGUMENT, error,
              "must be name=value");
  CHECK_FAILS(pisa_pack_find_variant(pack, null, 1, &found, &error), PISA_INVALID_ARGUMENT, error,
              "NULL");
  CHECK_FAILS(pisa_pack_find_variant(pack, NULL, 1, &found, &error), PISA_INVALID_ARGUMENT, error,
              "settings is NULL");
  CHECK_FAILS(pisa_pack_find_variant(pack, quarter, -1, &found, &error), PISA_INVALID_ARGUMENT,
              error, "n is -1");
  CHECK_FAILS(pisa_pack_find_variant(pack, quarter, 1, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out is NULL");
  CHECK_FAILS(pisa_pack_find_variant(NULL, quarter, 1, &found, &error), PISA_INVALID_ARGUMENT,
              error, "pack is NULL");
}

/* With two choices, the one that is not set stays as in variant 0. */
static void check_cross_product(const struct sample *sample) {
  pisa_error error;
  struct sample first, both;
  pisa_pack *pack = NULL;
  int found = -1;
  const char *tile[] = {"tile=on"}, *quarter[] = {"density=0.25"};
  sample_edit(sample, "variant 0 density=0.125", "variant 0 tile=off density=0.125", &first);
  sample_edit(&first, "variant 1 density=0.25", "variant 1 tile=on density=0.125", &both);
  CHECK_OK(pisa_pack_read(both.bytes, both.size, &pack, &error), error);
  CHECK_OK(pisa_pack_find_variant(pack, tile, 1, &found, &error), error);
  CHECK_INT(found, 1);
  CHECK_FAILS(pisa_pack_find_variant(pack, quarter, 1, &found, &error), PISA_UNSUPPORTED, error,
              "there are");
  pisa_pack_close(pack);
  sample_free(&first);
  sample_free(&both);
}

int main(void) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.no_cubin = true}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  check_two(pack);
  check_cross_product(&sample);
  pisa_pack_close(pack);
  sample_free(&sample);
  return check_result();
}
