/* pisa.h: load a pack of compiled attention kernels and launch them. The only public header of
   libpisa.

   Plain C ABI, C11 or C++. Needs libc; a GPU is reached through libcuda.so.1, opened on first use
   (no link-time dependency). Thread-safe: packs and modules are immutable after they are made;
   there are no globals to set up.

   Vocabulary: B batch, H query heads, Hk key/value heads, Nq and Nk tokens, D head dimension; NTq
   and NT the numbers of query blocks and key blocks. Shapes are written [B, H, N, D]; strides are
   in elements.

   Errors: every fallible function returns a pisa_status and fills |error| (may be NULL) with a
   sentence that names the argument and the limit. Results go to |out| or |out_bytes|, and are
   written only on PISA_OK. |pack|, |variant| (0 .. n_variants - 1), |module| and |call| say what is
   asked about or run.

   Sources: piecewise attention, arXiv 2602.01077; formulas in docs/DESIGN.md. */
#ifndef PISA_H
#define PISA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PISA_VERSION_MAJOR 0 /* of this header: a new one breaks callers */
#define PISA_VERSION_MINOR 1 /* while MAJOR is 0, so may a new one of these */
#define PISA_VERSION_PATCH 0 /* a new one breaks nobody */
#define PISA_VERSION "0.1.0" /* all three */

/* ---- status -------------------------------------------------------------------------------- */

/* What became of a call. */
typedef enum pisa_status {
  PISA_OK = 0,               /* done */
  PISA_INVALID_ARGUMENT = 1, /* the caller's argument is wrong: fix the call */
  PISA_UNSUPPORTED = 2,      /* legal, but this pack, version or device cannot: names the limit */
  PISA_CORRUPT = 3,          /* the pack is truncated, damaged, foreign or newer than libpisa */
  PISA_IO = 4,               /* a file could not be read or written */
  PISA_NO_DEVICE = 5,        /* no driver, device or current context, or another chip */
  PISA_DRIVER = 6,           /* the CUDA driver refused a call; its own words are in the message */
  PISA_OUT_OF_MEMORY = 7     /* of the host or the device */
} pisa_status;

/* Why a call failed; the caller's, filled in by it. */
typedef struct pisa_error {
  pisa_status status; /* the one that was returned */
  char message[1024]; /* NUL-terminated sentence, empty on PISA_OK */
} pisa_error;

/* |status| in words: "invalid argument", "corrupt pack", ...; never NULL. */
const char *pisa_status_name(pisa_status status);
/* PISA_VERSION of the library that is linked. */
const char *pisa_version(void);

/* ---- packs: a compiled spec as one file ---------------------------------------------------- */

/* A pack in memory. */
typedef struct pisa_pack pisa_pack;

/* Reads the pack at |path| and verifies it: magic, ABI number, sizes, sha256 of manifest and parts;
   and the table PATH.tune, where there is one. Close it with pisa_pack_close. */
pisa_status pisa_pack_open(const char *path, pisa_pack **out, pisa_error *error);
/* The same from |size| |bytes| in memory, which are copied; without a table: pisa_pack_read_tune.
 */
pisa_status pisa_pack_read(const void *bytes, size_t size, pisa_pack **out, pisa_error *error);
void pisa_pack_close(pisa_pack *pack); /* NULL is allowed; modules loaded from it stay valid */

/* Of q, k, v, o and stored means: 16 bits an element. */
typedef enum pisa_type { PISA_BF16 = 0, PISA_FP16 = 1 } pisa_type;

/* What a pack says of itself. */
typedef struct pisa_pack_info {
  const char *name;     /* the spec's name; borrowed from the pack */
  const char *compiler; /* "pisac 0.1.0, LLVM 22.1.8, ptxas 13.0.88" or "... no ptxas" */
  const char *target;   /* "sm_90a" */
  const char *manifest; /* whole manifest text (docs/ABI.md) */
  pisa_type type;       /* the spec's */
  int heads;            /* the spec's default H; any H with the same H/Hk runs */
  int kv_heads;         /* the spec's default Hk */
  int head_dim;         /* D */
  int n_variants;       /* at least 1; variant 0 is the spec as written */
  int has_cubin; /* 1: native code for |target| inside; 0: PTX, compiled by the driver on load */
  int validated; /* 1: the PTX and cubin of every variant passed on a GPU (docs/results) */
} pisa_pack_info;

