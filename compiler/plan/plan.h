/* plan.h: what will be built. Tiles, stages, registers, shared memory and launch shape of every
   kernel of one variant, as plain data; no MLIR here. plan.c chooses and derives, print.c prints,
   kernels/ emit what is written here. */
#ifndef PISA_PLAN_H
#define PISA_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "dsl/spec.h"

struct arena;
struct diag;
struct text;

/* Facts of a chip; one const record per target (target.c). */
struct target {
  const char *name;      /* "sm_90a": chip given to LLVM and ptxas */
  int ptx_version;       /* 86: lowest PTX version that has every instruction used */
  int sm_count;          /* 132 on an H200; only for explain, launches ask the device */
  int smem_bytes;        /* dynamic shared memory one CTA may use */
  int registers;         /* 32-bit registers per SM */
  double tensor_flops;   /* bf16 wgmma peak seen, FLOP/s */
  double exp2_rate;      /* ex2.approx per second, whole chip */
  double hbm_bytes;      /* bytes per second, read + write */
  double l2_bytes;       /* bytes per second, L2 to SM, resident working set */
  double launch_seconds; /* fixed cost of one launch in a stream */
};
extern const struct target target_sm90a;

/* Launch facts all kernels have. */
struct plan_kernel {
  const char *entry;   /* PTX entry name */
  int threads;         /* CTA size, multiple of 128 when warp-specialised */
  int smem_bytes;      /* dynamic shared memory; 0 when it depends on N (route) */
  int entry_registers; /* what ptxas must give: 65536 / threads rounded down to 8 (setmaxnreg
                          kernels), 0: any */
  int spill_budget;    /* bytes of spill loads + stores a shipped pack may have */
};

/* One pass over q, k, v: block means, ||H_j||, sum of H_j (arXiv 2602.01077 section 3; DESIGN 6),
   variances of the key columns. */
struct plan_statistics {
  struct plan_kernel kernel;
  enum spec_type type;
  int head_dim;
  int group;                       /* query heads per key/value head */
  int block;                       /* rows per block of q, k and v: the spec's key, 64 or 128 */
  int stages;                      /* ring depth; a stage holds the q, k and v block of one j */
  int producer_registers;          /* setmaxnreg of the loading warpgroup */
  int consumer_registers;          /* setmaxnreg of the two computing warpgroups */
  bool wants_v;                    /* v is read, v_mean written (Taylor tails) */
  bool wants_h;                    /* H_j is formed (log covariance or hybrid); implies v is read */
  bool wants_h_norm;               /* h_norm2 written: parts of ||H_j||_F^2 */
  bool wants_h_sum;                /* h_part written */
  bool wants_variance;             /* k_variance written (mass second_order) */
  bool wants_trace;                /* h_norm2 written: parts of tr C_j (log key_variance) instead */
  int ones_offset, barrier_offset; /* shared-memory layout behind the ring, bytes */
};

/* A second pass over k and v, once Hbar is known: parts of ||H_j - Hbar||_F^2 (log residual). */
struct plan_residual {
  struct plan_kernel kernel;
  enum spec_type type;
  int head_dim;
  int block;                       /* tokens per block of k and v: 64 or 128 */
  int stages;                      /* ring depth; a stage holds the k and v block of one j */
  int producer_registers;          /* setmaxnreg of the loading warpgroup */
  int consumer_registers;          /* setmaxnreg of the two computing warpgroups */
  int ones_offset, barrier_offset; /* shared-memory layout behind the ring, bytes */
};

