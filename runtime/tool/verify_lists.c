/* verify_lists.c: counts, block lists, bit masks and the ids output of one head, against scores in
   double from the summaries the device stored. Blocks may be exchanged, or be on the other side of
   a threshold, only where their scores differ by less than float arithmetic can tell; equal scores
   go to the lower index. Lists that the call gave leave nothing to tell. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"
#include "runtime/tool/verify.h"

#define WHERE (long long)head->b, (long long)head->h, (long long)i

/* Score gaps float arithmetic cannot resolve, relative to scale * sum |q_d k_d| and to the
   logarithm: 128 products accumulated in float stay within 2^-18; four times that is granted. */
#define PRODUCT_GAP 0x1p-16
#define TERM_GAP 0x1p-18

struct row {           /* one query block: what the device listed and what the scores say */
  const int32_t *list; /* entries of the device's list */
  int64_t count;       /* of which so many are read exactly */
  bool *listed;        /* [NT] */
  double *score;       /* [NT] */
  double *gap;         /* [NT] how far off the device's score may be */
  double product_gap;  /* the same of a score without its term, the largest of all blocks */
  int32_t *given;      /* [NT] scratch */
};

const int32_t *verify_list(const struct verify_head *head, int64_t i, int64_t *count) {
  const struct cpu_problem *p = head->problem;
  int64_t row = (head->b * p->heads + head->h) * p->q_blocks + i;
  const int32_t *lists = verify_part(head->outputs, PISA_WORKSPACE_LISTS);
  const int32_t *counts = verify_part(head->outputs, PISA_WORKSPACE_COUNTS);
  *count = counts[row];
  return lists + row * head->outputs->layout.list_stride;
}

/* ---- what was stored is well formed ---- */

static bool check_count(const struct verify_head *head, int64_t count, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t most = p->kept < p->k_blocks ? p->kept : p->k_blocks;
  if (count >= 0 && count <= most)
    return true;
  verify_fail(head->result, "counts[%lld, %lld, %lld] is %lld, not 0 to %lld", WHERE,
              (long long)count, (long long)most);
  return false;
}

/* Marks what is listed; false when an entry is no block or stands twice. */
static bool mark(const struct verify_head *head, struct row *row, int64_t i) {
  memset(row->listed, 0, (size_t)head->problem->k_blocks * sizeof *row->listed);
  for (int64_t e = 0; e < row->count; e++) {
    int32_t j = row->list[e];
    if (j < 0 || j >= head->problem->k_blocks || row->listed[j]) {
      verify_fail(head->result, "lists[%lld, %lld, %lld]: entry %lld is %d: no block, or twice",
                  WHERE, (long long)e, j);
      return false;
    }
    row->listed[j] = true;
  }
  return true;
}

/* Ascending; where lists are walked in pairs verify_pairs knows more. */
static void check_order(const struct verify_head *head, const struct row *row, int64_t i) {
  for (int64_t e = 1; e < row->count && !head->call->module->method.union_lists; e++)
    if (row->list[e] <= row->list[e - 1]) {
      verify_fail(head->result, "lists[%lld, %lld, %lld]: entry %lld is %d: not ascending", WHERE,
                  (long long)e, row->list[e]);
      return;
    }
}

/* Behind a list come zeros; with taylor 1 first the blocks that it does not list, ascending. */
static void check_behind(const struct verify_head *head, const struct row *row, int64_t i) {
  int64_t e = row->count, stride = head->outputs->layout.list_stride;
  for (int64_t j = 0; head->problem->linear && j < head->problem->k_blocks; j++)
    if (!row->listed[j] && row->list[e++] != j) {
      verify_fail(head->result, "lists[%lld, %lld, %lld]: entry %lld is %d, not the rest's %lld",
                  WHERE, (long long)(e - 1), row->list[e - 1], (long long)j);
      return;
    }
  for (; e < stride; e++)
    if (row->list[e] != 0) {
      verify_fail(head->result, "lists[%lld, %lld, %lld]: padding entry %lld is %d, not 0", WHERE,
                  (long long)e, row->list[e]);
      return;
    }
}

