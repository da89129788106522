/* verify_attention.c: one query block of o and lse, device against double, with the list and the
   summaries the device itself made. */
#include <math.h>
#include <stdlib.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/verify.h"

#define WHERE (long long)head->b, (long long)head->h, (long long)i

struct block { /* one query block in double */
  int64_t rows;
  double *o;   /* [rows, D] */
  double *lse; /* [rows] */
};

static bool same_kind(double a, double b) {
  return isnan(a) ? isnan(b) : isinf(a) ? a == b : isfinite(b);
}

/* Error and size of o in this block; elements that are not finite must match in kind. */
static void compare_o(const struct verify_head *head, int64_t i, const struct block *block) {
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim, first = (head->b * p->heads + head->h) * p->n_q + i * p->query;
  const uint16_t *o = head->outputs->o + first * D;
  double error = 0, size = 0;
  int64_t unlike = 0;
  for (int64_t e = 0; e < block->rows * D; e++) {
    double expected = block->o[e], got = (double)cpu_widen(p->type, o[e]);
    if (!same_kind(expected, got)) {
      unlike++;
    } else if (isfinite(expected)) {
      error += (got - expected) * (got - expected);
      size += expected * expected;
    }
  }
  double relative = error == 0 ? 0 : sqrt(error / size);
  if (unlike)
    verify_fail(head->result,
                "o[%lld, %lld] query block %lld: %lld elements are finite or not, "
                "unlike the oracle's",
                WHERE, (long long)unlike);
  if (!(relative <= verify_limits_of(p->type).o_rel))
    verify_fail(head->result, "o[%lld, %lld] query block %lld: relative L2 error %.3g", WHERE,
                relative);
  pthread_mutex_lock(&head->result->lock);
  head->result->o_square_error += error;
  head->result->o_square += size;
  head->result->block_rel = fmax(head->result->block_rel, relative);
  head->result->blocks_compared++;
  pthread_mutex_unlock(&head->result->lock);
}

static void compare_lse(const struct verify_head *head, int64_t i, const struct block *block) {
  const struct cpu_problem *p = head->problem;
  int64_t first = (head->b * p->heads + head->h) * p->n_q + i * p->query;
  double largest = 0;
  for (int64_t row = 0; row < block->rows; row++) {
    double expected = block->lse[row], got = (double)head->outputs->lse[first + row];
    double error =
        same_kind(expected, got) ? isfinite(expected) ? fabs(got - expected) : 0 : INFINITY;
    if (!(error <= VERIFY_LSE_ABS) && error > largest)
      verify_fail(head->result, "lse[%lld, %lld, %lld] = %.7g, expected %.7g", (long long)head->b,
                  (long long)head->h, (long long)(i * p->query + row), got, expected);
    largest = fmax(largest, error);
  }
  pthread_mutex_lock(&head->result->lock);
  head->result->lse_abs = fmax(head->result->lse_abs, largest);
  pthread_mutex_unlock(&head->result->lock);
}

static bool valid_list(const struct cpu_problem *p, const int32_t *list, int64_t n) {
  if (n < 0 || n > p->kept)
    return false;
  for (int64_t e = 0; e < n; e++)
    if (list[e] < 0 || list[e] >= p->k_blocks)
      return false;
  return true;
}

static bool compare(const struct verify_head *head, int64_t i, struct block *block) {
  const struct cpu_problem *p = head->problem;
  int64_t n = 0;
  const int32_t *list = p->dense ? NULL : verify_list(head, i, &n);
  if (!p->dense && !valid_list(p, list, n)) /* verify_lists has said so */
    return true;
  if (!oracle_attend(&head->inputs, &head->stored, i, list, n, block->o, block->lse))
    return false;
  compare_o(head, i, block);
  compare_lse(head, i, block);
  return true;
}

bool verify_attention(const struct verify_head *head, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t rows = cpu_query_length(p, i);
  struct block block = {.rows = rows,
                        .o = malloc((size_t)(rows * p->head_dim) * sizeof *block.o),
                        .lse = malloc((size_t)rows * sizeof *block.lse)};
  bool ok = block.o && block.lse && compare(head, i, &block);
  free(block.o);
  free(block.lse);
  return ok;
}
