/* decode.h: how the kernel decode takes a query: 16 warps share a walk that scores its leaves. In
   go the facts of a selection; plan and kernel both ask here. */
#ifndef PISA_PLAN_DECODE_H
#define PISA_PLAN_DECODE_H

#include "compiler/plan/walk.h"

enum {
  DECODE_WARPS = 16,
  DECODE_WORDS = 4 /* of shared memory behind the walk's: what one warp tells the others */
};

static inline struct plan_pyramid decode_walk(const struct plan_pyramid *p) {
  struct plan_pyramid walk = *p;
  walk.start_nodes = p->decode_start_nodes;
  walk.clustered = false;
  return walk;
}

static inline int decode_bytes(const struct plan_pyramid *p) {
  const struct plan_pyramid walk = decode_walk(p);
  return walk_room_of(&walk).bytes + 4 * DECODE_WORDS;
}

#endif
