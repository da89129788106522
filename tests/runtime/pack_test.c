/* pack_test.c: reading packs. Whole ones are read right; truncated, damaged, foreign and newer
   ones, and manifests that break a rule of docs/ABI.md, are refused with a message that says what
   is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pack.h"
#include "tests/runtime/check.h"
#include "tests/runtime/sample_pack.h"

static const struct sample_spec plain = {.no_cubin = false};

/* The end of variant 1's route line. */
#define VARIANT_1 "density=25/100 keep=0 threshold=0/1 variance=diagonal\n"

static pisa_status read_sample(const struct sample *sample, pisa_error *error) {
  pisa_pack *pack = NULL;
  pisa_status status = pisa_pack_read(sample->bytes, sample->size, &pack, error);
  CHECK((pack != NULL) == (status == PISA_OK));
  pisa_pack_close(pack);
  return status;
}

static void check_fields(void) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  pisa_pack_info info;
  sample_make(&(struct sample_spec){.always = "always first=256\nalways range=0..512\n"}, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  CHECK_OK(pisa_pack_get_info(pack, &info, &error), error);
  CHECK(!strcmp(info.name, "sample"));
  CHECK(!strcmp(info.compiler, "pisac 0.1.0, by hand"));
  CHECK(!strcmp(info.target, "sm_90a"));
  CHECK(!memcmp(info.manifest, sample.bytes + sample.manifest_at, sample.manifest_size));
  CHECK_INT((long long)strlen(info.manifest), (long long)sample.manifest_size);
  CHECK(info.heads == 4 && info.kv_heads == 4 && info.head_dim == 128 && info.type == PISA_BF16);
  CHECK(info.n_variants == 2 && info.has_cubin == 1 && info.validated == 0);
  const struct pisa_variant *v = pack->manifest.variants;
  CHECK(v[0].method.density_num == 125 && v[0].method.density_den == 1000);
  CHECK(v[1].method.density_num == 25 && v[1].method.density_den == 100);
  CHECK(v[1].method.n_always == 2 && v[1].method.always[0].end == 256);
  CHECK(v[1].method.always[1].kind == PISA_ALWAYS_RANGE && v[1].method.always[1].end == 512);
  CHECK(v[0].method.tail == PISA_TAIL_TAYLOR_HYBRID && !v[0].method.dense);
  CHECK(v[0].method.term == PISA_TERM_LOG_COVARIANCE);
  CHECK(!v[0].method.union_lists && v[0].method.dense_below == 0);
  CHECK(!v[0].kernels[PISA_KERNEL_RESIDUAL].present && !v[0].kernels[PISA_KERNEL_DENSE].present);
  CHECK(v[0].kernels[PISA_KERNEL_ROUTE].smem_bytes == PISA_SMEM_DYNAMIC);
  CHECK(v[0].kernels[PISA_KERNEL_ATTEND].spill_bytes == 24);
  CHECK(v[0].ptx.offset == v[1].ptx.offset);
  pisa_pack_close(pack);
  sample_free(&sample);
}

static void check_overrides(void) {
  pisa_error error;
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.always = "always last=64\n"}, &sample);
  sample_edit(&sample, VARIANT_1, VARIANT_1 "always none\n", &edited);
  CHECK_OK(pisa_pack_read(edited.bytes, edited.size, &pack, &error), error);
  CHECK(pack->manifest.variants[0].method.n_always == 1);
  CHECK(pack->manifest.variants[1].method.n_always == 0);
  pisa_pack_close(pack);
  sample_free(&edited);
  sample_free(&sample);
}

/* Window, mass and term of variant |v|; a variant's lines replace those above. */
static void check_words(const struct pisa_pack *pack, int v, int64_t window, enum pisa_mass mass,
                        enum pisa_term term) {
  const struct pisa_method *m = &pack->manifest.variants[v].method;
  CHECK(m->has_window == (window >= 0));
  CHECK_INT(m->window, window < 0 ? 0 : window);
  CHECK(m->mass == mass && m->term == term);
}

