/* peers.c: cluster barriers and stores to other CTAs' shared memory; see peers.h. */
#include "compiler/sm90/peers.h"

#include <assert.h>
#include <stdio.h>

val peers_rank(struct ir *k) {
  val rank;
  ir_asm(k, "mov.u32 $0, %cluster_ctarank;", "=r", k->i32, 1, &rank, 0, NULL);
  return rank;
}

void peers_arrive(struct ir *k) {
  OP0(k, "nvvm.cluster.arrive", NO_TYPE, "aligned");
}

void peers_arrive_relaxed(struct ir *k) {
  OP0(k, "nvvm.cluster.arrive.relaxed", NO_TYPE, "aligned");
}

void peers_wait(struct ir *k) {
  OP0(k, "nvvm.cluster.wait", NO_TYPE, "aligned");
}

val peers_address(struct ir *k, val pointer, val rank) {
  const val operands[] = {shared_address(k, pointer), rank};
  val address;
  ir_asm(k, "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", k->i32, 1, &address, 2, operands);
  return address;
}

void peers_store(struct ir *k, int n, const val *words, val address, int bytes) {
  char text[80];
  assert(n == 2 || n == 4);
  val operands[5] = {address};
  for (int i = 0; i < n; i++)
    operands[i + 1] = words[i];
  const char *values = n == 2 ? "{$1, $2}" : "{$1, $2, $3, $4}";
  snprintf(text, sizeof text, "st.shared::cluster.v%d.b32 [$0+%d], %s;", n, bytes, values);
  ir_asm(k, text, n == 2 ? "r,r,r,~{memory}" : "r,r,r,r,r,~{memory}", NO_TYPE, 0, NULL, n + 1,
         operands);
}