/* Fills |out|, whose texts live as long as the pack. */
pisa_status pisa_pack_get_info(const pisa_pack *pack, pisa_pack_info *out, pisa_error *error);
/* The variant whose choices include every "name=value" of |settings| (|n| of them; others as in
   variant 0). PISA_UNSUPPORTED with the list of choices when there is none. */
pisa_status pisa_pack_find_variant(const pisa_pack *pack, const char *const *settings, int n,
                                   int *out, pisa_error *error);

/* ---- modules: a variant loaded into the current CUDA context ------------------------------- */

/* Kernels ready to launch. */
typedef struct pisa_module pisa_module;

/* flags of pisa_module_load */
enum { PISA_LOAD_PTX_ONLY = 1 /* skip the cubin, let the driver compile the PTX */ };

/* Loads |variant| into the calling thread's current CUDA context (for instance the primary context
   of the CUDA runtime). Cubin first, PTX as the fallback; the driver's log is in the message when
   both fail. |flags| is 0 or PISA_LOAD_PTX_ONLY. */
pisa_status pisa_module_load(const pisa_pack *pack, int variant, unsigned flags, pisa_module **out,
                             pisa_error *error);
/* Call with the context that |module| was loaded into current. NULL is allowed. */
void pisa_module_unload(pisa_module *module);

/* ---- one attention call -------------------------------------------------------------------- */

/* A 4-dimensional array [B, H, N, D] anywhere in memory. The last stride must be 1; the others
   multiples of 8 elements (16 bytes), not negative; stride 0 is allowed along B and H of inputs.
   The stride of a dimension of one element is not used and may be anything. BHND contiguous:
   {H*N*D, N*D, D, 1}; BNHD contiguous: {N*H*D, D, H*D, 1}. */
typedef struct pisa_tensor {
  void *data;        /* 16-byte aligned */
  int64_t stride[4]; /* b, h, n, d, in elements */
} pisa_tensor;

