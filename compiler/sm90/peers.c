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

/* "$1, $2, ..." of n words; and their type. */
static void name_words(char *text, size_t bytes, int n) {
  static const char *const words[] = {[1] = "$1", [2] = "{$1, $2}", [4] = "{$1, $2, $3, $4}"};
  assert(n == 1 || n == 2 || n == 4);
  snprintf(text, bytes, "%s", words[n]);
}

void peers_store(struct ir *k, int n, const val *words, val address, int bytes) {
  static const char *const types[] = {[1] = "b32", [2] = "v2.b32", [4] = "v4.b32"};
  static const char *const operand_kinds[] = {
      [1] = "r,r,~{memory}", [2] = "r,r,r,~{memory}", [4] = "r,r,r,r,r,~{memory}"};
  char text[80], values[24];
  val operands[5] = {address};
  for (int i = 0; i < n; i++)
    operands[i + 1] = words[i];
  name_words(values, sizeof values, n);
  snprintf(text, sizeof text, "st.shared::cluster.%s [$0+%d], %s;", types[n], bytes, values);
  ir_asm(k, text, operand_kinds[n], NO_TYPE, 0, NULL, n + 1, operands);
}

void peers_send(struct ir *k, int n, const val *words, val address, int bytes, val barrier) {
  static const char *const types[] = {[1] = "b32", [2] = "v2.b32", [4] = "v4.b32"};
  static const char *const operand_kinds[] = {
      [1] = "r,r,r,~{memory}", [2] = "r,r,r,r,~{memory}", [4] = "r,r,r,r,r,r,~{memory}"};
  char text[140], values[24];
  val operands[6] = {address};
  for (int i = 0; i < n; i++)
    operands[i + 1] = words[i];
  operands[n + 1] = barrier;
  name_words(values, sizeof values, n);
  snprintf(text, sizeof text,
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.%s [$0+%d], %s, [$%d];",
           types[n], bytes, values, n + 1);
  ir_asm(k, text, operand_kinds[n], NO_TYPE, 0, NULL, n + 2, operands);
}
