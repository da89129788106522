/* pack_words.c: puts another pack into a pair. In: a .c of `pisac build --format c` and a pack of
   the same shape; out on stdout: the .c with the other pack's words. The model driver cannot read
   real kernels, so its sample packs take their place. usage: pack_words PAIR.c PACK */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static long size_of(FILE *file) {
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  return size;
}

static void print_words(FILE *pack) {
  unsigned char bytes[8] = {0};
  while (fread(bytes, 1, sizeof bytes, pack) > 0) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
      word |= (uint64_t)bytes[i] << (8 * i);
    printf("0x%llx,\n", (unsigned long long)word);
    memset(bytes, 0, sizeof bytes);
  }
}

int main(int argc, char **argv) {
  static char line[512];
  FILE *pair = argc == 3 ? fopen(argv[1], "r") : NULL, *pack = pair ? fopen(argv[2], "rb") : NULL;
  if (!pack) {
    fprintf(stderr, "usage: pack_words PAIR.c PACK\n");
    return 2;
  }
  const long size = size_of(pack);
  int sizes = 0, words = 0;
  while (fgets(line, sizeof line, pair)) {
    if (strncmp(line, "0x", 2) == 0) {
      if (words++ == 0)
        print_words(pack);
    } else if (strncmp(line, "enum { PACK_BYTES = ", 20) == 0) {
      printf("enum { PACK_BYTES = %ld };\n", size);
      sizes++;
    } else {
      fputs(line, stdout);
    }
  }
  fclose(pair);
  fclose(pack);
  return sizes == 1 && words > 0 ? 0 : 1;
}
