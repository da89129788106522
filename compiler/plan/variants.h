/* variants.h: tune and vary, multiplied out. */
#ifndef PISA_PLAN_VARIANTS_H
#define PISA_PLAN_VARIANTS_H

#include "compiler/plan/plan.h"

struct diag;

struct setting { /* one --set name=value */
  const char *name, *value;
};

enum { MAX_VARIANTS = 1024 }; /* the language allows no more */
struct variants {
  struct plan **plans; /* plans[0]: the spec as written */
  int n;
  struct rejection *dropped; /* candidates of tune and vary that cannot be built, in source order */
  int n_dropped;
};

/* Plans every combination of the choices of |spec| that can be built. A body that cannot be built
   is an error in |diag| and false; a candidate that cannot be is dropped, with a note. |settings|
   were applied to |spec| already and are named first in the choices of every plan. */
bool variants_plan(struct arena *arena, const struct spec *spec, const struct target *target,
                   const struct setting *settings, int n_settings, struct diag *diag,
                   struct variants *out);

#endif
