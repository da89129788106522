/* quality_cost.c: a method, a length and the share of keys it reads exactly in; FLOP of everything
   from q, k, v to o out, in units of dense attention's 4 Nq Nk D a head.

   What a method computes beside exact tiles follows from the statistics it wants (method.h). */
#include "runtime/tool/quality.h"

double quality_cost(const struct pisa_method *method, int64_t n_q, int64_t n_k, double read) {
  if (method->dense || n_k < method->dense_below)
    return 1;
  double q = (double)n_q, k = (double)n_k, d = method->head_dim;
  double q_blocks = (double)((n_q + method->query - 1) / method->query);
  double k_blocks = (double)((n_k + method->key - 1) / method->key);
  bool linear = method->tail == PISA_TAIL_TAYLOR_1; /* reads every block, one way or the other */
  double cost = (linear ? 1 : read) + q_blocks * k_blocks / (2 * q * k); /* pairs of means */
  if (pisa_wants_v_mean(method))
    cost += k_blocks / k; /* a column per block */
  if (pisa_wants_k_variance(method))
    cost += k_blocks / (2 * k); /* (q q) C_j of every query and block */
  if (pisa_wants_h_norm2(method) || pisa_wants_h_part(method))
    cost += d / (2 * q * pisa_method_group(method)); /* H_j = K^T V of every block */
  if (pisa_wants_residual(method))
    cost += d / (2 * q * pisa_method_group(method)); /* and once more */
  if (pisa_wants_h_sum(method))
    cost += d / (2 * k); /* q Hsum */
  return cost;
}
