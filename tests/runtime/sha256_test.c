/* sha256_test.c: the digest against the standard's examples, and at every length around a padding
 * edge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sha256.h"
#include "tests/runtime/check.h"

static bool digest_is(const void *data, size_t size, const char *wanted) {
  char hex[PISA_SHA256_HEX + 1];
  pisa_sha256_hex(data, size, hex);
  return !strcmp(hex, wanted);
}

/* The digest of "a" repeated n times, for each n from 0 to 130, digested again as one text. */
static void check_lengths(void) {
  char text[131], all[131 * PISA_SHA256_HEX + 1];
  memset(text, 'a', sizeof text);
  for (size_t n = 0; n < 131; n++)
    pisa_sha256_hex(text, n, all + n * PISA_SHA256_HEX);
  CHECK(digest_is(all, sizeof all - 1,
                  "5eee4c50e1b5ec4f1a47f34c25ca988850b49da7904f5ab1b3abc5cc0ae66ef9"));
}

int main(void) {
  CHECK(digest_is(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  CHECK(digest_is("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  CHECK(digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
  char *million = malloc(1000000);
  memset(million, 'a', 1000000);
  CHECK(digest_is(million, 1000000,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
  free(million);
  check_lengths();
  return check_result();
}
