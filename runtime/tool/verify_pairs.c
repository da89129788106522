/* verify_pairs.c: lists that two neighbouring query blocks walk together (lists union), and
   |shared|, of one head: the blocks that both list come first in both, an even number of them,
   ascending, without a short last block; then what each has of its own, ascending. */
#include "runtime/tool/verify.h"

struct pair { /* of lists; both the same for a last query block without a partner */
  const int32_t *list[2];
  int64_t count[2];
  int64_t shared;
};

static bool has(const struct pair *pair, int side, int32_t block) {
  for (int64_t e = 0; e < pair->count[side]; e++)
    if (pair->list[side][e] == block)
      return true;
  return false;
}

/* What both list but for |short_block|, less one where that is odd. */
static int64_t most_shared(const struct pair *pair, int64_t short_block) {
  int64_t common = 0;
  for (int64_t e = 0; e < pair->count[0]; e++)
    common += pair->list[0][e] != short_block && has(pair, 1, pair->list[0][e]);
  return common / 2 * 2;
}

static bool ascending(const int32_t *list, int64_t begin, int64_t end) {
  for (int64_t e = begin + 1; e < end; e++)
    if (list[e] <= list[e - 1])
      return false;
  return true;
}

/* NULL, or what is wrong. */
static const char *flaw(const struct pair *pair, int64_t short_block) {
  if (pair->shared != most_shared(pair, short_block))
    return "is not the even number of blocks that both lists have";
  for (int64_t e = 0; e < pair->shared; e++)
    if (pair->list[0][e] != pair->list[1][e] || pair->list[0][e] == short_block)
      return "goes beyond what both lists begin with";
  for (int side = 0; side < 2; side++)
    if (!ascending(pair->list[side], 0, pair->shared) ||
        !ascending(pair->list[side], pair->shared, pair->count[side]))
      return "splits a list into parts that are not ascending";
  return NULL;
}

void verify_pairs(const struct verify_head *head) {
  const struct cpu_problem *p = head->problem;
  const int32_t *shared = verify_part(head->outputs, PISA_WORKSPACE_SHARED);
  int64_t pairs = (p->q_blocks + 1) / 2, most = p->kept < p->k_blocks ? p->kept : p->k_blocks;
  int64_t short_block = p->n_k % p->key ? p->k_blocks - 1 : -1;
  for (int64_t i = 0; shared && i < pairs; i++) {
    struct pair pair = {.shared = shared[(head->b * p->heads + head->h) * pairs + i]};
    bool valid = true;
    for (int side = 0; side < 2; side++) {
      int64_t row = 2 * i + side < p->q_blocks ? 2 * i + side : 2 * i;
      pair.list[side] = verify_list(head, row, &pair.count[side]);
      valid = valid && pair.count[side] >= 0 && pair.count[side] <= most;
    }
    const char *wrong = valid ? flaw(&pair, short_block) : NULL; /* verify_lists has said so */
    if (wrong)
      verify_fail(head->result, "shared[%lld, %lld, %lld] = %lld %s", (long long)head->b,
                  (long long)head->h, (long long)i, (long long)pair.shared, wrong);
  }
}
