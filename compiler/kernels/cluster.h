/* cluster.h: how the kernels of the clustered leaf stage hand work to each other.

   A row (query and key head) that sees more than K leaves has kept parents, nodes of level 2, whose
   leaves are its candidates. walk counts each (row, parent) pair whose scores are wanted into the
   parent's cluster; cluster lays the clusters of a segment out one behind another and cuts them
   into items; scatter brings the pairs there as entries; leaf_score takes items, whose keys stay in
   shared memory while their queries pass by; pick reads the scores and chooses.

   Which pairs are in clusters: of rows that see more than K leaves, every kept parent with a
   visible leaf that is not forced; where cluster_has_singles(plan) only those without any forced
   leaf. What is left out then is alike for adjacent queries and needs no entries: leaf 1, and
   where the own leaf is even the leaf two before it.

   Item, four i32:
       0, 1   leaves (numbers of abi.def) that the first and the second half of the key tile begin
              with: a half is g / 2 adjacent leaves
       2      CLUSTER: its first entry, of the segment's; else the first of adjacent query numbers,
              less the segment's first
       3      bits 0..6 members, 1 .. 64; 7, 8 enum item_kind; 9..18 item_slot; 19..25 item_past

   kind     halves                   slot of scores of leaf r
   CLUSTER  parent's children        g (the entry's slot of K) + r
   SINGLE   leaf 1; own - 2          1; item_slot, of which ITEM_NO_SLOT has none (leaf 1 again)
   NEAR     previous; own leaf       item_slot; one more (only the first leaf of each half)

   NEAR items are there with mass. Their own leaf is masked behind each query, of which the first
   one's token is number item_past of its leaf, the next one's one more. Members of SINGLE and NEAR
   are of one sequence and have one own leaf. Their scores lie in the leaves' own slots where no
   cluster writes these, which is so with SINGLE items; else K g and K g + 1 are theirs.

   Scores a row: K g slots, or two more, of which those of other forced and of invisible leaves, and
   all of rows that see at most K leaves, hold anything. */
#ifndef PISA_KERNELS_CLUSTER_H
#define PISA_KERNELS_CLUSTER_H

#include <stdbool.h>

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"

enum item_kind { ITEM_CLUSTER, ITEM_SINGLE, ITEM_NEAR };
enum {
  ITEM_BYTES = 16,
  ITEM_MAX_MEMBERS = 64,
  ITEM_KIND_SHIFT = 7,
  ITEM_SLOT_SHIFT = 9,
  ITEM_PAST_SHIFT = 19,
  ITEM_MEMBERS_MASK = 127,
  ITEM_KIND_MASK = 3,
  ITEM_SLOT_MASK = 1023,
  ITEM_PAST_MASK = 127,
  ITEM_NO_SLOT = ITEM_SLOT_MASK,
  ENTRY_SLOT_SHIFT = 24, /* above: place in K; below: query number in the segment */
  ENTRY_QUERY_MASK = (1 << 24) - 1,
  CLUSTER_MAX_SEGMENTS = 4096, /* that leaf_score counts; at most so many per call */
};

/* First, previous and own leaf are forced and nothing else, and parents are pairs. */
static inline bool cluster_has_singles(const struct plan_pyramid *plan) {
  const struct always_tokens *first = plan->always;
  return plan->children == 2 && plan->previous && plan->current && plan->n_always == 1 &&
         first->kind == ALWAYS_TOKENS_FIRST && 0 < first->end && first->end <= plan->leaf;
}

/* Slots of scores of a row. */
static inline int cluster_slots(const struct plan_pyramid *plan) {
  const bool apart = plan_is_mass(plan) && !cluster_has_singles(plan);
  return plan->keep * plan->children + (apart ? 2 : 0);
}
/* With mass: slot of the previous leaf of a row with own leaf |own|; the own one's is the next. */
val cluster_near_slot(struct ir *k, const struct plan_pyramid *plan, val own);

/* Rows of a tile that a query has: heads, up to a power of two and to 16; a group of 32 is two
   passes over the same keys. */
static inline int cluster_head_rows(const struct plan_pyramid *plan) {
  int rows = 1;
  while (rows < plan->group && rows < 16)
    rows *= 2;
  return rows;
}
static inline int cluster_passes(const struct plan_pyramid *plan) {
  return plan->group > 16 ? 2 : 1;
}

/* Whether the kernels of the clustered stage can be built: every ranked leaf is full and in the
   past, tiles are 64 or 128 keys, and candidates of the last level are children of kept parents. */
static inline bool cluster_can(const struct plan_pyramid *plan) {
  int keys = plan->leaf * plan->children;
  return !plan->flat && plan->causal && plan->current && plan->score == SCORE_LSE &&
         (keys == 64 || keys == 128) && plan->leaf >= 16 &&
         (plan->head_dim == 64 || plan->head_dim == 128) && plan->group <= 32 &&
         plan->start_nodes <= plan->keep && plan->keep <= 64;
}

#endif
