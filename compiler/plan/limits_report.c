/* limits_report.c: a valid spec and the --set options that were applied to it in; a message for
   every limit of the kernels out, at its place in the file or in the option that set it. */
#include <stdint.h>
#include <string.h>

#include "compiler/plan/limits.h"
#include "dsl/diag.h"
#include "dsl/dsl.h"

typedef void diag_say(struct diag *diag, struct span span, const char *format, ...);

/* The option whose value limit |i| points at, which has no place in the file; NULL: none. */
static const struct setting *culprit(struct arena *arena, const struct spec *spec,
                                     const struct setting *settings, int n, int i) {
  const struct span probe = {SIZE_MAX, SIZE_MAX};
  for (int s = 0; s < n; s++) {
    struct spec marked = *spec;
    *dsl_span(&marked, settings[s].name) = probe;
    struct limits limits = limits_of(arena, &marked);
    if (i < limits.n && limits.at[i].where.begin == probe.begin)
      return &settings[s];
  }
  return NULL;
}

static void say_of_option(struct arena *arena, const struct limit *limit,
                          const struct setting *setting, diag_say *say, struct diag *diag) {
  const struct source *file = diag->source;
  const char *text = arena_printf(arena, "%s=%s", setting->name, setting->value);
  diag->source = source_make(arena, "--set", text, strlen(text));
  say(diag, (struct span){strlen(setting->name) + 1, strlen(text)}, "%s cannot be built yet: %s",
      limit->found, limit->possible);
  diag->source = file;
}

int limits_report(struct arena *arena, const struct spec *spec, const struct setting *settings,
                  int n_settings, bool as_notes, struct diag *diag) {
  const struct limits limits = limits_of(arena, spec);
  diag_say *say = as_notes ? diag_note : diag_error;
  for (int i = 0; i < limits.n; i++) {
    const struct limit *limit = &limits.at[i];
    const struct setting *setting = NULL;
    if (span_is_nowhere(limit->where))
      setting = culprit(arena, spec, settings, n_settings, i);
    if (setting)
      say_of_option(arena, limit, setting, say, diag);
    else
      say(diag, limit->where, "%s cannot be built yet: %s", limit->found, limit->possible);
  }
  return limits.n;
}
