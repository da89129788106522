/* kept.c: in goes a spec and a length; out comes how many key blocks its query blocks read. */
#include "compiler/plan/kept.h"

#include <math.h>

#include "compiler/plan/plan.h"

enum { MAX_FORCED = PLAN_MAX_ALWAYS + 1 };

struct range {
  int64_t begin, end; /* blocks */
};

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Blocks that the tokens [from, to) touch, of those there are. */
static struct range touched(int64_t from, int64_t to, int64_t tokens, int64_t key) {
  from = larger(0, from);
  to = smaller(to, tokens);
  return from < to ? (struct range){from / key, ceil_div(to, key)} : (struct range){0, 0};
}

/* How many blocks are in one of |n| ranges: leftmost first, |done| blocks counted so far. */
static int64_t count_blocks(const struct range *range, int n) {
  int64_t count = 0, done = 0;
  for (;;) {
    const struct range *best = 0;
    for (int i = 0; i < n; i++)
      if (range[i].end > done && (!best || range[i].begin < best->begin))
        best = &range[i];
    if (!best)
      return count;
    count += best->end - larger(best->begin, done);
    done = best->end;
  }
}

/* Blocks around query block |i|. */
static struct range around(const struct spec *spec, int64_t i, int64_t tokens) {
  int64_t key = spec->blocks.key, query = spec->blocks.query, width = plan_window(spec) * key;
  return touched(i * query - width, (i + 1) * query + width, tokens, key);
}

/* Blocks that query block |i| has forced. */
static int64_t forced_blocks(const struct spec *spec, int64_t tokens, int64_t i) {
  struct always_tokens always[PLAN_MAX_ALWAYS];
  struct range range[MAX_FORCED];
  int n = plan_always(spec, always);
  for (int a = 0; a < n; a++) {
    bool is_last = always[a].kind == ALWAYS_TOKENS_LAST;
    range[a] = touched(is_last ? tokens - always[a].end : always[a].begin,
                       is_last ? tokens : always[a].end, tokens, spec->blocks.key);
  }
  if (plan_window(spec) >= 0)
    range[n++] = around(spec, i, tokens);
  return count_blocks(range, n);
}

int64_t forced_nodes(const struct spec *spec, int64_t tokens, int64_t own, int64_t size) {
  struct always_tokens always[PLAN_MAX_ALWAYS];
  struct range range[MAX_FORCED + 1];
  int64_t leaf = spec->pyramid.leaf;
  int64_t seen = spec->shape.mask == MASK_CAUSAL ? smaller(tokens, (own + 1) * leaf) : tokens;
  int n = plan_always(spec, always);
  for (int a = 0; a < n; a++) {
    bool is_last = always[a].kind == ALWAYS_TOKENS_LAST;
    range[a] = touched(is_last ? tokens - always[a].end : always[a].begin,
                       is_last ? tokens : always[a].end, seen, size);
  }
  if (spec->route.always_blocks & ALWAYS_PREVIOUS)
    range[n++] = touched((own - 1) * leaf, own * leaf, seen, size);
  if (spec->route.always_blocks & ALWAYS_CURRENT)
    range[n++] = touched(own * leaf, (own + 1) * leaf, seen, size);
  return count_blocks(range, n);
}

/* Of the blocks that are not forced, those above mu + threshold sigma. */
static int64_t above_threshold(const struct spec *spec, int64_t blocks) {
  double threshold = (double)spec->route.threshold.num / (double)spec->route.threshold.den;
  return (int64_t)round((double)blocks * erfc(threshold / sqrt(2)) / 2);
}

int64_t kept_blocks(const struct spec *spec, int64_t tokens, int64_t i) {
  int64_t blocks = ceil_div(tokens, spec->blocks.key);
  if (spec->attend.all_exact && spec->shape.mask == MASK_CAUSAL)
    return smaller(blocks, ceil_div((i + 1) * spec->blocks.query, spec->blocks.key));
  if (spec->attend.all_exact)
    return blocks;
  int64_t forced = forced_blocks(spec, tokens, i), kept = spec->route.keep;
  if (spec->route.budget == BUDGET_THRESHOLD)
    return larger(1, forced + above_threshold(spec, blocks - forced));
  if (spec->route.budget == BUDGET_DENSITY)
    kept = larger(1, blocks * spec->route.density.num / spec->route.density.den);
  return smaller(blocks, larger(kept, forced));
}

bool kept_are_alike(const struct spec *spec) {
  return plan_window(spec) < 0 && spec->shape.mask == MASK_NONE;
}