static void check_more_words(void) {
  pisa_error error;
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.route = "top_k score=mean term=log_key_variance "
                                             "budget=density density=125/1000 keep=0 "
                                             "threshold=0/1 variance=diagonal",
                                    .always = "always last=64\nalways window=3\nalways first=1\n",
                                    .attend = "mass=second_order rest=taylor_0 selected=exact"},
              &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  check_words(pack, 0, 3, PISA_MASS_SECOND_ORDER, PISA_TERM_LOG_KEY_VARIANCE);
  check_words(pack, 1, 3, PISA_MASS_SECOND_ORDER, PISA_TERM_LOG_COVARIANCE);
  CHECK(pack->manifest.variants[0].method.n_always == 2);
  pisa_pack_close(pack);
  sample_edit(&sample, VARIANT_1, VARIANT_1 "always first=1\nattend selected=exact rest=drop\n",
              &edited);
  CHECK_OK(pisa_pack_read(edited.bytes, edited.size, &pack, &error), error);
  check_words(pack, 0, 3, PISA_MASS_SECOND_ORDER, PISA_TERM_LOG_KEY_VARIANCE);
  check_words(pack, 1, -1, PISA_MASS_ZEROTH_ORDER, PISA_TERM_LOG_COVARIANCE);
  CHECK(pack->manifest.variants[1].method.n_always == 1);
  pisa_pack_close(pack);
  sample_free(&edited);
  sample_edit(&sample, "variant 1 density=0.25\n",
              "variant 1 density=0.25\nshape heads=4 kv_heads=4 head_dim=128 type=fp16 mask=none\n",
              &edited);
  CHECK_OK(pisa_pack_read(edited.bytes, edited.size, &pack, &error), error);
  CHECK(pack->manifest.variants[0].method.type == PISA_BF16);
  CHECK(pack->manifest.variants[1].method.type == PISA_FP16);
  pisa_pack_close(pack);
  sample_free(&edited);
  sample_edit(&sample, VARIANT_1, VARIANT_1 "always none\n", &edited);
  CHECK_OK(pisa_pack_read(edited.bytes, edited.size, &pack, &error), error);
  check_words(pack, 1, -1, PISA_MASS_SECOND_ORDER, PISA_TERM_LOG_COVARIANCE);
  pisa_pack_close(pack);
  sample_free(&edited);
  sample_free(&sample);
}

/* Words of routes, tails and lists beyond those of specs/hybrid.pisa. */
static void check_new_words(void) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.blocks = "lists=union key=64 query=64",
                                    .route = "top_k score=mean term=log_residual budget=threshold "
                                             "density=0/1 keep=0 threshold=25/10 variance=full",
                                    .attend = "selected=exact rest=taylor_1 mass=second_order",
                                    .below = "below use=dense tokens=2048\n"},
              &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  const struct pisa_variant *v = pack->manifest.variants;
  const struct pisa_method *m = &v[0].method;
  CHECK(m->union_lists && m->term == PISA_TERM_LOG_RESIDUAL && m->dense_below == 2048);
  CHECK(m->budget == PISA_BUDGET_THRESHOLD && m->variance == PISA_VARIANCE_FULL);
  CHECK(m->threshold_num == 25 && m->threshold_den == 10 && m->density_num == 0 && m->keep == 0);
  CHECK(m->tail == PISA_TAIL_TAYLOR_1 && m->mass == PISA_MASS_SECOND_ORDER);
  CHECK(v[0].kernels[PISA_KERNEL_RESIDUAL].smem_bytes == 197504);
  CHECK(!strcmp(v[0].kernels[PISA_KERNEL_DENSE].entry, "pisa_dense"));
  CHECK(!strcmp(v[1].kernels[PISA_KERNEL_DENSE_EDGE].entry, "pisa_dense_edge"));
  CHECK(!v[1].kernels[PISA_KERNEL_RESIDUAL].present); /* its route is another one */
  CHECK(v[1].method.budget == PISA_BUDGET_DENSITY && v[1].method.threshold_num == 0);
  CHECK(v[1].method.variance == PISA_VARIANCE_DIAGONAL && v[1].method.dense_below == 2048);
  pisa_pack_close(pack);
  sample_free(&sample);
}

