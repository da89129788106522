/* Warp-level verbs; see lanes.h. */
#include "compiler/sm90/lanes.h"

val warp_read(struct ir *k, val v, val lane) {
  return OP(k, "nvvm.shfl.sync", mlirValueGetType(v), "kind = #nvvm<shfl_kind idx>", i32(k, -1), v,
            lane, i32(k, 31));
}

struct lanes lanes_new(struct ir *k) {
  val tid = thread_index(k);
  return (struct lanes){
      .warp = warp_read(k, shift_right(k, tid, i32(k, 5)), i32(k, 0)),
      .lane = bit_and(k, tid, i32(k, 31)),
  };
}

val lanes_warpgroup(struct ir *k, const struct lanes *lanes) {
  return shift_right(k, lanes->warp, i32(k, 2));
}

static val butterfly(struct ir *k, val v, int distance) {
  return OP(k, "nvvm.shfl.sync", mlirValueGetType(v), "kind = #nvvm<shfl_kind bfly>", i32(k, -1), v,
            i32(k, distance), i32(k, 31));
}

val warp_across(struct ir *k, val v, int distance) {
  return butterfly(k, v, distance);
}

/* In the last operand bits 8 to 12 are those of the lane's number that stay. */
val warp_first(struct ir *k, val v, int width) {
  return OP(k, "nvvm.shfl.sync", mlirValueGetType(v), "kind = #nvvm<shfl_kind idx>", i32(k, -1), v,
            i32(k, 0), i32(k, (32 - width) << 8 | 31));
}

val quad_max(struct ir *k, val v) {
  v = maximum(k, v, butterfly(k, v, 1));
  return maximum(k, v, butterfly(k, v, 2));
}

val quad_sum(struct ir *k, val v) {
  v = add(k, v, butterfly(k, v, 1));
  return add(k, v, butterfly(k, v, 2));
}

val quads_sum(struct ir *k, val v) {
  for (int distance = 16; distance >= 4; distance /= 2) {
    v = add(k, v, butterfly(k, v, distance));
  }
  return v;
}

val warp_sum(struct ir *k, val v) {
  for (int distance = 16; distance > 0; distance /= 2) {
    v = add(k, v, butterfly(k, v, distance));
  }
  return v;
}

static val one_result(struct ir *k, const char *text, const char *constraints, val operand) {
  val r;
  ir_asm(k, text, constraints, k->i32, 1, &r, 1, &operand);
  return r;
}

val warp_sum_u32(struct ir *k, val v) {
  return one_result(k, "redux.sync.add.u32 $0, $1, 0xffffffff;", "=r,r", v);
}

val warp_max_u32(struct ir *k, val v) {
  return one_result(k, "redux.sync.max.u32 $0, $1, 0xffffffff;", "=r,r", v);
}

val warp_min_u32(struct ir *k, val v) {
  return one_result(k, "redux.sync.min.u32 $0, $1, 0xffffffff;", "=r,r", v);
}

val warp_ballot(struct ir *k, val condition) {
  return one_result(k,
                    "{.reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff;}",
                    "=r,r", widen_bool(k, condition));
}

void warp_sync(struct ir *k) {
  OP(k, "nvvm.bar.warp.sync", NO_TYPE, "", i32(k, -1));
}

val add_if_uge(struct ir *k, val sum, val a, val b) {
  const val operands[] = {sum, a, b};
  val r;
  ir_asm(k, "{.reg .pred p; setp.ge.u32 p, $2, $3; @p add.u32 $0, $0, 1;}", "=r,0,r,r", k->i32, 1,
         &r, 3, operands);
  return r;
}

val count_below(struct ir *k, const struct lanes *lanes, val ballot) {
  val lower = add_const(k, shift_left(k, i32(k, 1), lanes->lane), -1);
  return count_bits(k, bit_and(k, ballot, lower));
}

val count_bits(struct ir *k, val word) {
  return OP(k, "llvm.intr.ctpop", k->i32, "", word);
}

val count_leading_zeros(struct ir *k, val word) {
  return OP(k, "llvm.intr.ctlz", k->i32, "is_zero_poison = false", word);
}

val lane_elect(struct ir *k) {
  return OP0(k, "nvvm.elect.sync", k->i1, "");
}
