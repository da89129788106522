/* verify_compare.c: everything one launch left behind against the oracle, on all cores: statistics
   and lists head by head, then attention query block by query block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/parallel.h"
#include "runtime/tool/random.h"
#include "runtime/tool/verify.h"

enum { STREAM_SAMPLES = 1000 };

struct sample { /* query block |i| of batch and head |bh| */
  int64_t bh, i;
};

struct comparison {
  const struct verify_call *call;
  struct cpu_problem problem;
  struct cpu_problem *sequences; /* [B] */
  struct verify_head *heads;     /* [BH] */
  struct sample *samples;
  int64_t n_samples;
  struct verify_result *result;
};

static void out_of_memory(const struct comparison *c) {
  verify_fail(c->result, "not enough host memory for the oracle");
}

static void compare_head(void *context, int thread, int64_t bh) {
  struct comparison *c = context;
  struct verify_head *head = &c->heads[bh];
  (void)thread;
  if (!oracle_head_init(&head->inputs, head->problem, head->b, head->h) ||
      !oracle_summary_init(&head->expected, head->problem) ||
      !oracle_summary_init(&head->stored, head->problem) ||
      (verify_leads_group(head) && !oracle_statistics(&head->inputs, &head->expected))) {
    out_of_memory(c);
    return;
  }
  verify_statistics(head);
  verify_lists(head);
  verify_pairs(head);
  head->ready = true;
}

static void compare_sample(void *context, int thread, int64_t index) {
  struct comparison *c = context;
  const struct verify_head *head = &c->heads[c->samples[index].bh];
  (void)thread;
  if (head->ready && !verify_attention(head, c->samples[index].i))
    out_of_memory(c);
}

/* Multiplications of one query block in the oracle. */
static double block_work(const struct cpu_problem *p) {
  double exact = p->dense || p->linear ? (double)p->n_k : (double)(p->kept * p->key);
  double columns = fmin(exact, (double)p->n_k) + (p->means ? (double)p->k_blocks : 0);
  return 2.0 * p->query * p->head_dim * columns;
}

/* How many of |all| query blocks are compared: what the oracle does in a second or two. */
static int64_t sample_count(const struct cpu_problem *p, int64_t all) {
  double most = VERIFY_WORK / block_work(p);
  int64_t n = most > VERIFY_FEWEST ? (int64_t)most : VERIFY_FEWEST;
  return n < all ? n : all;
}

/* All query blocks, or a seeded sample with the first and the last one. */
static bool choose_samples(struct comparison *c, uint64_t seed) {
  const struct cpu_problem *p = &c->problem;
  int64_t all = p->batch * p->heads * p->q_blocks;
  struct random random = random_at(seed, STREAM_SAMPLES, 0);
  c->n_samples = sample_count(p, all);
  c->samples = malloc((size_t)c->n_samples * sizeof *c->samples);
  for (int64_t s = 0; c->samples && s < c->n_samples; s++) {
    int64_t at = c->n_samples == all || s == 0 ? s : s == 1 ? all - 1 : random_below(&random, all);
    c->samples[s] = (struct sample){at / p->q_blocks, at % p->q_blocks};
  }
  c->result->blocks = all;
  return c->samples != NULL;
}

static bool make_heads(struct comparison *c, const struct verify_outputs *outputs) {
  const struct cpu_problem *p = &c->problem;
  c->sequences = calloc((size_t)p->batch, sizeof *c->sequences);
  c->heads = calloc((size_t)(p->batch * p->heads), sizeof *c->heads);
  if (!c->sequences || !c->heads)
    return false;
  for (int64_t b = 0; b < p->batch; b++)
    c->sequences[b] = cpu_sequence(p, b);
  for (int64_t bh = 0; bh < p->batch * p->heads; bh++)
    c->heads[bh] = (struct verify_head){.problem = &c->sequences[bh / p->heads],
                                        .call = c->call,
                                        .key_blocks = p->k_blocks,
                                        .outputs = outputs,
                                        .result = c->result,
                                        .b = bh / p->heads,
                                        .h = bh % p->heads};
  return true;
}