/* Bit j is set exactly where block j is listed or absent. */
static void check_mask(const struct verify_head *head, const bool *listed, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t bh = head->b * p->heads + head->h, words = head->outputs->layout.mask_words;
  const uint32_t *masks = verify_part(head->outputs, PISA_WORKSPACE_MASKS);
  const uint32_t *mask = masks + (bh * p->q_blocks + i) * words;
  for (int64_t j = 0; j < 32 * words; j++) {
    bool bit = mask[j / 32] >> (j % 32) & 1, expected = j >= p->k_blocks || listed[j];
    if (bit != expected) {
      verify_fail(head->result, "masks[%lld, %lld, %lld]: bit %lld is %d (%s)", WHERE, (long long)j,
                  bit,
                  j >= p->k_blocks ? "absent block"
                  : expected       ? "listed block"
                                   : "other block");
      return;
    }
  }
}

/* The listed blocks ascending, then -1. */
static void check_ids(const struct verify_head *head, const bool *listed, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t bh = head->b * p->heads + head->h, e = 0;
  const int32_t *ids = head->outputs->blocks + (bh * p->q_blocks + i) * p->kept;
  for (int64_t j = 0; j < p->k_blocks; j++)
    if (listed[j] && ids[e++] != j) {
      verify_fail(head->result, "ids[%lld, %lld, %lld] are not the list attend used", WHERE);
      return;
    }
  for (; e < p->kept; e++)
    if (ids[e] != -1) {
      verify_fail(head->result, "ids[%lld, %lld, %lld]: entry %lld is %d, not the -1 of padding",
                  WHERE, (long long)e, ids[e]);
      return;
    }
}

/* ---- the choice is right ---- */

/* Of a score without its term, for block j: the scale of its rounding errors. */
static double product_size(const struct verify_head *head, int64_t i, int64_t j) {
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim, per_block = p->query / p->key, first = i * per_block;
  double size = 0;
  for (int64_t d = 0; d < D; d++) {
    double q = fabs(head->stored.q_mean[first * D + d]);
    if (per_block > 1 && first + 1 < p->q_sub_blocks)
      q = fmax(q, fabs(head->stored.q_mean[(first + 1) * D + d]));
    size += q * fabs(head->stored.k_mean[j * D + d]);
  }
  return size;
}

static double term_gap(const struct cpu_problem *p, double norm) {
  if (p->key_variance)
    return TERM_GAP * (1 + fabs(log(fmax(norm, 1e-8))));
  return p->log_covariance || p->log_residual ? TERM_GAP * (1 + fabs(log(norm + 1e-5))) : 0;
}

/* The score gap granted between block j and another one is gap_j + gap_other. */
static void fill_gaps(const struct verify_head *head, int64_t i, struct row *row) {
  const struct cpu_problem *p = head->problem;
  double factor = PRODUCT_GAP;
  if (cpu_query_length(p, i) < p->query && p->query > p->key)
    factor += verify_limits_of(p->type).ulp; /* a weighted mean of two, rounded once more: its
                                                entries may differ in the last place */
  row->product_gap = 0;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double gap = factor * p->scale * product_size(head, i, j);
    row->product_gap = fmax(row->product_gap, gap);
    row->gap[j] = gap + term_gap(p, head->stored.block_norm[j]);
  }
}

/* The listed block with the lowest score, the last one of equals. */
static int64_t weakest(const struct cpu_problem *p, const struct row *row) {
  int64_t low = -1;
  for (int64_t j = 0; j < p->k_blocks; j++)
    if (row->listed[j] && (low < 0 || row->score[j] <= row->score[low]))
      low = j;
  return low;
}

static void note_swap(const struct verify_head *head, double gap) {
  pthread_mutex_lock(&head->result->lock);
  head->result->swaps++;
  if (gap > head->result->score_gap)
    head->result->score_gap = gap;
  pthread_mutex_unlock(&head->result->lock);
}

/* No block outside the list may beat one inside it; the always-set scores +inf. */
static void check_best(const struct verify_head *head, const struct row *row, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t low = weakest(p, row);
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double above = row->score[j] == row->score[low] ? 0 : row->score[j] - row->score[low];
    if (row->listed[j] || above < 0)
      continue;
    bool tie = above == 0 && isfinite(row->score[j]),
         granted = above <= row->gap[j] + row->gap[low];
    if (above > 0 && granted)
      note_swap(head, above);
    else if (above > 0)
      verify_fail(head->result,
                  "lists[%lld, %lld, %lld]: block %lld (score %.9g) beats %lld (%.9g)", WHERE,
                  (long long)j, row->score[j], (long long)low, row->score[low]);
    else if (tie && j < low)
      verify_fail(head->result, "lists[%lld, %lld, %lld]: of equal scores %lld was taken, not %lld",
                  WHERE, (long long)low, (long long)j);
  }
}

