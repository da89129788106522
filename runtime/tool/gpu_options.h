/* gpu_options.h: the command line of `pisa verify` and `pisa bench`. */
#ifndef PISA_TOOL_GPU_OPTIONS_H
#define PISA_TOOL_GPU_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/tool/args.h"

enum { OPTIONS_MAX_TOKENS = 32 };

struct gpu_options {
  const char *pack;
  int64_t tokens[OPTIONS_MAX_TOKENS];
  int n_tokens;         /* 0: the command's own list */
  int64_t batch, heads; /* 0: the case's, the spec's */
  int layout;           /* enum verify_layout; -1: the case's */
  double density;       /* 0: the case's, the spec's budget */
  int64_t keep;
  const char *settings[ARGS_MAX_LIST]; /* "name=value" */
  int n_settings;
  bool json;
  uint64_t seed;
  bool prefill, decode; /* of packs that select blocks: this phase alone */
  /* verify */
  const char *only; /* name of the one case to run; NULL: all */
  bool ptx, both;   /* the PTX path alone; the cubin and then the PTX path */
  bool quick;       /* the small cases alone */
  bool longest;     /* the longest sequences too, of the first variant */
  bool no_poison;
  /* bench */
  int64_t rounds;
};

/* Adds the lengths of "4096,4608" to tokens [OPTIONS_MAX_TOKENS], of which there are |n|; NULL:
   none. False after a message. */
bool gpu_options_tokens(const char *command, const char *text, int64_t *tokens, int *n);

enum options_for { OPTIONS_VERIFY, OPTIONS_BENCH };

/* False when the command is over already: help was printed, or a message; |exit_code| says which.
 */
bool gpu_options_read(struct gpu_options *options, enum options_for what, int argc, char **argv,
                      int *exit_code);

#endif
