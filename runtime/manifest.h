/* manifest.h: the text part of a pack as plain structs (docs/ABI.md section 2). */
#ifndef PISA_RUNTIME_MANIFEST_H
#define PISA_RUNTIME_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/method.h"
#include "runtime/sha256.h"
#include "runtime/status.h"

enum pisa_kernel_id {
  PISA_KERNEL_STATISTICS,
  PISA_KERNEL_RESIDUAL, /* log residual alone: between statistics and route */
  PISA_KERNEL_ROUTE,
  PISA_KERNEL_ATTEND,      /* no mask, whole blocks, the same number in every list, two at least */
  PISA_KERNEL_ATTEND_EDGE, /* any other call */
  PISA_KERNEL_DENSE,       /* `below N tokens use dense`: attend of a dense pack (mask none), */
  PISA_KERNEL_DENSE_EDGE,  /* and its edge */
  PISA_KERNEL_PYRAMID,     /* block selection, prefill: */
  PISA_KERNEL_PYRAMID_TOP,
  PISA_KERNEL_WALK,    /* not flat */
  PISA_KERNEL_CLUSTER, /* these four: leaf_stage clustered */
  PISA_KERNEL_SCATTER,
  PISA_KERNEL_LEAF_SCORE,
  PISA_KERNEL_PICK,
  PISA_KERNEL_FLAT,      /* route flat, or `below N tokens use flat` */
  PISA_KERNEL_CSR_COUNT, /* for calls that ask for csr_* */
  PISA_KERNEL_CSR_SCAN,
  PISA_KERNEL_CSR_FILL,
  PISA_KERNEL_ATTEND_BLOCKS,
  PISA_KERNEL_APPEND, /* phase decode: */
  PISA_KERNEL_DECODE,
  PISA_KERNEL_DECODE_ATTEND, /* `all exact` too */
  PISA_KERNEL_DECODE_MERGE,
  PISA_N_KERNELS
};
extern const char *const pisa_kernel_names[PISA_N_KERNELS]; /* "statistics", ... */

enum { PISA_ENTRY_LENGTH = 64, PISA_SMEM_DYNAMIC = -1 };
struct pisa_kernel {
  bool present;
  char entry[PISA_ENTRY_LENGTH]; /* name of the function in the code */
  int threads;                   /* of a CTA */
  int smem_bytes;                /* dynamic shared memory, or PISA_SMEM_DYNAMIC: depends on NT */
  int registers;                 /* per thread at entry, as ptxas reported; 0: not reported */
  int spill_bytes;               /* as ptxas reported */
};

struct pisa_part { /* bytes [offset, offset + size) behind the manifest */
  bool present;
  size_t offset, size;
  char sha256[PISA_SHA256_HEX + 1];
};

struct pisa_variant {
  const char *choices; /* "half_tile=off density=0.15"; "" when there are none */
  struct pisa_method method;
  struct pisa_part ptx, cubin; /* ptx is always present */
  struct pisa_kernel kernels[PISA_N_KERNELS];
};

struct pisa_manifest {
  char *text; /* the whole manifest, NUL-terminated */
  char
      *words; /* the same bytes cut into strings; what the const char * of all structs point into */
  const char *name, *compiler, *target, *spec_sha256;
  int ptx_version; /* 86 for PTX ISA 8.6 */
  bool validated;
  int n_variants;
  struct pisa_variant *variants; /* n_variants of them */
};

/* Parses |size| bytes. On failure |out| is empty and |error| names the line. Free with _clear. */
pisa_status pisa_manifest_parse(const char *text, size_t size, struct pisa_manifest *out,
                                pisa_error *error);
void pisa_manifest_clear(struct pisa_manifest *manifest);

#endif
