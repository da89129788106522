/* tune.c: what a pack's table says of a call. In: a variant that fixes what is computed, and a
   call. Out: the variant of the same result that was measured fastest on the current context's
   device; or the variant and budget that `pisa sweep` recorded. And a table from memory. */
#include "runtime/tune.h"

#include <string.h>

#include "runtime/cuda.h"
#include "runtime/pack.h"
#include "runtime/shape.h"

static pisa_status read_key(const pisa_attention *call, struct pisa_tune_key *key,
                            pisa_error *error) {
  const struct pisa_cuda *cuda;
  CUdevice device;
  char name[2 * PISA_TUNE_DEVICE];
  pisa_status status = pisa_cuda_get(&cuda, error);
  if (!status && cuda->cuCtxGetDevice(&device))
    status = pisa_fail(error, PISA_NO_DEVICE, "no CUDA context is current");
  if (!status)
    status = pisa_cuda_check(cuda, cuda->cuDeviceGetName(name, sizeof name, device), error,
                             "device name");
  if (!status)
    status = pisa_cuda_check(cuda, cuda->cuDriverGetVersion(&key->driver), error, "driver version");
  if (status)
    return status;
  pisa_tune_device_word(name, key->device);
  key->phase = call->phase;
  key->tokens = pisa_tune_bucket(call->n_k);
  key->heads = pisa_tune_bucket(call->batch * call->heads);
  return PISA_OK;
}

static pisa_status check_call(const pisa_attention *call, pisa_error *error) {
  const int64_t most = INT64_C(1) << 30;
  if (call->n_k < 1 || call->n_k > most)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "n_k is %lld, must be from 1 to 2^30",
                     (long long)call->n_k);
  if (call->batch < 1 || call->batch > most || call->heads < 1 || call->heads > most)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "batch and heads are %lld and %lld, must be at least 1",
                     (long long)call->batch, (long long)call->heads);
  return PISA_OK;
}

pisa_status pisa_pack_read_tune(pisa_pack *pack, const char *text, size_t size, pisa_error *error) {
  pisa_clear(error);
  if (!pack || !text)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is NULL", pack ? "text" : "pack");
  struct pisa_tune table;
  pisa_status status = pisa_tune_parse(text, size, &table, error);
  if (status)
    return status;
  pisa_tune_clear(&pack->tune);
  pack->tune = table;
  return PISA_OK;
}

/* Whether the row speaks of this pack's code. */
static bool is_of(const struct pisa_manifest *manifest, int variant, const char *ptx) {
  return variant < manifest->n_variants && !strcmp(manifest->variants[variant].ptx.sha256, ptx);
}

pisa_status pisa_tuned_variant(const pisa_pack *pack, int variant, const pisa_attention *call,
                               int *out, pisa_error *error) {
  pisa_clear(error);
  const struct pisa_variant *given = NULL;
  pisa_attention full;
  struct pisa_tune_key key;
  pisa_status status = pisa_pack_variant(pack, variant, &given, error);
  if (!status && !out)
    status = pisa_fail(error, PISA_INVALID_ARGUMENT, "out is NULL");
  if (!status)
    status = pisa_call_read(call, &full, error);
  if (!status)
    status = check_call(&full, error);
  if (!status && pack->tune.n)
    status = read_key(&full, &key, error);
  if (status)
    return status;
  *out = variant;
  for (int i = 0; i < pack->tune.n; i++) {
    const struct pisa_tune_row *row = &pack->tune.rows[i];
    if (row->result == PISA_TUNE_BEST && pisa_tune_same_key(&row->key, &key) &&
        is_of(&pack->manifest, row->variant, row->ptx) &&
        pisa_same_result(given->choices, pack->manifest.variants[row->variant].choices)) {
      *out = row->variant;
      break;
    }
  }
  return PISA_OK;
}

pisa_status pisa_pack_choice(const pisa_pack *pack, int *variant, double *density, int64_t *keep,
                             pisa_error *error) {
  pisa_clear(error);
  if (!pack || !variant || !density || !keep)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s is NULL",
                     !pack      ? "pack"
                     : !variant ? "variant"
                     : !density ? "density"
                                : "keep");
  const struct pisa_tune_choice *choice = &pack->tune.choice;
  bool holds = choice->present && is_of(&pack->manifest, choice->variant, choice->ptx);
  *variant = holds ? choice->variant : 0;
  *density = holds ? (double)choice->density / PISA_TUNE_BILLION : 0;
  *keep = holds ? choice->keep : 0;
  return PISA_OK;
}
