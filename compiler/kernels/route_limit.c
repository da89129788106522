/* The limit of a threshold, of one query block: mu + threshold sqrt(sigma^2 + 1e-6), mu the mean of
   its scores without their term, sigma^2 their variance (full), or what the variances of the block
   means' columns make of it (diagonal). Every sum has one order. */
#include "compiler/kernels/route.h"
#include "compiler/sm90/sync.h"

enum { COLUMNS = 2 * MAX_WORDS };

/* A lane's columns of the block means: those of its words. */
struct columns {
  val x[COLUMNS];
};

static int columns_of(const struct route *a) {
  return 2 * words_per_lane(a);
}

/* Its place in rows of 32 columns lanes. */
static val partial(struct ir *k, const struct route *a, val warp, int column) {
  val lane = add(k, mul_const(k, warp, 32 * columns_of(a)), a->lanes.lane);
  return at(k, k->smem, mul_const(k, add_const(k, lane, 32 * column), F32));
}

/* Sum over all warps, in their order. */
static struct columns add_warps(struct ir *k, const struct route *a, const struct columns *mine) {
  struct columns sum;
  for (int c = 0; c < columns_of(a); c++) {
    store(k, mine->x[c], partial(k, a, a->lanes.warp, c), F32);
  }
  cta_sync(k);
  for (int c = 0; c < columns_of(a); c++) {
    struct var total = var_init(k, f32(k, 0));
    FOR (k, warp, i32(k, 0), i32(k, WARPS)) {
      set(k, total, add(k, get(k, total), load(k, k->f32, partial(k, a, warp, c), F32)));
    }
    sum.x[c] = get(k, total);
  }
  cta_sync(k);
  return sum;
}

/* Mean over the blocks of x - center, or of its square. */
static struct columns column_mean(struct ir *k, const struct route *a, const struct columns *center,
                                  bool squared) {
  struct var sum[COLUMNS];
  for (int c = 0; c < columns_of(a); c++) {
    sum[c] = var_init(k, f32(k, 0));
  }
  FOR_STEP(k, j, a->lanes.warp, a->k_blocks, i32(k, WARPS)) {
    val index = add(k, mul(k, a->kv_head, a->k_stride), j);
    val row = at_row(k, ARG(k_mean), index, i32(k, a->plan->head_dim * HALF));
    struct words mean = words_load(k, a, row);
    for (int c = 0; c < columns_of(a); c++) {
      val x = c % 2 ? half_hi(k, mean.word[c / 2]) : half_lo(k, mean.word[c / 2]);
      val off = squared ? sub(k, x, center->x[c]) : x;
      set(k, sum[c], squared ? fused(k, off, off, get(k, sum[c])) : add(k, get(k, sum[c]), off));
    }
  }
  struct columns mine;
  for (int c = 0; c < columns_of(a); c++) {
    mine.x[c] = get(k, sum[c]);
  }
  struct columns total = add_warps(k, a, &mine);
  val inverse = reciprocal_approx(k, to_float(k, a->k_blocks));
  for (int c = 0; c < columns_of(a); c++) {
    total.x[c] = mul(k, total.x[c], inverse);
  }
  return total;
}

val limit_diagonal(struct ir *k, const struct route *a, const struct words *query) {
  struct columns mean = column_mean(k, a, NULL, false);
  struct columns variance = column_mean(k, a, &mean, true);
  val sum = f32(k, 0);
  for (int c = 0; c < columns_of(a); c++) {
    val q = c % 2 ? half_hi(k, query->word[c / 2]) : half_lo(k, query->word[c / 2]);
    val scaled = mul(k, q, ARG(scale));
    val word = add_const(k, a->lanes.lane, c / 2 * 32);
    val own = is_lt(k, word, i32(k, a->plan->head_dim / 2));
    sum = choose(k, own, fused(k, mul(k, scaled, scaled), variance.x[c], sum), sum);
  }
  return warp_sum(k, sum);
}

/* Mean over a row of x - center, or of its square. */
static val row_mean(struct ir *k, const struct route *a, val row, val center, bool squared) {
  struct var sum = var_init(k, f32(k, 0));
  FOR_STEP(k, j, a->lanes.lane, a->k_blocks, i32(k, 32)) {
    val x = load(k, k->f32, at(k, row, mul_const(k, j, F32)), F32);
    val off = squared ? sub(k, x, center) : x;
    set(k, sum, squared ? fused(k, off, off, get(k, sum)) : add(k, get(k, sum), off));
  }
  return mul(k, warp_sum(k, get(k, sum)), reciprocal_approx(k, to_float(k, a->k_blocks)));
}

val limit_of_row(struct ir *k, const struct route *a, val row, val variance) {
  val mean = row_mean(k, a, row, (val){0}, false);
  val spread = is_null(variance) ? row_mean(k, a, row, mean, true) : variance;
  val sigma = sqrt_approx(k, add(k, spread, f32(k, 1e-6)));
  return fused(k, ARG(threshold), sigma, mean);
}
