/* module.h: a variant loaded into a CUDA context. Immutable after pisa_module_load. */
#ifndef PISA_RUNTIME_MODULE_H
#define PISA_RUNTIME_MODULE_H

#include "runtime/cuda.h"
#include "runtime/limits.h"
#include "runtime/manifest.h"
#include "runtime/workspace.h"

struct pisa_module {
  const struct pisa_cuda *cuda;
  CUcontext context; /* the one it was loaded into; launches need it current */
  CUmodule code;
  struct pisa_method method; /* a copy: the pack may be closed */
  struct pisa_limits limits;
  bool from_cubin; /* native code of the pack; else compiled from PTX by the driver */
  struct pisa_loaded_kernel {
    CUfunction function; /* NULL: the method has no such kernel */
    int threads;
    int smem_bytes;             /* PISA_SMEM_DYNAMIC for route */
    int registers, local_bytes; /* as the driver reports them */
    int resident; /* CTAs that fit a multiprocessor; kernels of block selection alone */
  } kernels[PISA_N_KERNELS];
};

/* Sizes, limits and workspace of |call| on this module; pointers and strides are not looked at. */
pisa_status pisa_module_plan(const pisa_module *module, const pisa_attention *call,
                             struct pisa_shape *shape, struct pisa_workspace *workspace,
                             pisa_error *error);

#endif
