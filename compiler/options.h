/* options.h: the command line of pisac. */
#ifndef PISA_OPTIONS_H
#define PISA_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler/plan/variants.h"

enum command {
  COMMAND_CHECK,
  COMMAND_FMT,
  COMMAND_EXPLAIN,
  COMMAND_EMIT,
  COMMAND_BUILD,
  N_COMMANDS
};

enum format { FORMAT_PACK, FORMAT_C };

enum { MAX_SETTINGS = 32 };
struct options {
  enum command command;
  bool help, version, json, no_ptxas;
  const char *spec, *output, *stage; /* NULL: not given */
  enum format format;
  const char *name; /* what names of FORMAT_C begin with; NULL: not given */
  int64_t tokens;   /* 0: not given */
  struct setting settings[MAX_SETTINGS];
  int n_settings;
};

/* Fills |out|; false with a sentence on stderr when the line makes no sense. |arena| holds what is
 * copied. */
bool options_read(struct arena *arena, int argc, char **argv, struct options *out);

/* --help, of a command or of pisac. */
void options_help(const struct options *options);

#endif