/* One call: sizes, arrays, and what departs from the spec. All that is not needed is zero. */
typedef struct pisa_attention {
  /* sizeof(pisa_attention). The struct grows: of a caller built before a field was added, the field
     counts as zero. */
  size_t struct_size;
  int64_t batch;    /* B >= 1 */
  int64_t heads;    /* H >= 1; H / kv_heads must be the spec's */
  int64_t kv_heads; /* Hk >= 1 */
  int64_t n_q, n_k; /* Nq, Nk: 1 to 2^30; with route top_k on a GPU at most 3584 key blocks */
  pisa_tensor q;    /* [B, H, Nq, D] */
  pisa_tensor k, v; /* [B, Hk, Nk, D] */
  pisa_tensor o;    /* [B, H, Nq, D] */
  /* NULL, or contiguous [B, H, Nq]: natural log of the softmax denominator, tail included. */
  float *lse;
  /* NULL, or contiguous [B, H, NTq, kept]: key blocks read exactly, ascending, then -1 where a
     query block has fewer. NULL for dense, also for a call that `below N tokens use dense` makes
     dense. */
  int32_t *blocks;
  /* 0: the spec's budget; else in (0, 1]: k = max(1, floor(density * NT)). Counts as a decimal of 9
     places, so 0.29 of 100 blocks is 29. Without effect on a call that `below` makes dense. */
  double density;
  /* 0: the spec's budget; else k = keep >= 1. At most one of density and keep may be set, and
     neither for dense packs and packs with a threshold. A query block for which more than k blocks
     are always read reads just those; no list has more than NT. */
  int64_t keep;
  float scale; /* 0: 1/sqrt(D); else > 0, multiplies q.k */
  /* NULL: every sequence has n_k keys. Else [B] on the device (host for pisa_cpu_run): keys of each
     sequence, clamped to 0 .. n_k. Keys and values behind them do not count, but must be finite. A
     sequence without keys gives o = 0 and lse = -infinity. NT, the budget and the always-set of a
     sequence come from its own length; |blocks| rows then end in -1. */
  const int32_t *k_lengths;
  /* NULL: route as the spec says. Else [B, H, NTq, n_listed] on the device (host for pisa_cpu_run):
     the key blocks to read exactly, in any order; what is outside 0 .. NT - 1 (say -1) is skipped,
     repetitions count once. The spec's always-set and budget do not apply, density and keep must be
     0. Not for dense packs and calls that `below` makes dense. */
  const int32_t *lists;
  int64_t n_listed; /* 1 to NT where |lists| is set; else 0 */

  /* Block selection (method pyramid; arXiv 2609.31093) and decoding. Everything from here on must
     be zero for other packs, but for |phase| of dense packs with phase decode, and |pages| and
     |page_columns| of those with pages. For packs of this method density must be 0, keep 0 or the
     spec's, lists NULL. The G query heads of a key head share a list of leaves for every query, so
     |blocks| is [B, Hk, Nq, kept], ascending, then -1; kept is the spec's keep. With o.data NULL
     the call only selects: v and o are not looked at, lse must be NULL and |blocks| must be set.
     Query row i stands at token t = n_b - Nq + i of a sequence with n_b keys, and with mask causal
     reads tokens 0 .. t; where t < 0 it reads nothing: blocks -1, o = 0, lse = -infinity.

     A call of phase prefill that `below N tokens use dense` makes dense reads every key that it
     sees: blocks and worth must be NULL, o must be there; its pyramid is written all the same. With
     q_starts no call is dense (the host does not know its lengths), nor is one of phase decode. */
  float *worth; /* NULL, or like |blocks|: score of each leaf over all heads, natural log for the
                   sums, +infinity where it was kept unranked, -infinity behind the last */
  /* NULL, or both [B + 1] on the device, ascending from 0 to the number of rows (which only
     pisa_cpu_run can check): sequences of any length, also 0, packed one behind the other. n_q and
     n_k are then the rows of all together; q and o are [1, H, Nq, D], k and v [1, Hk, Nk, D], lse
     [H, Nq], blocks and worth [Hk, Nq, kept]. k_lengths and pages must be NULL. */
  const int32_t *q_starts, *k_starts;
  /* Packs with pages: [B, page_columns] on the device: key j of a sequence is row j mod page of
     batch entry pages[b, j / page] of k and v, whose first extent is any number of pages. Entries
     behind the last key are not read. How many pages there are is not known here, so that the
     caller answers for the others: an entry beyond them reads memory behind k and v, on a GPU also
     one below 0 (pisa_cpu_run refuses those), and o may overlap pages unseen. n_k is the room of a
     sequence, page_columns times the pack's page. NULL and 0 for other packs. */
  const int32_t *pages;
  int64_t page_columns; /* entries of a row of |pages| */
  /* NULL: means live in the workspace. Else pisa_pyramid_size bytes, 256-byte aligned, that outlive
     the call: prefill writes the pyramid of k there, decode reads it and appends to it. Its layout
     depends on B, Hk, n_k (the room), k_starts and the pack alone. Needed for decode on a GPU;
     pisa_cpu_run makes the means anew from k, and writes them here too. */
  void *pyramid;
  int phase;     /* PISA_PREFILL, or PISA_DECODE for a few queries at the end of cached sequences;
                    one that the pack was built for. Of a dense pack: the same result, by kernels
                    that share the keys of few queries */
  int64_t n_new; /* decode: the last n_new keys of each sequence, 0 to |leaf|, are not in |pyramid|
                    yet. 0 with k_starts: such sequences cannot grow */
  int append_completed; /* decode, mask causal: store a node with its last token only. Same
                           selections while the current leaf is always read, fewer bytes. One
                           pyramid: one way */
  /* NULL, or both, prefill alone: the lists turned around, for work that goes by keys (a backward
     pass, attention that keeps keys in place); compressed rows of a [Hk, leaves, queries] matrix.
     Leaf j of sequence b has the number floor(k_begin / leaf) + b + j of NL = floor(keys / leaf) +
     B, k_begin = b n_k and keys = B n_k, or k_begin = k_starts[b] and keys = n_k; numbers that no
     leaf has have no queries. Query row i has the number b Nq + i, or q_starts[b] + i. The queries
     of key head h that list leaf l are entries csr_offsets[h, l] to csr_offsets[h, l + 1] - 1 of
     csr_queries[h], ascending; entries behind csr_offsets[h, NL] are not written. All query numbers
     times |kept| must be below 2^31. blocks may be NULL where o.data is set. */
  int32_t *csr_offsets; /* [Hk, NL + 1] */
  int32_t *csr_queries; /* [Hk, B Nq kept], or with starts [Hk, Nq kept] */
} pisa_attention;

/* pisa_attention.phase: many queries at once, or a few at the end of cached sequences. */
enum { PISA_PREFILL = 0, PISA_DECODE = 1 };

/* Bytes of |call->pyramid| for calls with this batch, kv_heads and n_k, with k_starts or without.
   The means T [Hk, P, D], padded to 256 bytes, and sums that append goes on from (docs/ABI.md). */
