/* pick.h: what the files of the kernel pick share: which leaves a row may choose from. */
#ifndef PISA_KERNELS_PICK_H
#define PISA_KERNELS_PICK_H

#include "compiler/ir/ir.h"
#include "compiler/kernels/sequence.h"
#include "compiler/sm90/lanes.h"
#include "runtime/abi.def"

#define ARG(name) (k->arg[PISA_PICK_##name])

enum { WORD = 4, WARP = 32 };

struct pick {
  const struct plan_pyramid *plan;
  struct lanes lanes;
  int candidates, slots;   /* K g; of scores */
  val kv_head, first, end; /* of this CTA: query numbers */
};
struct pick_row {
  val row;        /* of arrays [R] */
  val kept;       /* pointer to its parents */
  val list;       /* row of the caller's arrays */
  val ids, worth; /* pointers to its list; |worth| may be null, as the argument */
  val own;        /* leaf; -1 before the first key */
  val visible;    /* leaves */
  val keys;       /* of the sequence */
};
struct pick_row pick_row_of(struct ir *k, const struct pick *a, val query);
/* Sets the list, and where it lies. */
void pick_row_lists(struct ir *k, const struct pick *a, struct pick_row *row, val list);
/* Whether |leaf|, a visible one, is kept unranked. */
val pick_is_forced(struct ir *k, const struct pick *a, const struct pick_row *row, val leaf);
/* Worth (natural units) of a leaf kept with |key| (best.h). */
val pick_worth(struct ir *k, const struct pick *a, val key);

/* Entry |place| of the list. */
void pick_put(struct ir *k, const struct pick_row *row, val place, val leaf, val worth);
/* Entries |count| .. K - 1, by lane |lane| of |lanes|: of all |visible| leaves, or none. */
void pick_put_rest(struct ir *k, const struct pick *a, const struct pick_row *row, val count,
                   val visible, val lane, int lanes);

/* ---- pick_thread.c: few candidates, without mass ---- */

int pick_thread_bytes(const struct plan_pyramid *plan);
/* One row a thread; |query| is one. */
void pick_by_thread(struct ir *k, const struct pick *a, val query);

/* ---- pick_warp.c: any ---- */

int pick_warp_bytes(const struct plan_pyramid *plan); /* of a warp */
/* One row a warp. */
void pick_by_warp(struct ir *k, const struct pick *a, val query);
/* The list of a row from the keys of its candidates, in shared memory. */
void pick_put_keys(struct ir *k, const struct pick *a, const struct pick_row *row, val keys);

/* ---- pick_heads.c: with mass, where a warp's registers have all scores of a row ---- */

bool pick_fits_heads(const struct plan_pyramid *plan);
/* Words of scores that a lane has of a row. */
int pick_heads_words(const struct plan_pyramid *plan);
/* |rows| adjacent ones a warp, 4 to 32, a power of two; shared memory as by warp. */
void pick_by_heads(struct ir *k, const struct pick *a, int rows);

/* ---- pick_parts.c ---- */

enum { PICK_MAX_WORDS = 32, PICK_MAX_OTHERS = 3 };
struct pick_head {   /* of a lane */
  int words, others; /* scores: of candidates; of what only weighs in the sum */
  int places;        /* adjacent lanes that share them, a power of two */
  val is_head;       /* i1; null: all lanes have one */
  val members;       /* i32: lanes of the row as bits */
};
/* Scores (log2) x[words + others] -> parts of the softmax over all, x[words]. */
void pick_parts(struct ir *k, const struct pick_head *h, val *x);

#endif
