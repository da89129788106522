/* tool.h: the commands of the `pisa` executable, and how each of them ends.

   Messages go to stderr, data to stdout. A command prints its own message and returns one of the
   exit codes. */
#ifndef PISA_TOOL_TOOL_H
#define PISA_TOOL_TOOL_H

#include "runtime/pisa.h"

enum tool_exit {
  TOOL_DONE = 0,
  TOOL_WRONG_INPUT = 1, /* arguments, or arrays that do not fit the pack: mend the command line */
  TOOL_WORLD_FAILED =
      2, /* a file that cannot be read or written or is damaged, the driver, the device, memory */
  TOOL_NOT_VERIFIED = 3 /* results differ from the reference */
};

int tool_info(int argc, char **argv); /* argv[0] is the command's name */
int tool_run(int argc, char **argv);
int tool_verify(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_sweep(int argc, char **argv);
int tool_tune(int argc, char **argv);
int tool_quality(int argc, char **argv);

/* The exit code of a library status. */
int tool_exit_of(pisa_status status);
/* Prints "pisa COMMAND: message" and returns the exit code of |error|. */
int tool_report(const char *command, const pisa_error *error);
/* Prints "pisa COMMAND: " and the formatted sentence; returns |code|. */
int tool_say(const char *command, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
