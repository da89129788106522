/* alone.c: what stands in for libFuzzer where the compiler has none. In: SECONDS FILE...; out: the
   number of runs. The files are mutated by a fixed sequence of pseudo-random numbers, so that a
   finding can be found again. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUT = 1 << 16, RUNS_PER_FILE = 200 };
static uint64_t state = 0x9e3779b97f4a7c15u;

static size_t random_below(size_t n) { /* splitmix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return n ? (size_t)((z ^ z >> 31) % n) : 0;
}

struct input {
  size_t size;
  uint8_t bytes[MAX_INPUT];
};

static void remove_bytes(struct input *in, size_t at, size_t n) {
  memmove(in->bytes + at, in->bytes + at + n, in->size - at - n);
  in->size -= n;
}

/* Opens a gap of |n| bytes; its content is what was there. */
static void insert_bytes(struct input *in, size_t at, size_t n) {
  if (in->size + n > MAX_INPUT)
    return;
  memmove(in->bytes + at + n, in->bytes + at, in->size - at);
  in->size += n;
}

/* The word (letters, digits, '_') at or behind |at|: its length, and its place to |at|. */
static size_t find_word(const struct input *in, size_t *at) {
  size_t n = 0;
  while (*at < in->size && !isalnum(in->bytes[*at]))
    ++*at;
  while (*at + n < in->size && (isalnum(in->bytes[*at + n]) || in->bytes[*at + n] == '_'))
    n++;
  return n;
}

/* Puts one word of the text in the place of another. */
static void replace_word(struct input *in) {
  uint8_t copy[64];
  size_t from = random_below(in->size), to = random_below(in->size);
  size_t n = find_word(in, &from), old = find_word(in, &to);
  if (n > sizeof copy || in->size - old + n > MAX_INPUT)
    return;
  memcpy(copy, in->bytes + from, n);
  remove_bytes(in, to, old);
  insert_bytes(in, to, n);
  memcpy(in->bytes + to, copy, n);
}

static void mutate(struct input *in) {
  static const char marks[] = "{};,+.\n #=0123456789-\x80";
  size_t at = random_below(in->size), n = random_below(24);
  if (n > in->size - at)
    n = in->size - at;
  switch (random_below(9)) {
  case 0:
    if (in->size)
      in->bytes[at] ^= (uint8_t)(1u << random_below(8));
    break;
  case 1:
    if (in->size)
      in->bytes[at] = (uint8_t)marks[random_below(sizeof marks)];
    break;
  case 2:
    remove_bytes(in, at, n);
    break;
  case 3:
    insert_bytes(in, at, n);
    break;
  case 4:
    in->size = at;
    break;
  case 5:
    memmove(in->bytes + random_below(in->size - n + 1), in->bytes + at, n);
    break;
  default:
    replace_word(in);
  }
}

static void read_file(const char *path, struct input *in) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    fprintf(stderr, "cannot open %s\n", path);
    exit(2);
  }
  in->size = fread(in->bytes, 1, MAX_INPUT, file);
  fclose(file);
}

static void run_file(const struct input *seed) {
  static struct input in;
  for (int i = 0; i < RUNS_PER_FILE; i++) {
    memcpy(&in, seed, sizeof in);
    for (size_t n = random_below(6); n > 0; n--)
      mutate(&in);
    LLVMFuzzerTestOneInput(in.bytes, in.size);
  }
}

int main(int argc, char **argv) {
  static struct input seed;
  if (argc < 3)
    return 2;
  time_t end = time(NULL) + atoi(argv[1]);
  unsigned long files = 0;
  for (; time(NULL) < end; files++) {
    read_file(argv[2 + files % (unsigned long)(argc - 2)], &seed);
    run_file(&seed);
  }
  printf("%lu runs\n", files * RUNS_PER_FILE);
  return 0;
}
