/* What is done to matrices in registers; the layouts are drawn in frag.h. */
#include "compiler/sm90/frag.h"

#include <assert.h>
#include <math.h>

enum { VECTOR = 4, VECTOR_BYTES = 16 }; /* values of one memory access */

static int registers(const struct frag *f) {
  return f->columns / 2;
}

static int registers_a(const struct frag_a *a) {
  return a->columns / 4;
}

struct frag frag_new(struct ir *k, int columns) {
  struct frag f = {.columns = columns};
  assert(columns % 8 == 0 && registers(&f) <= FRAG_MAX);
  for (int i = 0; i < registers(&f); i++) {
    f.r[i] = var_new(k, k->f32);
  }
  return f;
}

struct frag_a frag_a_new(struct ir *k, int columns) {
  struct frag_a a = {.columns = columns};
  assert(columns % K_STEP == 0 && registers_a(&a) <= FRAG_A_MAX);
  for (int i = 0; i < registers_a(&a); i++) {
    a.r[i] = var_new(k, k->i32);
  }
  return a;
}

struct frag frag_columns(const struct frag *f, int first, int columns) {
  struct frag part = {.columns = columns};
  assert(first % 8 == 0 && columns % 8 == 0 && first + columns <= f->columns);
  for (int i = 0; i < registers(&part); i++) {
    part.r[i] = f->r[first / 2 + i];
  }
  return part;
}

struct frag_a frag_a_columns(const struct frag_a *a, int first, int columns) {
  struct frag_a part = {.columns = columns};
  assert(first % K_STEP == 0 && columns % K_STEP == 0 && first + columns <= a->columns);
  for (int i = 0; i < registers_a(&part); i++) {
    part.r[i] = a->r[first / 4 + i];
  }
  return part;
}

struct rowvec rowvec_new(struct ir *k) {
  return (struct rowvec){{var_new(k, k->f32), var_new(k, k->f32)}};
}

void frag_clear(struct ir *k, const struct frag *f) {
  for (int i = 0; i < registers(f); i++) {
    set(k, f->r[i], f32(k, 0));
  }
}

void frag_a_copy(struct ir *k, const struct frag_a *to, const struct frag_a *from) {
  assert(to->columns == from->columns);
  for (int i = 0; i < registers_a(to); i++) {
    set(k, to->r[i], get(k, from->r[i]));
  }
}

struct rowval rowvec_get(struct ir *k, const struct rowvec *v) {
  return (struct rowval){{get(k, v->r[0]), get(k, v->r[1])}};
}

void rowvec_set(struct ir *k, const struct rowvec *v, struct rowval x) {
  for (int r = 0; r < FRAG_ROWS; r++) {
    set(k, v->r[r], x.r[r]);
  }
}

void rowvec_fill(struct ir *k, const struct rowvec *v, val x) {
  rowvec_set(k, v, (struct rowval){{x, x}});
}

val frag_lane_column(struct ir *k, const struct lanes *lanes) {
  return mul_const(k, bit_and(k, lanes->lane, i32(k, 3)), 2);
}

val frag_lane_row(struct ir *k, const struct lanes *lanes) {
  val warp = bit_and(k, lanes->warp, i32(k, 3));
  return add(k, mul_const(k, warp, 16), shift_right(k, lanes->lane, i32(k, 2)));
}

void frag_scale_rows(struct ir *k, const struct frag *f, struct rowval x) {
  for (int i = 0; i < registers(f); i++) {
    set(k, f->r[i], mul(k, get(k, f->r[i]), x.r[frag_row_of(i)]));
  }
}

void frag_add(struct ir *k, const struct frag *f, const struct frag *g) {
  assert(f->columns == g->columns);
  for (int i = 0; i < registers(f); i++) {
    set(k, f->r[i], add(k, get(k, f->r[i]), get(k, g->r[i])));
  }
}

void frag_subtract(struct ir *k, const struct frag *f, const struct frag *g) {
  assert(f->columns == g->columns);
  for (int i = 0; i < registers(f); i++) {
    val minuend = get(k, f->r[i]);
    set(k, f->r[i], sub(k, minuend, get(k, g->r[i])));
  }
}

