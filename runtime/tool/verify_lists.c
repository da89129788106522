/* verify_lists.c: block lists, bit masks and the ids output of one head, against scores in double
   from the summaries the device stored. Two blocks may be exchanged only where their scores differ
   by less than float arithmetic can tell; equal scores go to the lower index. */
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
  const int32_t *list; /* [kept] */
  bool *listed;        /* [NT] */
  double *score;       /* [NT] */
  double *gap;         /* [NT] */
};

static bool in_order(const struct verify_head *head, const int32_t *list, int64_t i) {
  const struct cpu_problem *p = head->problem;
  for (int64_t e = 0; e < p->kept; e++) {
    bool ok = list[e] >= 0 && list[e] < p->k_blocks && (e == 0 || list[e] > list[e - 1]);
    if (!ok) {
      verify_fail(head->result,
                  "lists[%lld, %lld, %lld]: entry %lld is %d: not ascending block ids", WHERE,
                  (long long)e, list[e]);
      return false;
    }
  }
  return true;
}

static void check_padding(const struct verify_head *head, const int32_t *list, int64_t i) {
  for (int64_t e = head->problem->kept; e < head->outputs->layout.list_stride; e++)
    if (list[e] != 0) {
      verify_fail(head->result, "lists[%lld, %lld, %lld]: padding entry %lld is %d, not 0", WHERE,
                  (long long)e, list[e]);
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

static void check_ids(const struct verify_head *head, const int32_t *list, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t bh = head->b * p->heads + head->h;
  const int32_t *ids = head->outputs->blocks + (bh * p->q_blocks + i) * p->kept;
  if (memcmp(ids, list, (size_t)p->kept * sizeof *ids) != 0)
    verify_fail(head->result, "ids[%lld, %lld, %lld] are not the list attend used", WHERE);
}

/* The score gap granted between block j and another one: gap_j + gap_other. */
static void fill_gaps(const struct verify_head *head, int64_t i, double *gap) {
  const struct cpu_problem *p = head->problem;
  int64_t D = p->head_dim, per_block = p->query / p->key, first = i * per_block;
  bool ragged = cpu_query_length(p, i) < p->query && per_block > 1;
  double factor = PRODUCT_GAP;
  if (ragged) /* a weighted mean of two, rounded once more: its entries may differ in the last place
               */
    factor += verify_limits_of(p->type).ulp;
  for (int64_t j = 0; j < p->k_blocks; j++) {
    double size = 0;
    for (int64_t d = 0; d < D; d++) {
      double q = fabs(head->stored.q_mean[first * D + d]);
      if (per_block > 1 && first + 1 < p->q_sub_blocks)
        q = fmax(q, fabs(head->stored.q_mean[(first + 1) * D + d]));
      size += q * fabs(head->stored.k_mean[j * D + d]);
    }
    gap[j] = factor * p->scale * size;
    if (p->log_covariance)
      gap[j] += TERM_GAP * (1 + fabs(log(head->stored.block_norm[j] + 1e-5)));
    if (p->key_variance)
      gap[j] += TERM_GAP * (1 + fabs(log(fmax(head->stored.block_norm[j], 1e-8))));
  }
}

/* The listed block with the lowest score, the last one of equals. */
static int64_t weakest(const struct cpu_problem *p, const struct row *row) {
  int64_t low = row->list[0];
  for (int64_t e = 1; e < p->kept; e++)
    if (row->score[row->list[e]] <= row->score[low])
      low = row->list[e];
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
static void check_choice(const struct verify_head *head, const struct row *row, int64_t i) {
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

static void check_row(const struct verify_head *head, struct row *row, int64_t i) {
  const struct cpu_problem *p = head->problem;
  int64_t bh = head->b * p->heads + head->h;
  const int32_t *lists = verify_part(head->outputs, PISA_WORKSPACE_LISTS);
  row->list = lists + (bh * p->q_blocks + i) * head->outputs->layout.list_stride;
  if (!in_order(head, row->list, i))
    return;
  memset(row->listed, 0, (size_t)p->k_blocks * sizeof *row->listed);
  for (int64_t e = 0; e < p->kept; e++)
    row->listed[row->list[e]] = true;
  check_padding(head, row->list, i);
  check_mask(head, row->listed, i);
  check_ids(head, row->list, i);
  oracle_scores(p, &head->stored, i, row->score);
  fill_gaps(head, i, row->gap);
  check_choice(head, row, i);
}

void verify_lists(const struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  size_t n = (size_t)p->k_blocks;
  if (p->dense)
    return;
  struct row row = {.listed = malloc(n * sizeof *row.listed),
                    .score = malloc(n * sizeof *row.score),
                    .gap = malloc(n * sizeof *row.gap)};
  if (!row.listed || !row.score || !row.gap)
    verify_fail(head->result, "out of host memory");
  else
    for (int64_t i = 0; i < p->q_blocks; i++)
      check_row(head, &row, i);
  free(row.listed);
  free(row.score);
  free(row.gap);
}