static void check_every_prefix(void) {
  struct sample sample;
  pisa_error error;
  sample_make(&plain, &sample);
  for (size_t size = 0; size < sample.size; size++) {
    char *part = malloc(size + 1); /* exact size, so that a sanitizer sees reading beyond */
    pisa_pack *pack = NULL;
    memcpy(part, sample.bytes, size);
    pisa_status status = pisa_pack_read(part, size, &pack, &error);
    if (status != PISA_CORRUPT || !strstr(error.message, "truncated"))
      CHECK_FAILS(status, PISA_CORRUPT, error, "truncated");
    free(part);
  }
  sample_free(&sample);
}

/* Every bit matters: a pack with one byte changed is never read. Its ABI may become an older one */
static void check_every_flip(void) {
  struct sample sample;
  pisa_error error;
  sample_make(&plain, &sample);
  for (size_t i = 0; i < sample.size; i++)
    for (int bit = 0; bit < 8; bit++) {
      sample.bytes[i] = (char)(sample.bytes[i] ^ (1 << bit));
      pisa_status status = read_sample(&sample, &error);
      bool older = i == strlen("PISA-PACK ") && strchr("12", sample.bytes[i]);
      if (status != (older ? PISA_UNSUPPORTED : PISA_CORRUPT) || !*error.message)
        CHECK_FAILS(status, PISA_CORRUPT, error, "byte flip");
      sample.bytes[i] = (char)(sample.bytes[i] ^ (1 << bit));
    }
  CHECK_OK(read_sample(&sample, &error), error);
  sample_free(&sample);
}

/* As above, but with the digest made right again: the parser itself must refuse or accept, not
 * crash. */
static void check_signed_flips(void) {
  struct sample sample, signed_again;
  sample_make(&plain, &sample);
  char *manifest = sample.bytes + sample.manifest_at;
  size_t parts_at = sample.manifest_at + sample.manifest_size;
  for (size_t i = 0; i < sample.manifest_size; i++)
    for (int bit = 0; bit < 8; bit += 3) {
      manifest[i] = (char)(manifest[i] ^ (1 << bit));
      sample_sign(manifest, sample.manifest_size, sample.bytes + parts_at, sample.size - parts_at,
                  &signed_again);
      read_sample(&signed_again, NULL);
      sample_free(&signed_again);
      manifest[i] = (char)(manifest[i] ^ (1 << bit));
    }
  sample_free(&sample);
}

static void check_bytes(const char *bytes, const char *words) {
  pisa_error error;
  pisa_pack *pack = NULL;
  CHECK_FAILS(pisa_pack_read(bytes, strlen(bytes), &pack, &error), PISA_CORRUPT, error, words);
}

static void check_headers(void) {
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
  check_bytes("#!/bin/sh\n", "not a pisa pack");
  check_bytes("PISA", "truncated");
  check_bytes("PISA-PACK 4 10 " ZEROS "\n", "update libpisa");
  check_bytes("PISA-PACK 999999 later formats may differ here\n", "update libpisa");
  pisa_error error;
  pisa_pack *pack = NULL;
  static const char older[] = "PISA-PACK 2 10 " ZEROS "\n";
  CHECK_FAILS(pisa_pack_read(older, sizeof older - 1, &pack, &error), PISA_UNSUPPORTED, error,
              "the pack has ABI 2, older than the 3 that this library (0.1.0) reads: rebuild it");
  check_bytes("PISA-PACK 0 10 " ZEROS "\n", "damaged");
  check_bytes("PISA-PACK 3 x " ZEROS "\n", "damaged");
  check_bytes("PISA-PACK 3 0 " ZEROS "\n", "damaged");
  check_bytes("PISA-PACK 3 10 " ZEROS "0\n", "damaged");
  check_bytes("PISA-PACK 3 10 0000\n", "damaged");
  check_bytes("PISA-PACK 3 99999999999999999999 " ZEROS "\n", "damaged");
  check_bytes("PISA-PACK 3 999999999999999999 " ZEROS "\nname x\n", "truncated");
  check_bytes("PISA-PACK 3 7 " ZEROS "\nname x\n", "manifest is damaged");
  check_bytes("PISA-PACK 3 7 " ZEROS ZEROS "\nname x\n", "header line of the pack is damaged");
}

