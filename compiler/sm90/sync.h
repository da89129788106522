/* sync.h: barriers of every kind.

   Named barriers (bar.sync id, threads): ids are handed out here and nowhere else.
     0                 the whole CTA
     BARRIER_CONSUMERS all warpgroups that compute
     BARRIER_TURN + w  the turn of consumer warpgroup w (ping-pong)
     BARRIER_GROUP + w the 128 threads of consumer warpgroup w */
#ifndef PISA_SM90_SYNC_H
#define PISA_SM90_SYNC_H

#include "compiler/ir/ir.h"

enum { BARRIER_CONSUMERS = 1, BARRIER_TURN = 2, BARRIER_GROUP = 5 };

void cta_sync(struct ir *k);
void consumers_sync(struct ir *k, int groups); /* all |groups| consumer warpgroups */
void group_sync(struct ir *k, val group);      /* the 128 threads of consumer warpgroup |group| */

/* Two consumer warpgroups issue their matrix products in turn: while one feeds the tensor cores,
   the other does its softmax (FlashAttention-3's ping-pong). Takes and passes must balance:
   turn_open and turn_close do the ends. */
struct turn {
  val mine, others; /* barrier ids */
  bool used;        /* false: every verb is a no-op */
};
struct turn turn_open(struct ir *k, val group, bool used);
void turn_take(struct ir *k, const struct turn *turn);
void turn_pass(struct ir *k, const struct turn *turn);
void turn_close(struct ir *k, const struct turn *turn, val group);

/* mbarriers: 8 bytes of shared memory each, |barrier| is a shared pointer. */
void mbarrier_init(struct ir *k, val barrier, int arrivals);
void mbarrier_init_done(
    struct ir *k); /* makes the inits visible to the copy engine; then cta_sync */
void mbarrier_expect(struct ir *k, val barrier,
                     val bytes); /* one arrival, and so many bytes to come */
/* Where |condition| holds; predicated, not branched: a branch in a consumer's loop takes the whole
   loop off the uniform datapath (48 moves more per tile). */
void mbarrier_arrive_if(struct ir *k, val barrier, val condition);
/* The same in one statement, which LLVM cannot merge with its neighbours into a branch. */
void mbarrier_arrive_predicated(struct ir *k, val barrier, val times, val condition);
void mbarrier_arrive(struct ir *k, val barrier);
/* Nothing, but not before |sum|, a float that is never negative, is there, nor moved across other
   statements of barriers and of wgmma: |barrier| would get an arrival where it is negative. */
void mbarrier_order(struct ir *k, val barrier, val sum);
void mbarrier_wait(struct ir *k, val barrier, val parity);

/* Ordinary shared-memory stores of this thread become visible to wgmma and to the copy engine. */
void fence_async_proxy(struct ir *k);

/* Programmatic dependent launch: lets the next kernel of the stream start its prologue, then waits
   until the kernels before this one have finished and their writes are visible. Before the first
   access to global memory. */
void launch_handover(struct ir *k);

/* Its parts, for a kernel that runs beside the one before it. That one, F, waits and then lets the
   next one start: so whatever came before F is complete when the next one, N, begins. N must not
   read what F writes, nor write what F touches, before it waits; and it waits before it ends, so
   that the kernel after N, which waits for N, comes after F too. What came before F is seen once a
   thread has acquired: caches may be older. F must be known: N follows it in the same call. */
void launch_next(struct ir *k);
void launch_wait(struct ir *k);
/* Loads of this thread from here on see what was complete when its CTA began; |pointer|, global, to
   any four bytes. */
void launch_acquire(struct ir *k, val pointer);

/* setmaxnreg for the calling warpgroup: hand registers back, or take more. */
void registers_shrink(struct ir *k, int count);
void registers_grow(struct ir *k, int count);

#endif
