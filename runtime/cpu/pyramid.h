/* pyramid.h: the means that block selection reads, naively, in double.

   Of one key head. Level 0 is the keys, level 1 the leaves (|leaf| adjacent keys), level l + 1
   groups |group| adjacent nodes of level l, up to the root. A node is named by its level and its
   place there, from 0; its children are the nodes of the level below that it groups.

   The mean of a node is that of all tokens under it, however many its last child has, divided out
   of their unrounded sum and rounded once to |type|, where it is stored. So an upper mean is not
   the mean of rounded means, and a leaf that grows is not averaged with its own rounded past.

   Nodes that are not full (at most the last of a level) can be left out: pyramid_append_completed
   stores a node with its last token. A causal selection reads no other node; any other needs all.

   A device's own means replace pyramid_mean, level by level. Functions that return bool return
   false only when memory runs out. */
#ifndef PISA_CPU_PYRAMID_H
#define PISA_CPU_PYRAMID_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/pisa.h"

enum { PYRAMID_MAX_LEVELS = 48 };

struct pyramid_level {
  int64_t nodes; /* that are stored: all, or those that are full */
  int64_t room;
  double *sum;  /* [room, D] of the tokens */
  double *mean; /* [room, D] rounded; of level 0 the keys */
};

struct pyramid {
  pisa_type type;
  int head_dim;    /* D */
  int leaf, group; /* tokens of a leaf, children of a node above */
  int64_t tokens;
  struct pyramid_level level[PYRAMID_MAX_LEVELS];
};

/* Without tokens. */
struct pyramid pyramid_of(pisa_type type, int head_dim, int leaf, int group);
void pyramid_free(struct pyramid *pyramid);

/* Replaces what is there by the pyramid of k [n, D], every node from its own keys. */
bool pyramid_build(struct pyramid *pyramid, const double *k, int64_t n);
/* One more key [D]: its leaf and the path above it. */
bool pyramid_append(struct pyramid *pyramid, const double *key);
/* The same, but a node is stored with its last token. Not to be mixed with the two above. */
bool pyramid_append_completed(struct pyramid *pyramid, const double *key);

/* Tokens of a full node, 1 on level 0; children of a full node of level >= 1. */
int64_t pyramid_size(const struct pyramid *pyramid, int level);
int64_t pyramid_children(const struct pyramid *pyramid, int level);
/* Nodes of |level|, also those left out: ceil(tokens / size). */
int64_t pyramid_nodes(const struct pyramid *pyramid, int level);
/* Tokens under a node. */
int64_t pyramid_count(const struct pyramid *pyramid, int level, int64_t node);
/* The level of the root, at least 1. */
int pyramid_root(const struct pyramid *pyramid);
/* [D], of a node that is stored. */
double *pyramid_mean(const struct pyramid *pyramid, int level, int64_t node);

#endif
