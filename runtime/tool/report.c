/* report.c: statuses of the library in, exit codes and messages out. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/tool/tool.h"

int tool_exit_of(pisa_status status) {
  switch (status) {
  case PISA_OK:
    return TOOL_DONE;
  case PISA_INVALID_ARGUMENT:
  case PISA_UNSUPPORTED:
    return TOOL_WRONG_INPUT;
  case PISA_CORRUPT:
  case PISA_IO:
  case PISA_NO_DEVICE:
  case PISA_DRIVER:
  case PISA_OUT_OF_MEMORY:
    break;
  }
  return TOOL_WORLD_FAILED;
}

int tool_report(const char *command, const pisa_error *error) {
  fprintf(stderr, "pisa %s: %s\n", command, error->message);
  return tool_exit_of(error->status);
}

int tool_say(const char *command, int code, const char *format, ...) {
  va_list args;
  fprintf(stderr, "pisa %s: ", command);
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  return code;
}
