/* Warp-level products of rows in memory; see the drawing in mma.h. */
#include "compiler/sm90/mma.h"

#include <assert.h>
#include <stdio.h>

enum { CHUNK = 32, CHUNK_WORDS = 4, LANE_BYTES = 16, CHAINS = 2 };

static val quad_lane(struct ir *k, const struct lanes *lanes) {
  return bit_and(k, lanes->lane, i32(k, 3));
}

val mma_lane_row(struct ir *k, const struct lanes *lanes) {
  return shift_right(k, lanes->lane, i32(k, 2));
}

static int words(const struct mma_row *x) {
  return x->head_dim / CHUNK * CHUNK_WORDS;
}

val mma_lane_bytes(struct ir *k, const struct lanes *lanes) {
  return mul_const(k, quad_lane(k, lanes), LANE_BYTES);
}

struct mma_row mma_row_load_apart(struct ir *k, val mine, int head_dim, int apart) {
  struct mma_row x = {.head_dim = head_dim};
  assert(head_dim % CHUNK == 0 && words(&x) <= MMA_MAX_WORDS);
  for (int c = 0; c < head_dim / CHUNK; c++) {
    val four = load(k, k->i32x4, at_const(k, mine, (int64_t)c * apart), LANE_BYTES);
    for (int i = 0; i < CHUNK_WORDS; i++) {
      x.word[CHUNK_WORDS * c + i] = element(k, four, i, k->i32);
    }
  }
  return x;
}

struct mma_row mma_row_load_mine(struct ir *k, val mine, int head_dim) {
  return mma_row_load_apart(k, mine, head_dim, CHUNK * 2);
}

struct mma_row mma_row_load(struct ir *k, val row, int head_dim, const struct lanes *lanes) {
  return mma_row_load_mine(k, at(k, row, mma_lane_bytes(k, lanes)), head_dim);
}

val mma_rows_place(struct ir *k, val row, val word) {
  val chunk = shift_right(k, word, i32(k, 4)), quad = bit_and(k, word, i32(k, 12));
  val step = add(k, mul_const(k, chunk, 2), bit_and(k, shift_right(k, word, i32(k, 1)), i32(k, 1)));
  val lane = add(k, mul_const(k, bit_and(k, row, i32(k, 7)), 4), shift_right(k, quad, i32(k, 2)));
  val part = add(k, shift_right(k, row, i32(k, 3)), mul_const(k, bit_and(k, word, i32(k, 1)), 2));
  val block = add(k, mul_const(k, step, 32), lane);
  return add(k, mul_const(k, block, LANE_BYTES), mul_const(k, part, 4));
}

struct mma_rows mma_rows_load(struct ir *k, val rows, int head_dim, const struct lanes *lanes) {
  struct mma_rows x = {.r = {{.head_dim = head_dim}, {.head_dim = head_dim}}};
  val mine = at(k, rows, mul_const(k, lanes->lane, LANE_BYTES));
  for (int w = 0; w < words(&x.r[0]); w += 2) {
    val four = load(k, k->i32x4, at_const(k, mine, w / 2 * 32 * LANE_BYTES), LANE_BYTES);
    for (int i = 0; i < 4; i++) {
      x.r[i % 2].word[w + i / 2] = element(k, four, i, k->i32);
    }
  }
  return x;
}

struct mma_row_vars mma_row_vars_new(struct ir *k, int head_dim) {
  struct mma_row_vars vars = {.head_dim = head_dim};
  for (int i = 0; i < head_dim / CHUNK * CHUNK_WORDS; i++) {
    vars.word[i] = var_new(k, k->i32);
  }
  return vars;
}

struct mma_row mma_row_vars_get(struct ir *k, const struct mma_row_vars *vars) {
  struct mma_row x = {.head_dim = vars->head_dim};
  for (int i = 0; i < words(&x); i++) {
    x.word[i] = get(k, vars->word[i]);
  }
  return x;
}

void mma_row_vars_set(struct ir *k, const struct mma_row_vars *vars, const struct mma_row *x) {
  for (int i = 0; i < words(x); i++) {
    set(k, vars->word[i], x->word[i]);
  }
}

void mma_product(struct ir *k, val c[4], const val a[4], const val b[2]) {
  const val operands[] = {a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]};
  char text[160];
  snprintf(text, sizeof text,
           "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 "
           "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
           k->half_name, k->half_name);
  ir_asm(k, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", k->f32, 4, c, 10, operands);
}

/* c += a b of one k step; words |w| and |w| + 1 of the rows are its low and high half of k. */
static void step(struct ir *k, val c[4], const struct mma_rows *a, const struct mma_row *b, int w) {
  const val rows[] = {a->r[0].word[w], a->r[1].word[w], a->r[0].word[w + 1], a->r[1].word[w + 1]};
  mma_product(k, c, rows, &b->word[w]);
}

/* Two chains of dependent products, so that one hides the latency of the other. */
struct mma_scores mma_multiply(struct ir *k, const struct mma_rows *a, const struct mma_row *b) {
  val c[CHAINS][4];
  for (int i = 0; i < 4 * CHAINS; i++) {
    c[i / 4][i % 4] = f32(k, 0);
  }
  for (int w = 0; w < words(b); w += 2) {
    step(k, c[w / 2 % CHAINS], a, b, w);
  }
  struct mma_scores out;
  for (int i = 0; i < 4; i++) {
    out.s[i / 2][i % 2] = add(k, c[0][i], c[1][i]);
  }
  return out;
}

void mma_multiply_each(struct ir *k, const struct mma_rows *a, int n, const struct mma_row *b,
                       struct mma_scores *out) {
  enum { MOST = 16 };
  val c[MOST][4];
  assert(n >= 1 && n <= MOST);
  for (int i = 0; i < 4 * n; i++) {
    c[i / 4][i % 4] = f32(k, 0);
  }
  for (int w = 0; w < words(b); w += 2) {
    for (int i = 0; i < n; i++) {
      step(k, c[i], a, &b[i], w);
    }
  }
  for (int i = 0; i < 4 * n; i++) {
    out[i / 4].s[i % 4 / 2][i % 2] = c[i / 4][i % 4];
  }
}
