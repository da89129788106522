/* variants.c: in goes a spec with its choices; out come plans, one per combination that can be
   built. First every candidate is tried alone, so that what is dropped is named once; then the
   survivors are multiplied out. */
#include "compiler/plan/variants.h"

#include <assert.h>
#include <string.h>

#include "compiler/plan/limits.h"
#include "dsl/arena.h"
#include "dsl/dsl.h"
#include "dsl/text.h"

enum { MAX_CHOICES = 64 };

struct expansion {
  struct arena *arena;
  const struct spec *spec;
  const struct target *target;
  struct diag *diag;
  const char *prefix; /* "density=0.15", of --set */
  int **live;         /* live[c]: indices of the values of choice c that are kept; 0 always is */
  int *n_live;
  struct variants *out;
};

/* ---- what is dropped ---- */

static void drop(struct expansion *x, const char *candidate, struct span where,
                 const char *reason) {
  struct variants *out = x->out;
  out->dropped[out->n_dropped++] = (struct rejection){candidate, reason};
  diag_note(x->diag, where, "%s is dropped: %s", candidate, reason);
}

/* |base| with value |v| of |choice|; NULL and |reason| when that is no legal spec. */
static const struct spec *apply(struct expansion *x, const struct spec *base,
                                const struct spec_choice *choice, int v, const char **reason) {
  struct diag aside; /* what is dropped is no error */
  struct spec *spec;
  diag_init(&aside, x->arena);
  aside.source = x->diag->source;
  if (dsl_apply(x->arena, base, choice->name, choice->values[v], choice->value_spans[v], &spec,
                &aside))
    return spec;
  *reason = diag_first(&aside);
  return NULL;
}

/* |spec| if it can be built, else NULL and |reason|. */
static const struct spec *buildable(struct expansion *x, const struct spec *spec,
                                    const char **reason) {
  struct limits limits = limits_of(x->arena, spec);
  if (limits.n > 0)
    *reason = limits.at[0].possible;
  return limits.n == 0 ? spec : NULL;
}

/* Whether value |v| of |choice|, all else as written or set, is a spec that can be built. As
   written it is legal, but perhaps not beside what --set set. */
static bool try_candidate(struct expansion *x, const struct spec_choice *choice, int v) {
  const char *reason;
  const struct spec *candidate = apply(x, x->spec, choice, v, &reason);
  if (candidate && buildable(x, candidate, &reason))
    return true;
  const char *name = arena_printf(x->arena, "%s=%s", choice->name, choice->values[v]);
  drop(x, name, choice->value_spans[v], reason);
  return false;
}

static void find_live(struct expansion *x) {
  int n = x->spec->n_choices;
  x->live = ARENA_ARRAY(x->arena, int *, n);
  x->n_live = ARENA_ARRAY(x->arena, int, n);
  for (int c = 0; c < n; c++) {
    const struct spec_choice *choice = &x->spec->choices[c];
    x->live[c] = ARENA_ARRAY(x->arena, int, choice->n_values);
    for (int v = 0; v < choice->n_values; v++)
      if (v == 0 || try_candidate(x, choice, v))
        x->live[c][x->n_live[c]++] = v;
  }
}

/* ---- combinations ---- */

/* "half_tile=on query=64"; with |all| the picked defaults and the --set ones too. */
static const char *choices_text(struct expansion *x, const int *pick, bool all) {
  const char *text = all ? x->prefix : "";
  for (int c = 0; c < x->spec->n_choices; c++) {
    const struct spec_choice *choice = &x->spec->choices[c];
    if (!all && pick[c] == 0)
      continue;
    text = arena_printf(x->arena, "%s%s%s=%s", text, *text ? " " : "", choice->name,
                        choice->values[pick[c]]);
  }
  return text;
}

/* The spec with the picked values; NULL and |reason| when the combination is no legal spec or
   cannot be built. */
static const struct spec *combine(struct expansion *x, const int *pick, const char **reason) {
  const struct spec *spec = x->spec;
  for (int c = 0; spec && c < x->spec->n_choices; c++)
    if (pick[c] != 0)
      spec = apply(x, spec, &x->spec->choices[c], pick[c], reason);
  return spec ? buildable(x, spec, reason) : NULL;
}

static bool was_dropped(const struct expansion *x, const char *candidate) {
  for (int i = 0; i < x->out->n_dropped; i++)
    if (strcmp(x->out->dropped[i].candidate, candidate) == 0)
      return true;
  return false;
}

/* Names the values that do not go together, and no others, once. */
static void drop_combination(struct expansion *x, const int *pick, const char *reason) {
  int culprits[MAX_CHOICES];
  memcpy(culprits, pick, sizeof culprits);
  for (int c = 0; c < x->spec->n_choices; c++) {
    int was = culprits[c];
    const char *without;
    culprits[c] = 0;
    if (combine(x, culprits, &without))
      culprits[c] = was;
    else
      reason = without;
  }
  const char *candidate = choices_text(x, culprits, false);
  if (!was_dropped(x, candidate))
    drop(x, candidate, x->spec->name_span, reason);
}

static void plan_combination(struct expansion *x, const int *pick) {
  const char *reason;
  const struct spec *spec = combine(x, pick, &reason);
  if (spec)
    x->out->plans[x->out->n++] =
        plan_choose(x->arena, spec, x->target, choices_text(x, pick, true));
  else
    drop_combination(x, pick, reason);
}

/* Counts |at| through all combinations, the last choice fastest; false after the last one. */
static bool next_combination(const struct expansion *x, int *at) {
  for (int c = x->spec->n_choices - 1; c >= 0; c--) {
    if (++at[c] < x->n_live[c])
      return true;
    at[c] = 0;
  }
  return false;
}

static void multiply_out(struct expansion *x) {
  int combinations =
      1; /* at most 1024, and at most one choice per word: the language sees to both */
  for (int c = 0; c < x->spec->n_choices; c++)
    combinations *= x->n_live[c];
  x->out->plans = ARENA_ARRAY(x->arena, struct plan *, combinations);
  int at[MAX_CHOICES] = {0}, pick[MAX_CHOICES] = {0};
  do {
    for (int c = 0; c < x->spec->n_choices; c++)
      pick[c] = x->live[c][at[c]];
    plan_combination(x, pick);
  } while (next_combination(x, at));
}

/* ---- all of it ---- */

/* In the spelling of the language: "density=0.1" also where 0.10 was set. */
static const char *settings_text(struct arena *arena, const struct spec *spec,
                                 const struct setting *settings, int n) {
  const char *text = "";
  for (int i = 0; i < n; i++)
    text = arena_printf(arena, "%s%s%s=%s", text, *text ? " " : "", settings[i].name,
                        dsl_value(arena, spec, settings[i].name));
  return text;
}

bool variants_plan(struct arena *arena, const struct spec *spec, const struct target *target,
                   const struct setting *settings, int n_settings, struct diag *diag,
                   struct variants *out) {
  struct expansion x = {.arena = arena, .spec = spec, .target = target, .diag = diag, .out = out};
  *out = (struct variants){.n = 0};
  if (limits_report(arena, spec, settings, n_settings, false, diag))
    return false;
  assert(spec->n_choices <= MAX_CHOICES);
  int candidates = MAX_VARIANTS;
  for (int c = 0; c < spec->n_choices; c++)
    candidates += spec->choices[c].n_values;
  out->dropped = ARENA_ARRAY(arena, struct rejection, candidates);
  x.prefix = settings_text(arena, spec, settings, n_settings);
  find_live(&x);
  multiply_out(&x);
  return true;
}
