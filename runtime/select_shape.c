/* select_shape.c: checks the sizes of a call that selects blocks. In: a method and a call as the
   caller wrote it. Out: struct pisa_shape, or the field that is wrong, its value and what is
   allowed. */
#include <inttypes.h>

#include "runtime/select.h"
#include "runtime/size.h"

static pisa_status check_budget(const struct pisa_method *method, const pisa_attention *call,
                                pisa_error *error) {
  if (call->density < 0 || call->density > 0 || call->density != call->density)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "density is %g, must be 0: the pack selects a number of leaves",
                     call->density);
  if (call->keep != 0 && call->keep != method->keep)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "keep is %" PRId64 ", must be 0 or the pack's %" PRId64, call->keep,
                     method->keep);
  if (call->lists || call->n_listed)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "lists must be NULL and n_listed 0: the pack selects leaves of its own");
  return PISA_OK;
}

static pisa_status check_starts(const pisa_attention *call, pisa_error *error) {
  if (!call->q_starts != !call->k_starts)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is NULL, but %s is not: set both or neither",
                     call->q_starts ? "k_starts" : "q_starts",
                     call->q_starts ? "q_starts" : "k_starts");
  if (call->k_starts && call->k_lengths)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "k_lengths must be NULL with k_starts, which say all lengths");
  return PISA_OK;
}

static pisa_status check_pages(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error) {
  if (!method->page) {
    if (!call->pages && call->page_columns == 0)
      return PISA_OK;
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "pages must be NULL and page_columns 0: the pack has no pages");
  }
  if (!call->pages)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "pages is NULL: the pack finds keys in pages of %d tokens", method->page);
  if (call->k_starts)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "q_starts and k_starts must be NULL: the pack finds keys in pages");
  if (call->page_columns < 1 || call->page_columns > PISA_MAX_TOKENS / method->page ||
      call->page_columns * method->page != call->n_k)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "page_columns is %" PRId64 " and n_k %" PRId64
                     ", which must be page_columns times the pack's page, %d",
                     call->page_columns, call->n_k, method->page);
  return PISA_OK;
}

static pisa_status check_decode(const struct pisa_method *method, const pisa_attention *call,
                                pisa_error *error) {
  int64_t most = pisa_min(method->key, call->n_k);
  if (call->n_new < 0 || call->n_new > most)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "n_new is %" PRId64 ", must be from 0 to %" PRId64, call->n_new, most);
  if (call->n_new > 0 && call->k_starts)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "n_new is %" PRId64 ", but with k_starts sequences have no room to grow: it "
                     "must be 0",
                     call->n_new);
  if (call->append_completed && method->mask != PISA_MASK_CAUSAL)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "append_completed is set, but without a causal mask queries read nodes that "
                     "are not complete");
  return PISA_OK;
}

static pisa_status check_csr(const pisa_attention *call, pisa_error *error) {
  if (!call->csr_offsets != !call->csr_queries)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is NULL, but %s is not: set both or neither",
                     call->csr_offsets ? "csr_queries" : "csr_offsets",
                     call->csr_offsets ? "csr_offsets" : "csr_queries");
  if (call->csr_offsets && call->phase == PISA_DECODE)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "csr_offsets and csr_queries must be NULL in phase decode");
  return PISA_OK;
}

/* One that the pack was built for. */
static pisa_status check_built(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error) {
  if (call->phase != PISA_PREFILL && call->phase != PISA_DECODE)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "phase is %d, must be PISA_PREFILL or PISA_DECODE", call->phase);
  bool is_decode = call->phase == PISA_DECODE;
  if (!(is_decode ? method->decode : method->prefill))
    return pisa_fail(error, PISA_UNSUPPORTED, "phase is %s, but the pack was built without it",
                     is_decode ? "decode" : "prefill");
  return PISA_OK;
}

static pisa_status check_phase(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error) {
  pisa_status status = check_built(method, call, error);
  if (status)
    return status;
  if (call->phase == PISA_DECODE)
    return check_decode(method, call, error);
  if (call->n_new != 0 || call->append_completed)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s is set, but phase is prefill: only decode appends",
                     call->n_new ? "n_new" : "append_completed");
  return PISA_OK;
}

pisa_status pisa_select_sizes(const struct pisa_method *method, const pisa_attention *call,
                              struct pisa_shape *s, pisa_error *error) {
  pisa_status status = check_budget(method, call, error);
  if (!status)
    status = check_starts(call, error);
  if (!status)
    status = check_pages(method, call, error);
  if (!status)
    status = check_phase(method, call, error);
  if (!status)
    status = check_csr(call, error);
  if (status)
    return status;
  s->is_packed = call->q_starts != NULL;
  s->is_decode = call->phase == PISA_DECODE;
  s->dense = !s->is_decode && !s->is_packed && call->n_k < method->dense_below;
  s->is_flat = method->flat || call->n_k < method->flat_below;
  s->attends = call->o.data != NULL;
  s->has_blocks = call->blocks != NULL;
  s->has_pyramid = call->pyramid != NULL;
  s->has_csr = call->csr_offsets != NULL;
  if (s->is_packed) {
    s->queries = s->n_q;
    s->keys = s->n_k;
  }
  s->k = s->kept = s->dense ? s->nt : method->keep;
  s->uniform = s->dense && !call->k_lengths;
  return PISA_OK;
}

pisa_status pisa_select_unused(const struct pisa_method *method, const pisa_attention *call,
                               pisa_error *error) {
  const struct {
    const char *name;
    bool is_set;
  } fields[] = {
      {"worth", call->worth},
      {"q_starts", call->q_starts},
      {"k_starts", call->k_starts},
      {"pages", call->pages && !method->page},
      {"page_columns", call->page_columns && !method->page},
      {"pyramid", call->pyramid},
      {"csr_offsets", call->csr_offsets},
      {"csr_queries", call->csr_queries},
      {"phase", call->phase && !method->decode},
      {"n_new", call->n_new},
      {"append_completed", call->append_completed},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (fields[i].is_set)
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "%s is set, but the pack is not of method pyramid: it must be %s",
                       fields[i].name, i < 4 || (i > 4 && i < 8) ? "NULL" : "0");
  pisa_status status = method->decode ? check_built(method, call, error) : PISA_OK;
  return status ? status : check_pages(method, call, error);
}