struct edit {
  const char *before, *after, *words;
};
/* What a careless or hostile writer could sign. */
static const struct edit edits[] = {
    {"name sample", "name ", "'name' is empty"},
    {"name sample", "title sample", "found 'title' where 'name' is expected"},
    {"name sample\n", "name sample\n\n", "the line is empty"},
    {"sample", "s\177mple", "not ASCII"},
    {"ptx_version 86", "ptx_version 8.6", "ptx_version is '8.6'"},
    {"spec_sha256 0", "spec_sha256 G", "not a sha256"},
    {"method piecewise", "method sliding", "method 'sliding' is not known"},
    {"method piecewise", "method pyramid", "found 'blocks' where 'pyramid' is expected"},
    {"heads=4 kv_heads=4", "heads=4 kv_heads=3", "not a multiple"},
    {"heads=4 kv_heads=4", "heads=0 kv_heads=4", "heads is '0', must be a whole number from 1"},
    {"heads=4 kv_heads=4", "heads=4 heads=4", "has no field 'kv_heads='"},
    {" mask=none", " mask=none extra=1", "'shape' must have 5 fields"},
    {" mask=none", "", "'shape' must have 5 fields"},
    {" mask=none", "  mask=none", "'shape' must have 5 fields"},
    {"mask=none", "mask=window", "mask is 'window'"},
    {"head_dim=128", "head_dim=80", "head_dim is 80"},
    {"head_dim=128", "head_dim=0128", "head_dim is '0128'"},
    {"head_dim=128", "head_dim=-128", "head_dim is '-128'"},
    {"head_dim=128", "head_dim=18446744073709551744", "head_dim is '18446744073709551744'"},
    {"type=bf16", "type=fp8", "type is 'fp8'"},
    {"query=128", "query=96", "query is 96"},
    {"query=128 key=64", "query=64 key=128", "query is 64, must not be less than key, 128"},
    {"top_k", "flat", "route 'flat' is not known"},
    {"density=125/1000", "density=0.125", "must be written num/den"},
    {"density=125/1000", "density=125/1001", "power of ten"},
    {"density=125/1000", "density=1250/1000", "num of density is '1250'"},
    {"density=125/1000", "density=0/1", "the budget must be positive"},
    {"keep=0", "keep=4", "the budget must be positive and the other ones 0"},
    {"score=mean", "score=lse", "score is 'lse'"},
    {"rest=taylor_hybrid", "rest=taylor_2", "rest is 'taylor_2'"},
    {" lists=separate", "", "'blocks' must have 3 fields"},
    {"lists=separate", "lists=shared", "lists is 'shared'"},
    {"lists=separate", "lists=union", "lists=union needs query=64, query is 128"},
    {" variance=diagonal", "", "'route' must have 8 fields"},
    {"variance=diagonal", "variance=half", "variance is 'half'"},
    {"variance=diagonal", "variance=full", "without a threshold variance must be diagonal"},
    {"threshold=0/1", "threshold=2.5", "threshold is '2.5', must be written num/den"},
    {"threshold=0/1", "threshold=5/2", "den of threshold must be a power of ten"},
    {"threshold=0/1", "threshold=1001/10", "num of threshold is '1001'"},
    {"threshold=0/1", "threshold=1/10000000000", "den of threshold is '10000000000'"},
    {"threshold=0/1", "threshold=25/10", "the other ones 0"},
    {"budget=density", "budget=threshold", "the budget must be positive"},
    {"budget=density density=125/1000", "budget=threshold density=0/1", "must be positive"},
    {"budget=density", "budget=mass", "budget is 'mass'"},
    {"validated no", "below tokens=2048\nvalidated no", "'below' must have 2 fields"},
    {"validated no", "below tokens=0 use=dense\nvalidated no", "tokens is '0'"},
    {"validated no", "below tokens=1073741825 use=dense\nvalidated no", "tokens is '1073741825'"},
    {"validated no", "below tokens=2048 use=flat\nvalidated no", "use is 'flat'"},
    {"validated no", "below tokens=1 use=dense\nbelow tokens=1 use=dense\nvalidated no",
     "found 'below' where 'validated' is expected"},
    {"attend selected", "below tokens=1 use=dense\nattend selected",
     "found 'below' where 'attend' is expected"},
    {"variant 1 density=0.25\n", "variant 1 density=0.25\nbelow tokens=1 use=dense\n",
     "found 'below' where 'part' is expected"},
    {"validated no", "below tokens=2048 use=dense\nvalidated no", "kernel 'dense' is missing"},
    {"attend selected", "always middle=3\nattend selected", "none of first=n, last=n, range=a..b"},
    {"attend selected", "always range=5..5\nattend selected", "end of always is '5'"},
    {"attend selected", "always range=5\nattend selected", "none of first=n"},
    {"attend selected", "always window=x\nattend selected", "window is 'x'"},
    {"attend selected", "always window=1\nalways window=1\nattend selected", "given twice"},
    {"attend selected", "always window=1 first=1\nattend selected", "must have 1 fields"},
    {" mass=zeroth_order", "", "'attend' must have 3 fields"},
    {"mass=zeroth_order", "mass=third_order", "mass is 'third_order'"},
    {"rest=taylor_hybrid", "rest=drop", "'attend' must have 2 fields"},
    {"term=log_covariance", "term=log_variance", "term is 'log_variance'"},
    {"term=log_covariance", "term=log_residual", "kernel 'residual' is missing"},
    {"attend selected=exact rest=taylor_hybrid mass=zeroth_order", "attend all=exact",
     "belong together"},
    {"attend selected",
     "always first=1\nalways first=1\nalways first=1\nalways first=1\nalways first=1\nattend "
     "selected",
     "more than 4 'always' lines"},
    {"validated no", "validated maybe", "validated is 'maybe'"},
    {"variants 2", "variants 0", "variants is '0'"},
    {"variants 2", "variants 3", "found 'end' where 'variant' is expected"},
    {"variants 2", "variants 1", "found 'variant' where 'end' is expected"},
    {"variant 1 ", "variant 2 ", "variant number is '2'"},
    {"part ptx 0", "part ptx 1", "part number is '1'"},
    {"part ptx 0 0 ", "part ptx 0 1 ", "leaves a gap"},
    {"part ptx 0 0 28 ", "part ptx 0 0 27 ", "ptx of variant 0 is damaged"},
    {"part ptx 0 0 28 ", "part ptx 0 0 99999 ", "truncated"},
    {"part cubin 0 28 ", "part cubin 0 27 ", "overlaps another part"},
    {"part cubin 0 28 ", "part cubin 0 4294967296 ", "leaves a gap"},
    {"part ptx", "part fatbin", "found part 'fatbin' where 'ptx' is expected"},
    {"entry=pisa_route", "entry=../route", "must be 1 to 63 letters"},
    {"entry=pisa_route", "entry=", "must be 1 to 63 letters"},
    {"kernel attend_edge entry", "kernel attend entry", "given twice"},
    {"kernel route entry=pisa_route threads=512 smem=dynamic registers=64 spill=0\n", "",
     "kernel 'route' is missing"},
    {"kernel route", "kernel sort", "kernel 'sort' is not known"},
    {"threads=512", "threads=2048", "threads is '2048'"},
    {"smem=197888", "smem=dynamic", "only the route kernel"},
    {"smem=197888", "smem=999999", "smem is '999999'"},
    {"end\n", "end\nmore\n", "'end' must be the last line"},
    {"end\n", "end", "does not end with a line break"},
};