void frag_subtract_outer(struct ir *k, const struct frag *f, struct rowval x,
                         const struct frag *columns) {
  assert(f->columns == columns->columns);
  struct rowval minus = {{negate(k, x.r[0]), negate(k, x.r[1])}};
  for (int i = 0; i < registers(f); i++) {
    val product = get(k, columns->r[i]);
    set(k, f->r[i], fused(k, minus.r[frag_row_of(i)], product, get(k, f->r[i])));
  }
}

struct rowval frag_any_column(struct ir *k, const struct frag *f) {
  return (struct rowval){{get(k, f->r[0]), get(k, f->r[2])}};
}

struct rowval rowval_scale(struct ir *k, struct rowval x, val factor) {
  return (struct rowval){{mul(k, x.r[0], factor), mul(k, x.r[1], factor)}};
}

val rowval_warp_sum(struct ir *k, struct rowval x) {
  return quads_sum(k, add(k, x.r[0], x.r[1]));
}

/* Four chains per row: nothing downstream reassociates a 64-long one. */
enum { CHAINS = 4 };

static int chain_of(int i) {
  return 2 * ((i >> 2) & 1) + (i & 1);
}

static val combine(struct ir *k, const val chain[CHAINS], val (*op)(struct ir *, val, val)) {
  return op(k, op(k, chain[0], chain[1]), op(k, chain[2], chain[3]));
}

static void feed(struct ir *k, val chain[CHAINS], int i, val x, val (*op)(struct ir *, val, val)) {
  val *slot = &chain[chain_of(i)];
  *slot = is_null(*slot) ? x : op(k, *slot, x);
}

struct rowval frag_row_max(struct ir *k, const struct frag *f) {
  assert(f->columns >= 16);
  val chain[FRAG_ROWS][CHAINS] = {0};
  for (int i = 0; i < registers(f); i++) {
    feed(k, chain[frag_row_of(i)], i, get(k, f->r[i]), maximum);
  }
  return (struct rowval){
      {quad_max(k, combine(k, chain[0], maximum)), quad_max(k, combine(k, chain[1], maximum))}};
}

/* 2^x from y = (x + 127) / 127 in [0, 1], to which the multiplication before has clamped it: with n
   = floor x and f = x - n, 2^f is a polynomial and n is added to its exponent bits. The constant
   1.5 * 2^23 leaves n in the low bits of a sum; 1 + f (...) is exact at f = 0, so that x = 0 gives
   1 and x = -127 gives 0. Minimax of the relative error: 8.6e-5. */
static val exp2_polynomial(struct ir *k, val y) {
  const double magic = 12582912 - 127;
  val range = f32(k, 127), n = fused_down(k, y, range, f32(k, magic));
  val fraction = fused(k, y, range, sub(k, f32(k, magic), n));
  val p = fused(k, fraction, f32(k, 0.0770670473575592), f32(k, 0.22764499485492706));
  p = fused(k, fraction, p, f32(k, 0.6951167583465576));
  p = fused(k, fraction, p, f32(k, 1));
  return float_of(k, add(k, shift_left(k, bits_of(k, n), i32(k, 23)), bits_of(k, p)));
}

/* Whether register i is one of |polynomials| of its 8: rows and chains in turn. */
enum { MAX_POLYNOMIALS = 4 };
static bool is_polynomial(int i, int polynomials) {
  static const int order[MAX_POLYNOMIALS] = {0, 6, 3, 5};
  for (int n = 0; n < polynomials; n++) {
    if (i % 8 == order[n]) {
      return true;
    }
  }
  return false;
}

struct rowval frag_exp2(struct ir *k, const struct frag *f, val c, struct rowval offset,
                        int polynomials) {
  assert(f->columns >= 16 && 0 <= polynomials && polynomials <= MAX_POLYNOMIALS);
  val chain[FRAG_ROWS][CHAINS] = {0};
  val part = f32(k, 1.0 / 127), c_part = {0};
  struct rowval offset_part = {0};
  if (polynomials > 0) {
    c_part = mul(k, c, part);
    for (int r = 0; r < FRAG_ROWS; r++) {
      offset_part.r[r] = fused(k, offset.r[r], part, f32(k, 1));
    }
  }
  for (int i = 0; i < registers(f); i++) {
    int r = frag_row_of(i);
    val s = get(k, f->r[i]);
    val x = is_polynomial(i, polynomials)
                ? exp2_polynomial(k, fused_saturated(k, s, c_part, offset_part.r[r]))
                : exp2_approx(k, fused(k, s, c, offset.r[r]));
    set(k, f->r[i], x);
    feed(k, chain[r], i, x, add);
  }
  return (struct rowval){{combine(k, chain[0], add), combine(k, chain[1], add)}};
}