/* Scores of block means, top-k or threshold per query block, lists and masks. */
struct plan_route {
  struct plan_kernel kernel;
  enum spec_type type;
  int head_dim;
  int group;           /* query heads per key/value head */
  int query;           /* rows per query block, 64 or 128: key, or two of its blocks */
  int key;             /* rows per key block, and per mean of q */
  int rows_per_cta;    /* 16: the m of mma.m16n8k16 */
  enum spec_term term; /* log covariance: score += ln(||H_j||_F + 1e-5); log key_variance:
                          score += ln(max(tr C_j, 1e-8)) */
  bool wants_window;   /* blocks around the diagonal may be forced (argument |window|) */
  bool reduces_h;      /* extra CTAs sum h_part into h_sum */
  bool threshold;      /* blocks whose score is above mu + threshold * sigma, in place of top-k */
  enum spec_variance variance; /* what sigma is taken from */
  bool pairs; /* lists of two neighbouring query blocks are ordered for one walk; |shared| too */
  bool rest_follows; /* taylor 1: behind its listed blocks a list goes on with all others, ascending
                      */
};

/* Exact tiles, mean tiles and the first-order term in one online softmax. */
struct plan_attend {
  struct plan_kernel kernel;
  enum spec_type type;
  int head_dim;
  int group;   /* query heads per key/value head */
  int tile_q;  /* rows of a query block: 128 (shared by two consumer warpgroups) or 64 */
  int streams; /* of items in a CTA: 1, or 2 when each consumer warpgroup has its own */
  int tile_k;  /* keys per tile: whole blocks */
  int block;   /* keys per block: 64 or 128 */
  int q_stages, k_stages, v_stages;
  int producer_registers, consumer_registers;
  bool dense;        /* every block exact, no list */
  bool linear;       /* unlisted blocks token by token to first order (taylor 1) */
  bool means;        /* mean tiles follow the exact tiles (taylor 0, hybrid) */
  bool first_order;  /* (g q) Hsum at the end (hybrid) */
  bool second_order; /* a mean's mass counts the spread of its keys: s += q^2 . k_variance; with
                        |linear|, half the variance of a block's scores */
  bool causal;       /* dense, edge: row i sees keys up to n_b - n_q + i of its sequence */
  bool edge;         /* any call: any n_k, lengths per sequence, a count per list, also 0 */
  bool pairs;        /* two neighbouring 64-row query blocks share a walk: what both list once, then
                        each its own (lists union); tile_q is 128, one stream */
  bool narrow;       /* lists of 64-row query blocks. Exponentials run before the wait for the
                        product beside them (plan_exps_beside; at ends of items always), q of an
                        item stays in registers where those suffice, o of a pair leaves through the
                        producers, Hsum is waited for beside the last p v */
  bool half_tile;    /* exact blocks and means in units of 64 columns; an odd last one is half a
                        tile */
  int fma_exp2;      /* of 8 exponentials so many are polynomials, to spare the exp2 unit: 0 to 4 */
  int q_offset, k_offset, v_offset, barrier_offset; /* shared-memory layout, bytes */
  int mask_offset; /* means: the mask rows of an item and of the next one */
};

enum { PLAN_MAX_ALWAYS = 4 };

/* Block selection (arXiv 2609.31093): one row of facts for all its kernels, and how each is
   launched. What a kernel does not need it does not read. */
struct plan_pyramid {
  enum spec_type type;
  int head_dim;
  int group; /* query heads per key/value head, G; they share a list */
  bool causal;
  int leaf, children;     /* C, g */
  int keep;               /* K, at least the forced leaves */
  bool flat;              /* all visible leaves are candidates */
  int start_nodes;        /* first level of a walk: the lowest with at most so many seen; 0: root */
  int decode_start_nodes; /* the same of the kernel decode */
  int decode_depths;      /* levels that it scores at once, at most; 0: as many as warps can */
  enum spec_score score;
  enum spec_reduce reduce;
  bool previous, current; /* forced leaves, beside |always| */
  struct always_tokens always[PLAN_MAX_ALWAYS];
  int n_always;
  int page;       /* tokens a page, 0: none */
  bool clustered; /* leaves are scored by cluster, scatter, leaf_score, pick; or in walk */
  int query_tile; /* clustered: queries a tile of leaf_score */
  int span;       /* leaves a CTA of the kernel pyramid sums */
  bool prefill, decode, attends; /* which kernels there are */
  bool dense;                    /* all exact: no lists; decode_attend and decode_merge alone */
  bool flat_below;               /* the kernel flat too */
  struct plan_kernel build, top, walk, cluster, scatter, leaf_score, pick, flat_scan, csr_count,
      csr_scan, csr_fill, attend_blocks, append, decode_select, decode_attend, decode_merge;
};
/* Whether kernels know sums of heads' parts of a softmax, for which forced nodes are scored too. */
static inline bool plan_is_mass(const struct plan_pyramid *p) {
  return p->reduce == REDUCE_MASS || p->reduce == REDUCE_MAX_MASS;
}
/* Which of the kernels above |p| has, in the order of a manifest; returns how many. */
enum { PLAN_PYRAMID_KERNELS = 16 };
int plan_pyramid_kernels(const struct plan_pyramid *p,
                         const struct plan_kernel *out[PLAN_PYRAMID_KERNELS]);
