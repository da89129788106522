/* Stages and their mbarriers; see ring.h. */
#include "compiler/sm90/ring.h"

#include "compiler/sm90/sync.h"

enum { MBARRIER_BYTES = 8 };

int ring_bytes(const struct ring *ring) {
  return ring->stages * ring->stage_bytes;
}

/* |offset|, moved to the ring's instance. */
static val instance_offset(struct ir *k, const struct ring *ring, val offset, int bytes) {
  return is_null(ring->instance) ? offset : add(k, offset, mul_const(k, ring->instance, bytes));
}

static val barrier(struct ir *k, const struct ring *ring, val stage, bool empty) {
  int first = ring->barrier_offset + (empty ? ring->stages * MBARRIER_BYTES : 0);
  val offset = add_const(k, mul_const(k, stage, MBARRIER_BYTES), first);
  return at(k, k->smem, instance_offset(k, ring, offset, ring_barrier_bytes(ring->stages)));
}

void ring_init(struct ir *k, const struct ring *ring, int consumers) {
  for (int s = 0; s < ring->stages; s++) {
    mbarrier_init(k, barrier(k, ring, i32(k, s), false), 1);
    mbarrier_init(k, barrier(k, ring, i32(k, s), true), consumers);
  }
}

struct ring_place ring_start(struct ir *k) {
  return (struct ring_place){var_init(k, i32(k, 0)), var_init(k, i32(k, 0))};
}

struct slot ring_slot(struct ir *k, const struct ring_place *place) {
  return (struct slot){get(k, place->stage), get(k, place->phase)};
}

struct slot ring_next(struct ir *k, const struct ring *ring, struct slot slot) {
  val stage = add_const(k, slot.stage, 1);
  val wraps = is_eq(k, stage, i32(k, ring->stages));
  return (struct slot){choose(k, wraps, i32(k, 0), stage),
                       bit_xor(k, slot.phase, widen_bool(k, wraps))};
}

struct slot ring_after(struct ir *k, const struct ring *ring, struct slot slot, val steps) {
  val stage = add(k, slot.stage, steps), stages = i32(k, ring->stages);
  val wraps = is_ge(k, stage, stages);
  return (struct slot){choose(k, wraps, sub(k, stage, stages), stage),
                       bit_xor(k, slot.phase, widen_bool(k, wraps))};
}

void ring_go(struct ir *k, struct ring_place *place, struct slot slot) {
  set(k, place->stage, slot.stage);
  set(k, place->phase, slot.phase);
}

void ring_advance(struct ir *k, const struct ring *ring, struct ring_place *place) {
  ring_go(k, place, ring_next(k, ring, ring_slot(k, place)));
}

void ring_acquire(struct ir *k, const struct ring *ring, struct slot slot) {
  val phase = bit_xor(k, slot.phase, i32(k, 1));
  mbarrier_wait(k, barrier(k, ring, slot.stage, true), phase);
}

void ring_expect(struct ir *k, const struct ring *ring, struct slot slot, int bytes) {
  ring_expect_bytes(k, ring, slot, i32(k, bytes));
}

void ring_expect_bytes(struct ir *k, const struct ring *ring, struct slot slot, val bytes) {
  mbarrier_expect(k, ring_full(k, ring, slot), bytes);
}

void ring_pass_empty(struct ir *k, const struct ring *ring, struct ring_place *place) {
  struct slot slot = ring_slot(k, place);
  ring_acquire(k, ring, slot);
  mbarrier_arrive(k, ring_full(k, ring, slot));
  ring_advance(k, ring, place);
}

val ring_full(struct ir *k, const struct ring *ring, struct slot slot) {
  return barrier(k, ring, slot.stage, false);
}

void ring_wait(struct ir *k, const struct ring *ring, struct slot slot) {
  mbarrier_wait(k, ring_full(k, ring, slot), slot.phase);
}

void ring_release(struct ir *k, const struct ring *ring, struct slot slot) {
  mbarrier_arrive(k, barrier(k, ring, slot.stage, true));
}

void ring_release_if(struct ir *k, const struct ring *ring, struct slot slot, val condition) {
  mbarrier_arrive_if(k, barrier(k, ring, slot.stage, true), condition);
}

void ring_release_predicated(struct ir *k, const struct ring *ring, struct slot slot, val times,
                             val condition) {
  mbarrier_arrive_predicated(k, barrier(k, ring, slot.stage, true), times, condition);
}

void ring_order(struct ir *k, const struct ring *ring, struct slot slot, val sum) {
  mbarrier_order(k, barrier(k, ring, slot.stage, true), sum);
}

val ring_address(struct ir *k, const struct ring *ring, struct slot slot) {
  val base = add_const(k, shared_address(k, k->smem), ring->offset);
  val address = add(k, base, mul_const(k, slot.stage, ring->stage_bytes));
  return instance_offset(k, ring, address, ring_bytes(ring));
}
