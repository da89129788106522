/* problem.c: sizes and addresses that follow from a call; no allocation, no checks (runtime/shape.c
 * made them). */
#include "runtime/cpu/problem.h"

#include <assert.h>

#include "runtime/cpu/convert.h"
#include "runtime/shape.h"

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t block_length(int64_t n, int64_t block, int64_t index) {
  int64_t rest = n - index * block;
  assert(rest > 0);
  return rest < block ? rest : block;
}

void cpu_problem_derive(struct cpu_problem *problem) {
  problem->q_blocks = ceil_div(problem->n_q, problem->query);
  problem->k_blocks = ceil_div(problem->n_k, problem->key);
  problem->q_sub_blocks = ceil_div(problem->n_q, problem->key);
}

void cpu_problem_init(struct cpu_problem *problem, const struct pisa_method *method,
                      const struct pisa_shape *shape, const pisa_attention *call) {
  *problem = (struct cpu_problem){.dense = method->dense,
                                  .means = pisa_wants_v_mean(method),
                                  .first_order = pisa_wants_h_sum(method),
                                  .second_order = pisa_wants_k_variance(method),
                                  .log_covariance = pisa_wants_h_norm2(method),
                                  .key_variance =
                                      !method->dense && method->term == PISA_TERM_LOG_KEY_VARIANCE,
                                  .query = method->query,
                                  .key = method->key,
                                  .head_dim = method->head_dim,
                                  .type = method->type,
                                  .batch = shape->batch,
                                  .heads = shape->heads,
                                  .kv_heads = shape->kv_heads,
                                  .n_q = shape->n_q,
                                  .n_k = shape->n_k,
                                  .scale = (double)shape->scale,
                                  .q = call->q,
                                  .k = call->k,
                                  .v = call->v,
                                  .o = call->o,
                                  .kept = shape->kept,
                                  .window = method->has_window ? method->window : -1};
  for (int a = 0; !method->dense && a < method->n_always; a++)
    problem->always[problem->n_always++] =
        (struct cpu_range){shape->always[a].begin, shape->always[a].end};
  cpu_problem_derive(problem);
}

bool cpu_wants_h(const struct cpu_problem *problem) {
  return problem->first_order || problem->log_covariance;
}

struct cpu_range cpu_window(const struct cpu_problem *problem, int64_t i) {
  struct cpu_range window = {i * problem->query / problem->key - problem->window,
                             ceil_div((i + 1) * problem->query, problem->key) + problem->window};
  if (window.begin < 0)
    window.begin = 0;
  if (window.end > problem->k_blocks)
    window.end = problem->k_blocks;
  return problem->window >= 0 && window.begin < window.end ? window : (struct cpu_range){0, 0};
}

int64_t cpu_key_length(const struct cpu_problem *problem, int64_t j) {
  return block_length(problem->n_k, problem->key, j);
}

int64_t cpu_query_length(const struct cpu_problem *problem, int64_t i) {
  return block_length(problem->n_q, problem->query, i);
}

int64_t cpu_group(const struct cpu_problem *problem) {
  return problem->heads / problem->kv_heads;
}

int64_t cpu_kv_head(const struct cpu_problem *problem, int64_t h) {
  return h / cpu_group(problem);
}

double cpu_round_h_sum(const struct cpu_problem *problem, double value) {
  double gain = pisa_h_gain(problem->type);
  return cpu_round(problem->type, value * gain) / gain;
}

double cpu_round_variance(const struct cpu_problem *problem, double variance) {
  return cpu_round(problem->type, variance * problem->scale / 2);
}

uint16_t *cpu_row(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n) {
  return (uint16_t *)tensor->data + b * tensor->stride[0] + h * tensor->stride[1] +
         n * tensor->stride[2];
}
