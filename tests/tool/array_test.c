/* array_test.c: files numpy wrote are read to the value; what must be refused is refused by name;
   what array.c writes it reads back; no truncation and no changed byte of a file does worse than a
   message. usage: array_test DATA_FOLDER, in a folder of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/array.h"
#include "runtime/tool/json.h"
#include "tests/cpu/sample.h"

static const char *folder;

static const char *path_of(const char *name) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static double value_at(const struct array *a, int64_t i) {
  const uint16_t *halves = a->data;
  switch (a->type) {
  case ARRAY_F32:
    return (double)((const float *)a->data)[i];
  case ARRAY_F16:
    return (double)cpu_from_fp16(halves[i]);
  case ARRAY_BF16:
    return (double)cpu_from_bf16(halves[i]);
  case ARRAY_I32:
    break;
  }
  return (double)((const int32_t *)a->data)[i] / 8 - 1;
}

/* Every fixture that is read holds 0, 1, ... 23, mapped to i / 8 - 1. */
static void reads(void) {
  static const struct {
    const char *name;
    enum array_type type;
    int rank;
  } files[] = {{"f4.npy", ARRAY_F32, 4},
               {"f2.npy", ARRAY_F16, 4},
               {"u2.npy", ARRAY_BF16, 4},
               {"i4.npy", ARRAY_I32, 3},
               {"f4_v2.npy", ARRAY_F32, 4},
               {"f4_v3.npy", ARRAY_F32, 4},
               {"rank1.npy", ARRAY_F32, 1},
               {"three.safetensors:q", ARRAY_F32, 4},
               {"three.safetensors:k \"ü\"", ARRAY_BF16, 4},
               {"three.safetensors:v.weight", ARRAY_F16, 4},
               {"one.safetensors", ARRAY_F32, 4}};
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    pisa_error error;
    struct array a;
    CHECK(array_read(path_of(files[f].name), &a, &error) == PISA_OK);
    CHECK(a.type == files[f].type && a.rank == files[f].rank && array_elements(&a) == 24);
    for (int64_t i = 0; i < 24; i++)
      CHECK(value_at(&a, i) == (double)i / 8 - 1);
    array_free(&a);
  }
}

static void expect(const char *path, pisa_status status, const char *words) {
  pisa_error error;
  struct array a;
  pisa_status got = array_read(path, &a, &error);
  if (got != status || !strstr(error.message, words)) {
    fprintf(stderr, "%s: status %d, '%s'; expected %d, '%s'\n", path, (int)got,
            got ? error.message : "", (int)status, words);
    exit(1);
  }
}

static void refuses(void) {
  static const struct {
    const char *name;
    pisa_status status;
    const char *words;
  } files[] = {
      {"fortran.npy", PISA_UNSUPPORTED, "Fortran order"},
      {"f8.npy", PISA_UNSUPPORTED, "dtype '<f8'"},
      {"big.npy", PISA_UNSUPPORTED, "big-endian"},
      {"bool.npy", PISA_UNSUPPORTED, "dtype '|b1'"},
      {"record.npy", PISA_UNSUPPORTED, "records"},
      {"rank9.npy", PISA_CORRUPT, "more than 8 dimensions"},
      {"make.py", PISA_CORRUPT, "not a .npy file"},
      {"absent.npy", PISA_IO, "cannot open"},
      {"", PISA_IO, "not a regular file"},
      {"f64.safetensors", PISA_UNSUPPORTED, "F64"},
      {"three.safetensors", PISA_INVALID_ARGUMENT, "with one of: q, k"},
      {"three.safetensors:nothing", PISA_INVALID_ARGUMENT, "no array 'nothing'"},
      {"absent.safetensors:q", PISA_IO, "cannot open"},
  };
  for (size_t f = 0; f < sizeof files / sizeof *files; f++)
    expect(path_of(files[f].name), files[f].status, files[f].words);
}

static void spill(const char *path, const void *bytes, size_t n) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* A .npy of version 1 with this dictionary and 8 bytes of data. */
static void refuse_npy(const char *dictionary, pisa_status status, const char *words) {
  char bytes[512] = "\x93NUMPY\x01";
  size_t length = strlen(dictionary);
  bytes[8] = (char)length;
  memcpy(bytes + 10, dictionary, length);
  spill("made.npy", bytes, 10 + length + 8);
  expect("made.npy", status, words);
}

