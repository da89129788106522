/* Products and sums of one block; see h_block.h. */
#include "compiler/kernels/h_block.h"

#include "compiler/sm90/ones.h"
#include "compiler/sm90/sync.h"
#include "compiler/sm90/wgmma.h"

enum { WARP_ROWS = 16, F32 = 4 };

struct h_block h_block_new(struct ir *k, const struct pass *p, bool forms_h) {
  val past_rows = mul_const(k, pass_consumer_warp(k, p), WARP_ROWS);
  bool whole = p->head_dim % GROUP_ROWS == 0;
  struct h_block x = {.group = add_const(k, lanes_warpgroup(k, &p->lanes), -1)};
  x.has_rows = is_lt(k, whole ? i32(k, 0) : past_rows, i32(k, p->head_dim));
  x.ones = ones_operand(k, p->ones_offset);
  for (int i = 0; i < p->inputs; i++) {
    x.column[i] = frag_new(k, ONES_COLUMNS);
  }
  if (forms_h) {
    x.v_row = ones_row_new(k, p->head_dim);
    x.h = frag_new(k, p->head_dim);
  }
  return x;
}

void h_block_multiply(struct ir *k, const struct pass *p, const struct h_block *x, struct slot slot,
                      unsigned sums, bool with_h) {
  const int steps = p->block / K_STEP;
  struct operand transposed[MAX_INPUTS];
  for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
    if (has_input(sums, i)) {
      struct tile tile = pass_tile(k, p, slot, i);
      transposed[i] = tile_mn_major_at(k, &tile, x->group);
    }
  }
  struct tile v_tile = pass_tile(k, p, slot, INPUT_V);
  struct operand v = tile_mn_major(k, &v_tile, 0);
  wgmma_fence(k);
  for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
    if (has_input(sums, i)) {
      wgmma_ss(k, &x->column[i], WGMMA_FRESH, &transposed[i], &x->ones, steps);
    }
  }
  wgmma_commit(k);
  if (with_h) {
    wgmma_ss(k, &x->h, WGMMA_FRESH, &transposed[INPUT_K], &v, steps);
    wgmma_commit(k);
  }
}

void h_block_wait_sums(struct ir *k, const struct h_block *x, unsigned sums, bool with_h) {
  for (enum input i = INPUT_K; i < MAX_INPUTS; i++) {
    if (has_input(sums, i)) {
      wgmma_wait(k, with_h ? 1 : 0, &x->column[i], 0, NULL);
    }
  }
}

/* A row belongs to its stage: it is written again only once every reader has released that. */
static val row_address(struct ir *k, const struct pass *p, struct slot slot) {
  val offset = add_const(k, mul_const(k, slot.stage, ONES_ROW_BYTES), p->ones_offset + ONES_BYTES);
  return at(k, k->smem, offset);
}

void h_block_put_row(struct ir *k, const struct pass *p, const struct h_block *x,
                     struct slot slot) {
  struct rowval sums = frag_any_column(k, &x->column[INPUT_V]);
  ones_row_put(k, row_address(k, p, slot), sums, x->group, &p->lanes);
}

void h_block_finish(struct ir *k, const struct pass *p, const struct h_block *x, struct slot slot) {
  consumers_sync(k, p->groups);
  ones_row_get(k, &x->v_row, row_address(k, p, slot), &p->lanes);
  wgmma_wait(k, 0, &x->h, 0, NULL);
}

void h_block_release(struct ir *k, const struct pass *p, struct slot slot) {
  warp_sync(k);
  ONE_THREAD (k) {
    ring_release(k, &p->ring, slot);
  }
}

struct rowval h_block_mean(struct ir *k, const struct h_block *x, enum input input, val inverse) {
  return rowval_scale(k, frag_any_column(k, &x->column[input]), inverse);
}

void h_block_centre(struct ir *k, const struct h_block *x, struct rowval k_mean) {
  frag_subtract_outer(k, &x->h, k_mean, &x->v_row);
}

void store_part(struct ir *k, const struct pass *p, val h_norm2, val index, val part) {
  const int warps = pass_consumer_warps(p);
  val parts = at_row(k, h_norm2, index, i32(k, NORM_PARTS * F32));
  ONE_THREAD (k) {
    val mine = at(k, parts, mul_const(k, pass_consumer_warp(k, p), F32));
    store(k, part, mine, F32);
    for (int i = warps; i < NORM_PARTS; i += warps) {
      store(k, f32(k, 0), at_const(k, mine, i * F32), F32);
    }
  }
}