val frag_square_sum(struct ir *k, const struct frag *f) {
  val chain[CHAINS] = {0};
  for (int i = 0; i < registers(f); i++) {
    val x = get(k, f->r[i]), *sum = &chain[chain_of(i)];
    *sum = is_null(*sum) ? mul(k, x, x) : fused(k, x, x, *sum);
  }
  return combine(k, chain, add);
}

/* Four chains again: register z is row z & 1, and has two neighbours in k. */
struct rowval tile_column_squares(struct ir *k, const struct tile *tile, val panel,
                                  const struct lanes *lanes) {
  val first = tile_transposed_lane_address(k, tile, panel, lanes), chain[CHAINS];
  for (int z = 0; z < CHAINS; z++) {
    chain[z] = f32(k, 0);
  }
  for (int s = 0; s < tile->rows / K_STEP; s++) {
    val address = add_const(k, first, s * K_STEP * PANEL_ROW_BYTES), x[CHAINS];
    ir_asm(k, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];",
           "=r,=r,=r,=r,r,~{memory}", k->i32, CHAINS, x, 1, &address);
    for (int z = 0; z < CHAINS; z++) {
      val lo = half_lo(k, x[z]), hi = half_hi(k, x[z]);
      chain[z] = fused(k, hi, hi, fused(k, lo, lo, chain[z]));
    }
  }
  return (struct rowval){
      {quad_sum(k, add(k, chain[0], chain[2])), quad_sum(k, add(k, chain[1], chain[3]))}};
}

void frag_to_a(struct ir *k, const struct frag_a *a, const struct frag *f) {
  assert(a->columns == f->columns);
  for (int i = 0; i < registers_a(a); i++) {
    set(k, a->r[i], pack_half(k, get(k, f->r[2 * i]), get(k, f->r[2 * i + 1])));
  }
}

void frag_a_load(struct ir *k, const struct frag_a *a, const struct tile *tile,
                 const struct lanes *lanes) {
  assert(tile->rows == 64 && tile->columns == tile_columns(a->columns));
  struct tile_lane lane = tile_lane_new(k, tile, lanes);
  for (int s = 0; s < a->columns / K_STEP; s++) {
    val address = tile_lane_address(k, &lane, s), x[4];
    ir_asm(k, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
           "=r,=r,=r,=r,r,~{memory}", k->i32, 4, x, 1, &address);
    for (int z = 0; z < 4; z++) {
      set(k, a->r[4 * s + z], x[z]);
    }
  }
}

void frag_a_square(struct ir *k, const struct frag_a *a, double factor) {
  for (int i = 0; i < registers_a(a); i++) {
    val pair = get(k, a->r[i]), x[2] = {half_lo(k, pair), half_hi(k, pair)};
    for (int q = 0; q < 2; q++) {
      x[q] = mul(k, x[q], x[q]);
      x[q] = factor == 1 ? x[q] : mul(k, x[q], f32(k, factor));
    }
    set(k, a->r[i], pack_half(k, x[0], x[1]));
  }
}

void frag_a_scale_rows(struct ir *k, const struct frag_a *a, struct rowval x) {
  for (int i = 0; i < registers_a(a); i++) {
    val pair = get(k, a->r[i]), scale = x.r[i & 1];
    set(k, a->r[i], pack_half(k, mul(k, half_lo(k, pair), scale), mul(k, half_hi(k, pair), scale)));
  }
}

void frag_store_scaled(struct ir *k, const struct frag *f, struct rowval x, const struct tile *tile,
                       const struct lanes *lanes) {
  assert(tile->rows == 64 && tile->columns == tile_columns(f->columns));
  struct tile_lane lane = tile_lane_new(k, tile, lanes);
  for (int s = 0; s < f->columns / K_STEP; s++) {
    val operands[5] = {tile_lane_address(k, &lane, s)};
    for (int z = 0; z < 4; z++) {
      int i = 2 * (4 * s + z);
      val lo = mul(k, get(k, f->r[i]), x.r[z & 1]), hi = mul(k, get(k, f->r[i + 1]), x.r[z & 1]);
      operands[1 + z] = pack_half(k, lo, hi);
    }
    ir_asm(k, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};",
           "r,r,r,r,r,~{memory}", NO_TYPE, 0, NULL, 5, operands);
  }
}