static void free_heads(struct comparison *c) {
  for (int64_t bh = 0; c->heads && bh < c->problem.batch * c->problem.heads; bh++) {
    oracle_head_free(&c->heads[bh].inputs);
    oracle_summary_free(&c->heads[bh].expected);
    oracle_summary_free(&c->heads[bh].stored);
  }
  free(c->heads);
  free(c->sequences);
}

/* The call on the host images of its arrays. */
static void make_problem(const struct verify_call *call, struct cpu_problem *problem) {
  pisa_attention host = call->request;
  host.q = verify_tensor_host(&call->inputs.q);
  host.k = verify_tensor_host(&call->inputs.k);
  host.v = verify_tensor_host(&call->inputs.v);
  host.o = verify_tensor_host(&call->o);
  host.k_lengths = call->inputs.lengths;
  host.lists = call->given;
  host.pages = NULL;
  cpu_problem_init(problem, &call->module->method, &call->shape, &host);
}

bool verify_compare(const struct verify_call *call, const struct verify_outputs *outputs,
                    uint64_t seed, struct verify_result *result) {
  struct comparison c = {.call = call, .result = result};
  int threads = cpu_threads(0);
  make_problem(call, &c.problem);
  bool ok = make_heads(&c, outputs) && choose_samples(&c, seed);
  if (ok) {
    cpu_parallel(threads, call->shape.bh, compare_head, &c);
    cpu_parallel(threads, c.n_samples, compare_sample, &c);
    if (!(verify_o_rel(result) <= verify_limits_of(c.problem.type).o_rel))
      verify_fail(result, "o: relative L2 error %.3g over all rows compared", verify_o_rel(result));
  }
  free_heads(&c);
  free(c.samples);
  return ok;
}

/* Whether query block |row| of [BH, NTq] has the same list in both runs. */
static bool same_list(const struct verify_call *call, const struct verify_outputs *a,
                      const struct verify_outputs *b, int64_t row) {
  const uint32_t *x = verify_part(a, PISA_WORKSPACE_MASKS),
                 *y = verify_part(b, PISA_WORKSPACE_MASKS);
  int64_t words = call->layout.mask_words;
  return !x || memcmp(x + row * words, y + row * words, (size_t)words * sizeof *x) == 0;
}

/* Sums another order of tokens rounds differently may tip a score: such blocks are not compared,
   and few of them are granted. */
void verify_unchanged(const struct verify_call *call, const struct verify_outputs *outputs,
                      const struct verify_outputs *permuted, struct verify_result *result) {
  const struct pisa_shape *s = &call->shape;
  pisa_type type = call->module->method.type;
  int64_t query = call->module->method.query, tipped = 0, rows = s->bh * s->nt_q;
  double difference = 0, size = 0;
  for (int64_t row = 0; row < rows; row++) {
    int64_t begin = row % s->nt_q * query, end = begin + query < s->n_q ? begin + query : s->n_q;
    int64_t first = (row / s->nt_q * s->n_q + begin) * call->o.d, n = (end - begin) * call->o.d;
    if (!same_list(call, outputs, permuted, row)) {
      tipped++;
      continue;
    }
    for (int64_t e = first; e < first + n; e++) {
      double before = (double)cpu_widen(type, outputs->o[e]),
             after = (double)cpu_widen(type, permuted->o[e]);
      difference += (after - before) * (after - before);
      size += before * before;
    }
  }
  double relative = difference == 0 ? 0 : sqrt(difference / size);
  if (!(relative <= verify_limits_of(type).o_rel))
    verify_fail(result,
                "o moved by %.3g (relative L2) when tokens were permuted inside their blocks",
                relative);
  if (tipped > 1 + rows / 32)
    verify_fail(result, "%lld of %lld lists changed when tokens were permuted inside their blocks",
                (long long)tipped, (long long)rows);
}
