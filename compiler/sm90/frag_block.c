/* Means, variances and first order of the blocks in a fragment; see frag_block.h. */
#include "compiler/sm90/frag_block.h"

#include <assert.h>

struct frag_blocks frag_blocks_new(struct ir *k, int n, int columns, val present,
                                   const struct lanes *lanes) {
  assert(n <= FRAG_MAX_BLOCKS && columns % 8 == 0);
  val lane_column = frag_lane_column(k, lanes);
  struct frag_blocks blocks = {.n = n, .columns = columns, .end = sub(k, present, lane_column)};
  for (int b = 0; b < n; b++) {
    val rest = smax(k, add_const(k, present, -b * columns), i32(k, 0));
    blocks.length[b] = to_float(k, smin(k, rest, i32(k, columns)));
  }
  return blocks;
}

static int first_register(const struct frag_blocks *blocks, int b) {
  return b * blocks->columns / 2;
}

static val present(struct ir *k, const struct frag_blocks *blocks, int i) {
  return is_lt(k, i32(k, frag_column_of(i)), blocks->end);
}

static struct rowval per_column(struct ir *k, const struct frag_blocks *blocks, int b,
                                struct rowval sums) {
  val inverse = reciprocal_approx(k, blocks->length[b]);
  inverse = choose(k, is_eq(k, blocks->length[b], f32(k, 0)), f32(k, 0), inverse);
  for (int r = 0; r < FRAG_ROWS; r++) {
    sums.r[r] = mul(k, quad_sum(k, sums.r[r]), inverse);
  }
  return sums;
}

/* Sums over the present columns, in two chains a row: nothing downstream reassociates one. */
enum { CHAINS = 2 };

static struct rowval joined(struct ir *k, val chain[FRAG_ROWS][CHAINS]) {
  struct rowval sums;
  for (int r = 0; r < FRAG_ROWS; r++) {
    sums.r[r] = add(k, chain[r][0], chain[r][1]);
  }
  return sums;
}

static void clear(struct ir *k, val chain[FRAG_ROWS][CHAINS]) {
  for (int i = 0; i < FRAG_ROWS * CHAINS; i++) {
    chain[i / CHAINS][i % CHAINS] = f32(k, 0);
  }
}

struct rowval frag_block_mean(struct ir *k, const struct frag *f, const struct frag_blocks *blocks,
                              int b) {
  const int first = first_register(blocks, b), end = first_register(blocks, b + 1);
  val chain[FRAG_ROWS][CHAINS];
  clear(k, chain);
  for (int i = first; i < end; i++) {
    val x = choose(k, present(k, blocks, i), get(k, f->r[i]), f32(k, 0));
    val *sum = &chain[frag_row_of(i)][i & 1];
    *sum = add(k, *sum, x);
  }
  return per_column(k, blocks, b, joined(k, chain));
}

struct rowval frag_block_variance(struct ir *k, const struct frag *f,
                                  const struct frag_blocks *blocks, int b, struct rowval mean) {
  const int first = first_register(blocks, b), end = first_register(blocks, b + 1);
  val chain[FRAG_ROWS][CHAINS];
  clear(k, chain);
  for (int i = first; i < end; i++) {
    val x = sub(k, get(k, f->r[i]), mean.r[frag_row_of(i)]);
    x = choose(k, present(k, blocks, i), x, f32(k, 0));
    val *sum = &chain[frag_row_of(i)][i & 1];
    *sum = fused(k, x, x, *sum);
  }
  return per_column(k, blocks, b, joined(k, chain));
}

void frag_block_affine(struct ir *k, const struct frag *f, const struct frag_blocks *blocks, int b,
                       struct rowval factor, struct rowval offset) {
  for (int i = first_register(blocks, b); i < first_register(blocks, b + 1); i++) {
    const int r = frag_row_of(i);
    val y = fused(k, get(k, f->r[i]), factor.r[r], offset.r[r]);
    set(k, f->r[i], choose(k, present(k, blocks, i), y, f32(k, 0)));
  }
}
