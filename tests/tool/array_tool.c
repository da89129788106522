/* array_tool.c: makes and compares array files for the command-line tests.
     make FILE TYPE SEED B H N D   seeded normal numbers, rounded to bfloat16, stored as TYPE
     ints FILE DxDx... N N ...     int32 numbers, again and again until the array is full
     show FILE                     prints "float32 [1, 2, 3, 4]"
     same A B LIMIT                shapes equal, relative L2 difference of the values at most LIMIT
     swap IN OUT                   exchanges the middle two of four dimensions
     print FILE                    prints the values */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/array.h"
#include "tests/cpu/sample.h"

static int fail(const pisa_error *error) {
  fprintf(stderr, "array_tool: %s\n", error->message);
  return 1;
}

static double value(const struct array *a, int64_t i) {
  switch (a->type) {
  case ARRAY_F32:
    return (double)((const float *)a->data)[i];
  case ARRAY_F16:
    return (double)cpu_from_fp16(((const uint16_t *)a->data)[i]);
  case ARRAY_BF16:
    return (double)cpu_from_bf16(((const uint16_t *)a->data)[i]);
  case ARRAY_I32:
    break;
  }
  return (double)((const int32_t *)a->data)[i];
}

static int make(char **argv) {
  pisa_error error;
  struct array a = {.rank = 4};
  uint64_t seed = strtoull(argv[2], NULL, 10);
  while (strcmp(array_type_name(a.type), argv[1]) != 0)
    a.type++;
  for (int i = 0; i < 4; i++)
    a.shape[i] = atoll(argv[3 + i]);
  int64_t n = array_elements(&a);
  uint16_t *values = malloc((size_t)n * sizeof *values);
  a.data = malloc((size_t)n * array_item_size(a.type));
  for (int64_t i = 0; i < n; i++)
    values[i] = cpu_to_bf16((float)normal(&seed));
  array_from_type(&a, PISA_BF16, values);
  free(values);
  pisa_status status = array_write(argv[0], "x", &a, &error);
  array_free(&a);
  return status ? fail(&error) : 0;
}

static int ints(char **argv) {
  pisa_error error;
  struct array a = {.type = ARRAY_I32};
  int64_t n_values = 0;
  for (char *at = argv[1]; a.rank == 0 || *at++ == 'x';)
    a.shape[a.rank++] = strtoll(at, &at, 10);
  while (argv[2 + n_values])
    n_values++;
  int32_t *data = malloc((size_t)array_elements(&a) * sizeof *data);
  for (int64_t i = 0; i < array_elements(&a); i++)
    data[i] = (int32_t)atol(argv[2 + i % n_values]);
  a.data = data;
  pisa_status status = array_write(argv[0], "x", &a, &error);
  array_free(&a);
  return status ? fail(&error) : 0;
}

static int show(char **argv) {
  pisa_error error;
  struct array a;
  char shape[ARRAY_SHAPE_TEXT];
  if (array_read(argv[0], &a, &error))
    return fail(&error);
  array_shape_text(&a, shape);
  printf("%s %s\n", array_type_name(a.type), shape);
  array_free(&a);
  return 0;
}

static int print(char **argv) {
  pisa_error error;
  struct array a;
  if (array_read(argv[0], &a, &error))
    return fail(&error);
  for (int64_t i = 0; i < array_elements(&a); i++)
    printf("%g\n", value(&a, i));
  array_free(&a);
  return 0;
}

static int same(char **argv) {
  pisa_error error;
  struct array a, b;
  char x[ARRAY_SHAPE_TEXT], y[ARRAY_SHAPE_TEXT];
  double difference = 0, size = 0;
  if (array_read(argv[0], &a, &error) || array_read(argv[1], &b, &error))
    return fail(&error);
  array_shape_text(&a, x);
  array_shape_text(&b, y);
  bool ok = strcmp(x, y) == 0;
  for (int64_t i = 0; ok && i < array_elements(&a); i++) {
    difference += (value(&a, i) - value(&b, i)) * (value(&a, i) - value(&b, i));
    size += value(&b, i) * value(&b, i);
  }
  double got = difference == 0 ? 0 : sqrt(difference / size);
  ok = ok && got <= atof(argv[2]);
  if (!ok)
    fprintf(stderr, "array_tool: %s %s and %s %s differ by %g, allowed %s\n", argv[0], x, argv[1],
            y, got, argv[2]);
  array_free(&a);
  array_free(&b);
  return !ok;
}

static int swap(char **argv) {
  pisa_error error;
  struct array in, out;
  if (array_read(argv[0], &in, &error))
    return fail(&error);
  out = in;
  out.shape[1] = in.shape[2];
  out.shape[2] = in.shape[1];
  size_t row = (size_t)in.shape[3] * array_item_size(in.type);
  out.data = malloc((size_t)array_elements(&in) * array_item_size(in.type));
  for (int64_t b = 0; b < in.shape[0]; b++)
    for (int64_t i = 0; i < in.shape[1]; i++)
      for (int64_t j = 0; j < in.shape[2]; j++) {
        size_t from = (size_t)((b * in.shape[1] + i) * in.shape[2] + j) * row;
        size_t to = (size_t)((b * in.shape[2] + j) * in.shape[1] + i) * row;
        memcpy((char *)out.data + to, (const char *)in.data + from, row);
      }
  pisa_status status = array_write(argv[1], "x", &out, &error);
  array_free(&in);
  array_free(&out);
  return status ? fail(&error) : 0;
}

static const struct {
  const char *name;
  int least, most; /* arguments */
  int (*run)(char **argv);
} commands[] = {{"make", 7, 7, make}, {"ints", 3, 1000, ints}, {"show", 1, 1, show},
                {"same", 3, 3, same}, {"swap", 2, 2, swap},    {"print", 1, 1, print}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof *commands; i++)
    if (strcmp(argv[1], commands[i].name) == 0 && argc - 2 >= commands[i].least &&
        argc - 2 <= commands[i].most)
      return commands[i].run(argv + 2);
  fprintf(stderr, "usage: array_tool make|ints|show|same|swap|print ...\n");
  return 2;
}
