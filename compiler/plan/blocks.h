/* blocks.h: attend_blocks with tiles of neighbouring queries (kernels/attend_blocks_tile.h): for
   which plans, and what a CTA has in shared memory. */
#ifndef PISA_PLAN_BLOCKS_H
#define PISA_PLAN_BLOCKS_H

#include "compiler/plan/plan.h"
#include "runtime/abi.def"

enum { BLOCKS_STEP = 64, BLOCKS_TILE_ROWS = 64 };

static inline bool blocks_in_tiles(const struct plan_pyramid *p) {
  return pisa_attends_in_tiles(p->group, p->head_dim, p->leaf, p->page);
}
/* Queries of a warp, in tiles. */
static inline int blocks_each(const struct plan_pyramid *p) {
  return pisa_attend_blocks_each(p->group, p->head_dim, p->leaf, p->page);
}
/* Rows of a query: its heads, and some that stand for the last one. */
static inline int blocks_head_rows(const struct plan_pyramid *p) {
  return p->group <= 16 ? 16 / blocks_each(p) : 32;
}
/* CTAs an SM by their registers: 128 a thread, or all that a thread can have. */
static inline int blocks_tile_ctas(const struct plan_pyramid *p, int threads) {
  return (p->head_dim == 64 ? 512 : 256) / threads;
}
static inline int blocks_stage_bytes(const struct plan_pyramid *p) {
  return 2 * BLOCKS_STEP * p->head_dim * 2;
}
/* Words of |ids| and of |masks|: whole vectors of four. */
static inline int blocks_entries(const struct plan_pyramid *p, int threads) {
  const int queries = threads / 128 * BLOCKS_TILE_ROWS / blocks_head_rows(p);
  return (queries * p->keep + 3) / 4 * 4;
}
enum { BLOCKS_MAX_STAGES = 8 };
static inline int blocks_list_bytes(const struct plan_pyramid *p, int threads) {
  return 16 * blocks_entries(p, threads) + 8 * BLOCKS_MAX_STAGES + 16;
}
static inline int blocks_barrier_bytes(void) {
  return 2 * 8 * BLOCKS_MAX_STAGES;
}
/* What the lists leave of an SM's 227 KB, of which each CTA pays 1 KB for itself. */
static inline int blocks_stages(const struct plan_pyramid *p, int threads) {
  enum { SM_BYTES = 228 * 1024, CTA_BYTES = 1024 };
  const int room = SM_BYTES / blocks_tile_ctas(p, threads) - CTA_BYTES - blocks_barrier_bytes();
  const int stages = (room - blocks_list_bytes(p, threads)) / blocks_stage_bytes(p);
  return stages < BLOCKS_MAX_STAGES ? stages : BLOCKS_MAX_STAGES;
}
static inline int blocks_tile_bytes(const struct plan_pyramid *p, int threads) {
  return blocks_stages(p, threads) * blocks_stage_bytes(p) + blocks_list_bytes(p, threads) +
         blocks_barrier_bytes();
}

#endif