static void check_manifests(void) {
  pisa_error error;
  struct sample sample, edited;
  sample_make(&plain, &sample);
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    sample_edit(&sample, edits[i].before, edits[i].after, &edited);
    CHECK_FAILS(read_sample(&edited, &error), PISA_CORRUPT, error, edits[i].words);
    sample_free(&edited);
  }
  sample_free(&sample);
}

/* What a dense method may not have. */
static void check_dense_manifests(void) {
  static const struct edit wrong[] = {
      {"kernel attend ",
       "kernel route entry=pisa_route threads=512 smem=dynamic registers=64 spill=0\nkernel "
       "attend ",
       "kernel 'route' is not for this method"},
      {"kernel attend ",
       "kernel dense entry=pisa_dense threads=384 smem=0 registers=0 spill=0\nkernel attend ",
       "kernel 'dense' is not for this method"},
      {"attend all", "always first=64\nattend all", "'always' without a route"},
      {"attend all", "always window=0\nattend all", "'always' without a route"},
      {"validated no", "below tokens=64 use=dense\nvalidated no", "'below' without a route"},
      {"query=128 key=64 lists=separate", "query=64 key=64 lists=union",
       "lists=union without a route"},
  };
  pisa_error error;
  struct sample sample, edited;
  sample_make(&(struct sample_spec){.dense = true}, &sample);
  CHECK_OK(read_sample(&sample, &error), error);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    sample_edit(&sample, wrong[i].before, wrong[i].after, &edited);
    CHECK_FAILS(read_sample(&edited, &error), PISA_CORRUPT, error, wrong[i].words);
    sample_free(&edited);
  }
  sample_free(&sample);
}

