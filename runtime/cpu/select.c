/* select.c: what is visible, what is forced, and the walk from the root to the leaves. */
#include "runtime/cpu/select.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t select_visible(const struct selection *s, const struct pyramid *p, int64_t t, int level) {
  int64_t nodes = pyramid_nodes(p, level);
  if (!s->causal)
    return nodes;
  int64_t seen = t < 0 ? 0 : t / pyramid_size(p, level) + 1;
  return seen < nodes ? seen : nodes;
}

static bool touch(struct cpu_range a, struct cpu_range b) {
  return a.begin < b.end && b.begin < a.end && a.begin < a.end && b.begin < b.end;
}

/* The tokens of the visible leaves under a node. */
static struct cpu_range tokens_under(const struct selection *s, const struct pyramid *p, int64_t t,
                                     int level, int64_t node) {
  int64_t begin = node * pyramid_size(p, level);
  int64_t end = begin + pyramid_count(p, level, node);
  int64_t seen = select_visible(s, p, t, 1) * p->leaf;
  return (struct cpu_range){begin, end < seen ? end : seen};
}

bool select_forced(const struct selection *s, const struct pyramid *p, int64_t t, int level,
                   int64_t node) {
  struct cpu_range under = tokens_under(s, p, t, level, node);
  for (int a = 0; a < s->n_always; a++) {
    struct cpu_range always = s->always[a];
    if (always.begin < 0)
      always = (struct cpu_range){p->tokens + always.begin, p->tokens};
    if (touch(under, always))
      return true;
  }
  if (t < 0)
    return false;
  int64_t own = t / p->leaf * p->leaf;
  return (s->current && touch(under, (struct cpu_range){own, own + p->leaf})) ||
         (s->previous && touch(under, (struct cpu_range){own - p->leaf, own}));
}

int select_start(const struct selection *s, const struct pyramid *p, int64_t t) {
  int level = 1, root = pyramid_root(p);
  if (s->flat)
    return level;
  int64_t most = s->start_nodes > 0 ? s->start_nodes : 1;
  while (level < root && select_visible(s, p, t, level) > most)
    level++;
  return level;
}

int64_t select_children(const struct selection *s, const struct pyramid *p, int64_t t, int level,
                        const int32_t *node, int64_t n, int32_t *child) {
  int64_t count = 0, children = pyramid_children(p, level);
  int64_t visible = select_visible(s, p, t, level - 1);
  for (int64_t e = 0; e < n; e++)
    for (int64_t r = node[e] * children; r < (node[e] + 1) * children && r < visible; r++)
      child[count++] = (int32_t)r;
  return count;
}

struct scratch { /* room for all leaves, of which no level has more nodes */
  int32_t *candidate, *kept;
  double *score, *worth;
};

static bool scratch_init(struct scratch *scratch, int heads, int64_t leaves) {
  size_t n = (size_t)leaves + 1;
  scratch->candidate = malloc(n * sizeof(int32_t));
  scratch->kept = malloc(n * sizeof(int32_t));
  scratch->score = malloc(n * (size_t)heads * sizeof(double));
  scratch->worth = malloc(n * sizeof(double));
  return scratch->candidate && scratch->kept && scratch->score && scratch->worth;
}

static void scratch_free(struct scratch *scratch) {
  free(scratch->candidate);
  free(scratch->kept);
  free(scratch->score);
  free(scratch->worth);
}

/* scratch->kept from the |n| candidates; their number. worth [n] is that of the candidates. */
static int64_t keep_level(const struct selection *s, const struct pyramid *p, const double *q,
                          int64_t t, int level, struct scratch *x, int64_t n) {
  if (n <= s->keep) {
    memcpy(x->kept, x->candidate, (size_t)n * sizeof *x->kept);
    for (int64_t e = 0; e < n; e++)
      x->worth[e] = INFINITY;
    return n;
  }
  select_scores(s, p, q, t, level, x->candidate, n, x->score);
  select_reduce(s, x->score, n, x->worth);
  return select_best(s, p, t, level, x->candidate, x->worth, n, x->kept);
}

/* Kept leaves, with their worth, into arrays of |room|. */
static void hand_over(const struct scratch *x, int64_t candidates, int64_t kept, int64_t room,
                      int32_t *list, double *worth) {
  assert(kept <= room);
  for (int64_t e = 0, c = 0; e < room; e++) {
    list[e] = e < kept ? x->kept[e] : -1;
    while (e < kept && c < candidates && x->candidate[c] != x->kept[e])
      c++;
    if (worth)
      worth[e] = e < kept ? x->worth[c] : -INFINITY;
  }
}

bool select_leaves(const struct selection *s, const struct pyramid *p, const double *q, int64_t t,
                   int64_t room, int32_t *list, double *worth, int64_t *n) {
  struct scratch x;
  bool ok = scratch_init(&x, s->heads, pyramid_nodes(p, 1));
  int level = select_start(s, p, t);
  int64_t candidates = ok ? select_visible(s, p, t, level) : 0, kept = 0;
  for (int64_t e = 0; e < candidates; e++)
    x.candidate[e] = (int32_t)e;
  for (; ok; level--) {
    kept = keep_level(s, p, q, t, level, &x, candidates);
    if (level == 1)
      break;
    candidates = select_children(s, p, t, level, x.kept, kept, x.candidate);
  }
  if (ok)
    hand_over(&x, candidates, kept, room, list, worth);
  *n = kept;
  scratch_free(&x);
  return ok;
}

bool select_sequence(const struct selection *s, const struct pyramid *p, const double *q,
                     int64_t n_q, int64_t room, int32_t *list, double *worth) {
  size_t D = (size_t)p->head_dim;
  double *rows = malloc((size_t)s->heads * D * sizeof *rows); /* [G, D] */
  bool ok = rows != NULL;
  for (int64_t r = 0; ok && r < n_q; r++) {
    int64_t n;
    for (int h = 0; h < s->heads; h++)
      memcpy(rows + (size_t)h * D, q + ((size_t)h * (size_t)n_q + (size_t)r) * D, D * sizeof *rows);
    ok = select_leaves(s, p, rows, p->tokens - n_q + r, room, list + r * room,
                       worth ? worth + r * room : NULL, &n);
  }
  free(rows);
  return ok;
}
