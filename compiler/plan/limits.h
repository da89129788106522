/* limits.h: what a legal spec may ask for and no kernel can do yet. */
#ifndef PISA_PLAN_LIMITS_H
#define PISA_PLAN_LIMITS_H

#include "compiler/plan/variants.h"
#include "dsl/arena.h"
#include "dsl/spec.h"

struct limit {
  struct span where;    /* what to point at in the source */
  const char *found;    /* "head_dim 64" */
  const char *possible; /* "head_dim 128 can be built" */
};

enum { MAX_LIMITS = 32 };
struct limits {
  struct limit at[MAX_LIMITS];
  int n;
};

/* Every reason why |spec| cannot be built; n = 0 when it can. Strings live in |arena|. */
struct limits limits_of(struct arena *arena, const struct spec *spec);

/* All of them as errors, or notes, in |diag|; |settings| were applied to |spec| already. A limit
   that a --set option ran into is shown in the option's text. Returns how many there are. */
int limits_report(struct arena *arena, const struct spec *spec, const struct setting *settings,
                  int n_settings, bool as_notes, struct diag *diag);

/* The same of a spec that selects blocks for single queries, added to |l|. */
void limits_of_selection(struct arena *arena, struct limits *l, const struct spec *spec);

/* What both are made of: one more reason, and that of more forced ranges than kernels take. */
void limit(struct limits *l, struct span where, const char *found, const char *possible);
void limit_ranges(struct limits *l, const struct spec *spec);

#endif
