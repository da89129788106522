/* kept.h: how many key blocks the query blocks of a spec read exactly at a length. */
#ifndef PISA_PLAN_KEPT_H
#define PISA_PLAN_KEPT_H

#include "dsl/spec.h"

/* Key blocks that query block |i| of |tokens| queries and keys reads: its budget, or its forced
   blocks where these are more; all of them when dense. With a threshold the data decide; this is
   what scores of a normal distribution give, forced blocks beside. */
int64_t kept_blocks(const struct spec *spec, int64_t tokens, int64_t i);

/* Whether all query blocks read as many. */
bool kept_are_alike(const struct spec *spec);

/* Block selection: nodes of |size| tokens that are forced for a query in leaf |own| of |tokens|. */
int64_t forced_nodes(const struct spec *spec, int64_t tokens, int64_t own, int64_t size);

#endif
