/* pyramid.c: keys in, the mean of every node out; at once, or token by token. */
#include "runtime/cpu/pyramid.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpu/convert.h"

struct pyramid pyramid_of(pisa_type type, int head_dim, int leaf, int group) {
  return (struct pyramid){.type = type, .head_dim = head_dim, .leaf = leaf, .group = group};
}

void pyramid_free(struct pyramid *p) {
  for (int level = 0; level < PYRAMID_MAX_LEVELS; level++) {
    free(p->level[level].sum);
    free(p->level[level].mean);
  }
  *p = pyramid_of(p->type, p->head_dim, p->leaf, p->group);
}

int64_t pyramid_size(const struct pyramid *p, int level) {
  int64_t size = level > 0 ? p->leaf : 1;
  for (int l = 2; l <= level; l++)
    size *= p->group;
  return size;
}

int64_t pyramid_children(const struct pyramid *p, int level) {
  assert(level > 0);
  return level == 1 ? p->leaf : p->group;
}

int64_t pyramid_nodes(const struct pyramid *p, int level) {
  int64_t size = pyramid_size(p, level);
  return (p->tokens + size - 1) / size;
}

int64_t pyramid_count(const struct pyramid *p, int level, int64_t node) {
  int64_t size = pyramid_size(p, level), rest = p->tokens - node * size;
  return rest < size ? rest : size;
}

int pyramid_root(const struct pyramid *p) {
  int level = 1;
  while (pyramid_nodes(p, level) > 1)
    level++;
  return level;
}

double *pyramid_mean(const struct pyramid *p, int level, int64_t node) {
  assert(node >= 0 && node < p->level[level].nodes);
  return p->level[level].mean + node * p->head_dim;
}

static double *node_sum(const struct pyramid *p, int level, int64_t node) {
  return p->level[level].sum + node * p->head_dim;
}

static bool grow(double **rows, int64_t room, int D) {
  double *grown = realloc(*rows, (size_t)(room * D) * sizeof *grown);
  if (grown)
    *rows = grown;
  return grown != NULL;
}

/* One more node, whose sum is 0, with the means of the others kept. */
static bool add_node(struct pyramid *p, int level) {
  struct pyramid_level *l = &p->level[level];
  if (l->nodes == l->room) {
    int64_t room = 2 * l->room + 1;
    if (!grow(&l->sum, room, p->head_dim) || !grow(&l->mean, room, p->head_dim))
      return false;
    l->room = room;
  }
  memset(node_sum(p, level, l->nodes++), 0, (size_t)p->head_dim * sizeof *l->sum);
  return true;
}

static void add_to_sum(const struct pyramid *p, int level, int64_t node, const double *x) {
  for (int d = 0; d < p->head_dim; d++)
    node_sum(p, level, node)[d] += x[d];
}

static void store_mean(const struct pyramid *p, int level, int64_t node) {
  double count = (double)pyramid_count(p, level, node);
  for (int d = 0; d < p->head_dim; d++)
    pyramid_mean(p, level, node)[d] = cpu_round(p->type, node_sum(p, level, node)[d] / count);
}

static bool add_key(struct pyramid *p, const double *key) {
  if (!add_node(p, 0))
    return false;
  p->tokens++;
  memcpy(node_sum(p, 0, p->tokens - 1), key, (size_t)p->head_dim * sizeof *key);
  memcpy(pyramid_mean(p, 0, p->tokens - 1), key, (size_t)p->head_dim * sizeof *key);
  return true;
}

/* Every node of |level| from the keys under it. */
static bool build_level(struct pyramid *p, int level) {
  int64_t size = pyramid_size(p, level);
  for (int64_t node = 0; node < pyramid_nodes(p, level); node++) {
    if (!add_node(p, level))
      return false;
    for (int64_t t = node * size; t < node * size + pyramid_count(p, level, node); t++)
      add_to_sum(p, level, node, pyramid_mean(p, 0, t));
    store_mean(p, level, node);
  }
  return true;
}

bool pyramid_build(struct pyramid *p, const double *k, int64_t n) {
  pyramid_free(p);
  for (int64_t t = 0; t < n; t++)
    if (!add_key(p, k + t * p->head_dim))
      return false;
  for (int level = 1; level <= pyramid_root(p); level++)
    if (!build_level(p, level))
      return false;
  return true;
}

/* A level that is new holds all tokens before this one in its first node: the root below had them.
 */
static bool join_path(struct pyramid *p, int level, const double *key) {
  int64_t node = (p->tokens - 1) / pyramid_size(p, level);
  bool fresh = p->level[level].nodes == 0;
  if (node == p->level[level].nodes && !add_node(p, level))
    return false;
  if (fresh && level > 1)
    add_to_sum(p, level, 0, node_sum(p, level - 1, 0));
  add_to_sum(p, level, node, key);
  store_mean(p, level, node);
  return true;
}

bool pyramid_append(struct pyramid *p, const double *key) {
  if (!add_key(p, key))
    return false;
  for (int level = 1; level <= pyramid_root(p); level++)
    if (!join_path(p, level, key))
      return false;
  return true;
}

bool pyramid_append_completed(struct pyramid *p, const double *key) {
  if (!add_key(p, key))
    return false;
  for (int level = 1; p->tokens % pyramid_size(p, level) == 0; level++) {
    int64_t node = p->level[level].nodes, children = pyramid_children(p, level);
    if (!add_node(p, level))
      return false;
    for (int64_t child = node * children; child < (node + 1) * children; child++)
      add_to_sum(p, level, node, node_sum(p, level - 1, child));
    store_mean(p, level, node);
  }
  return true;
}
