/* args.h: options of a command as a table, which parses the command line and prints the help.

       --name VALUE | --name=VALUE | --flag, in any order, mixed with the positional argument.

   Every option may be given once, but ARGS_MANY. */
#ifndef PISA_TOOL_ARGS_H
#define PISA_TOOL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

enum args_kind {
  ARGS_FLAG,   /* out: bool */
  ARGS_TEXT,   /* out: const char * */
  ARGS_INT,    /* out: int64_t; a decimal number of at least |least| */
  ARGS_NUMBER, /* out: double; finite and above 0 */
  ARGS_MANY    /* out: struct args_list */
};

enum { ARGS_MAX_LIST = 32 };
struct args_list {
  const char *items[ARGS_MAX_LIST];
  int n;
};

struct args_option {
  const char *name;  /* "--density" or "-o" */
  const char *value; /* what the help calls its value: "D"; NULL for a flag */
  const char *help;
  enum args_kind kind;
  void *out; /* untouched when the option is not given */
  int64_t least;
};

struct args_command {
  const char *name;       /* "run" */
  const char *positional; /* "PACK" or "PACK...", required */
  const char *about;      /* a sentence for the help */
  const struct args_option *options;
  int n_options;
};

/* False when the command is over already: help was printed, or an error; |exit_code| says which. */
bool args_parse(const struct args_command *command, int argc, char **argv, const char **positional,
                int *exit_code);

/* The same for a command that takes one or more positional arguments. */
bool args_parse_many(const struct args_command *command, int argc, char **argv,
                     struct args_list *positionals, int *exit_code);

/* "cpu" or "cuda:N": |ordinal| gets N, or -1 for the CPU. False when |text| is neither. */
bool args_device(const char *text, int *ordinal);

#endif
