/* plan.c: the questions about a call that need no pointers. In: a pack or module and the sizes of a
   call. Out: blocks kept, bytes of workspace, and the layout that launch.c fills. */
#include "runtime/module.h"
#include "runtime/pack.h"

pisa_status pisa_module_plan(const pisa_module *module, const pisa_attention *call,
                             struct pisa_shape *shape, struct pisa_workspace *workspace,
                             pisa_error *error) {
  pisa_status status = pisa_shape_sizes(&module->method, call, shape, error);
  if (!status)
    status = pisa_limits_sizes(&module->method, shape, &module->limits, error);
  return status ? status
                : pisa_workspace_layout(&module->method, shape, module->limits.sm_count, workspace,
                                        error);
}

pisa_status pisa_kept_blocks(const pisa_pack *pack, int variant, const pisa_attention *call,
                             int64_t *out, pisa_error *error) {
  pisa_clear(error);
  const struct pisa_variant *chosen = NULL;
  struct pisa_shape shape;
  pisa_attention full;
  pisa_status status = pisa_pack_variant(pack, variant, &chosen, error);
  if (status)
    return status;
  if (!out)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  status = pisa_call_read(call, &full, error);
  if (!status)
    status = pisa_shape_sizes(&chosen->method, &full, &shape, error);
  if (!status)
    *out = shape.kept;
  return status;
}

pisa_status pisa_pyramid_size(const pisa_pack *pack, int variant, const pisa_attention *call,
                              size_t *out_bytes, pisa_error *error) {
  pisa_clear(error);
  const struct pisa_variant *chosen = NULL;
  pisa_attention full;
  pisa_status status = pisa_pack_variant(pack, variant, &chosen, error);
  if (!status)
    status = pisa_call_read(call, &full, error);
  if (status)
    return status;
  if (!out_bytes)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out_bytes is NULL");
  if (chosen->method.family != PISA_PYRAMID)
    return pisa_fail(error, PISA_UNSUPPORTED, "the pack selects no blocks, so it has no pyramid");
  return pisa_pyramid_bytes(&chosen->method, &full, out_bytes, error);
}

pisa_status pisa_workspace_size(const pisa_module *module, const pisa_attention *call,
                                size_t *out_bytes, pisa_error *error) {
  pisa_clear(error);
  struct pisa_shape shape;
  struct pisa_workspace workspace;
  pisa_attention full;
  if (!module)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "module is NULL");
  if (!out_bytes)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "out_bytes is NULL");
  pisa_status status = pisa_call_read(call, &full, error);
  if (!status)
    status = pisa_module_plan(module, &full, &shape, &workspace, error);
  if (!status)
    *out_bytes = workspace.bytes;
  return status;
}
