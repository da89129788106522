/* decode.h: how the kernel decode takes a query: its warps share a walk that scores its leaves, or
   without a walk the leaves. In go the facts of a selection; plan and kernel both ask here. */
#ifndef PISA_PLAN_DECODE_H
#define PISA_PLAN_DECODE_H

#include "compiler/plan/walk.h"
#include "runtime/abi.def"

enum {
  DECODE_WORDS = 4,        /* of shared memory behind the walk's: what one warp tells the others */
  DECODE_TOTAL_BYTES = 256 /* of a warp without a walk: 32 rows, two numbers each */
};

static inline struct plan_pyramid decode_walk(const struct plan_pyramid *p) {
  struct plan_pyramid walk = *p;
  walk.start_nodes = p->decode_start_nodes;
  walk.clustered = false;
  return walk;
}

/* 16, or as many as have registers for the operands of a query. */
static inline int decode_warps(const struct plan_pyramid *p) {
  const int query = (p->group + 15) / 16 * p->head_dim / 4;
  return query <= 16 ? 16 : 8;
}

static inline int decode_bytes(const struct plan_pyramid *p) {
  const struct plan_pyramid walk = decode_walk(p);
  const int folded = p->score == SCORE_MEAN && p->reduce == REDUCE_SUM;
  const int queries = pisa_flat_queries(p->group, folded) / PISA_FLAT_WARPS;
  if (p->flat)
    return decode_warps(p) * (pisa_flat_unit_bytes(queries, p->keep) + DECODE_TOTAL_BYTES);
  return walk_room_of(&walk).bytes + 4 * DECODE_WORDS;
}

#endif
