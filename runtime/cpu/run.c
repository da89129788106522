/* run.c: pisa_cpu_run. A pack's variant and a call on host memory in, everything checked, one job
 * out. */
#include "runtime/cpu/job.h"
#include "runtime/pack.h"
#include "runtime/shape.h"

/* One list: block ids in [0, NT), ascending, then -1 to the end. |at| is its place in [B, H, NTq].
 */
static pisa_status check_list(const int32_t *list, const struct pisa_shape *shape, int64_t at,
                              pisa_error *error) {
  int64_t e = 0;
  for (; e < shape->kept && list[e] >= 0; e++) {
    if (list[e] >= shape->nt)
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "lists: list %lld names block %d, but there are %lld key blocks",
                       (long long)at, (int)list[e], (long long)shape->nt);
    if (e > 0 && list[e] <= list[e - 1])
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "lists: list %lld is not ascending at entry %lld", (long long)at,
                       (long long)e);
  }
  if (e == 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "lists: list %lld is empty; a query block reads at least one block",
                     (long long)at);
  for (; e < shape->kept; e++)
    if (list[e] != -1)
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "lists: list %lld has %d behind its end; the padding is -1", (long long)at,
                       (int)list[e]);
  return PISA_OK;
}

static pisa_status check_lists(const int32_t *lists, const struct pisa_shape *shape,
                               pisa_error *error) {
  pisa_status status = PISA_OK;
  for (int64_t at = 0; !status && at < shape->bh * shape->nt_q; at++)
    status = check_list(lists + at * shape->kept, shape, at, error);
  return status;
}

static pisa_status check_options(const struct pisa_method *method, const struct pisa_shape *shape,
                                 const pisa_cpu_options *options, pisa_error *error) {
  if (options->struct_size != sizeof *options)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "options: struct_size is %zu, expected sizeof(pisa_cpu_options) = %zu",
                     options->struct_size, sizeof *options);
  if (options->threads < 0)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "options: threads is %d, expected 0 (all cores) or more", options->threads);
  if (options->lists && method->dense)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "options: lists are given, but this method reads every block");
  return options->lists ? check_lists(options->lists, shape, error) : PISA_OK;
}

pisa_status pisa_cpu_run(const pisa_pack *pack, int variant, const pisa_attention *call,
                         const pisa_cpu_options *options, pisa_error *error) {
  const pisa_cpu_options defaults = {.struct_size = sizeof defaults};
  const struct pisa_variant *chosen;
  struct pisa_shape shape;
  struct cpu_problem problem;
  pisa_clear(error);
  if (!options)
    options = &defaults;
  pisa_status status = pisa_pack_variant(pack, variant, &chosen, error);
  if (!status)
    status = pisa_shape_check(&chosen->method, call, &shape, error);
  if (!status)
    status = check_options(&chosen->method, &shape, options, error);
  if (status)
    return status;
  if (chosen->method.mask != PISA_MASK_NONE)
    return pisa_fail(error, PISA_UNSUPPORTED, "the CPU executor has no causal mask yet");
  cpu_problem_init(&problem, &chosen->method, &shape, call);
  const struct cpu_job job = {.problem = &problem,
                              .oracle = options->oracle != 0,
                              .threads = options->threads,
                              .lists = options->lists,
                              .lse = call->lse,
                              .blocks = call->blocks,
                              .progress = options->progress,
                              .user = options->user};
  if (!cpu_job_run(&job))
    return pisa_fail(error, PISA_OUT_OF_MEMORY,
                     "not enough memory for the CPU executor at this shape");
  return PISA_OK;
}