static void hostile_npy(void) {
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", PISA_CORRUPT,
             "too short");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }",
             PISA_CORRUPT, "too short");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
             PISA_CORRUPT, "too large");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", PISA_CORRUPT,
             "not a number");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1", PISA_CORRUPT,
             "shape does not end");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': 1}", PISA_CORRUPT, "not a tuple");
  refuse_npy("{'descr': '<f4', 'fortran_order': Perhaps, 'shape': (1,)}", PISA_CORRUPT,
             "neither True nor False");
  refuse_npy("{'descr': '<f4', 'fortran_order': False}", PISA_CORRUPT, "missing");
  refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} more", PISA_CORRUPT,
             "something follows");
  refuse_npy("{'descr': '<f4', 'colour': 1}", PISA_CORRUPT, "unknown key");
  refuse_npy("{'descr': <f4}", PISA_CORRUPT, "expected a string");
  refuse_npy("{'descr': '<f4", PISA_CORRUPT, "does not end");
  refuse_npy("{'descr': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}", PISA_CORRUPT, "too long");
  refuse_npy("{'descr'}", PISA_CORRUPT, "key without a value");
  refuse_npy("", PISA_CORRUPT, "expected a dictionary");
  spill("made.npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
  expect("made.npy", PISA_CORRUPT, "header claims 4294967295 bytes");
  spill("made.npy", "\x93NUMPY\x04\x00\x00\x00\x00\x00", 12);
  expect("made.npy", PISA_UNSUPPORTED, "version 4");
  spill("made.npy", "", 0);
  expect("made.npy", PISA_CORRUPT, "not a .npy file");
}

/* A .safetensors with this header and 8 bytes of data. */
static void refuse_safetensors(const char *header, pisa_status status, const char *words) {
  char bytes[1024] = {0};
  size_t length = strlen(header);
  bytes[0] = (char)(length & 0xff);
  bytes[1] = (char)(length >> 8);
  memcpy(bytes + 8, header, length);
  spill("made.safetensors", bytes, 8 + length + 8);
  expect("made.safetensors:x", status, words);
}

