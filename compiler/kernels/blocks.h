/* blocks.h: a pass over the blocks of all key/value heads, as statistics and residual make one.

   The grid is persistent: CTA c of C takes blocks [T c / C, T (c + 1) / C) of T, one head after the
   other. A producer thread fills a ring whose stages hold the tiles of one block; one or two
   warpgroups compute, each on a panel of 64 columns of every tile. */
#ifndef PISA_KERNELS_BLOCKS_H
#define PISA_KERNELS_BLOCKS_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/ring.h"
#include "compiler/sm90/tile.h"
#include "compiler/sm90/tma.h"

enum input { INPUT_K, INPUT_V, INPUT_Q, MAX_INPUTS }; /* their order in a stage */
enum { SET_K = 1 << INPUT_K, SET_V = 1 << INPUT_V, SET_Q = 1 << INPUT_Q }; /* sets of them */
static inline bool has_input(unsigned set, enum input input) {
  return set >> input & 1;
}

struct pass {
  int head_dim, block, inputs; /* columns, rows per block, tiles of a stage */
  int stages, ones_offset, barrier_offset;
  int producer_registers, consumer_registers;
  int columns; /* of a tile: head_dim in whole panels */
  int groups;  /* warpgroups that compute: one per panel */
  struct lanes lanes;
  struct ring ring;
};
/* From the first eight fields, in shared memory of |smem_bytes|. */
struct pass pass_open(struct ir *k, struct pass p, int smem_bytes);
int pass_consumer_warps(const struct pass *p);
val pass_consumer_warp(struct ir *k, const struct pass *p); /* index among them */
int pass_input_bytes(const struct pass *p);                 /* of one tile */
struct tile pass_tile(struct ir *k, const struct pass *p, struct slot slot, enum input input);
/* The tiles of |inputs|, each from its map, first row at its place. */
void pass_load(struct ir *k, const struct pass *p, struct slot slot, unsigned inputs,
               const val maps[MAX_INPUTS], const struct place4 from[MAX_INPUTS]);
/* Asks for their first 128 rows in L2, before walk_enter: memory's first answer takes as long as
   the kernels before this one take to end. Rows behind the head's are not there and not asked for.
 */
void pass_ask(struct ir *k, const struct pass *p, unsigned inputs, const val maps[MAX_INPUTS],
              const struct place4 from[MAX_INPUTS]);
/* Readies ring, tensor maps (those not null) and the tile of ones; then |produce| in one thread,
   |consume| in the computing warpgroups: both wait for the kernels before this one (walk_enter). */
void pass_run(struct ir *k, const struct pass *p, const val maps[MAX_INPUTS],
              void (*produce)(struct ir *, const void *),
              void (*consume)(struct ir *, const void *), const void *kernel);

/* This CTA's share of |total| blocks. */
struct range {
  val first, end;
};
struct range cta_range(struct ir *k, val total);

val blocks_in(struct ir *k, val n, int rows); /* ceil(n / rows) */
/* 1 / rows of block j of n rows in blocks of |rows|; 1 where there are none. */
val inverse_rows(struct ir *k, val n, val j, int rows);

/* Along a CTA's blocks: which block of which head, and how many keys its sequence has. Counted on
   from the first one, as dividing takes longer than the rest of a block's bookkeeping. */
struct sequences {
  int block;              /* rows of one */
  val total_heads, heads; /* key/value heads of the batch, of one sequence */
  val blocks;             /* of one head */
  val n_k, lengths;       /* keys of every sequence; or each one's, clamped to 0 .. n_k */
};
struct walk {
  struct var head, j;      /* through the batch; block of this head */
  struct var batch, inner; /* its sequence, and which head of that */
  struct var keys;
};
/* walk_start: at block |first|, by arithmetic alone, as the kernels before this one may still run.
   walk_enter waits for them, before the first access to memory, and reads how many keys the
   sequence has: |keys| is n_k until then. */
struct walk walk_start(struct ir *k, const struct sequences *s, val first);
void walk_enter(struct ir *k, const struct sequences *s, const struct walk *w);
val walk_on(struct ir *k, const struct sequences *s, const struct walk *w); /* to a new head? */
val walk_has_keys(struct ir *k, const struct sequences *s, const struct walk *w); /* block j */
struct place4 walk_place(struct ir *k, const struct sequences *s, const struct walk *w);

/* A block of a sequence of |keys| rows that is shorter than the array's: zeros take the place of
   what lies behind the keys in the tiles of k and v. By all computing warpgroups, once the tiles
   are there and before a product reads them. */
void pass_cut(struct ir *k, const struct pass *p, struct slot slot, val keys, val n_k, val j);

/* Slots of h_part that hold the partial sums of one head's H_j: statistics' CTA c left it in slot
   c + head, and had block i of all T = total_heads x blocks where T c / C <= i. */
struct parts {
  val total_heads, blocks, ctas; /* of the statistics launch */
};
struct range parts_of_head(struct ir *k, const struct parts *parts, val head);

#endif
