/* Constants and arithmetic; see ir.h. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "compiler/ir/ir.h"
#include "mlir-c/BuiltinAttributes.h"
#include "mlir-c/BuiltinTypes.h"

#define CONTRACT "fastmath = #arith.fastmath<contract>"

static val constant(struct ir *k, type t, MlirAttribute value) {
  MlirOperationState state =
      mlirOperationStateGet(mlirStringRefCreateFromCString("arith.constant"), k->location);
  MlirNamedAttribute attribute = mlirNamedAttributeGet(
      mlirIdentifierGet(k->context, mlirStringRefCreateFromCString("value")), value);
  mlirOperationStateAddAttributes(&state, 1, &attribute);
  mlirOperationStateAddResults(&state, 1, &t);
  MlirOperation op = mlirOperationCreate(&state);
  mlirBlockAppendOwnedOperation(k->block, op);
  return mlirOperationGetResult(op, 0);
}

val i32(struct ir *k, int64_t v) {
  return constant(k, k->i32, mlirIntegerAttrGet(k->i32, v));
}

val i64(struct ir *k, int64_t v) {
  return constant(k, k->i64, mlirIntegerAttrGet(k->i64, v));
}

val f32(struct ir *k, double v) {
  return constant(k, k->f32, mlirFloatAttrDoubleGet(k->context, k->f32, v));
}

static type type_of(val v) {
  return mlirValueGetType(v);
}

static bool is_float(val v) {
  return mlirTypeIsAFloat(type_of(v));
}

static val binary(struct ir *k, const char *integer, const char *floating, val a, val b) {
  assert(mlirTypeEqual(type_of(a), type_of(b)));
  bool f = is_float(a);
  assert(f ? floating != NULL : integer != NULL);
  return OP(k, f ? floating : integer, type_of(a), f ? CONTRACT : "", a, b);
}

val add(struct ir *k, val a, val b) {
  return binary(k, "arith.addi", "arith.addf", a, b);
}

val sub(struct ir *k, val a, val b) {
  return binary(k, "arith.subi", "arith.subf", a, b);
}

val mul(struct ir *k, val a, val b) {
  return binary(k, "arith.muli", "arith.mulf", a, b);
}

static val same_type_const(struct ir *k, val like, int64_t c) {
  return constant(k, type_of(like), mlirIntegerAttrGet(type_of(like), c));
}

val add_const(struct ir *k, val a, int64_t c) {
  return c == 0 ? a : add(k, a, same_type_const(k, a, c));
}

val mul_const(struct ir *k, val a, int64_t c) {
  return c == 1 ? a : mul(k, a, same_type_const(k, a, c));
}

val udiv(struct ir *k, val a, val b) {
  return binary(k, "arith.divui", NULL, a, b);
}

val umin(struct ir *k, val a, val b) {
  return binary(k, "arith.minui", NULL, a, b);
}

val umax(struct ir *k, val a, val b) {
  return binary(k, "arith.maxui", NULL, a, b);
}

val smin(struct ir *k, val a, val b) {
  return binary(k, "arith.minsi", NULL, a, b);
}

val smax(struct ir *k, val a, val b) {
  return binary(k, "arith.maxsi", NULL, a, b);
}

val bit_and(struct ir *k, val a, val b) {
  return binary(k, "arith.andi", NULL, a, b);
}

val bit_or(struct ir *k, val a, val b) {
  return binary(k, "arith.ori", NULL, a, b);
}

val bit_xor(struct ir *k, val a, val b) {
  return binary(k, "arith.xori", NULL, a, b);
}

val bit_not(struct ir *k, val a) {
  return bit_xor(k, a, same_type_const(k, a, -1));
}

val shift_left(struct ir *k, val a, val b) {
  return binary(k, "arith.shli", NULL, a, b);
}

val shift_right(struct ir *k, val a, val b) {
  return binary(k, "arith.shrui", NULL, a, b);
}

val shift_right_signed(struct ir *k, val a, val b) {
  return binary(k, "arith.shrsi", NULL, a, b);
}

val negate(struct ir *k, val a) {
  return OP(k, "arith.negf", type_of(a), CONTRACT, a);
}

val fused(struct ir *k, val a, val b, val c) {
  return OP(k, "llvm.intr.fma", type_of(a), "", a, b, c);
}

val maximum(struct ir *k, val a, val b) {
  return OP(k, "arith.maxnumf", type_of(a), CONTRACT, a, b);
}

static val intrinsic(struct ir *k, const char *name, type result, int n, const val *operands) {
  char attributes[160];
  snprintf(attributes, sizeof attributes,
           "intrin = \"%s\", operandSegmentSizes = array<i32: %d, 0>, "
           "op_bundle_sizes = array<i32>",
           name, n);
  return ir_op(k, "llvm.call_intrinsic", result, attributes, n, operands);
}

static val float_intrinsic(struct ir *k, const char *name, val a) {
  return intrinsic(k, name, k->f32, 1, &a);
}

val fused_saturated(struct ir *k, val a, val b, val c) {
  return intrinsic(k, "llvm.nvvm.fma.rn.sat.f", k->f32, 3, (const val[]){a, b, c});
}

val fused_down(struct ir *k, val a, val b, val c) {
  return intrinsic(k, "llvm.nvvm.fma.rm.f", k->f32, 3, (const val[]){a, b, c});
}

val exp2_approx(struct ir *k, val a) {
  return float_intrinsic(k, "llvm.nvvm.ex2.approx.ftz", a);
}

val log2_approx(struct ir *k, val a) {
  return float_intrinsic(k, "llvm.nvvm.lg2.approx.ftz.f", a);
}

val sqrt_approx(struct ir *k, val a) {
  return float_intrinsic(k, "llvm.nvvm.sqrt.approx.ftz.f", a);
}

val reciprocal_approx(struct ir *k, val a) {
  return float_intrinsic(k, "llvm.nvvm.rcp.approx.ftz.f", a);
}

/* Predicate numbers of arith.cmpi and arith.cmpf. */
enum { I_EQ = 0, I_NE = 1, I_SLT = 2, I_SLE = 3, I_SGT = 4, I_SGE = 5, I_UGT = 8, I_UGE = 9 };
enum { F_OEQ = 1, F_OGT = 2, F_OGE = 3, F_OLT = 4, F_OLE = 5, F_UNE = 13 };

