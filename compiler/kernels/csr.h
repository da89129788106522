/* csr.h: the queries that list each leaf, made from the leaves that each query lists.

   csr_count, csr_scan and csr_fill sort (query, leaf) pairs by leaf, those of one leaf by query. A
   CTA of the first and the last has a segment: it counts its pairs, and later brings them to their
   places in the order of its queries. So places depend on nothing but the lists. Counters are in
   shared memory, for a window of adjacent leaves at a time; the windows of other sequences than the
   segment's are passed over. */
#ifndef PISA_KERNELS_CSR_H
#define PISA_KERNELS_CSR_H

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"

struct csr_segment {
  const struct plan_pyramid *plan;
  val ids;
  val number, kv_head;
  val first, end;           /* its query numbers */
  val leaf_begin, leaf_end; /* what they can list: numbers of leaves */
};
/* That of the calling CTA. */
struct csr_segment csr_segment_new(struct ir *k, const struct plan_pyramid *plan, val ids,
                                   val chunk);

struct csr_pair {
  val leaf; /* of its sequence; negative: none */
  val base; /* number of the sequence's first leaf */
};
/* Slot |slot| of the list of query number |query|: one load. None behind the segment. */
struct csr_pair csr_pair_at(struct ir *k, const struct csr_segment *segment, val query, val slot);

/* Place of a pair's leaf in the window of |n| leaves from |begin| on; -1: not in there. */
val csr_place(struct ir *k, const struct csr_pair *pair, val begin, val n);
/* Whether queries of the segment can list a leaf of the window. */
val csr_may_list(struct ir *k, const struct csr_segment *segment, val begin, val n);

#endif
