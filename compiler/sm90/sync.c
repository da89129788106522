/* Barriers and hand-overs; see sync.h. */
#include "compiler/sm90/sync.h"

#include <stdio.h>

enum { GROUP_THREADS = 128, TURN_THREADS = 256, WAIT_TICKS = 0x989680 };

static void named_sync(struct ir *k, val id, int threads) {
  OP(k, "nvvm.barrier", NO_TYPE, "operandSegmentSizes = array<i32: 1, 1, 0>", id, i32(k, threads));
}

void cta_sync(struct ir *k) {
  OP0(k, "nvvm.barrier", NO_TYPE, "operandSegmentSizes = array<i32: 0, 0, 0>");
}

void consumers_sync(struct ir *k, int groups) {
  named_sync(k, i32(k, BARRIER_CONSUMERS), groups * GROUP_THREADS);
}

void group_sync(struct ir *k, val group) {
  named_sync(k, add_const(k, group, BARRIER_GROUP), GROUP_THREADS);
}

struct turn turn_open(struct ir *k, val group, bool used) {
  struct turn turn = {.used = used};
  if (used) {
    turn.mine = add_const(k, group, BARRIER_TURN);
    turn.others = sub(k, i32(k, BARRIER_TURN + 1), group);
    IF (k, is_eq(k, group, i32(k, 1))) {
      turn_pass(k, &turn);
    }
  }
  return turn;
}

void turn_take(struct ir *k, const struct turn *turn) {
  if (turn->used) {
    named_sync(k, turn->mine, TURN_THREADS);
  }
}

void turn_pass(struct ir *k, const struct turn *turn) {
  if (turn->used) {
    OP(k, "nvvm.barrier.arrive", NO_TYPE, "", turn->others, i32(k, TURN_THREADS));
  }
}

void turn_close(struct ir *k, const struct turn *turn, val group) {
  if (turn->used) {
    IF (k, is_eq(k, group, i32(k, 0))) {
      turn_take(k, turn);
    }
  }
}

void mbarrier_init(struct ir *k, val barrier, int arrivals) {
  OP(k, "nvvm.mbarrier.init", NO_TYPE, "", barrier, i32(k, arrivals));
}

void mbarrier_init_done(struct ir *k) {
  OP0(k, "nvvm.fence.mbarrier.init", NO_TYPE, "");
}

void mbarrier_expect(struct ir *k, val barrier, val bytes) {
  OP(k, "nvvm.mbarrier.arrive.expect_tx", NO_TYPE, "", barrier, bytes);
}

void mbarrier_arrive(struct ir *k, val barrier) {
  OP(k, "nvvm.mbarrier.arrive", k->i64, "", barrier);
}

void mbarrier_arrive_if(struct ir *k, val barrier, val condition) {
  IF (k, condition) {
    mbarrier_arrive(k, barrier);
  }
}

void mbarrier_arrive_predicated(struct ir *k, val barrier, val times, val condition) {
  const val operands[] = {barrier, times, widen_bool(k, condition)};
  ir_asm(k, "{.reg .pred p; setp.ne.b32 p, $2, 0; @p mbarrier.arrive.shared.b64 _, [$0], $1;}",
         "r,r,r,~{memory}", NO_TYPE, 0, NULL, 3, operands);
}

void mbarrier_order(struct ir *k, val barrier, val sum) {
  const val operands[] = {barrier, sum};
  ir_asm(k, "{.reg .pred p; setp.lt.f32 p, $1, 0f00000000; @p mbarrier.arrive.shared.b64 _, [$0];}",
         "r,f,~{memory}", NO_TYPE, 0, NULL, 2, operands);
}

void mbarrier_wait(struct ir *k, val barrier, val parity) {
  OP(k, "nvvm.mbarrier.try_wait.parity", NO_TYPE, "", barrier, parity, i32(k, WAIT_TICKS));
}

void fence_async_proxy(struct ir *k) {
  OP0(k, "nvvm.fence.proxy", NO_TYPE,
      "kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>");
}

void launch_handover(struct ir *k) {
  ir_asm(k, "griddepcontrol.launch_dependents; griddepcontrol.wait;", "~{memory}", NO_TYPE, 0, NULL,
         0, NULL);
}

void launch_next(struct ir *k) {
  ir_asm(k, "griddepcontrol.launch_dependents;", "~{memory}", NO_TYPE, 0, NULL, 0, NULL);
}

void launch_wait(struct ir *k) {
  ir_asm(k, "griddepcontrol.wait;", "~{memory}", NO_TYPE, 0, NULL, 0, NULL);
}

void launch_acquire(struct ir *k, val pointer) {
  val word;
  ir_asm(k, "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l,~{memory}", k->i32, 1, &word, 1, &pointer);
}

static void set_registers(struct ir *k, int count, const char *action) {
  char attributes[80];
  snprintf(attributes, sizeof attributes, "regCount = %d : i32, action = #nvvm<action %s>", count,
           action);
  OP0(k, "nvvm.setmaxregister", NO_TYPE, attributes);
}

void registers_shrink(struct ir *k, int count) {
  set_registers(k, count, "decrease");
}

void registers_grow(struct ir *k, int count) {
  set_registers(k, count, "increase");
}
