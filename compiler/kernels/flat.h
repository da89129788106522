/* flat.h: what the files of the kernel flat share.

   A warp has a unit of queries of one sequence and key head, whose rows fill one A operand of 16
   rows (two where G > 16): row i is head i mod Gp of query i / Gp, Gp the power of two from G on;
   rows of heads that do not exist repeat the last one and count for nothing. Where scores are
   linear and heads add up (mean, sum) a row is a whole query, the sum of its heads: Gp = 1.

   The warp walks the visible leaves in steps of 32. Scores of a step are keys in shared memory,
   unsigned integers that sort like scores; of each query those above the worst of its K best so far
   replace it, best first. Warps share nothing. Scores are in log2 units. */
#ifndef PISA_KERNELS_FLAT_H
#define PISA_KERNELS_FLAT_H

#include "compiler/ir/ir.h"
#include "compiler/kernels/sequence.h"
#include "compiler/plan/plan.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/mma.h"
#include "runtime/abi.def"

#define FLAT_ARG(name) (k->arg[PISA_FLAT_##name])
#define FLAT_LN2 0.69314718055994530942

enum {
  FLAT_STEP = 32,                          /* leaves */
  FLAT_GROUPS = FLAT_STEP / MMA_COLUMNS,   /* products */
  FLAT_KEY_BYTES = PISA_FLAT_KEY_WORDS * 4 /* of a query's keys of a step */
};
/* Keys outside the order of the scores, of which -inf has the least, 0x007FFFFF, and +inf the
   greatest, 0xFF800000. */
enum { FLAT_ABSENT = 0, FLAT_FORCED = -2, FLAT_NEVER_WORST = -1 };

struct flat_row { /* the query of the lane's rows r; of both where Gp > 8 */
  val token;      /* t */
  val own;        /* its own leaf; far below 0 where t < 0 */
  val visible;    /* leaves it sees */
  val readable;   /* keys it may read: those before */
};

struct flat {
  const struct plan_pyramid *plan;
  bool folded;
  int heads;   /* Gp */
  int tiles;   /* A operands: 1 or 2 */
  int queries; /* of a unit */
  struct lanes lanes;
  val smem;   /* of this warp */
  val start;  /* the first leaf it scans, and how far its steps are apart */
  int stride; /* a multiple of FLAT_STEP */
  val totals; /* where warps add up what they scan: see flat_decode.c; null: none does */
  struct sequence_array keys;

  /* of the unit at hand */
  val kv_head;
  struct sequence s;
  val first, count; /* query numbers */
  val visible;      /* leaves that the last one sees */
  val means;        /* pointer to the mean of leaf 0 */
  val forced_first[PLAN_MAX_ALWAYS], forced_count[PLAN_MAX_ALWAYS]; /* leaves of |always| */
  struct flat_row row[FRAG_ROWS];
  val exists[2][FRAG_ROWS]; /* tile, r: whether its head does */
  struct mma_rows q[2];     /* of tiles; of a folded query its high and its low part */
  val unit;                 /* f32: a product times this is a score */
  struct var match[2][2];   /* leaf whose score |special| takes the place of; own, previous */
  struct var special[2][2][FRAG_ROWS]; /* own or previous, tile, r */
};

/* Scores of eight leaves, one product each: tile, r, q. */
struct flat_scores {
  val s[2][FRAG_ROWS][2];
};

static inline int flat_query_rows(const struct flat *a) { /* of a lane: entries of |row| */
  return a->heads > 8 ? 1 : FRAG_ROWS;
}
static inline const struct flat_row *flat_row_of(const struct flat *a, int r) {
  return &a->row[a->heads > 8 ? 0 : r];
}
static inline int flat_row_id(const struct flat *a, int r) {
  return a->heads > 8 ? 0 : r;
}
/* Whether leaf |leaf| is kept unranked by its own or the previous leaf's name; by |always|. */
val flat_is_near(struct ir *k, const struct flat *a, const struct flat_row *row, val leaf);
val flat_is_always(struct ir *k, const struct flat *a, val leaf);
/* Tokens of a leaf, as a float's log2. */
val flat_log_count(struct ir *k, const struct flat *a, val leaf);

/* ---- flat.c ---- */

/* Each warp has a unit's room of shared memory. */
struct flat flat_new(struct ir *k, const struct plan_pyramid *plan);
/* Scores what the unit sees, and keeps the best. */
void flat_score(struct ir *k, struct flat *a);

/* ---- flat_decode.c ---- */

enum { FLAT_TOTAL_ROWS = 32 }; /* tile, r, t / 4 */

/* |max|, |sum|, of one row and alike in the quad: those of all warps of the CTA. */
void flat_join_totals(struct ir *k, const struct flat *a, int tile, int r, val *max, val *sum);
/* Decode where all leaves are candidates: warps share a query's leaves. */
void flat_decode(struct ir *k, const struct plan_pyramid *plan, val query, val kv_head);

/* ---- flat_query.c: who a unit's rows are ---- */

/* |first|, |end|: query numbers; a->count as many of them as |first|'s sequence has. */
void flat_unit(struct ir *k, struct flat *a, val first, val end);
void flat_load(struct ir *k, struct flat *a);

/* ---- flat_leaf.c: one leaf by its keys ---- */

struct flat_leaf { /* tile, r; alike in the quad. nan where a logit is */
  val lse[2][FRAG_ROWS];
  val mean[2][FRAG_ROWS], variance[2][FRAG_ROWS];
  val log_count[FRAG_ROWS]; /* log2 of the keys that count */
};
/* Of the readable keys of leaf |leaf|, 0 .. visible - 1; of none: lse -inf, mean nan. */
struct flat_leaf flat_leaf_read(struct ir *k, const struct flat *a, val leaf, bool moments);
/* Scores that the means of leaves do not give. */
bool flat_has_special(const struct flat *a);
void flat_specials(struct ir *k, struct flat *a);

/* ---- flat_score.c ---- */

/* Of leaves [first, first + 8), heads apart, plus |shift| (tile, r; null vals: 0). |plain|: none of
   them is special, or not full, or unseen. */
struct flat_scores flat_scores_of(struct ir *k, const struct flat *a, val first, bool plain,
                                  val shift[2][FRAG_ROWS]);
/* Leaves that are plain to all rows of the unit: those before this. */
val flat_plain_end(struct ir *k, const struct flat *a);
/* With mass: minus the log2 of what all leaves' scores sum up to. */
void flat_normalise(struct ir *k, const struct flat *a, val shift[2][FRAG_ROWS]);
/* Worth of the lane's queries, entries of a->row, for its two columns. */
void flat_reduce(struct ir *k, const struct flat *a, const struct flat_scores *x,
                 val worth[FRAG_ROWS][2]);

/* ---- flat_best.c: the K best so far ---- */

void flat_best_clear(struct ir *k, const struct flat *a);
/* The scan of all leaves, |shift| as flat_scores_of has it. */
void flat_scan(struct ir *k, const struct flat *a, val shift[2][FRAG_ROWS]);
/* The list of query 0 that another warp has at |smem| into this warp's. */
void flat_best_merge(struct ir *k, const struct flat *a, val smem);
/* ids and worth of the unit's queries. */
void flat_write(struct ir *k, const struct flat *a);

#endif
