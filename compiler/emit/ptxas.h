/* ptxas.h: PTX -> cubin by NVIDIA's assembler, when it is there. */
#ifndef PISA_EMIT_PTXAS_H
#define PISA_EMIT_PTXAS_H

#include <stdbool.h>

#include "dsl/arena.h"
#include "dsl/text.h"

struct ptxas {
  const char *path;    /* NULL: none was found, or it is too old */
  const char *version; /* "13.0.88" */
  int release;         /* 1300 for 13.0, 1207 for 12.7 */
  const char *why_not; /* when path is NULL: a sentence */
};

/* The first ptxas of $PISA_PTXAS, $CUDA_HOME/bin, $CUDA_PATH/bin, $PATH and the usual install
   folders that can assemble |ptx_version| (86: PTX 8.6). Always returns; see |path|. */
struct ptxas ptxas_find(struct arena *arena, int ptx_version);

/* What ptxas said of one entry, in its units: 32-bit registers, bytes. */
struct ptxas_kernel {
  const char *entry;
  int registers, stack, spill_stores, spill_loads, smem;
};

struct ptxas_report {
  struct ptxas_kernel *kernels;
  int n_kernels;
  const char **warnings; /* every warning and every (Cnnnn) advisory, one line each */
  int n_warnings;
};

/* NULL when |entry| is not in the report. */
const struct ptxas_kernel *ptxas_kernel_find(const struct ptxas_report *report, const char *entry);

/* Reads the output of ptxas -v. */
struct ptxas_report ptxas_report_parse(struct arena *arena, const char *log);

/* Assembles |ptx| for |chip|; appends the cubin to |cubin|. False when ptxas failed or a file could
   not be written; then |why| has its words. */
bool ptxas_assemble(const struct ptxas *ptxas, const char *chip, const struct text *ptx,
                    struct arena *arena, struct text *cubin, struct ptxas_report *report,
                    struct text *why);

#endif
