/* tune_test.c: tables beside packs: what a good one says of a call, rows that do not count, and
   damaged ones refused by line. usage: tune_test FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pack.h"
#include "tests/runtime/check.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/sample_pack.h"

#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ROUTE_1                                                                                    \
  "route top_k score=mean term=log_covariance budget=density density=25/100 keep=0 threshold=0/1 " \
  "variance=diagonal\n"

static char pack_path[1024], table_path[1100];

static void write_file(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
    exit(2);
}

/* Two variants of one result. */
static void make_pack(char digest[PISA_SHA256_HEX + 1]) {
  struct sample made, first, second;
  pisa_pack *pack = NULL;
  sample_make(&(struct sample_spec){.no_cubin = true}, &made);
  sample_edit(&made, "variant 0 density=0.125", "variant 0 half_tile=off density=0.125", &first);
  sample_edit(&first, "variant 1 density=0.25\n" ROUTE_1, "variant 1 half_tile=on density=0.125\n",
              &second);
  write_file(pack_path, second.bytes, second.size);
  CHECK_OK(pisa_pack_read(second.bytes, second.size, &pack, NULL), (pisa_error){0});
  memcpy(digest, pack->manifest.variants[0].ptx.sha256, PISA_SHA256_HEX + 1);
  pisa_pack_close(pack);
  sample_free(&made);
  sample_free(&first);
  sample_free(&second);
}

static void write_table(const char *format, const char *digest) {
  char text[4096], *at = text;
  for (; *format; format++) /* '@' is the digest */
    at += *format == '@' ? sprintf(at, "%s", digest) : sprintf(at, "%c", *format);
  write_file(table_path, text, (size_t)(at - text));
}

static int tuned(int variant, int64_t tokens, int64_t heads, int phase) {
  pisa_error error;
  pisa_pack *pack = NULL;
  int out = -1;
  const pisa_attention call = {
      .struct_size = sizeof call, .batch = 2, .heads = heads, .n_k = tokens, .phase = phase};
  CHECK_OK(pisa_pack_open(pack_path, &pack, &error), error);
  CHECK_OK(pisa_tuned_variant(pack, variant, &call, &out, &error), error);
  pisa_pack_close(pack);
  return out;
}

#define ROW(fields) "row device=fake_device driver=13000 ptx=@ phase=prefill " fields "\n"
#define HEAD "pisa-tune 1\n"

static void check_choice_of_rows(const char *digest) {
  remove(table_path);
  CHECK_INT(tuned(0, 4096, 24, 0), 0);
  CHECK_INT(tuned(1, 4096, 24, 0), 1);
  write_table(HEAD ROW("tokens=4096 heads=64 variant=0 ns=10 rounds=5 result=slower")
                  ROW("tokens=4096 heads=64 variant=1 ns=9 rounds=5 result=best"),
              digest);
  CHECK_INT(tuned(0, 4096, 24, 0), 1); /* 2 x 24 heads are nearest to 64 */
  CHECK_INT(tuned(0, 5792, 24, 0), 1);
  CHECK_INT(tuned(0, 5794, 24, 0), 0); /* sqrt(2) 4096 = 5792.6 */
  CHECK_INT(tuned(0, 2896, 24, 0), 0);
  CHECK_INT(tuned(0, 2898, 24, 0), 1);
  CHECK_INT(tuned(0, 4096, 8, 0), 0);
  write_table(HEAD ROW("tokens=4096 heads=64 variant=1 ns=9 rounds=5 result=best")
                  ROW("tokens=32768 heads=64 variant=1 ns=9 rounds=5 result=best"),
              digest);
  CHECK_INT(tuned(0, 4097, 24, 0), 1);
  CHECK_INT(tuned(0, 8192, 24, 0), 0); /* nobody timed it there: both neighbours prove nothing */
  CHECK_INT(tuned(0, 16384, 24, 0), 0);
  CHECK_INT(tuned(0, 32760, 24, 0), 1);
  CHECK_INT(tuned(0, 4096, 24, PISA_DECODE), 0);
  CHECK_INT(tuned(1, 1, 24, 0), 1);
  write_table(HEAD ROW("tokens=4096 heads=64 variant=1 ns=9 rounds=5 result=best"), DIGEST);
  CHECK_INT(tuned(0, 4096, 24, 0), 0); /* other code */
  write_table(HEAD ROW("tokens=4096 heads=64 variant=7 ns=9 rounds=5 result=best"), digest);
  CHECK_INT(tuned(0, 4096, 24, 0), 0); /* no such variant */
  write_table(HEAD
              "row device=fake driver=13000 ptx=@ phase=prefill tokens=4096 heads=64 variant=1 "
              "ns=9 rounds=5 result=best\n",
              digest);
  CHECK_INT(tuned(0, 4096, 24, 0), 0); /* another device */
}

