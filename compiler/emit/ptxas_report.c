/* ptxas_report.c: in goes what ptxas -v printed; out come numbers per entry and the list of its
 * warnings. */
#include <stdio.h>
#include <string.h>

#include "compiler/emit/ptxas.h"

const struct ptxas_kernel *ptxas_kernel_find(const struct ptxas_report *report, const char *entry) {
  for (int i = 0; i < report->n_kernels; i++)
    if (strcmp(report->kernels[i].entry, entry) == 0)
      return &report->kernels[i];
  return NULL;
}

static int count(const char *log, const char *needle) {
  int n = 0;
  for (const char *at = log; (at = strstr(at, needle)); at++)
    n++;
  return n;
}

/* "... Compiling entry function 'name' for 'sm_90a'" */
static bool read_entry(struct arena *arena, const char *line, struct ptxas_report *report) {
  static const char HEAD[] = "Compiling entry function '";
  const char *name = strstr(line, HEAD);
  if (!name)
    return false;
  name += sizeof HEAD - 1;
  struct ptxas_kernel *kernel = &report->kernels[report->n_kernels++];
  kernel->entry = arena_strndup(arena, name, strcspn(name, "'"));
  return true;
}

/* "    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads" and "... Used 168 registers,
   ..., 72 bytes smem" follow the entry they belong to. */
static void read_numbers(const char *line, struct ptxas_kernel *kernel) {
  int stack, stores, loads;
  if (sscanf(line, " %d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack,
             &stores, &loads) == 3) {
    kernel->stack = stack;
    kernel->spill_stores = stores;
    kernel->spill_loads = loads;
  }
  const char *used = strstr(line, "Used ");
  if (!used || sscanf(used, "Used %d registers", &kernel->registers) != 1)
    return;
  const char *smem = strstr(used, " bytes smem");
  while (smem && smem > used && smem[-1] >= '0' && smem[-1] <= '9')
    smem--;
  if (smem)
    sscanf(smem, "%d", &kernel->smem);
}

/* "ptxas warning : ...", "ptxas info : (C7510) Potential Performance Loss: ..." */
static void read_warning(struct arena *arena, const char *line, struct ptxas_report *report) {
  if (strstr(line, "warning") || strstr(line, "Potential Performance Loss") || strstr(line, "(C7"))
    report->warnings[report->n_warnings++] = arena_strndup(arena, line, strlen(line));
}

struct ptxas_report ptxas_report_parse(struct arena *arena, const char *log) {
  struct ptxas_report report = {
      .kernels = ARENA_ARRAY(arena, struct ptxas_kernel, count(log, "Compiling entry function")),
      .warnings = ARENA_ARRAY(arena, const char *, count(log, "\n") + 1),
  };
  for (const char *at = log; *at;) {
    size_t length = strcspn(at, "\n");
    const char *line = arena_strndup(arena, at, length);
    if (!read_entry(arena, line, &report)) {
      read_warning(arena, line, &report);
      if (report.n_kernels > 0)
        read_numbers(line, &report.kernels[report.n_kernels - 1]);
    }
    at += length + (at[length] == '\n');
  }
  return report;
}
