/* Where words of keys lie in an image, and its reading as an operand; see key_image.h. */
#include "compiler/sm90/key_image.h"

#include <assert.h>

enum { ATOM_BYTES = 1024, ATOM_ROWS = 8, CHUNK_BYTES = 16, PANEL_CHUNKS = 8 };

static int group_bytes(int head_dim) {
  assert(head_dim == 64 || head_dim == 128);
  return head_dim / PANEL_COLUMNS * ATOM_BYTES;
}

/* Byte offset of a chunk of the image, i32. */
static val chunk_offset(struct ir *k, val row, val chunk, int head_dim) {
  val group = mul_const(k, shift_right(k, row, i32(k, 3)), group_bytes(head_dim));
  val row_in_atom = bit_and(k, row, i32(k, ATOM_ROWS - 1));
  val panel = mul_const(k, shift_right(k, chunk, i32(k, 3)), ATOM_BYTES);
  val place = bit_xor(k, bit_and(k, chunk, i32(k, PANEL_CHUNKS - 1)), row_in_atom);
  val in_atom =
      add(k, mul_const(k, row_in_atom, PANEL_ROW_BYTES), mul_const(k, place, CHUNK_BYTES));
  return add(k, group, add(k, panel, in_atom));
}

/* x of the upper of two lanes, whose numbers differ by |distance|, and y of the lower change
 * places.
 */
static void exchange(struct ir *k, val *x, val *y, val upper, int distance,
                     const struct lanes *lanes) {
  val sent = choose(k, upper, *x, *y);
  val other = warp_read(k, sent, bit_xor(k, lanes->lane, i32(k, distance)));
  *x = choose(k, upper, other, *x);
  *y = choose(k, upper, *y, other);
}

void key_image_store(struct ir *k, val image, val row, val chunk, const val word[4], int head_dim,
                     const struct lanes *lanes) {
  val w[4] = {word[0], word[1], word[2], word[3]};
  for (int bit = 1; bit <= 2; bit *= 2) { /* a 4 x 4 transpose over the quad */
    val upper = is_ne(k, bit_and(k, lanes->lane, i32(k, bit)), i32(k, 0));
    for (int i = 0; i < 4; i++)
      if (!(i & bit))
        exchange(k, &w[i], &w[i | bit], upper, bit, lanes);
  }
  store(k, pack4(k, w), at(k, image, chunk_offset(k, row, chunk, head_dim)), CHUNK_BYTES);
}

struct operand key_image_operand(struct ir *k, val address, int first_row, int head_dim) {
  assert(first_row % ATOM_ROWS == 0);
  val first = add_const(k, address, first_row / ATOM_ROWS * group_bytes(head_dim));
  struct tile atom = tile_new(k, first, ATOM_ROWS, PANEL_COLUMNS);
  struct operand operand = tile_k_major(k, &atom);         /* the next panel is the next atom */
  const int64_t more = group_bytes(head_dim) - ATOM_BYTES; /* between groups of rows */
  operand.descriptor = add_const(k, operand.descriptor, more / CHUNK_BYTES << 32);
  return operand;
}

val key_image_chunk(struct ir *k, val row, int chunk, int head_dim) {
  return chunk_offset(k, row, i32(k, chunk), head_dim);
}