static void check_arguments(const char *digest) {
  pisa_error error;
  pisa_pack *pack = NULL;
  int out = 9;
  pisa_attention call = {.struct_size = sizeof call, .batch = 1, .heads = 4, .n_k = 0};
  write_table(HEAD ROW("tokens=4096 heads=64 variant=1 ns=9 rounds=5 result=best"), digest);
  CHECK_OK(pisa_pack_open(pack_path, &pack, &error), error);
  CHECK_FAILS(pisa_tuned_variant(pack, 0, &call, &out, &error), PISA_INVALID_ARGUMENT, error,
              "n_k is 0");
  call.n_k = 64;
  call.heads = 0;
  CHECK_FAILS(pisa_tuned_variant(pack, 0, &call, &out, &error), PISA_INVALID_ARGUMENT, error,
              "batch and heads are 1 and 0");
  call.heads = 4;
  CHECK_FAILS(pisa_tuned_variant(pack, 2, &call, &out, &error), PISA_INVALID_ARGUMENT, error,
              "variant is 2");
  CHECK_FAILS(pisa_tuned_variant(pack, 0, &call, NULL, &error), PISA_INVALID_ARGUMENT, error,
              "out is NULL");
  CHECK_FAILS(pisa_tuned_variant(pack, 0, NULL, &out, &error), PISA_INVALID_ARGUMENT, error,
              "call is NULL");
  const struct fake_cuda *fake = fake_open();
  fake->fail("cuCtxGetDevice", CUDA_ERROR_INVALID_CONTEXT);
  CHECK_FAILS(pisa_tuned_variant(pack, 0, &call, &out, &error), PISA_NO_DEVICE, error,
              "no CUDA context is current");
  fake->reset();
  CHECK_INT(out, 9);
  pisa_pack_close(pack);
}

/* A table in memory stands in for the file; a damaged one changes nothing. */
static void check_given_table(const char *digest) {
  static const char *const variants[] = {"variant=0", "variant=1"};
  pisa_error error;
  pisa_pack *pack = NULL;
  const pisa_attention call = {.struct_size = sizeof call, .batch = 2, .heads = 24, .n_k = 4096};
  remove(table_path);
  CHECK_OK(pisa_pack_open(pack_path, &pack, &error), error);
  for (int best = 1; best >= 0; best--) {
    char text[512];
    int out = -1;
    int size = snprintf(text, sizeof text,
                        HEAD "row device=fake_device driver=13000 ptx=%s phase=prefill tokens=4096 "
                             "heads=64 %s ns=9 rounds=5 result=best\n",
                        digest, variants[best]);
    CHECK_OK(pisa_pack_read_tune(pack, text, (size_t)size, &error), error);
    CHECK_OK(pisa_tuned_variant(pack, !best, &call, &out, &error), error);
    CHECK_INT(out, best);
    CHECK_FAILS(pisa_pack_read_tune(pack, text, (size_t)size - 1, &error), PISA_CORRUPT, error,
                "does not end with a line break");
    CHECK_OK(pisa_tuned_variant(pack, !best, &call, &out, &error), error);
    CHECK_INT(out, best);
  }
  CHECK_FAILS(pisa_pack_read_tune(pack, NULL, 0, &error), PISA_INVALID_ARGUMENT, error,
              "text is NULL");
  CHECK_FAILS(pisa_pack_read_tune(NULL, "", 0, &error), PISA_INVALID_ARGUMENT, error,
              "pack is NULL");
  pisa_pack_close(pack);
}

