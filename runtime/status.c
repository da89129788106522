/* status.c: status codes and messages. In: a status and a printf-like sentence. Out: the status,
   and the caller's pisa_error filled; a NULL error is allowed everywhere. */
#include "runtime/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *pisa_status_name(pisa_status status) {
  switch (status) {
  case PISA_OK:
    return "ok";
  case PISA_INVALID_ARGUMENT:
    return "invalid argument";
  case PISA_UNSUPPORTED:
    return "unsupported";
  case PISA_CORRUPT:
    return "corrupt pack";
  case PISA_IO:
    return "i/o error";
  case PISA_NO_DEVICE:
    return "no device";
  case PISA_DRIVER:
    return "driver error";
  case PISA_OUT_OF_MEMORY:
    return "out of memory";
  }
  return "unknown status";
}

const char *pisa_version(void) {
  return PISA_VERSION;
}

void pisa_clear(pisa_error *error) {
  if (!error)
    return;
  error->status = PISA_OK;
  error->message[0] = '\0';
}

pisa_status pisa_fail(pisa_error *error, pisa_status status, const char *format, ...) {
  if (!error)
    return status;
  error->status = status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return status;
}

/* Appends what fits of |text|. */
static void append(pisa_error *error, const char *text) {
  size_t used = strlen(error->message), room = sizeof error->message - 1 - used;
  size_t length = strlen(text);
  if (length > room)
    length = room;
  memcpy(error->message + used, text, length);
  error->message[used + length] = '\0';
}

pisa_status pisa_add_context(pisa_error *error, pisa_status status, const char *format, ...) {
  if (!error)
    return status;
  char cause[sizeof error->message];
  memcpy(cause, error->message, sizeof cause);
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  append(error, ": ");
  append(error, cause);
  error->status = status;
  return status;
}
