/* ptxas.c: in goes PTX; out come a cubin and a report. Everything happens in a temporary folder of
   its own, so that compilations can run side by side. */
#include "compiler/emit/ptxas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/emit/process.h"

/* CUDA release that brought each PTX version (PTX ISA, "Release Notes"). */
static const struct {
  int ptx, release;
} RELEASES[] = {{80, 1200}, {81, 1201}, {82, 1202}, {83, 1203}, {84, 1204},
                {85, 1205}, {86, 1207}, {87, 1208}, {88, 1209}, {90, 1300}};

static int release_for(int ptx_version) {
  for (size_t i = 0; i < sizeof RELEASES / sizeof *RELEASES; i++)
    if (RELEASES[i].ptx == ptx_version)
      return RELEASES[i].release;
  return 1300;
}

/* ---- finding ---- */

static bool ask_version(struct arena *arena, struct ptxas *ptxas) {
  struct text heard;
  text_init(&heard);
  const char *argv[] = {ptxas->path, "--version", NULL};
  int major = 0, minor = 0, patch = 0;
  const char *at = NULL;
  if (process_run(argv, &heard) == 0)
    at = strstr(heard.data, ", V");
  bool known = at && sscanf(at, ", V%d.%d.%d", &major, &minor, &patch) == 3;
  ptxas->version = arena_printf(arena, "%d.%d.%d", major, minor, patch);
  ptxas->release = major * 100 + minor;
  text_fini(&heard);
  return known;
}

/* Keeps the candidate |path| in |ptxas| when it runs and is new enough; otherwise the reason. */
static bool try_path(struct arena *arena, const char *path, int ptx_version, struct ptxas *ptxas) {
  if (access(path, X_OK) != 0)
    return false;
  struct ptxas candidate = {.path = arena_printf(arena, "%s", path)};
  if (!ask_version(arena, &candidate)) {
    ptxas->why_not = arena_printf(arena, "%s does not tell its version", path);
    return false;
  }
  int needed = release_for(ptx_version);
  if (candidate.release < needed) {
    ptxas->why_not =
        arena_printf(arena, "%s is %s, and PTX %d.%d needs %d.%d or newer", path, candidate.version,
                     ptx_version / 10, ptx_version % 10, needed / 100, needed % 100);
    return false;
  }
  *ptxas = candidate;
  return true;
}

static bool try_folder(struct arena *arena, const char *folder, size_t length, const char *rest,
                       int ptx_version, struct ptxas *ptxas) {
  const char *path = arena_printf(arena, "%.*s%s/ptxas", (int)length, folder, rest);
  return length > 0 && try_path(arena, path, ptx_version, ptxas);
}

static bool try_search_path(struct arena *arena, int ptx_version, struct ptxas *ptxas) {
  const char *at = getenv("PATH");
  while (at && *at) {
    size_t length = strcspn(at, ":");
    if (try_folder(arena, at, length, "", ptx_version, ptxas))
      return true;
    at += length + (at[length] == ':');
  }
  return false;
}

struct ptxas ptxas_find(struct arena *arena, int ptx_version) {
  struct ptxas found = {.why_not = "no ptxas in PATH, CUDA_HOME, CUDA_PATH or the usual places"};
  const char *named = getenv("PISA_PTXAS");
  if (named && *named) {
    found.why_not = arena_printf(arena, "PISA_PTXAS: %s cannot be run", named);
    try_path(arena, named, ptx_version, &found);
    return found;
  }
  const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"};
  for (int i = 0; i < 2; i++)
    if (roots[i] && try_folder(arena, roots[i], strlen(roots[i]), "/bin", ptx_version, &found))
      return found;
  if (try_search_path(arena, ptx_version, &found))
    return found;
  for (int i = 2; i < 4; i++)
    if (try_folder(arena, roots[i], strlen(roots[i]), "/bin", ptx_version, &found))
      return found;
  return found;
}

/* ---- assembling ---- */

static bool assemble_in(const char *folder, const struct ptxas *ptxas, const char *chip,
                        const struct text *ptx, struct arena *arena, struct text *cubin,
                        struct text *log, struct text *why) {
  const char *input = arena_printf(arena, "%s/kernels.ptx", folder);
  const char *output = arena_printf(arena, "%s/kernels.cubin", folder);
  const char *argv[] = {
      ptxas->path, arena_printf(arena, "-arch=%s", chip), "-v", "-o", output, input, NULL};
  bool done = file_write(input, ptx->data, ptx->size, why);
  if (done && process_run(argv, log) != 0) {
    text_printf(why, "ptxas failed:\n%s", log->data);
    done = false;
  }
  done = done && file_read(output, cubin, why);
  unlink(input);
  unlink(output);
  return done;
}

bool ptxas_assemble(const struct ptxas *ptxas, const char *chip, const struct text *ptx,
                    struct arena *arena, struct text *cubin, struct ptxas_report *report,
                    struct text *why) {
  char folder[1024];
  if (!folder_temporary(folder, sizeof folder, why))
    return false;
  struct text log;
  text_init(&log);
  bool done = assemble_in(folder, ptxas, chip, ptx, arena, cubin, &log, why);
  if (done)
    *report = ptxas_report_parse(arena, log.data);
  text_fini(&log);
  rmdir(folder);
  return done;
}
