/* mma_values.c: in go pointers to rows of values and weights of rows; out come their weighted sums.
   The layout is drawn in mma_values.h. */
#include "compiler/sm90/mma_values.h"

#include <assert.h>

enum { WIDE = 64, TILES_OF_WIDE = 8, PIECE = 8, LANE_BYTES = 16, NARROW_BYTES = 8 };
enum { LOW_HALVES = 0x5410, HIGH_HALVES = 0x7632 }; /* of two words, the first one's below */

static int words(int head_dim) {
  return head_dim / 16;
}

static val group_lane(struct ir *k, const struct lanes *lanes) {
  return shift_right(k, lanes->lane, i32(k, 2));
}

static val quad_lane(struct ir *k, const struct lanes *lanes) {
  return bit_and(k, lanes->lane, i32(k, 3));
}

struct mma_values mma_values_new(struct ir *k, int head_dim) {
  assert(head_dim % 32 == 0 && head_dim >= WIDE && words(head_dim) <= VALUES_MAX_WORDS);
  struct mma_values v = {.head_dim = head_dim};
  for (int i = 0; i < VALUES_LANE_ROWS; i++)
    for (int w = 0; w < words(head_dim); w++)
      v.word[i][w] = var_new(k, k->i32);
  return v;
}

val mma_values_row(struct ir *k, const struct lanes *lanes, int i) {
  return add_const(k, mul_const(k, quad_lane(k, lanes), 2), i % 2 + i / 2 * 8);
}

val mma_values_lane_bytes(struct ir *k, const struct lanes *lanes) {
  return mul_const(k, group_lane(k, lanes), LANE_BYTES);
}

void mma_values_load(struct ir *k, const struct mma_values *v, int i, val mine,
                     const struct lanes *lanes) {
  int w = 0;
  for (; w + 4 <= words(v->head_dim); w += 4) {
    val four = load(k, k->i32x4, at_const(k, mine, w / 4 * WIDE * 2), LANE_BYTES);
    for (int z = 0; z < 4; z++)
      set(k, v->word[i][w + z], element(k, four, z, k->i32));
  }
  if (w < words(v->head_dim)) {
    val back = mul_const(k, group_lane(k, lanes), NARROW_BYTES - LANE_BYTES);
    val place = at_const(k, at(k, mine, back), WIDE * 2);
    val two = load(k, ir_type(k, "vector<2xi32>"), place, NARROW_BYTES);
    for (int z = 0; z < 2; z++)
      set(k, v->word[i][w + z], element(k, two, z, k->i32));
  }
}

struct mma_sums mma_sums_new(struct ir *k, int head_dim) {
  struct mma_sums o = {.head_dim = head_dim};
  assert(head_dim / 8 <= VALUES_MAX_TILES);
  for (int tile = 0; tile < head_dim / 8; tile++)
    for (int i = 0; i < 2 * FRAG_ROWS; i++)
      o.r[tile][i / 2][i % 2] = var_init(k, f32(k, 0));
  return o;
}

/* Halves of two rows' words as a pair of rows: one of two adjacent columns. */
static val pair_of(struct ir *k, const struct mma_values *v, int first, int word, int column) {
  val lo = get(k, v->word[first][word]), hi = get(k, v->word[first + 1][word]);
  val selector = i32(k, column ? HIGH_HALVES : LOW_HALVES);
  return OP(k, "nvvm.prmt", k->i32, "mode = #nvvm.permute_mode<default>", lo, hi, selector);
}

void mma_sums_add(struct ir *k, const struct mma_sums *o, const val p[4],
                  const struct mma_values *v) {
  assert(o->head_dim == v->head_dim);
  for (int tile = 0; tile < o->head_dim / 8; tile++) {
    val b[2], c[4];
    for (int half = 0; half < 2; half++)
      b[half] = pair_of(k, v, 2 * half, tile / 2, tile % 2);
    for (int i = 0; i < 4; i++)
      c[i] = get(k, o->r[tile][i / 2][i % 2]);
    mma_product(k, c, p, b);
    for (int i = 0; i < 4; i++)
      set(k, o->r[tile][i / 2][i % 2], c[i]);
  }
}

void mma_sums_scale(struct ir *k, const struct mma_sums *o, int r, val factor) {
  for (int tile = 0; tile < o->head_dim / 8; tile++)
    for (int q = 0; q < 2; q++)
      set(k, o->r[tile][r][q], mul(k, get(k, o->r[tile][r][q]), factor));
}

static bool is_wide(const struct mma_sums *o, int piece) {
  return (piece / 2 + 1) * WIDE <= o->head_dim;
}

val mma_sums_column(struct ir *k, const struct mma_sums *o, int piece, const struct lanes *lanes) {
  const int wide = is_wide(o, piece);
  val mine = mul_const(k, quad_lane(k, lanes), wide ? 2 * PIECE : PIECE);
  return add_const(k, mine, piece / 2 * WIDE + piece % 2 * PIECE);
}

void mma_sums_piece(struct ir *k, const struct mma_sums *o, int r, int piece, val x[8]) {
  const int first = piece / 2 * TILES_OF_WIDE;
  for (int j = 0; j < PIECE; j++)
    x[j] = is_wide(o, piece) ? get(k, o->r[first + j][r][piece % 2])
                             : get(k, o->r[first + j % 4][r][j / 4]);
}