static void check_trailing(void) {
  pisa_error error;
  struct sample sample, longer;
  sample_make(&plain, &sample);
  char *manifest = sample.bytes + sample.manifest_at;
  size_t parts_size = sample.size - sample.manifest_at - sample.manifest_size;
  char parts[256] = "";
  memcpy(parts, manifest + sample.manifest_size, parts_size);
  sample_sign(manifest, sample.manifest_size, parts, parts_size + 3, &longer);
  CHECK_FAILS(read_sample(&longer, &error), PISA_CORRUPT, error, "3 bytes follow the last part");
  sample_free(&longer);
  sample_free(&sample);
}

static void check_files(const char *folder) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  char path[512];
  sample_make(&plain, &sample);
  snprintf(path, sizeof path, "%s/pack_test.pack", folder);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(sample.bytes, 1, sample.size, file) == sample.size && !fclose(file));
  CHECK_OK(pisa_pack_open(path, &pack, &error), error);
  pisa_pack_close(pack);
  file = fopen(path, "wb");
  CHECK(file && fwrite(sample.bytes, 1, 200, file) == 200 && !fclose(file));
  CHECK_FAILS(pisa_pack_open(path, &pack, &error), PISA_CORRUPT, error,
              "pack_test.pack: the pack is");
  CHECK(!remove(path));
  CHECK_FAILS(pisa_pack_open(path, &pack, &error), PISA_IO, error, "cannot open");
  CHECK_FAILS(pisa_pack_open(folder, &pack, &error), PISA_IO, error, "cannot read");
  CHECK_FAILS(pisa_pack_open("/dev/zero", &pack, &error), PISA_CORRUPT, error, "not a pisa pack");
  CHECK_FAILS(pisa_pack_open("/dev/null", &pack, &error), PISA_CORRUPT, error, "truncated");
  sample_free(&sample);
}

static void check_arguments(void) {
  pisa_error error;
  struct sample sample;
  pisa_pack *pack = NULL;
  pisa_pack_info info;
  sample_make(&plain, &sample);
  CHECK_FAILS(pisa_pack_open(NULL, &pack, &error), PISA_INVALID_ARGUMENT, error, "path is NULL");
  CHECK_FAILS(pisa_pack_open("x", NULL, &error), PISA_INVALID_ARGUMENT, error, "out is NULL");
  CHECK_FAILS(pisa_pack_read(NULL, 9, &pack, &error), PISA_INVALID_ARGUMENT, error,
              "bytes is NULL");
  CHECK_FAILS(pisa_pack_read(sample.bytes, sample.size, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out is NULL");
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  CHECK_FAILS(pisa_pack_get_info(NULL, &info, &error), PISA_INVALID_ARGUMENT, error,
              "pack is NULL");
  CHECK_FAILS(pisa_pack_get_info(pack, NULL, &error), PISA_INVALID_ARGUMENT, error, "out is NULL");
  CHECK(pisa_pack_get_info(NULL, NULL, NULL) == PISA_INVALID_ARGUMENT);
  pisa_pack_close(pack);
  pisa_pack_close(NULL);
  sample_free(&sample);
}

static void check_names(void) {
  for (int status = 0; status <= PISA_OUT_OF_MEMORY + 1; status++)
    CHECK(pisa_status_name((pisa_status)status) && *pisa_status_name((pisa_status)status));
  CHECK(!strcmp(pisa_version(), PISA_VERSION));
}

int main(int argc, char **argv) {
  check_fields();
  check_overrides();
  check_more_words();
  check_new_words();
  check_every_prefix();
  check_every_flip();
  check_signed_flips();
  check_headers();
  check_manifests();
  check_dense_manifests();
  check_trailing();
  check_files(argc > 1 ? argv[1] : ".");
  check_arguments();
  check_names();
  return check_result();
}