/* Queries that fill a tile of 64 rows with the heads of a key head. */
int plan_query_tile(const struct spec *spec);
/* Why leaves cannot be scored in clusters of queries; NULL when they can. */
const char *plan_why_not_clustered(const struct spec *spec);
/* Plans the selection of |spec|, of which limits_of says that it can be built. */
struct plan_pyramid plan_pyramid_choose(const struct spec *spec, const struct target *target);
/* The same of the decoding of |spec|, which is dense and causal: every query reads all it sees. */
struct plan_pyramid plan_decode_dense(const struct spec *spec);

struct rejection {       /* a candidate that is not built */
  const char *candidate; /* "half_tile=on" */
  const char *reason;
};

struct plan {              /* one variant of one spec */
  const struct spec *spec; /* with this variant's choices applied */
  const struct target *target;
  const char *choices; /* "half_tile=off density=0.15"; "" for a spec without choices */
  bool routed;         /* statistics and route run before attend */
  bool below;          /* short sequences are dense: dense, dense_edge exist; causal: no |dense| */
  bool prefills;       /* attend, attend_edge exist; else decoding is all there is */
  bool decodes;        /* dense, with phase decode: its kernels are those of |pyramid| */
  struct plan_statistics statistics;
  bool wants_residual;
  struct plan_residual residual;
  struct plan_route route;
  struct plan_attend attend, attend_edge, dense, dense_edge; /* causal: no |attend| */
  bool selects; /* block selection: |pyramid| in place of all above */
  struct plan_pyramid pyramid;
  struct rejection *rejections;
  int n_rejections;
};

/* The forced blocks of |spec| as token ranges, `always first` and `always last` included; returns
 * how many. */
int plan_always(const struct spec *spec, struct always_tokens out[PLAN_MAX_ALWAYS]);

/* Blocks forced to each side of those that a query block touches; -1: none are. */
int plan_window(const struct spec *spec);

/* Whether the exponentials of a tile run before the wait for the product beside them. Not where
   warpgroups take turns: one would be back before the products of the other are done. */
bool plan_exps_beside(const struct plan_attend *p);

/* Pairs whose queries are in registers but for the first tile of an item. */
bool plan_reloads_queries(const struct plan_attend *p);

enum { PLAN_MASK_STAGES = 2 }; /* items whose mask rows are in shared memory */
/* Bytes of the mask rows of one of them. */
int plan_mask_bytes(const struct plan_attend *p);

/* Plans |spec|, of which limits_of says that it can be built. |choices| is kept. Everything lives
 * in |arena|. */
struct plan *plan_choose(struct arena *arena, const struct spec *spec, const struct target *target,
                         const char *choices);

/* The shape of |plan| attended densely, whatever its route and rest: in query blocks of
   PISA_DENSE_QUERY rows (runtime/abi.def). */
struct plan *plan_dense(struct arena *arena, const struct plan *plan);

/* The whole plan (`pisac emit --stage plan`), and the part that decides the code: variants with the
   same kernels text share one PTX. */
void plan_print(const struct plan *plan, struct text *out);
void plan_print_kernels(const struct plan *plan, struct text *out);

#endif
