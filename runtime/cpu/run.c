/* run.c: pisa_cpu_run. A pack's variant and a call on host memory in, everything checked, one job
 * out. */
#include "runtime/cpu/job.h"
#include "runtime/cpu/select_job.h"
#include "runtime/pack.h"
#include "runtime/shape.h"

static pisa_status check_options(const pisa_cpu_options *options, pisa_error *error) {
  if (options->struct_size != sizeof *options)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "options: struct_size is %zu, expected sizeof(pisa_cpu_options) = %zu",
                     options->struct_size, sizeof *options);
  if (options->threads < 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "options: threads is %d, expected 0 (all cores) or more", options->threads);
  return PISA_OK;
}

static pisa_status run_selection(const struct pisa_method *method, const struct pisa_shape *shape,
                                 const pisa_attention *call, const pisa_cpu_options *options,
                                 pisa_error *error) {
  const struct select_job job = {.method = method,
                                 .shape = shape,
                                 .call = call,
                                 .threads = options->threads,
                                 .progress = options->progress,
                                 .user = options->user};
  return select_job_run(&job, error);
}

static pisa_status run_piecewise(const struct pisa_method *method, const struct pisa_shape *shape,
                                 const pisa_attention *call, const pisa_cpu_options *options,
                                 pisa_error *error) {
  struct cpu_problem problem;
  pisa_status status = call->pages ? select_check_pages(method, shape, call, error) : PISA_OK;
  if (status)
    return status;
  cpu_problem_init(&problem, method, shape, call);
  const struct cpu_job job = {.problem = &problem,
                              .oracle = options->oracle != 0,
                              .threads = options->threads,
                              .lists = call->lists,
                              .n_listed = call->n_listed,
                              .lse = call->lse,
                              .blocks = call->blocks,
                              .progress = options->progress,
                              .user = options->user};
  if (!cpu_job_run(&job))
    return pisa_fail(error, PISA_OUT_OF_MEMORY,
                     "not enough memory for the CPU executor at this shape");
  return PISA_OK;
}

pisa_status pisa_cpu_run(const pisa_pack *pack, int variant, const pisa_attention *call,
                         const pisa_cpu_options *options, pisa_error *error) {
  const pisa_cpu_options defaults = {.struct_size = sizeof defaults};
  const struct pisa_variant *chosen;
  struct pisa_shape shape;
  pisa_attention full;
  pisa_clear(error);
  if (!options)
    options = &defaults;
  pisa_status status = pisa_pack_variant(pack, variant, &chosen, error);
  if (!status)
    status = pisa_call_read(call, &full, error);
  if (!status)
    status = pisa_shape_check(&chosen->method, &full, &shape, error);
  if (!status)
    status = check_options(options, error);
  if (status)
    return status;
  return (chosen->method.family == PISA_PYRAMID ? run_selection : run_piecewise)(
      &chosen->method, &shape, &full, options, error);
}
