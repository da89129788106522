/* problem.c: sizes and addresses that follow from a call; no allocation, no checks (runtime/shape.c
 * made them). */
#include "runtime/cpu/problem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

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

static void set_always(struct cpu_problem *problem, const struct pisa_method *method) {
  for (int a = 0; a < method->n_always; a++) {
    const struct pisa_always *always = &method->always[a];
    bool last = always->kind == PISA_ALWAYS_LAST;
    problem->always[problem->n_always++] =
        last ? (struct cpu_range){-always->end, 0} : (struct cpu_range){always->begin, always->end};
  }
  problem->window = method->has_window ? method->window : -1;
}

static void set_budget(struct cpu_problem *problem, const struct pisa_method *method,
                       const pisa_attention *call) {
  if (call->keep > 0) {
    problem->keep = call->keep;
  } else if (call->density > 0) {
    problem->density_den = 1000000000; /* a call's density is read to 9 decimal places */
    problem->density_num = llround(call->density * (double)problem->density_den);
  } else if (method->budget == PISA_BUDGET_KEEP) {
    problem->keep = method->keep;
  } else if (method->budget == PISA_BUDGET_DENSITY) {
    problem->density_num = method->density_num;
    problem->density_den = method->density_den;
  } else {
    problem->threshold = true;
    problem->full_variance = method->variance == PISA_VARIANCE_FULL;
    problem->tau = (double)method->threshold_num / (double)method->threshold_den;
  }
}

static void set_method(struct cpu_problem *problem, const struct pisa_method *method) {
  bool second_order = method->mass == PISA_MASS_SECOND_ORDER;
  problem->means = pisa_wants_v_mean(method);
  problem->first_order = pisa_wants_h_sum(method);
  problem->linear = method->tail == PISA_TAIL_TAYLOR_1;
  problem->second_order = second_order && (problem->means || problem->linear);
  problem->log_covariance = method->term == PISA_TERM_LOG_COVARIANCE;
  problem->log_residual = method->term == PISA_TERM_LOG_RESIDUAL;
  problem->key_variance = method->term == PISA_TERM_LOG_KEY_VARIANCE;
}

void cpu_problem_init(struct cpu_problem *problem, const struct pisa_method *method,
                      const struct pisa_shape *shape, const pisa_attention *call) {
  *problem = (struct cpu_problem){.dense = method->dense || shape->n_k < method->dense_below,
                                  .causal = method->mask == PISA_MASK_CAUSAL,
                                  .query = method->query,
                                  .key = method->key,
                                  .head_dim = method->head_dim,
                                  .type = method->type,
                                  .window = -1,
                                  .batch = shape->batch,
                                  .heads = shape->heads,
                                  .kv_heads = shape->kv_heads,
                                  .n_q = shape->n_q,
                                  .n_k = shape->n_k,
                                  .lengths = call->k_lengths,
                                  .pages = call->pages,
                                  .page_columns = call->page_columns,
                                  .page = method->page,
                                  .scale = (double)shape->scale,
                                  .q = call->q,
                                  .k = call->k,
                                  .v = call->v,
                                  .o = call->o,
                                  .kept = shape->kept};
  if (!problem->dense) {
    set_method(problem, method);
    set_always(problem, method);
    set_budget(problem, method, call);
  }
  cpu_problem_derive(problem);
}

int64_t cpu_keys(const struct cpu_problem *problem, int64_t b) {
  if (!problem->lengths)
    return problem->n_k;
  int64_t n = problem->lengths[b];
  return n < 0 ? 0 : n > problem->n_k ? problem->n_k : n;
}

struct cpu_problem cpu_sequence(const struct cpu_problem *problem, int64_t b) {
  struct cpu_problem sequence = *problem;
  sequence.n_k = cpu_keys(problem, b);
  sequence.lengths = NULL;
  cpu_problem_derive(&sequence);
  return sequence;
}

bool cpu_wants_h(const struct cpu_problem *problem) {
  return problem->first_order || problem->log_covariance || problem->log_residual;
}

/* ---- lists ---- */

/* Whether block |j| touches tokens of |range| that the sequence has. */
static bool touches(const struct cpu_problem *problem, struct cpu_range range, int64_t j) {
  if (range.begin < 0)
    range = (struct cpu_range){problem->n_k + range.begin, problem->n_k};
  int64_t begin = j * problem->key, end = begin + cpu_key_length(problem, j);
  return range.begin < range.end && range.begin < end && range.end > begin;
}

bool cpu_forced(const struct cpu_problem *problem, int64_t i, int64_t j) {
  assert(!problem->lengths && j < problem->k_blocks);
  for (int a = 0; a < problem->n_always; a++)
    if (touches(problem, problem->always[a], j))
      return true;
  int64_t first = i * problem->query / problem->key, per_query = problem->query / problem->key;
  return problem->window >= 0 && j >= first - problem->window &&
         j < first + per_query + problem->window;
}

int64_t cpu_count(const struct cpu_problem *problem, int64_t i) {
  int64_t forced = 0, k = problem->keep, blocks = problem->k_blocks;
  assert(!problem->threshold && !problem->dense);
  if (problem->density_num > 0)
    k = problem->density_num * blocks / problem->density_den;
  if (k < 1)
    k = 1;
  for (int64_t j = 0; j < blocks; j++)
    forced += cpu_forced(problem, i, j);
  if (k < forced)
    k = forced;
  return k < blocks ? k : blocks;
}

static int by_block(const void *a, const void *b) {
  const int32_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

int64_t cpu_given_list(const struct cpu_problem *problem, const int32_t *given, int64_t n,
                       int32_t *list) {
  int64_t valid = 0, distinct = 0;
  for (int64_t e = 0; e < n; e++)
    if (given[e] >= 0 && given[e] < problem->k_blocks)
      list[valid++] = given[e];
  qsort(list, (size_t)valid, sizeof *list, by_block);
  for (int64_t e = 0; e < valid; e++)
    if (e == 0 || list[e] != list[e - 1])
      list[distinct++] = list[e];
  return distinct;
}

int64_t cpu_key_length(const struct cpu_problem *problem, int64_t j) {
  return block_length(problem->n_k, problem->key, j);
}

int64_t cpu_seen(const struct cpu_problem *p, int64_t row) {
  if (!p->causal)
    return p->n_k;
  int64_t seen = p->n_k - p->n_q + row + 1;
  return seen < 0 ? 0 : seen < p->n_k ? seen : p->n_k;
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
  double gain = pisa_variance_gain(problem->type);
  return cpu_round(problem->type, variance * problem->scale / 2 * gain) / gain;
}

double cpu_round_square(const struct cpu_problem *problem, double q) {
  double gain = pisa_variance_gain(problem->type);
  return cpu_round(problem->type, q * q / gain) * gain;
}

uint16_t *cpu_row(const pisa_tensor *tensor, int64_t b, int64_t h, int64_t n) {
  return (uint16_t *)tensor->data + b * tensor->stride[0] + h * tensor->stride[1] +
         n * tensor->stride[2];
}

const uint16_t *cpu_key_row(const struct cpu_problem *p, const pisa_tensor *tensor, int64_t b,
                            int64_t kv_head, int64_t n) {
  if (!p->pages)
    return cpu_row(tensor, b, kv_head, n);
  return cpu_row(tensor, p->pages[b * p->page_columns + n / p->page], kv_head, n % p->page);
}