#define CHOICE(fields)                                                                             \
  HEAD "choice variant=1 ptx=@ " fields " bound=max_error limit=0.02 reached=0.0183\n"

static void check_recorded_choice(const char *digest) {
  const struct {
    const char *table, *digest;
    int variant;
    double density;
    int64_t keep;
  } tests[] = {{HEAD, digest, 0, 0, 0},
               {CHOICE("density=0.25 keep=0"), digest, 1, 0.25, 0},
               {CHOICE("density=0.123456789 keep=0"), digest, 1, 0.123456789, 0},
               {CHOICE("density=0.0 keep=12"), digest, 1, 0, 12},
               {CHOICE("density=1 keep=0"), digest, 1, 1, 0},
               {CHOICE("density=0.25 keep=0"), DIGEST, 0, 0, 0}};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    pisa_error error;
    pisa_pack *pack = NULL;
    int variant = -1;
    double density = -1;
    int64_t keep = -1;
    write_table(tests[i].table, tests[i].digest);
    CHECK_OK(pisa_pack_open(pack_path, &pack, &error), error);
    CHECK_OK(pisa_pack_choice(pack, &variant, &density, &keep, &error), error);
    CHECK(variant == tests[i].variant && keep == tests[i].keep);
    CHECK(density > tests[i].density - 1e-12 && density < tests[i].density + 1e-12);
    CHECK_FAILS(pisa_pack_choice(pack, &variant, NULL, &keep, &error), PISA_INVALID_ARGUMENT, error,
                "density is NULL");
    pisa_pack_close(pack);
  }
}

#define GOOD ROW("tokens=4096 heads=64 variant=1 ns=9 rounds=5 result=best")

static void check_damage(const char *digest) {
  const struct {
    const char *table, *words;
  } tests[] = {
      {"", "the table does not end with a line break"},
      {"pisa-tune 1", "the table does not end with a line break"},
      {"pisa-tune 2\n", "table line 1: the table has version 2"},
      {"pisa-pack 1\n", "line 1: found 'pisa-pack' where 'pisa-tune' is expected"},
      {HEAD "\n", "the line is empty"},
      {HEAD "row\n", "table line 2: 'row' must have 10 fields"},
      {HEAD GOOD "rows x\n", "table line 3: found 'rows', which has no place here"},
      {HEAD GOOD ROW("tokens=4000 heads=64 variant=1 ns=9 rounds=5 result=best"),
       "table line 3: tokens is no power of two"},
      {HEAD ROW("tokens=4096 heads=0 variant=1 ns=9 rounds=5 result=best"), "heads"},
      {HEAD ROW("tokens=4096 heads=1 variant=-1 ns=9 rounds=5 result=best"), "variant"},
      {HEAD ROW("tokens=4096 heads=1 variant=1 ns=9 rounds=5 result=good"), "result is 'good'"},
      {HEAD "row device=a/b driver=1 ptx=@ phase=prefill tokens=1 heads=1 variant=1 ns=9 rounds=5 "
            "result=best\n",
       "device 'a/b'"},
      {HEAD "row device=a driver=1 ptx=12 phase=prefill tokens=1 heads=1 variant=1 ns=9 rounds=5 "
            "result=best\n",
       "'12' is not a sha256"},
      {CHOICE("density=0.25 keep=3"), "density and keep exclude each other"},
      {CHOICE("density=1.5.2 keep=0"), "density is '1.5.2'"},
      {CHOICE("density=0. keep=0"), "density is '0.'"},
      {CHOICE("density= keep=0"), "density is ''"},
      {CHOICE("density=0.1234567891 keep=0"), "density is '0.1234567891'"},
      {CHOICE("density=0.25 keep=0") GOOD, "table line 3: found 'row'"},
  };
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    pisa_error error;
    pisa_pack *pack = NULL;
    write_table(tests[i].table, digest);
    CHECK_FAILS(pisa_pack_open(pack_path, &pack, &error), PISA_CORRUPT, error, tests[i].words);
    CHECK(strstr(error.message, "tuned.pack.tune") != NULL);
    CHECK(!pack);
  }
}