/* This thread's first four values, of its warp's 16 rows. */
static val f32_address(struct ir *k, const struct frag *f, val row_0, const struct lanes *lanes) {
  val warp = bit_and(k, lanes->warp, i32(k, 3));
  val rows = mul_const(k, warp, 16 * 4 * f->columns);
  return at(k, row_0, add(k, rows, mul_const(k, lanes->lane, VECTOR_BYTES)));
}

void frag_store_f32(struct ir *k, const struct frag *f, val row_0, const struct lanes *lanes) {
  val mine = f32_address(k, f, row_0, lanes), four[VECTOR];
  for (int i = 0; i < registers(f); i += VECTOR) {
    for (int z = 0; z < VECTOR; z++) {
      four[z] = bits_of(k, get(k, f->r[i + z]));
    }
    store(k, pack4(k, four), at_const(k, mine, 32 * 4 * i), VECTOR_BYTES);
  }
}

void frag_add_f32(struct ir *k, const struct frag *f, val row_0, const struct lanes *lanes) {
  val mine = f32_address(k, f, row_0, lanes);
  for (int i = 0; i < registers(f); i += VECTOR) {
    val four = load(k, k->i32x4, at_const(k, mine, 32 * 4 * i), VECTOR_BYTES);
    for (int z = 0; z < VECTOR; z++) {
      val sum = get(k, f->r[i + z]);
      set(k, f->r[i + z], add(k, sum, float_of(k, element(k, four, z, k->i32))));
    }
  }
}

void rowval_store_half(struct ir *k, struct rowval x, val row_0, const struct lanes *lanes) {
  val mine = at(k, row_0, mul_const(k, frag_lane_row(k, lanes), 2));
  IF (k, is_eq(k, frag_lane_column(k, lanes), i32(k, 0))) {
    for (int r = 0; r < FRAG_ROWS; r++) {
      store(k, round_half(k, x.r[r]), at_const(k, mine, 2 * 8 * r), 2);
    }
  }
}

struct column_mask column_mask_new(struct ir *k, int n, const val *words,
                                   const struct lanes *lanes) {
  struct column_mask mask = {0};
  val shift = frag_lane_column(k, lanes);
  for (int w = 0; w < n; w++) {
    mask.word[w] = shift_right(k, words[w], shift);
  }
  return mask;
}

/* The bias of one column, -inf where masked: one value for both rows. */
static val column_bias(struct ir *k, int column, const struct column_mask *mask,
                       const struct mask_bias *bias) {
  val bit = bit_and(k, mask->word[column / 32], i32(k, (int64_t)1 << (column % 32)));
  val b = bias->bias;
  if (!is_null(bias->short_column)) {
    b = choose(k, is_eq(k, bias->short_column, i32(k, column)), bias->short_bias, b);
  }
  return choose(k, is_ne(k, bit, i32(k, 0)), f32(k, -INFINITY), b);
}

void frag_mask_columns(struct ir *k, const struct frag *f, const struct column_mask *mask,
                       const struct mask_bias *bias) {
  for (int j = 0; j < f->columns / 8; j++) {
    for (int q = 0; q < 2; q++) {
      val b = column_bias(k, 8 * j + q, mask, bias);
      for (int r = 0; r < FRAG_ROWS; r++) {
        struct var x = f->r[4 * j + 2 * r + q];
        set(k, x, add(k, get(k, x), b));
      }
    }
  }
}

void frag_mask_behind(struct ir *k, const struct frag *f, struct rowval first) {
  for (int j = 0; j < f->columns / 8; j++) {
    for (int q = 0; q < 2; q++) {
      for (int r = 0; r < FRAG_ROWS; r++) {
        struct var x = f->r[4 * j + 2 * r + q];
        val hidden = is_le(k, first.r[r], i32(k, 8 * j + q));
        set(k, x, choose(k, hidden, f32(k, -INFINITY), get(k, x)));
      }
    }
  }
}