static void hostile_safetensors(void) {
#define FIELDS(shape, begin, end)                                                                  \
  "{\"x\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}}"
  refuse_safetensors(FIELDS("[2]", "0", "4"), PISA_CORRUPT, "offsets");
  refuse_safetensors(FIELDS("[2]", "8", "0"), PISA_CORRUPT, "offsets");
  refuse_safetensors(FIELDS("[4]", "0", "16"), PISA_CORRUPT, "truncated");
  refuse_safetensors(FIELDS("[2]", "9223372036854775799", "9223372036854775807"), PISA_CORRUPT,
                     "truncated");
  refuse_safetensors(FIELDS("[4294967296,4294967296,4]", "0", "8"), PISA_CORRUPT, "offsets");
  refuse_safetensors(FIELDS("[-1]", "0", "8"), PISA_CORRUPT, "malformed");
  refuse_safetensors(FIELDS("[99999999999999999999]", "0", "8"), PISA_CORRUPT, "malformed");
  refuse_safetensors(FIELDS("[1,1,1,1,1,1,1,1,1]", "0", "4"), PISA_CORRUPT, "malformed");
  refuse_safetensors("{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", PISA_CORRUPT, "malformed");
  refuse_safetensors("{\"x\":3}", PISA_CORRUPT, "malformed");
  refuse_safetensors("{\"y\":[[[[{\"a\":[1,2.5e3,true,null]}]]]]}", PISA_INVALID_ARGUMENT,
                     "no array 'x'");
  refuse_safetensors("{}", PISA_INVALID_ARGUMENT, "(it is empty)");
  refuse_safetensors("", PISA_CORRUPT, "malformed");
  refuse_safetensors("{\"x", PISA_CORRUPT, "malformed");
  refuse_safetensors("{\"\\ud800\":1}", PISA_CORRUPT, "malformed");
  spill("made.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  expect("made.safetensors:x", PISA_CORRUPT, "header claims 18446744073709551615 bytes");
  spill("made.safetensors", "\x02", 1);
  expect("made.safetensors:x", PISA_CORRUPT, "truncated");
}

/* Nesting is bounded, so no header overflows the stack. */
static void deep_json(void) {
  char text[4096];
  memset(text, '[', sizeof text);
  struct json json = {text, text + sizeof text};
  CHECK(!json_skip(&json));
}

static void round_trip(const char *path, enum array_type type) {
  uint32_t data[30];
  pisa_error error;
  struct array a = {.type = type, .rank = 4, .shape = {1, 5, 2, 3}, .data = data}, b;
  for (uint32_t i = 0; i < 30; i++)
    data[i] = i * 0x01234567u;
  CHECK(array_write(path, "x", &a, &error) == PISA_OK);
  CHECK(array_read(path, &b, &error) == PISA_OK);
  CHECK(b.type == type && b.rank == 4 && memcmp(a.shape, b.shape, 4 * sizeof *a.shape) == 0);
  CHECK(memcmp(a.data, b.data, 30 * array_item_size(type)) == 0);
  array_free(&b);
}

static void writes(void) {
  pisa_error error;
  struct array a = {.type = ARRAY_F32, .rank = 0, .data = &error};
  for (int type = ARRAY_F32; type <= ARRAY_I32; type++) {
    round_trip("out.npy", (enum array_type)type);
    round_trip("out.safetensors", (enum array_type)type);
    round_trip("out.safetensors:a \"name\" \\ \xc3\xbc \x01", (enum array_type)type);
  }
  CHECK(array_write("out.txt", "x", &a, &error) == PISA_INVALID_ARGUMENT);
  CHECK(array_write("absent/out.npy", "x", &a, &error) == PISA_IO);
  CHECK(array_check_path("x.safetensors:", &error) == PISA_OK &&
        array_check_path("npy", &error) != PISA_OK);
}

/* Each element type to each pack type: exact where it fits, rounded once where it does not. */
static void converts(void) {
  float values[4] = {1.0f, -0.333333343f, 65536.0f, 1e-8f};
  uint16_t got[4], halves[4];
  struct array f32 = {.type = ARRAY_F32, .rank = 1, .shape = {4}, .data = values};
  array_to_type(&f32, PISA_BF16, got);
  CHECK(got[0] == 0x3f80 && got[1] == 0xbeab && got[2] == 0x4780 && got[3] == 0x322c);
  array_to_type(&f32, PISA_FP16, got);
  CHECK(got[0] == 0x3c00 && got[1] == 0xb555 && got[2] == 0x7c00 && got[3] == 0);
  struct array f16 = {.type = ARRAY_F16, .rank = 1, .shape = {4}, .data = halves};
  array_from_type(&f16, PISA_FP16, got);
  CHECK(memcmp(got, halves, sizeof got) == 0);
  array_from_type(&f32, PISA_BF16, got);
  CHECK(values[0] == cpu_from_bf16(got[0]));
}

/* Every prefix of a file is refused; every changed byte is read or refused, never worse. */
static void damage(const char *name, const char *copy, const char *copy_path) {
  char bytes[1024];
  pisa_error error;
  struct array a;
  FILE *file = fopen(path_of(name), "rb");
  CHECK(file);
  size_t n = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  for (size_t length = 0; length < n; length++) {
    spill(copy, bytes, length);
    CHECK(array_read(copy_path, &a, &error) == PISA_CORRUPT && error.message[0]);
  }
  for (size_t i = 0; i < n; i++) {
    char keep = bytes[i];
    bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
    spill(copy, bytes, n);
    if (array_read(copy_path, &a, &error) == PISA_OK)
      array_free(&a);
    bytes[i] = keep;
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  folder = argv[1];
  reads();
  refuses();
  hostile_npy();
  hostile_safetensors();
  deep_json();
  writes();
  converts();
  damage("f4.npy", "damaged.npy", "damaged.npy");
  damage("f4_v2.npy", "damaged.npy", "damaged.npy");
  damage("three.safetensors", "damaged.safetensors", "damaged.safetensors:v.weight");
  return 0;
}