static val compare(struct ir *k, int integer, int floating, val a, val b) {
  assert(mlirTypeEqual(type_of(a), type_of(b)));
  bool f = is_float(a);
  char attributes[96];
  snprintf(attributes, sizeof attributes, "predicate = %d : i64%s", f ? floating : integer,
           f ? ", fastmath = #arith.fastmath<none>" : "");
  return OP(k, f ? "arith.cmpf" : "arith.cmpi", k->i1, attributes, a, b);
}

val is_eq(struct ir *k, val a, val b) {
  return compare(k, I_EQ, F_OEQ, a, b);
}

val is_ne(struct ir *k, val a, val b) {
  return compare(k, I_NE, F_UNE, a, b);
}

val is_lt(struct ir *k, val a, val b) {
  return compare(k, I_SLT, F_OLT, a, b);
}

val is_le(struct ir *k, val a, val b) {
  return compare(k, I_SLE, F_OLE, a, b);
}

val is_ge(struct ir *k, val a, val b) {
  return compare(k, I_SGE, F_OGE, a, b);
}

val is_uge(struct ir *k, val a, val b) {
  return compare(k, I_UGE, F_OGE, a, b);
}

val is_ugt(struct ir *k, val a, val b) {
  return compare(k, I_UGT, F_OGT, a, b);
}

val both(struct ir *k, val a, val b) {
  return bit_and(k, a, b);
}

val either(struct ir *k, val a, val b) {
  return bit_or(k, a, b);
}

val choose(struct ir *k, val condition, val yes, val no) {
  assert(mlirTypeEqual(type_of(yes), type_of(no)));
  return OP(k, "arith.select", type_of(yes), "", condition, yes, no);
}

val widen(struct ir *k, val v) {
  return OP(k, "arith.extsi", k->i64, "", v);
}

val narrow(struct ir *k, val v) {
  return OP(k, "arith.trunci", k->i32, "", v);
}

val widen_bool(struct ir *k, val condition) {
  return OP(k, "arith.extui", k->i32, "", condition);
}

val to_float(struct ir *k, val v) {
  return OP(k, "arith.sitofp", k->f32, "", v);
}

val bits_of(struct ir *k, val v) {
  return OP(k, "llvm.bitcast", k->i32, "", v);
}

val float_of(struct ir *k, val v) {
  return OP(k, "llvm.bitcast", k->f32, "", v);
}

val round_half(struct ir *k, val v) {
  return OP(k, "arith.truncf", k->half, "", v);
}

val pack_half(struct ir *k, val lo, val hi) {
  val pair = pack2(k, lo, hi);
  return OP(k, "llvm.bitcast", k->i32, "", OP(k, "arith.truncf", k->half_x2, "", pair));
}

/* bf16 is the high half of an f32: a shift. */
static val half_at(struct ir *k, val pair, int i) {
  if (mlirTypeIsABF16(k->half)) {
    return float_of(k, i ? bit_and(k, pair, i32(k, -65536)) : shift_left(k, pair, i32(k, 16)));
  }
  val both = OP(k, "llvm.bitcast", k->half_x2, "", pair);
  return OP(k, "arith.extf", k->f32, "", element(k, both, i, k->half));
}

val half_lo(struct ir *k, val pair) {
  return half_at(k, pair, 0);
}

val half_hi(struct ir *k, val pair) {
  return half_at(k, pair, 1);
}

val half_blend(struct ir *k, val x, val wx, val y, val wy) {
  val y_lo = mul(k, half_lo(k, y), wy), x_lo = half_lo(k, x);
  val lo = fused(k, x_lo, wx, y_lo);
  val y_hi = mul(k, half_hi(k, y), wy), x_hi = half_hi(k, x);
  return pack_half(k, lo, fused(k, x_hi, wx, y_hi));
}

val element(struct ir *k, val vector, int i, type t) {
  return OP(k, "llvm.extractelement", t, "", vector, i32(k, i));
}

val pack2(struct ir *k, val a, val b) {
  type t = is_float(a) ? k->f32x2 : ir_type(k, "vector<2xi32>");
  val pair = OP0(k, "llvm.mlir.poison", t, "");
  pair = OP(k, "llvm.insertelement", t, "", pair, a, i32(k, 0));
  return OP(k, "llvm.insertelement", t, "", pair, b, i32(k, 1));
}

val pack4(struct ir *k, const val v[4]) {
  val whole = OP0(k, "llvm.mlir.poison", k->i32x4, "");
  for (int i = 0; i < 4; i++) {
    whole = OP(k, "llvm.insertelement", k->i32x4, "", whole, v[i], i32(k, i));
  }
  return whole;
}
