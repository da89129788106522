/* sha256.c: SHA-256 (FIPS 180-4 sections 4.1.2 to 6.2). In: bytes. Out: digest, raw or as text.
   The message is taken in blocks of 64 bytes; the last one or two carry the padding and bit count.
 */
#include "runtime/sha256.h"

#include <string.h>

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
 */
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
  return x >> n | x << (32 - n);
}

static uint32_t load_word(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_word(uint8_t *p, uint32_t x) {
  for (int i = 0; i < 4; i++)
    p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void digest_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++)
    w[i] = load_word(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t low = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t high = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice +
                  round_constant[i] + w[i];
    uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
    memmove(s + 1, s, 7 * sizeof s[0]);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++)
    state[i] += s[i];
}

/* The last size % 64 bytes, a one bit, zeros, and the message length in bits as 64-bit big-endian.
 */
static void digest_tail(uint32_t state[8], const uint8_t *tail, size_t size) {
  uint8_t block[128] = {0};
  size_t rest = size % 64;
  if (rest)
    memcpy(block, tail, rest);
  block[rest] = 0x80;
  size_t padded = rest < 56 ? 64 : 128;
  uint64_t bits = (uint64_t)size * 8;
  store_word(block + padded - 8, (uint32_t)(bits >> 32));
  store_word(block + padded - 4, (uint32_t)bits);
  for (size_t at = 0; at < padded; at += 64)
    digest_block(state, block + at);
}

void pisa_sha256(const void *data, size_t size, uint8_t digest[PISA_SHA256_BYTES]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *bytes = data;
  size_t whole = size / 64;
  for (size_t i = 0; i < whole; i++)
    digest_block(state, bytes + 64 * i);
  digest_tail(state, size % 64 ? bytes + 64 * whole : NULL, size);
  for (int i = 0; i < 8; i++)
    store_word(digest + 4 * i, state[i]);
}

void pisa_sha256_hex(const void *data, size_t size, char hex[PISA_SHA256_HEX + 1]) {
  static const char digits[] = "0123456789abcdef";
  uint8_t digest[PISA_SHA256_BYTES];
  pisa_sha256(data, size, digest);
  for (int i = 0; i < PISA_SHA256_BYTES; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[PISA_SHA256_HEX] = '\0';
}
