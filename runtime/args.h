/* args.h: the parameters of each kernel of a call, as abi.def lists them. */
#ifndef PISA_RUNTIME_ARGS_H
#define PISA_RUNTIME_ARGS_H

#include "runtime/abi.def"
#include "runtime/module.h"

#define PISA_FIELD(kind, name, meaning) PISA_FIELD_##kind(name)
#define PISA_FIELD_MAP(name) CUtensorMap name;
#define PISA_FIELD_PTR(name) CUdeviceptr name;
#define PISA_FIELD_I32(name) int32_t name;
#define PISA_FIELD_I64(name) int64_t name;
#define PISA_FIELD_F32(name) float name;
struct pisa_statistics_args {
  PISA_STATISTICS_ARGS(PISA_FIELD)
};
struct pisa_residual_args {
  PISA_RESIDUAL_ARGS(PISA_FIELD)
};
struct pisa_route_args {
  PISA_ROUTE_ARGS(PISA_FIELD)
};
struct pisa_attend_args {
  PISA_ATTEND_ARGS(PISA_FIELD)
};

/* A call with everything derived from it. */
struct pisa_job {
  const struct pisa_module *module;
  const struct pisa_method *method;
  pisa_attention call;
  struct pisa_shape shape;
  struct pisa_workspace layout;
  char *workspace;
  CUstream stream;
  CUtensorMap q, k, v, o; /* the caller's arrays */
};

/* Fills q, k, v, o. */
pisa_status pisa_job_encode(struct pisa_job *job, pisa_error *error);

void pisa_fill_statistics(const struct pisa_job *job, struct pisa_statistics_args *args);
void pisa_fill_residual(const struct pisa_job *job, struct pisa_residual_args *args);
void pisa_fill_route(const struct pisa_job *job, struct pisa_route_args *args);
/* For |kernel|: pisa_attend_kernel of the call. */
pisa_status pisa_fill_attend(const struct pisa_job *job, enum pisa_kernel_id kernel,
                             struct pisa_attend_args *args, pisa_error *error);

#endif
