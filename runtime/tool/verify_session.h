/* verify_session.h: what all cases of a run of `pisa verify` share. */
#ifndef PISA_TOOL_VERIFY_SESSION_H
#define PISA_TOOL_VERIFY_SESSION_H

#include "runtime/pack.h"
#include "runtime/tool/gpu_options.h"
#include "runtime/tool/verify.h"

enum { VERIFY_MAX_CODES = 2, VERIFY_MAX_CASES = 96 };

struct verify_session {
  struct gpu_options options;
  pisa_pack *pack;
  struct pisa_device device;
  CUstream stream;
  struct verify_report report;
  struct verify_case cases[VERIFY_MAX_CASES];
  int n_cases;
  bool stop;     /* the device no longer answers */
  int exit_code; /* the worst so far */
};

struct verify_loaded { /* one way to the machine code of a variant */
  pisa_module *module;
  struct verify_code facts;
};

/* The cases that the options choose on |variant|; the exit code of `pisa verify`. */
int verify_variant(struct verify_session *session, int variant);

/* Around what waits for the device: the process ends when it takes too long. */
void verify_watch(const struct verify_session *session);
void verify_unwatch(void);
/* What the driver refused counts as a failure of the code; the rest of the world is no fault of it.
 */
void verify_note_status(struct verify_session *session, pisa_status status, const pisa_error *error,
                        struct verify_result *result);
double verify_seconds(void);

#endif
