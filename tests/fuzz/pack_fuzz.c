/* pack_fuzz.c: bytes that nobody meant to be a pack. In: arbitrary bytes. Out: nothing; a crash, a
   sanitizer's report or an abort is the finding. The bytes are read three ways: as a file, as a
   manifest, and as manifest and parts with a right header, since no mutation finds a sha256.

   A libFuzzer target; alone.c stands in where a compiler has none. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pack.h"
#include "runtime/shape.h"
#include "tests/runtime/sample_pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what) {
  if (condition)
    return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

static void check_selection(const struct pisa_method *m) {
  const int powers =
      (m->key & (m->key - 1)) | (m->group & (m->group - 1)) | (m->page & (m->page - 1));
  require(m->query == 1 && m->key >= 16 && m->key <= 128 && powers == 0, "leaves");
  require(m->group >= 2 && m->group <= 8 && (m->page == 0 || m->page >= 16), "nodes and pages");
  require(m->keep >= 1 && m->keep <= 64 && m->budget == PISA_BUDGET_KEEP, "keep");
  require(m->keep >= m->always_previous + m->always_current, "room for what is forced");
  require(m->query_tile >= 1 && m->start_nodes >= 0 && m->decode_start_nodes >= 0, "a walk");
  require(!m->dense && !m->has_window && m->tail == PISA_TAIL_DROP, "nothing but a selection");
  require(m->prefill || m->decode, "a phase");
}

/* What manifest.h and method.h promise of everything that was accepted. */
static void check_method(const struct pisa_method *m) {
  require(m->heads >= 1 && m->kv_heads >= 1 && m->heads % m->kv_heads == 0, "heads");
  require(m->head_dim >= 64 && m->head_dim <= 256, "head_dim");
  require(m->n_always >= 0 && m->n_always <= PISA_MAX_ALWAYS, "always");
  if (m->family == PISA_PYRAMID) {
    check_selection(m);
    return;
  }
  require((m->query == 64 || m->query == 128) && (m->key == 64 || m->key == 128), "blocks");
  require(m->query >= m->key, "a query block of whole sub-blocks");
  require(m->window >= 0 && (m->has_window || m->window == 0), "window");
  require(m->dense || m->budget != PISA_BUDGET_DENSITY || m->density_num >= 1, "density");
  require(m->budget != PISA_BUDGET_THRESHOLD || m->threshold_num >= 1, "threshold");
  require(m->dense || m->threshold_num <= 100 * m->threshold_den, "at most 100 deviations");
  require(!m->union_lists || (m->query == 64 && !m->dense), "lists=union");
  require(m->dense_below >= 0 && (!m->dense || m->dense_below == 0), "below");
  require(m->prefill || (m->decode && m->dense), "a phase");
  require(!m->decode || (m->dense && m->mask == PISA_MASK_CAUSAL), "decode of dense packs");
  require(!m->page || (m->page >= 16 && m->page <= 128 && !m->prefill), "pages");
  static const int64_t tokens[] = {1, 64, 65, 4608, PISA_MAX_TOKENS};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    int64_t n = tokens[i], blocks = (n + m->key - 1) / m->key;
    struct pisa_quota quota = pisa_quota(m, 0, 0), share = pisa_quota(m, 0.37, 0);
    int64_t kept = pisa_kept(m, &quota, n, n, false), bound = pisa_kept(m, &quota, n, n, true);
    require(kept >= 1 && kept <= bound && bound <= blocks, "kept");
    require(pisa_list_count(m, &quota, n, 0) <= kept, "a list's count");
    require(pisa_kept(m, &share, 1000, n, false) <= blocks, "kept by density");
  }
}

static void check_manifest(const struct pisa_manifest *manifest) {
  require(manifest->n_variants >= 1 && strlen(manifest->name) > 0, "a name and a variant");
  for (int i = 0; i < manifest->n_variants; i++) {
    const struct pisa_variant *variant = &manifest->variants[i];
    check_method(&variant->method);
    require(variant->ptx.present && variant->ptx.size > 0, "ptx");
    const bool selects = variant->method.family == PISA_PYRAMID;
    const struct pisa_kernel *edge = &variant->kernels[PISA_KERNEL_ATTEND_EDGE];
    const bool attends = !selects && variant->method.prefill;
    require(edge->present == attends && (!attends || *edge->entry), "an attend kernel");
    const bool decodes = variant->method.decode;
    require(variant->kernels[PISA_KERNEL_DECODE].present == (decodes && selects) &&
                variant->kernels[PISA_KERNEL_DECODE_ATTEND].present == (decodes && !selects),
            "a decoding kernel");
    require(variant->kernels[PISA_KERNEL_PYRAMID].present == (selects && variant->method.prefill),
            "a pyramid kernel");
    require(variant->kernels[PISA_KERNEL_RESIDUAL].present == pisa_wants_residual(&variant->method),
            "a residual kernel");
    const bool below = variant->method.prefill && variant->method.dense_below > 0;
    require(variant->kernels[PISA_KERNEL_DENSE_EDGE].present == below, "dense kernels");
  }
}

static void read_as_pack(const void *bytes, size_t size) {
  pisa_error error;
  pisa_pack *pack = NULL;
  pisa_status status = pisa_pack_read(bytes, size, &pack, &error);
  require(status == error.status && (status == PISA_OK) == (pack != NULL), "a status");
  require(status == PISA_OK || strlen(error.message) > 0, "a message");
  if (status)
    return;
  check_manifest(&pack->manifest);
  const char *settings[] = {"density=0.25"};
  int variant;
  if (!pisa_pack_find_variant(pack, settings, 1, &variant, &error))
    require(variant >= 0 && variant < pack->manifest.n_variants, "a variant");
  pisa_pack_close(pack);
}

static void read_as_manifest(const char *text, size_t size) {
  struct pisa_manifest manifest;
  pisa_error error;
  if (pisa_manifest_parse(text, size, &manifest, &error))
    return;
  check_manifest(&manifest);
  pisa_manifest_clear(&manifest);
}

/* The manifest ends behind the first line "end"; the rest are parts. */
static void read_signed(const char *text, size_t size) {
  static const char last[] = "\nend\n";
  size_t cut = 0, word = sizeof last - 1;
  while (cut + word <= size && memcmp(text + cut, last, word))
    cut++;
  if (cut + word > size)
    return;
  struct sample sample;
  sample_sign(text, cut + word, text + cut + word, size - cut - word, &sample);
  read_as_pack(sample.bytes, sample.size);
  sample_free(&sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = calloc(size + 1, 1); /* exact but for one byte: reading beyond is seen */
  if (!text)
    return 0;
  if (size)
    memcpy(text, data, size);
  read_as_pack(text, size);
  if (size)
    read_as_manifest(text, size);
  read_signed(text, size);
  free(text);
  return 0;
}
