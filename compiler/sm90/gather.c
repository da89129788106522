/* Loads of 16 bytes, and their words in the order of an A operand; see gather.h. */
#include "compiler/sm90/gather.h"

#include <assert.h>

enum { CHUNK_BYTES = 64, LANE_BYTES = 16, LANE_WORDS = 4 };

struct gather gather_new(struct ir *k, int head_dim) {
  struct gather g = {.head_dim = head_dim};
  assert(head_dim % 32 == 0 && head_dim / 8 <= FRAG_A_MAX / FRAG_ROWS);
  for (int r = 0; r < FRAG_ROWS; r++)
    for (int i = 0; i < head_dim / 8; i++)
      g.word[r][i] = var_init(k, i32(k, 0));
  return g;
}

val gather_lane_offset(struct ir *k, const struct lanes *lanes) {
  return mul_const(k, bit_and(k, lanes->lane, i32(k, 3)), LANE_BYTES);
}

void gather_load(struct ir *k, const struct gather *g, int r, val row) {
  for (int c = 0; c < g->head_dim * 2 / CHUNK_BYTES; c++) {
    val word[LANE_WORDS], from = at_const(k, row, c * CHUNK_BYTES);
    ir_asm(k, "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l",
           k->i32, LANE_WORDS, word, 1, &from);
    for (int i = 0; i < LANE_WORDS; i++)
      set(k, g->word[r][LANE_WORDS * c + i], word[i]);
  }
}

void gather_fragment(struct ir *k, const struct frag_a *a, const struct gather *g, val zero) {
  assert(a->columns == g->head_dim);
  for (int s = 0; s < a->columns / K_STEP; s++)
    for (int z = 0; z < 4; z++) {
      const val operands[] = {get(k, g->word[z & 1][2 * s + (z >> 1)]), zero};
      val word;
      ir_asm(k, "xor.b32 $0, $1, $2;", "=r,r,r", k->i32, 1, &word, 2, operands);
      set(k, a->r[4 * s + z], word);
    }
}

val gather_zero(struct ir *k, val aligned_pointer) {
  val bits = OP(k, "llvm.ptrtoint", k->i64, "", aligned_pointer);
  return bit_and(k, narrow(k, bits), i32(k, LANE_BYTES - 1));
}
