/* tune.h: what `pisa tune` and `pisa sweep` measured: the text file PACK.tune beside a pack.

   The file has lines as a manifest has (lines.h); docs/ABI.md section 7 is its grammar:

       pisa-tune 1
       row device=NVIDIA_H200 driver=13000 ptx=<64 hex> phase=prefill tokens=4096 heads=32
           variant=8 ns=98100 rounds=9 result=best                                   (one line)
       choice variant=4 ptx=<64 hex> density=0.25 keep=0 bound=max_error limit=0.02
              reached=0.0183                                        (one line, at most one, last)

   A row is one variant that was tried at one bucket of shapes on one device. Of the variants that
   make the same choices but for schedule ones, one has result best. */
#ifndef PISA_RUNTIME_TUNE_H
#define PISA_RUNTIME_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/sha256.h"
#include "runtime/status.h"

enum {
  PISA_TUNE_VERSION = 1,
  PISA_TUNE_DEVICE = 64, /* bytes of a device's name, NUL included */
  PISA_TUNE_BILLION = 1000000000
};

struct pisa_tune_key {           /* where a measurement holds */
  char device[PISA_TUNE_DEVICE]; /* with '_' for what is no letter, digit or '-', '.' */
  int driver;                    /* 13000 */
  int phase;                     /* PISA_PREFILL, PISA_DECODE */
  int64_t tokens, heads;         /* buckets of Nk and B * H: powers of two */
};

enum pisa_tune_result {
  PISA_TUNE_BEST,
  PISA_TUNE_SLOWER, /* than the best, or not faster by more than the noise */
  PISA_TUNE_WRONG   /* failed verification: never chosen */
};

struct pisa_tune_row {
  struct pisa_tune_key key;
  char ptx[PISA_SHA256_HEX + 1]; /* of |variant|; a row with another digest is of another pack */
  int variant;
  int64_t ns; /* a call, 0: not timed */
  int rounds;
  enum pisa_tune_result result;
};

enum pisa_tune_bound { PISA_TUNE_MAX_ERROR, PISA_TUNE_MIN_RECALL };
struct pisa_tune_choice {
  bool present;
  char ptx[PISA_SHA256_HEX + 1];
  int variant;
  int64_t density; /* in 10^-9, 0: the spec's budget */
  int64_t keep;    /* 0: the same */
  enum pisa_tune_bound bound;
  int64_t limit, reached; /* in 10^-9 */
};

struct pisa_tune {
  struct pisa_tune_row *rows; /* [n] */
  int n;
  struct pisa_tune_choice choice;
};

/* Parses |size| bytes. PISA_CORRUPT names the line. On failure |out| is empty. */
pisa_status pisa_tune_parse(const char *text, size_t size, struct pisa_tune *out,
                            pisa_error *error);
/* The file |path|; one that is not there gives an empty table. */
pisa_status pisa_tune_load(const char *path, struct pisa_tune *out, pisa_error *error);
/* Replaces the file in one step, so that a reader sees the old one or the new one. */
pisa_status pisa_tune_save(const char *path, const struct pisa_tune *table, pisa_error *error);
void pisa_tune_clear(struct pisa_tune *table);
/* Appends |row|, or puts it where one of the same key, digest and variant is. */
pisa_status pisa_tune_put(struct pisa_tune *table, const struct pisa_tune_row *row,
                          pisa_error *error);

bool pisa_tune_same_key(const struct pisa_tune_key *a, const struct pisa_tune_key *b);
/* The power of two nearest to n >= 1 on a logarithmic scale. */
int64_t pisa_tune_bucket(int64_t n);
/* |name| as a word of the table. */
void pisa_tune_device_word(const char *name, char out[PISA_TUNE_DEVICE]);

#endif
