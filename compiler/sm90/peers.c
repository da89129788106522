/* peers.c: cluster barriers and stores to other CTAs' shared memory; see peers.h. */
#include "compiler/sm90/peers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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

/* |instruction|.type [address + bytes], words; with |barrier|, not null, behind them. */
static void store_words(struct ir *k, const char *instruction, int n, const val *words, val address,
                        int bytes, val barrier) {
  static const char *const types[] = {[1] = "b32", [2] = "v2.b32", [4] = "v4.b32"};
  static const char *const places[] = {[1] = "$1", [2] = "{$1, $2}", [4] = "{$1, $2, $3, $4}"};
  char text[140], behind[12] = "", operand_kinds[24] = "r,";
  val operands[6] = {address};
  int n_operands = 1;
  assert(n == 1 || n == 2 || n == 4);
  for (int i = 0; i < n; i++)
    operands[n_operands++] = words[i];
  if (!is_null(barrier)) {
    snprintf(behind, sizeof behind, ", [$%d]", n_operands);
    operands[n_operands++] = barrier;
  }
  for (int i = 1; i < n_operands; i++)
    strcat(operand_kinds, "r,");
  strcat(operand_kinds, "~{memory}");
  snprintf(text, sizeof text, "%s.%s [$0+%d], %s%s;", instruction, types[n], bytes, places[n],
           behind);
  ir_asm(k, text, operand_kinds, NO_TYPE, 0, NULL, n_operands, operands);
}

void peers_store(struct ir *k, int n, const val *words, val address, int bytes) {
  store_words(k, "st.shared::cluster", n, words, address, bytes, (val){0});
}

void peers_send(struct ir *k, int n, const val *words, val address, int bytes, val barrier) {
  store_words(k, "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes", n, words, address,
              bytes, barrier);
}
