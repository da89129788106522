/* How many key blocks an always-set may take of one list: the most, over queries of a long
 * sequence. */
#include "dsl/check.h"

struct interval {
  int64_t begin, end; /* blocks */
};

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t block_size(const struct spec *spec) {
  return spec->route.kind == ROUTE_TOP_K ? spec->blocks.key : spec->pyramid.leaf;
}

/* Blocks counted from the start: `first`, `tokens first n`, `tokens A..B`. */
static int front_intervals(const struct spec *spec, struct interval *out) {
  int n = 0;
  int64_t size = block_size(spec);
  if (spec->route.always_blocks & ALWAYS_FIRST)
    out[n++] = (struct interval){0, 1};
  for (int i = 0; i < spec->route.n_always; i++) {
    const struct always_tokens *t = &spec->route.always[i];
    if (t->kind != ALWAYS_TOKENS_LAST)
      out[n++] = (struct interval){t->begin / size, ceil_div(t->end, size)};
  }
  return n;
}

static void sort_intervals(struct interval *v, int n) {
  for (int i = 1; i < n; i++) {
    for (int j = i; j > 0 && v[j].begin < v[j - 1].begin; j--) {
      struct interval swap = v[j];
      v[j] = v[j - 1];
      v[j - 1] = swap;
    }
  }
}

static int64_t count_front(const struct spec *spec) {
  struct interval v[SPEC_MAX_ALWAYS + 1];
  int n = front_intervals(spec, v);
  sort_intervals(v, n);
  int64_t count = 0, end = 0;
  for (int i = 0; i < n; i++) {
    int64_t begin = v[i].begin > end ? v[i].begin : end;
    if (v[i].end > begin) {
      count += v[i].end - begin;
      end = v[i].end;
    }
  }
  return count;
}

/* Blocks around the query: they coincide with those of the front only for a few queries. */
static int64_t count_near(const struct spec *spec) {
  int64_t diagonal = ceil_div(spec->blocks.query, spec->blocks.key);
  if (spec->route.always_window > 0)
    return diagonal + 2 * spec->route.always_window;
  unsigned blocks = spec->route.always_blocks;
  if (blocks & ALWAYS_DIAGONAL)
    return diagonal;
  return ((blocks & ALWAYS_CURRENT) != 0) + ((blocks & ALWAYS_PREVIOUS) != 0);
}

/* The last n tokens touch one block more when the last block is ragged: worst with one token in it.
 */
static int64_t count_back(const struct spec *spec) {
  int64_t count = (spec->route.always_blocks & ALWAYS_LAST) != 0;
  for (int i = 0; i < spec->route.n_always; i++) {
    const struct always_tokens *t = &spec->route.always[i];
    int64_t touched = 1 + ceil_div(t->end - 1, block_size(spec));
    if (t->kind == ALWAYS_TOKENS_LAST && touched > count)
      count = touched;
  }
  return count;
}

int64_t always_count(const struct spec *spec) {
  return count_front(spec) + count_near(spec) + count_back(spec);
}
