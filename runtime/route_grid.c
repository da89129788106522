/* route_grid.c: sizes of a call and of the device in, the launch of route out: how many tiles (16
   query blocks of a head) a CTA has side by side, their warps, and which CTAs add up Hsum. */
#include "runtime/args.h"

#include "runtime/limits.h"
#include "runtime/size.h"

enum {
  TILE_WARPS = 16,
  FEW_WARPS = 8,  /* of each of more than two tiles in a CTA */
  MAX_TILES = 4,  /* 1024 threads; their 64 registers fill a multiprocessor */
  SM_TILES = 2,   /* of 16 warps on a multiprocessor at once */
  SUM_WIDTH = 128 /* elements of Hsum that a warp adds up at a time */
};

/* CTAs of one tile that run at once. */
static int64_t slots(const struct pisa_limits *limits, int64_t tile_bytes) {
  return limits->sm_count * pisa_min(SM_TILES, limits->route_smem_bytes / tile_bytes);
}

/* How many tiles the busiest multiprocessor has, one after the other or together. */
static int64_t longest(const struct pisa_limits *limits, int64_t tiles, int64_t together) {
  return pisa_ceil_div(pisa_ceil_div(tiles, together), limits->sm_count) * together;
}

/* Where one tile a CTA takes more than one round: as many together as fit and spread evenly, the
   more the better, as they read the same means at the same time. */
static int tiles_of_cta(const struct pisa_limits *limits, int64_t tiles, int64_t tile_bytes) {
  int64_t most = pisa_min(MAX_TILES, limits->route_smem_bytes / tile_bytes), best = 1;
  if (tiles <= slots(limits, tile_bytes))
    return 1;
  for (int64_t n = 2; n <= most; n++)
    if (best == 1 || longest(limits, tiles, n) <= longest(limits, tiles, best))
      best = n;
  return (int)best;
}

/* CTAs behind those of the tiles that add up Hsum, every warp once if there is room for so many; 0:
   there is too little room, all others do it at their end. */
static int64_t reducers(const struct pisa_job *job, int64_t free_slots) {
  int64_t d = job->method->head_dim;
  int64_t wanted = pisa_ceil_div(job->shape.bh_k * d * d, SUM_WIDTH * TILE_WARPS);
  return 4 * free_slots < wanted ? 0 : pisa_min(wanted, free_slots);
}

struct pisa_route_grid pisa_route_grid(const struct pisa_job *job) {
  const struct pisa_limits *limits = &job->module->limits;
  int64_t tiles = job->shape.bh * job->layout.row_tiles;
  int64_t tile_bytes = pisa_route_smem(job->shape.nt);
  bool alone = job->method->budget == PISA_BUDGET_THRESHOLD;
  struct pisa_route_grid grid = {.tiles = alone ? 1 : tiles_of_cta(limits, tiles, tile_bytes)};
  grid.tile_warps = grid.tiles > SM_TILES ? FEW_WARPS : TILE_WARPS;
  grid.smem_bytes = (int)(grid.tiles * tile_bytes);
  grid.ctas = pisa_ceil_div(tiles, grid.tiles);
  int64_t free_slots = slots(limits, tile_bytes) - tiles;
  if (pisa_wants_h_sum(job->method) && free_slots > 0) {
    int64_t apart = reducers(job, free_slots);
    grid.first_reducer = apart > 0 ? grid.ctas : 0;
    grid.ctas += apart;
  }
  return grid;
}
