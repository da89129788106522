/* best.h: the best |keep| of n candidates of a warp.

   A key is an unsigned integer that sorts like the worth: nan as -inf, -0 as +0, forced above all,
   absent below all. Equal keys: the smaller candidate is better. What is kept comes back in the
   order of the candidates. */
#ifndef PISA_KERNELS_BEST_H
#define PISA_KERNELS_BEST_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"

/* Worths have keys 0x007FFFFF (-inf) to 0xFF800000 (+inf). */
enum { BEST_ABSENT = 0, BEST_FORCED = -2 };

val best_key(struct ir *k, val f32_worth);
val best_worth(struct ir *k, val key); /* of a key that is neither absent nor forced */

struct best {
  val kept;  /* i1: this lane speaks for a candidate that is kept */
  val place; /* i32: among those kept */
  val count; /* i32: how many are, at most |keep| */
};
/* Of n candidates in lanes, 32 at most. |candidate|, |key|: this lane's; |first|: it is the first
   one that has it; firsts ascend with the lanes. |copy|: lanes t and t ^ copy have the same, a
   power of two, or 0: share the work. |keys|: 4 ceil(n / 4) words of shared memory of the warp,
   16-byte aligned, which nothing reads. */
struct best best_of_lanes(struct ir *k, const struct lanes *lanes, int keep, int n, val candidate,
                          val first, int copy, val key, val keys);

/* Called in a lane for each candidate kept. */
typedef void best_body(struct ir *k, void *context, val candidate, val key, val place);
/* Of |n| (i32) candidates, at most |most|, whose keys lie in shared memory, in their order. Writes
   of the warp before are seen. Returns how many are kept. */
val best_of_keys(struct ir *k, const struct lanes *lanes, int keep, val n, int most, val keys,
                 best_body *body, void *context);

#endif
