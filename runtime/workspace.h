/* workspace.h: where each intermediate result lies in the caller's workspace (docs/ABI.md section
   4). Launches pass these addresses to the kernels; the verifier reads the results back from them.
 */
#ifndef PISA_RUNTIME_WORKSPACE_H
#define PISA_RUNTIME_WORKSPACE_H

#include <stddef.h>

#include "runtime/shape.h"

/* In this order. T is the pack's type; BHk = batch * kv_heads. */
enum pisa_workspace_id {
  PISA_WORKSPACE_Q_MEAN,     /* T [BH, NQS, D] */
  PISA_WORKSPACE_K_MEAN,     /* T [BHk, NT, D] */
  PISA_WORKSPACE_V_MEAN,     /* T [BHk, NT, D] */
  PISA_WORKSPACE_H_NORM2,    /* float [BHk, NT, 8]: of ||H_j||_F^2 or of tr C_j */
  PISA_WORKSPACE_H_PART,     /* float [BHk + stat_ctas - 1, D, D] */
  PISA_WORKSPACE_H_SUM,      /* T [BHk, D, D] */
  PISA_WORKSPACE_K_VARIANCE, /* T [BHk, NT, D] */
  PISA_WORKSPACE_LISTS,      /* int32 [BH, NTq, list_stride] */
  PISA_WORKSPACE_MASKS,      /* uint32 [BH, NTq, mask_words] */
  PISA_WORKSPACE_COUNTS,     /* int32 [BH, NTq] */
  PISA_WORKSPACE_SHARED,     /* int32 [BH, ceil(NTq / 2)] */
  /* Block selection; letters as in abi.def. */
  PISA_WORKSPACE_MEANS,           /* T [Hk, P, D]; none where the call has a pyramid of its own */
  PISA_WORKSPACE_SPAN_SUMS,       /* float [Hk, NS, D] */
  PISA_WORKSPACE_IMAGES,          /* T [Hk, NL, C, D]: from here to SCORES: leaf_stage clustered */
  PISA_WORKSPACE_KEPT,            /* int32 [R, K] */
  PISA_WORKSPACE_POSITIONS,       /* int32 [R, K] */
  PISA_WORKSPACE_CLUSTER_COUNTS,  /* int32 [NSEG, NP] */
  PISA_WORKSPACE_CLUSTER_OFFSETS, /* int32 [NSEG, NP] */
  PISA_WORKSPACE_ITEMS,           /* int32 [NSEG, item_room, 4] */
  PISA_WORKSPACE_N_ITEMS,         /* int32 [NSEG] */
  PISA_WORKSPACE_ENTRIES,         /* uint32 [NSEG, K chunk] */
  PISA_WORKSPACE_SCORES,          /* float [R, slots], with mass [R, slots, G] */
  PISA_WORKSPACE_FORCED,          /* float [R, G], with mass */
  PISA_WORKSPACE_IDS,        /* int32 [R, K], where attention follows and the call has no blocks */
  PISA_WORKSPACE_CSR_COUNTS, /* int32 [NSEG, NL], with csr; segments of pisa_csr_chunk queries */
  PISA_WORKSPACE_CSR_BEGINS, /* the same */
  PISA_WORKSPACE_PARTIAL,    /* float [R, splits, G, D + 2]: phase decode of dense packs */
  PISA_N_WORKSPACE_PARTS
};
extern const char *const pisa_workspace_names[PISA_N_WORKSPACE_PARTS]; /* "q_mean", ... */

enum { PISA_WORKSPACE_ALIGN = 256 };

struct pisa_workspace {
  struct {
    size_t offset, size; /* bytes; size 0: the method has no such part */
  } parts[PISA_N_WORKSPACE_PARTS];
  size_t bytes;        /* of all parts, a multiple of 256; 0 when dense, but for phase decode */
  int32_t stat_ctas;   /* grid of the statistics kernel: min(SMs, BHk * VB) */
  int32_t stat_blocks; /* VB = max(NT, G * NQS) */
  int32_t row_tiles;   /* ceil(NTq / 16) */
  int32_t list_stride; /* entries of a list row: kept + 8 (NT + 8 with taylor_1), up to a multiple
                          of 4 */
  int32_t mask_words;  /* words of a mask row: 4 * ceil(NT / 128) */
  /* block selection */
  int32_t queries;                /* T */
  int32_t node_rows;              /* P */
  int32_t spans, leaves, parents; /* NS, NL, NP */
  int32_t chunk, segments;        /* NSEG */
  int32_t item_room;
  int32_t splits;                  /* of decode_attend */
  int32_t csr_chunk, csr_segments; /* of a key head */
};

/* Rows of the means of a key head, P of abi.def: |keys| is the room of all |batch| sequences. */
int64_t pisa_node_rows(const struct pisa_method *method, int64_t batch, int64_t keys);
/* A pyramid of the caller's: means T [Hk, P, D], padded to 256 bytes, then open, float [B, Hk,
   PISA_OPEN_LEVELS, D]. */
pisa_status pisa_pyramid_bytes(const struct pisa_method *method, const pisa_attention *call,
                               size_t *out, pisa_error *error);

/* Where open lies in it. */
size_t pisa_open_offset(const struct pisa_method *method, const struct pisa_shape *shape);

/* |shape| must be within the limits of the device (limits.h). PISA_UNSUPPORTED when the sizes
 * overflow. */
pisa_status pisa_workspace_layout(const struct pisa_method *method, const struct pisa_shape *shape,
                                  int sm_count, struct pisa_workspace *out, pisa_error *error);
/* The same of block selection and of phase decode alone. |out| is zero. */
pisa_status pisa_select_layout(const struct pisa_method *method, const struct pisa_shape *shape,
                               int sm_count, struct pisa_workspace *out, pisa_error *error);
/* Appends a part of |rows| x |columns| x |bytes|; false when the size overflows. */
bool pisa_workspace_add(struct pisa_workspace *workspace, enum pisa_workspace_id id, int64_t rows,
                        int64_t columns, int64_t bytes);

#endif
