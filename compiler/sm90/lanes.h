/* lanes.h: who am I, and what a warp or a quad of lanes does together. A warpgroup is four warps,
 * 128 threads. */
#ifndef PISA_SM90_LANES_H
#define PISA_SM90_LANES_H

#include "compiler/ir/ir.h"

enum { WARPGROUP_WARPS = 4 };

struct lanes {
  val warp; /* index in the CTA, known to be the same for the whole warp */
  val lane; /* 0..31 */
};
struct lanes lanes_new(struct ir *k);
val lanes_warpgroup(struct ir *k, const struct lanes *lanes); /* index in the CTA */

/* The least power of two that is not below n >= 1, and its logarithm: lanes that n take. */
static inline int log2_from(int n) {
  int bits = 0;
  while (1 << bits < n)
    bits++;
  return bits;
}
static inline int power_of_two_from(int n) {
  return 1 << log2_from(n);
}

val quad_max(struct ir *k, val f32_value); /* over the four lanes that share lane / 4 */
val quad_sum(struct ir *k, val f32_value);
val quads_sum(struct ir *k, val f32_value); /* over the eight lanes with the same t mod 4 */
val warp_sum(struct ir *k, val f32_value);  /* butterfly: the same order in every lane */
val warp_sum_u32(struct ir *k, val i32_value);
val warp_max_u32(struct ir *k, val i32_value);
val warp_min_u32(struct ir *k, val i32_value);
val warp_ballot(struct ir *k, val condition);       /* bit i: lane i's condition */
val warp_read(struct ir *k, val v, val lane);       /* v of that lane */
val warp_across(struct ir *k, val v, int distance); /* v of lane number xor |distance| */
/* v of the first of this lane's |width| lanes, a power of two: lane number with its low bits 0. */
val warp_first(struct ir *k, val v, int width);
void warp_sync(struct ir *k); /* what its lanes wrote before is seen by all of them after */
/* sum + (a >= b), unsigned: a compare and a predicated addition (ptxas makes three of a select). */
val add_if_uge(struct ir *k, val sum, val a, val b);
/* How many lanes below this one have their bit set. */
val count_below(struct ir *k, const struct lanes *lanes, val ballot);
val count_bits(struct ir *k, val word);
val count_leading_zeros(struct ir *k, val word); /* 32 for 0 */
val lane_elect(struct ir *k);                    /* true in exactly one lane of a converged warp */

/* Body runs in one lane of the calling warp. */
#define ONE_THREAD(k) IF (k, lane_elect(k))

#endif