pisa_status pisa_pyramid_size(const pisa_pack *pack, int variant, const pisa_attention *call,
                              size_t *out_bytes, pisa_error *error);

/* "kept", the most key blocks that a query block of this call may read exactly, the last extent of
   |blocks|: k, or the size of the largest always-set where that is more; a bound on them with
   |k_lengths| (which is only tested for NULL); n_listed with |lists|; NT with a threshold and for
   dense calls; else the spec's keep for packs that select blocks. Other pointers and strides are
   not looked at. */
pisa_status pisa_kept_blocks(const pisa_pack *pack, int variant, const pisa_attention *call,
                             int64_t *out, pisa_error *error);

/* Bytes of device memory a call of this shape needs (256-byte aligned; contents need no
   initialisation, and nothing survives between calls). Depends on the shape, the budget and the
   device; never on data. 0 for dense calls that neither decode nor write a pyramid. k_lengths and
   lists, and of packs that select blocks o.data, blocks, pyramid, pages, starts and csr_*, are
   tested for NULL; other pointers and strides of |call| are not looked at. */
pisa_status pisa_workspace_size(const pisa_module *module, const pisa_attention *call,
                                size_t *out_bytes, pisa_error *error);

/* Enqueues the whole method on |stream| (a CUstream / cudaStream_t; NULL is the legacy default
   stream): statistics, routing and attention, or pyramid, selection and attention. No allocation,
   no synchronisation, no host reads: capturable in a CUDA graph. Every shape, stride, alignment and
   size is checked before anything is enqueued; the address ranges of o, lse, blocks, worth,
   pyramid, csr_offsets, csr_queries and workspace must not overlap each other or the inputs,
   k_lengths, lists, starts and pages among them. Needs the context that |module| was loaded into to
   be current. |workspace| has |workspace_bytes|, at least pisa_workspace_size; calls that may run
   at the same time need workspaces of their own. Same input, same bits out. */
pisa_status pisa_launch(const pisa_module *module, const pisa_attention *call, void *workspace,
                        size_t workspace_bytes, void *stream, pisa_error *error);

/* ---- what was measured (docs/tuning.md) ----------------------------------------------------

   pisa_pack_open also reads PATH.tune, the text that `pisa tune` and `pisa sweep` write beside a
   pack. Without that file everything below answers as for the spec as written; a damaged one is
   PISA_CORRUPT, with its line. Rows about another device, driver or other code do not count. */

/* Gives a pack the |size| bytes of |text|, what such a file holds, in place of its table: for a
   pack in memory, and for a table kept elsewhere than beside it. Before other threads have the
   pack. PISA_CORRUPT names the line, and the table is the old one. */
pisa_status pisa_pack_read_tune(pisa_pack *pack, const char *text, size_t size, pisa_error *error);
/* Of the variants that compute what |variant| computes and differ from it in schedule alone, the
   one that was measured fastest for calls like |call| (phase, batch * heads and n_k, these two to a
   power of two) on the current context's device; else |variant|. Only phase, batch, heads and n_k
   are looked at; a context is needed only where there is a table. Waits for nothing. */
pisa_status pisa_tuned_variant(const pisa_pack *pack, int variant, const pisa_attention *call,
                               int *out, pisa_error *error);
/* What `pisa sweep` chose by a bound on error or recall: the variant, and the |density| and |keep|
   to put into pisa_attention. 0, 0 and 0 where it chose nothing, or for other code. */
pisa_status pisa_pack_choice(const pisa_pack *pack, int *variant, double *density, int64_t *keep,
                             pisa_error *error);

/* ---- the same method on the CPU ------------------------------------------------------------ */

/* How pisa_cpu_run works. */
typedef struct pisa_cpu_options {
  size_t struct_size; /* sizeof(pisa_cpu_options) */
  int oracle;         /* 0: float arithmetic, fast; 1: naive double arithmetic, the reference */
  int threads;        /* 0: all cores */
  void (*progress)(void *user, int64_t done, int64_t total); /* may be NULL; one call at a time */
  void *user;                                                /* passed to |progress| */
} pisa_cpu_options;

/* Runs |variant| on host memory; all pointers of |call| are host pointers to elements of the pack's
   type. Summaries are rounded where the GPU rounds them. |options| may be NULL. */
pisa_status pisa_cpu_run(const pisa_pack *pack, int variant, const pisa_attention *call,
                         const pisa_cpu_options *options, pisa_error *error);

#ifdef __cplusplus
}
#endif
#endif
