/* run.h: the parts of `pisa run`.

       run.c ......... options and files in, files out
       run_host.c .... the call: arrays in the pack's type, checked against the pack
       run_lists.c ... its lengths and the block lists to read
       run_pages.c ... pages of keys and values, and their table
       run_device.c .. the call on a GPU
       run_pyramid.c . the means that a call of phase decode reads there */
#ifndef PISA_TOOL_RUN_H
#define PISA_TOOL_RUN_H

#include "runtime/pack.h"
#include "runtime/tool/array.h"

struct run_call {
  const pisa_pack *pack;
  int variant;
  const struct pisa_method *method;
  pisa_attention call;                /* host pointers into the arrays below */
  int64_t list_heads, q_blocks, kept; /* H, or Hk where blocks are selected; NTq; blocks a list */
  uint16_t *q, *k, *v, *o; /* contiguous, in the pack's type; v and o NULL: only select */
  int64_t q_size, k_size;  /* elements of q and o, of k and v */
  int64_t keys;            /* of a sequence at most; call.n_k may be whole pages */
  int32_t *pages;          /* [B, page_columns], or NULL */
  float *lse;              /* [B, H, Nq], or NULL */
  int32_t *blocks;         /* [B, list_heads, NTq, kept], or NULL */
  float *worth;            /* the same */
  int64_t leaves;          /* NL: numbers of leaves */
  int32_t *csr_offsets;    /* [Hk, leaves + 1], or NULL */
  int32_t *csr_queries;    /* [Hk, B Nq kept], -1 behind the last, or NULL */
  int32_t *lists;          /* [B, H, NTq, n_listed], or NULL */
  int32_t *lengths;        /* [B], or NULL */
};

struct run_wish { /* what the command line asks for */
  bool bnhd, lse, blocks, worth, csr;
  double density, scale;
  int64_t keep;
  const char *lists;   /* a file, or NULL */
  const char *lengths; /* a file, or "n,n,...", or NULL */
  const char *pages;   /* a file, or NULL */
  const char *phase;   /* "prefill", "decode", or NULL: prefill where the pack has it */
};

/* Makes |out| from the arrays of the files, of which |v| may be NULL; |out->pack| and
   |out->variant| are set. Free also after a failure. */
pisa_status run_call_init(struct run_call *out, const struct array *q, const struct array *k,
                          const struct array *v, const struct run_wish *wish, pisa_error *error);
void run_call_free(struct run_call *call);

/* The array of |path|, which must be of int32. */
pisa_status run_read_int32(const char *path, struct array *out, pisa_error *error);
/* Makes pages of the pack of |c->k| and |c->v|, which lie as the call says: new arrays, beside
   which the old ones stay the caller's; n_k becomes whole pages. */
pisa_status run_lay_pages(struct run_call *c, pisa_error *error);
/* |c->pages| and the call with it from a file: k and v are pages. */
pisa_status run_read_pages(struct run_call *c, const char *path, pisa_error *error);
/* Refuses entries that are read and name none of |pages| pages. */
pisa_status run_check_pages(const struct run_call *c, int64_t pages, pisa_error *error);
/* Set |c->lists| and |c->lengths|, and the call with them, from |wish|; its sizes are set. Lengths
   are |c->keys| where nothing is wished and call.n_k is more. */
pisa_status run_add_lists(struct run_call *c, const struct run_wish *wish, pisa_error *error);
pisa_status run_add_lengths(struct run_call *c, const struct run_wish *wish, pisa_error *error);

/* The call on CUDA device |ordinal|: arrays there and back. */
pisa_status run_on_device(const struct run_call *call, int ordinal, pisa_error *error);

/* The pyramid of a call of phase decode, 256-byte aligned; free it, also after a failure. */
pisa_status run_make_pyramid(const struct run_call *call, void **out, size_t *bytes,
                             pisa_error *error);

#endif
