/* frag_sum.h: sums of exponentials over columns of a fragment (frag.h), without a maximum, and
   where they go from there: four sums of each lane of a quad, one for each lane. */
#ifndef PISA_SM90_FRAG_SUM_H
#define PISA_SM90_FRAG_SUM_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/lanes.h"

/* Sums outside of (2^-100, 2^120) may be wrong; nan is outside. */
val frag_sum_is_safe(struct ir *k, val sum);

/* This thread's part of the sums of 2^(c f) over columns [first, first + columns), for each of its
   rows. One exponential of 8 is a polynomial on the FMA units, to 8e-5 relative: what balances them
   with the exp2 unit where little else is done (2 of 16: 2.59 ms, none 2.71, 4 of 16 2.84). */
struct rowval frag_exp2_sum(struct ir *k, const struct frag *f, int first, int columns, val c);

/* x[i + 2 j] of a quad's four lanes: lane t = i + 2 j of the quad gets their sum. */
val quad_sum_each(struct ir *k, const val x[4], const struct lanes *lanes);

#endif
