/* launches.c: a module's launches (launches.h): its table of driver entry points is replaced by a
   copy with another cuLaunchKernelEx. */
#include "tests/bench/launches.h"

#include <assert.h>
#include <string.h>

#include "runtime/args.h"
#include "runtime/module.h"
#include "runtime/size.h"
#include "tests/runtime/fake_kinds.h"

enum { MOST_PARAMETERS = 64, LARGEST = 128, MOST_ATTRIBUTES = 4 };

struct kept {
  CUlaunchConfig config;
  CUlaunchAttribute attributes[MOST_ATTRIBUTES];
  CUfunction function;
  _Alignas(64) unsigned char values[MOST_PARAMETERS][LARGEST];
  void *parameters[MOST_PARAMETERS];
};

static const struct pisa_module *hooked;
static const struct pisa_cuda *driver;
static struct pisa_cuda table;
static enum launches_mode mode;
static int count, n_kept;
static struct kept list[LAUNCHES_MOST];

static const char *entry_of(CUfunction function) {
  static char entry[64] = "pisa_";
  int id = 0;
  while (id < PISA_N_KERNELS && hooked->kernels[id].function != function)
    id++;
  assert(id < PISA_N_KERNELS); /* launches of |hooked| are of its kernels */
  strcpy(entry + 5, pisa_kernel_names[id]);
  return entry;
}

static size_t bytes_of(enum fake_kind kind) {
  return kind == KIND_MAP ? sizeof(CUtensorMap) : kind == KIND_I32 || kind == KIND_F32 ? 4 : 8;
}

static void keep(const CUlaunchConfig *config, CUfunction function, void **parameters) {
  assert(n_kept < LAUNCHES_MOST && config->n_attributes <= MOST_ATTRIBUTES);
  struct kept *k = &list[n_kept++];
  int n;
  const enum fake_kind *kinds = fake_kinds_of(entry_of(function), &n);
  assert(n <= MOST_PARAMETERS);
  k->config = *config;
  memcpy(k->attributes, config->attributes, config->n_attributes * sizeof *k->attributes);
  k->config.attributes = k->attributes;
  k->function = function;
  for (int i = 0; i < n; i++) {
    memcpy(k->values[i], parameters[i], bytes_of(kinds[i]));
    k->parameters[i] = k->values[i];
  }
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                       void **extra) {
  count++;
  if (mode == LAUNCHES_DROP)
    return CUDA_SUCCESS;
  if (mode == LAUNCHES_RECORD)
    keep(config, function, parameters);
  return driver->cuLaunchKernelEx(config, function, parameters, extra);
}

void launches_hook(void *module) {
  struct pisa_module *m = module;
  if (m->cuda != &table) {
    driver = m->cuda;
    table = *driver;
    table.cuLaunchKernelEx = launch;
    m->cuda = &table;
  }
  hooked = m;
  launches_set(LAUNCHES_PASS);
}

void launches_set(int wanted) {
  mode = (enum launches_mode)wanted;
  count = 0;
  if (mode == LAUNCHES_RECORD)
    n_kept = 0;
}

int launches_count(void) {
  return count;
}

int launches_repeat(int times) {
  CUresult result = n_kept ? CUDA_SUCCESS : -1;
  for (int t = 0; t < times && !result; t++)
    for (int i = 0; i < n_kept && !result; i++)
      result =
          driver->cuLaunchKernelEx(&list[i].config, list[i].function, list[i].parameters, NULL);
  return result;
}
