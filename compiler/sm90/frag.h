/* clang-format off: drawings
   frag.h: matrices spread over the registers of a warpgroup (128 threads: warp w, lane t), and what
   is done to them.

   Accumulator: 64 rows x C columns of f32, C/2 registers a thread. Register i = 4 j + 2 r + q holds

       row     16 w + t / 4 + 8 r       r = 0, 1: a thread has two rows, C/4 values of each
       column  8 j + 2 (t mod 4) + q    q = 0, 1: the quad of lanes with one t / 4 shares its rows

                  columns 8 j ... 8 j + 7              lane t holds, of every j:
       row  0     t0 t0  t1 t1  t2 t2  t3 t3               r = 0: its row in 0..7
       row  1     t4 t4  t5 t5  t6 t6  t7 t7               r = 1: the row 8 below
        ...                                                q = 0, 1: the two neighbours
       row  7     t28 .. t29 .. t30 .. t31 ..
       row  8     t0 t0  t1 t1  ...  (r = 1)

   A operand: 64 rows x C columns of half, C/4 registers a thread, each a pair of neighbouring
   columns. Register 4 s + z of k step s, which has columns 16 s ... 16 s + 15:

                     left 8 columns    right 8 columns
       row of r = 0      z = 0             z = 2
       row of r = 1      z = 1             z = 3

   So accumulator registers (2 i, 2 i + 1) rounded to half are exactly A register i: there is no
   shuffle between p and p v.

   A rowvec is one f32 per row of the thread: two.
   clang-format on */
#ifndef PISA_SM90_FRAG_H
#define PISA_SM90_FRAG_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"
#include "compiler/sm90/tile.h"

enum { FRAG_ROWS = 2, FRAG_MAX = 64, FRAG_A_MAX = 32 };

struct frag {
  int columns;
  struct var r[FRAG_MAX];
};
struct frag_a {
  int columns;
  struct var r[FRAG_A_MAX];
};
struct rowvec {
  struct var r[FRAG_ROWS];
};
struct rowval { /* the same as values of this moment */
  val r[FRAG_ROWS];
};

struct frag frag_new(struct ir *k, int columns);
struct frag_a frag_a_new(struct ir *k, int columns);
/* Columns [first, first + columns) as a fragment of its own: the same registers. */
struct frag frag_columns(const struct frag *f, int first, int columns);
struct frag_a frag_a_columns(const struct frag_a *a, int first, int columns);
struct rowvec rowvec_new(struct ir *k);
void frag_clear(struct ir *k, const struct frag *f);
void frag_a_copy(struct ir *k, const struct frag_a *to, const struct frag_a *from);
struct rowval rowvec_get(struct ir *k, const struct rowvec *v);
void rowvec_set(struct ir *k, const struct rowvec *v, struct rowval x);
void rowvec_fill(struct ir *k, const struct rowvec *v, val x);

static inline int frag_row_of(int i) {
  return (i >> 1) & 1; /* r of accumulator register i */
}
static inline int frag_column_of(int i) {
  return 8 * (i >> 2) + (i & 1); /* column of register i, less the lane's 2 (t mod 4) */
}
val frag_lane_column(struct ir *k, const struct lanes *lanes); /* 2 (t mod 4) */
val frag_lane_row(struct ir *k,
                  const struct lanes *lanes); /* 16 w + t / 4, w = warp in its warpgroup */

void frag_scale_rows(struct ir *k, const struct frag *f, struct rowval x); /* f[row, :] *= x[row] */
struct rowval frag_row_max(struct ir *k,
                           const struct frag *f); /* over the whole row (quad-reduced) */
/* f = 2^(c f + offset[row]), exponents at most 0 up to rounding; returns this thread's part of the
   row sums (not quad-reduced). The exp2 unit takes a quarter of the values that the FMA units can
   in the same time: so many |polynomials| of every 8 registers, 0 to 4, are theirs, to 9e-5
   relative (p is rounded to 2^-9 or 2^-11 anyway). Below 2^-126 these are smaller or 0. */
struct rowval frag_exp2(struct ir *k, const struct frag *f, val c, struct rowval offset,
                        int polynomials);
/* f = to half pairs, as the A operand. */
void frag_to_a(struct ir *k, const struct frag_a *a, const struct frag *f);

void frag_add(struct ir *k, const struct frag *f, const struct frag *g);      /* f += g */
void frag_subtract(struct ir *k, const struct frag *f, const struct frag *g); /* f -= g */
/* f -= x row^T, the row taken from |columns| of f's shape: f[r, c] -= x[r] * columns[r, c]. */
void frag_subtract_outer(struct ir *k, const struct frag *f, struct rowval x,
                         const struct frag *columns);
val frag_square_sum(struct ir *k, const struct frag *f); /* this thread's part of sum of f^2 */
/* One value a row, of a fragment whose columns are all equal. */
struct rowval frag_any_column(struct ir *k, const struct frag *f);
struct rowval rowval_scale(struct ir *k, struct rowval x, val factor);
val rowval_warp_sum(struct ir *k, struct rowval x); /* over the 16 rows of a warp */

/* X^T of a tile X is an A operand, its rows the 64 columns of X in |panel|. A value a row: the sum
   of its squares in f32, alike in the quad. */
struct rowval tile_column_squares(struct ir *k, const struct tile *tile, val panel,
                                  const struct lanes *lanes);

/* To global memory, |row_0| pointing to the warpgroup's row 0. f as f32, the 16 C of a warp's
   rows in the order of registers, so that it writes 512 bytes at once: register i of lane t is
   element 128 (i / 4) + 4 t + i mod 4 of them. x as one half a row. */
void frag_store_f32(struct ir *k, const struct frag *f, val row_0, const struct lanes *lanes);
/* f += what frag_store_f32 has written there. */
void frag_add_f32(struct ir *k, const struct frag *f, val row_0, const struct lanes *lanes);
void rowval_store_half(struct ir *k, struct rowval x, val row_0, const struct lanes *lanes);

/* A operand <-> a 64-row shared tile. */
void frag_a_load(struct ir *k, const struct frag_a *a, const struct tile *tile,
                 const struct lanes *lanes);
void frag_a_square(struct ir *k, const struct frag_a *a, double factor); /* factor x^2, rounded */
void frag_a_scale_rows(struct ir *k, const struct frag_a *a, struct rowval x);
/* Rounds f, its rows scaled by x, to half into a 64-row tile. fence_async_proxy and group_sync
   before the copy engine reads it. */
void frag_store_scaled(struct ir *k, const struct frag *f, struct rowval x, const struct tile *tile,
                       const struct lanes *lanes);

/* A column mask of C <= 128 bits as C/32 words, seen by this lane: word w has been shifted right by
   the lane's 2 (t mod 4), so that bit 8 (j mod 4) + q of word j / 4 is column 8 j + 2 (t mod 4) +
   q. */
struct column_mask {
  val word[4];
};
struct column_mask column_mask_new(struct ir *k, int n, const val *words,
                                   const struct lanes *lanes);
/* f[:, column] = -inf where the mask has a 1, else += bias; |short_column| (a frag column less the
   lane's, or null): that column gets |short_bias| instead. */
struct mask_bias {
  val bias;
  val short_column, short_bias; /* null vals: no such column */
};
void frag_mask_columns(struct ir *k, const struct frag *f, const struct column_mask *mask,
                       const struct mask_bias *bias);
/* f[row r, column] = -inf from column |first|.r[r] on (i32, any), less frag_lane_column. */
void frag_mask_behind(struct ir *k, const struct frag *f, struct rowval first);

#endif
