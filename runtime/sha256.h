/* sha256.h: the digest of FIPS 180-4, used for packs by the runtime and by the compiler. */
#ifndef PISA_RUNTIME_SHA256_H
#define PISA_RUNTIME_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { PISA_SHA256_BYTES = 32, PISA_SHA256_HEX = 64 };

/* Digests |size| bytes; |data| may be NULL when |size| is 0. */
void pisa_sha256(const void *data, size_t size, uint8_t digest[PISA_SHA256_BYTES]);

/* The same as lower-case hexadecimal digits and a NUL. */
void pisa_sha256_hex(const void *data, size_t size, char hex[PISA_SHA256_HEX + 1]);

#endif
