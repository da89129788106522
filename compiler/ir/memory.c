/* Pointers, loads, stores and mutable variables; see ir.h. */
#include <assert.h>
#include <stdio.h>

#include "compiler/ir/build.h"

val at(struct ir *k, val pointer, val byte_offset) {
  return OP(k, "llvm.getelementptr", mlirValueGetType(pointer),
            "elem_type = i8, rawConstantIndices = array<i32: -2147483648>", pointer, byte_offset);
}

val at_const(struct ir *k, val pointer, int64_t byte_offset) {
  return byte_offset == 0 ? pointer : at(k, pointer, i64(k, byte_offset));
}

val at_row(struct ir *k, val pointer, val row, val row_bytes) {
  val bytes = widen(k, row_bytes), index = widen(k, row);
  return at(k, pointer, mul(k, index, bytes));
}

val at_row_wide(struct ir *k, val pointer, val row, val row_bytes) {
  const val operands[] = {row, row_bytes, pointer};
  val place;
  ir_asm(k, "mad.wide.u32 $0, $1, $2, $3;", "=l,r,r,l", k->global, 1, &place, 3, operands);
  return place;
}

static const char *alignment(char *buffer, size_t size, int align) {
  snprintf(buffer, size, "alignment = %d : i64", align);
  return buffer;
}

val load(struct ir *k, type t, val pointer, int align) {
  char attributes[40];
  return OP(k, "llvm.load", t, alignment(attributes, sizeof attributes, align), pointer);
}

void store(struct ir *k, val v, val pointer, int align) {
  char attributes[40];
  OP(k, "llvm.store", NO_TYPE, alignment(attributes, sizeof attributes, align), v, pointer);
}

void store_if(struct ir *k, val condition, val v, val pointer) {
  const val operands[] = {pointer, v, widen_bool(k, condition)};
  ir_asm(k, "{.reg .pred p; setp.ne.b32 p, $2, 0; @p st.global.f32 [$0], $1;}", "l,f,r,~{memory}",
         NO_TYPE, 0, NULL, 3, operands);
}

void store_shared_if(struct ir *k, val condition, val v, val pointer) {
  const val operands[] = {shared_address(k, pointer), v, widen_bool(k, condition)};
  ir_asm(k, "{.reg .pred p; setp.ne.b32 p, $2, 0; @p st.shared.b32 [$0], $1;}", "r,r,r,~{memory}",
         NO_TYPE, 0, NULL, 3, operands);
}

val load_if(struct ir *k, val condition, val pointer, val otherwise) {
  const val operands[] = {pointer, otherwise, widen_bool(k, condition)};
  val v;
  ir_asm(k, "{.reg .pred p; setp.ne.b32 p, $3, 0; mov.b32 $0, $2; @p ld.global.b32 $0, [$1];}",
         "=&r,l,r,r,~{memory}", k->i32, 1, &v, 3, operands);
  return v;
}

void prefetch(struct ir *k, val pointer) {
  ir_asm(k, "prefetch.global.L2 [$0];", "l", NO_TYPE, 0, NULL, 1, &pointer);
}

val atomic_add(struct ir *k, val pointer, val v) {
  const val operands[] = {pointer, v};
  val before;
  ir_asm(k, "atom.global.relaxed.gpu.add.u32 $0, [$1], $2;", "=r,l,r,~{memory}", k->i32, 1, &before,
         2, operands);
  return before;
}

void shared_add(struct ir *k, val pointer, val v) {
  const val operands[] = {shared_address(k, pointer), v};
  ir_asm(k, "red.shared.relaxed.cta.add.u32 [$0], $1;", "r,r,~{memory}", NO_TYPE, 0, NULL, 2,
         operands);
}

void shared_or(struct ir *k, val pointer, val v) {
  const val operands[] = {shared_address(k, pointer), v};
  ir_asm(k, "red.shared.relaxed.cta.or.b32 [$0], $1;", "r,r,~{memory}", NO_TYPE, 0, NULL, 2,
         operands);
}

val is_null_pointer(struct ir *k, val global_pointer) {
  val bits = OP(k, "llvm.ptrtoint", k->i64, "", global_pointer);
  return is_eq(k, bits, i64(k, 0));
}

val shared_address(struct ir *k, val pointer) {
  return OP(k, "llvm.ptrtoint", k->i32, "", pointer);
}

val shared_pointer(struct ir *k, val address) {
  return OP(k, "llvm.inttoptr", k->shared, "", address);
}

struct var var_new(struct ir *k, type t) {
  bool f = mlirTypeEqual(t, k->f32);
  assert(f || mlirTypeEqual(t, k->i32));
  val one = mlirOperationGetResult(k->one, 0);
  MlirOperation slot =
      ir_build(k, &(struct ir_build){.name = "llvm.alloca",
                                     .attributes = f ? "elem_type = f32, alignment = 4 : i64"
                                                     : "elem_type = i32, alignment = 4 : i64",
                                     .result = k->ptr,
                                     .n_operands = 1,
                                     .operands = &one});
  mlirBlockInsertOwnedOperationAfter(k->entry, k->one, slot);
  return (struct var){mlirOperationGetResult(slot, 0), t};
}

struct var var_init(struct ir *k, val v) {
  struct var x = var_new(k, mlirValueGetType(v));
  set(k, x, v);
  return x;
}

val get(struct ir *k, struct var v) {
  return load(k, v.t, v.slot, 4);
}

void set(struct ir *k, struct var v, val x) {
  store(k, x, v.slot, 4);
}