static void check_top(const struct verify_head *head, const struct row *row, int64_t i) {
  int64_t wanted = cpu_count(head->problem, i);
  if (row->count != wanted)
    verify_fail(head->result, "counts[%lld, %lld, %lld] is %lld, not %lld", WHERE,
                (long long)row->count, (long long)wanted);
  else if (wanted > 0)
    check_best(head, row, i);
}

/* Whether the one listed block is there because no block is above the limit. */
static bool is_fallback(const struct verify_head *head, const struct row *row, double low) {
  for (int64_t j = 0; j < head->problem->k_blocks; j++)
    if (row->score[j] > low)
      return row->count == 1 && row->listed[j] && row->score[j] - low <= row->gap[j];
  return row->count == 1;
}

/* Listed are the blocks above the limit; mu and sigma of float scores are off as far as these. */
static void check_above(const struct verify_head *head, const struct row *row, int64_t i) {
  const struct cpu_problem *p = head->problem;
  double limit = oracle_limit(p, &head->stored, i);
  double limit_gap = (1 + p->tau) * row->product_gap + TERM_GAP * (1 + fabs(limit));
  if (!isfinite(limit)) /* a query that is not finite */
    return;
  if (is_fallback(head, row, limit + limit_gap)) {
    check_best(head, row, i);
    return;
  }
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double above = row->score[j] - limit;
    if (row->listed[j] == (above > 0))
      continue;
    if (fabs(above) <= row->gap[j] + limit_gap)
      note_swap(head, fabs(above));
    else
      verify_fail(head->result,
                  "lists[%lld, %lld, %lld]: block %lld is %slisted, its score %.9g, the limit %.9g",
                  WHERE, (long long)j, row->listed[j] ? "" : "not ", row->score[j], limit);
  }
}

static void check_given(const struct verify_head *head, const struct row *row, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t bh = head->b * p->heads + head->h, n = head->call->request.n_listed;
  const int32_t *given = head->call->given + (bh * p->q_blocks + i) * n;
  int64_t wanted = cpu_given_list(p, given, n, row->given);
  bool same = row->count == wanted;
  if (!same)
    verify_fail(head->result, "counts[%lld, %lld, %lld] is %lld, but %lld blocks were given", WHERE,
                (long long)row->count, (long long)wanted);
  for (int64_t e = 0; same && e < wanted; e++)
    same = row->listed[row->given[e]];
  if (!same && row->count == wanted)
    verify_fail(head->result, "lists[%lld, %lld, %lld] is not the list that was given", WHERE);
}

static void check_choice(const struct verify_head *head, struct row *row, int64_t i) {
  const struct cpu_problem *p = head->problem;
  if (head->call->given) {
    check_given(head, row, i);
    return;
  }
  oracle_scores(p, &head->stored, i, row->score);
  fill_gaps(head, i, row);
  if (!p->threshold)
    check_top(head, row, i);
  else if (row->count == 0 && p->k_blocks > 0)
    verify_fail(head->result, "counts[%lld, %lld, %lld] is 0, not 1 at least", WHERE);
  else if (row->count > 0)
    check_above(head, row, i);
}

static void check_row(const struct verify_head *head, struct row *row, int64_t i) {
  row->list = verify_list(head, i, &row->count);
  if (!check_count(head, row->count, i) || !mark(head, row, i))
    return;
  check_order(head, row, i);
  check_behind(head, row, i);
  check_mask(head, row->listed, i);
  check_ids(head, row->listed, i);
  check_choice(head, row, i);
}

void verify_lists(const struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  size_t n = (size_t)(head->key_blocks);
  if (p->dense)
    return;
  struct row row = {.listed = malloc(n * sizeof *row.listed),
                    .score = malloc(n * sizeof *row.score),
                    .gap = malloc(n * sizeof *row.gap),
                    .given = malloc(n * sizeof *row.given)};
  if (!row.listed || !row.score || !row.gap || !row.given)
    verify_fail(head->result, "out of host memory");
  else
    for (int64_t i = 0; i < p->q_blocks; i++)
      check_row(head, &row, i);
  free(row.listed);
  free(row.score);
  free(row.gap);
  free(row.given);
}