/* What is written is read as it was; a row of the same key replaces the old one. */
static void check_round_trip(const char *digest) {
  pisa_error error;
  struct pisa_tune table = {.n = 0}, back;
  struct pisa_tune_row row = {.key = {"NVIDIA_H200", 13000, 0, 4096, 64}, .variant = 3, .ns = 12};
  memcpy(row.ptx, digest, sizeof row.ptx);
  CHECK_OK(pisa_tune_put(&table, &row, NULL), (pisa_error){0});
  row.variant = 4;
  row.result = PISA_TUNE_WRONG;
  CHECK_OK(pisa_tune_put(&table, &row, NULL), (pisa_error){0});
  row.variant = 3;
  row.ns = 99;
  CHECK_OK(pisa_tune_put(&table, &row, NULL), (pisa_error){0});
  CHECK_INT(table.n, 2);
  table.choice = (struct pisa_tune_choice){.present = true,
                                           .variant = 1,
                                           .density = 125000000,
                                           .bound = PISA_TUNE_MIN_RECALL,
                                           .limit = 900000000,
                                           .reached = PISA_TUNE_BILLION};
  memcpy(table.choice.ptx, digest, sizeof row.ptx);
  CHECK_OK(pisa_tune_save(table_path, &table, &error), (pisa_error){0});
  CHECK_OK(pisa_tune_load(table_path, &back, &error), (pisa_error){0});
  CHECK(back.n == 2 && back.rows[0].ns == 99 && back.rows[1].result == PISA_TUNE_WRONG);
  CHECK(pisa_tune_same_key(&back.rows[0].key, &row.key));
  CHECK(!memcmp(&back.choice, &table.choice, sizeof back.choice));
  pisa_tune_clear(&back);
  pisa_tune_clear(&table);
  CHECK_FAILS(pisa_tune_save("/nonexistent/table", &table, &error), PISA_IO, error, "cannot write");
}

static void check_words(void) {
  char word[PISA_TUNE_DEVICE];
  pisa_tune_device_word("NVIDIA H200 (MIG)", word);
  CHECK(!strcmp(word, "NVIDIA_H200__MIG_"));
  pisa_tune_device_word("", word);
  CHECK(!strcmp(word, "_"));
  CHECK(pisa_same_result("half_tile=on density=0.10", "density=0.1 half_tile=off"));
  CHECK(pisa_same_result("query_tile=2 leaf=64", "leaf=64 leaf_stage=fused"));
  CHECK(!pisa_same_result("density=0.1", "density=0.2"));
  CHECK(!pisa_same_result("density=0.1", "density=0.1 leaf=32"));
  CHECK(pisa_is_schedule_choice("lists=union x=1") && !pisa_is_schedule_choice("leaf=32"));
}

int main(int argc, char **argv) {
  char digest[PISA_SHA256_HEX + 1];
  snprintf(pack_path, sizeof pack_path, "%s/tuned.pack", argc > 1 ? argv[1] : ".");
  snprintf(table_path, sizeof table_path, "%s.tune", pack_path);
  remove(table_path);
  fake_open()->reset();
  make_pack(digest);
  check_choice_of_rows(digest);
  check_arguments(digest);
  check_given_table(digest);
  check_recorded_choice(digest);
  check_damage(digest);
  check_round_trip(digest);
  check_words();
  return check_result();
}
