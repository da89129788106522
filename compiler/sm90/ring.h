/* ring.h: a ring of shared-memory stages between one producer thread and the consumers.

   Every stage has two mbarriers: `full` (one arrival by the producer plus the bytes it announced)
   and `empty` (one arrival per consumer). Pass n over a stage: the consumer waits on full with
   parity n & 1, the producer on empty with parity (n & 1) ^ 1, which returns at once on pass 0.
   Each role walks its own ring with its own place (stage and phase):

       producer                                     consumer
       place = ring_start                           place = ring_start
       ring_acquire(place)      waits for empty     ring_wait(place)      waits for full
       ring_expect(place, n)                        ... reads ring_tile(place)
       tma_load(... ring_full(place))               ring_release(place)   one lane per consumer warp
       ring_advance                                 ring_advance */
#ifndef PISA_SM90_RING_H
#define PISA_SM90_RING_H

#include "compiler/ir/ir.h"

struct ring {
  int stages;
  int offset, stage_bytes; /* in dynamic shared memory */
  int barrier_offset;      /* full[stages], then empty[stages]; 8 bytes each */
  val instance; /* null, or which of several equal rings, one behind the other, this is */
};
int ring_bytes(const struct ring *ring); /* of one instance's stages */
static inline int ring_barrier_bytes(int stages) {
  return 2 * 8 * stages;
}

/* By one thread, before the roles part; |consumers| arrivals empty a stage. */
void ring_init(struct ir *k, const struct ring *ring, int consumers);

struct ring_place {
  struct var stage, phase; /* where this role is */
};
struct ring_place ring_start(struct ir *k);

struct slot { /* one stage at one pass: stays valid after the place has moved on */
  val stage, phase;
};
struct slot ring_slot(struct ir *k, const struct ring_place *place);
void ring_advance(struct ir *k, const struct ring *ring, struct ring_place *place);
/* The slot after |slot|, without moving. */
struct slot ring_next(struct ir *k, const struct ring *ring, struct slot slot);
/* The slot |steps| after |slot|, at most all stages of them. */
struct slot ring_after(struct ir *k, const struct ring *ring, struct slot slot, val steps);
void ring_go(struct ir *k, struct ring_place *place, struct slot slot);

void ring_acquire(struct ir *k, const struct ring *ring, struct slot slot);
void ring_expect(struct ir *k, const struct ring *ring, struct slot slot, int bytes);
void ring_expect_bytes(struct ir *k, const struct ring *ring, struct slot slot, val bytes);
/* A stage without data, so that consumers may run one step past the end without asking whether
 * there is one. */
void ring_pass_empty(struct ir *k, const struct ring *ring, struct ring_place *place);
val ring_full(struct ir *k, const struct ring *ring,
              struct slot slot); /* shared pointer, for tma_load */
void ring_wait(struct ir *k, const struct ring *ring, struct slot slot);
void ring_release(struct ir *k, const struct ring *ring,
                  struct slot slot); /* by the calling thread */
void ring_release_if(struct ir *k, const struct ring *ring, struct slot slot, val condition);
/* See mbarrier_arrive_predicated. */
void ring_release_predicated(struct ir *k, const struct ring *ring, struct slot slot, val times,
                             val condition);
/* See mbarrier_order. */
void ring_order(struct ir *k, const struct ring *ring, struct slot slot, val sum);
val ring_address(struct ir *k, const struct ring *ring, struct slot slot); /* i32, of the stage */

#endif
