/* manifest.c: manifest text -> struct pisa_manifest. In: the bytes between header line and parts.
   Out: every field read, ranges and relations checked; the grammar is docs/ABI.md section 2, in its
   order. */
#include "runtime/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/manifest_method.h"

const char *const pisa_kernel_names[PISA_N_KERNELS] = {
    "statistics",    "residual", "route",       "attend",        "attend_edge", "dense",
    "dense_edge",    "pyramid",  "pyramid_top", "walk",          "cluster",     "scatter",
    "leaf_score",    "pick",     "flat",        "csr_count",     "csr_scan",    "csr_fill",
    "attend_blocks", "append",   "decode",      "decode_attend", "decode_merge"};

enum {
  MAX_VARIANTS = 4096,
  MAX_SMEM = 227 * 1024 /* dynamic shared memory of one CTA on sm_90 */
};
static const int64_t max_part_bytes = INT64_C(1) << 32;

static bool read_text(struct pisa_lines *lines, const char *key, const char **out) {
  if (!pisa_lines_expect(lines, key))
    return false;
  if (!*lines->rest)
    return pisa_lines_fail(lines, "'%s' is empty", key);
  *out = lines->rest;
  pisa_lines_next(lines);
  return true;
}

static bool read_count(struct pisa_lines *lines, const char *key, int64_t low, int64_t high,
                       int *out) {
  int64_t value;
  if (!pisa_lines_expect(lines, key) ||
      !pisa_lines_parse(lines, key, lines->rest, low, high, &value))
    return false;
  *out = (int)value;
  pisa_lines_next(lines);
  return true;
}

static bool read_base(struct pisa_lines *lines, struct pisa_manifest *out,
                      struct pisa_draft *draft) {
  static const char *const yes_no[] = {"no", "yes"};
  const char *method = "", *validated = "";
  if (!read_text(lines, "name", &out->name) || !read_text(lines, "compiler", &out->compiler) ||
      !read_text(lines, "target", &out->target) ||
      !read_count(lines, "ptx_version", 10, 999, &out->ptx_version) ||
      !read_text(lines, "spec_sha256", &out->spec_sha256) ||
      !pisa_lines_digest(lines, out->spec_sha256) || !read_text(lines, "method", &method))
    return false;
  bool is_pyramid = !strcmp(method, "pyramid");
  if (!is_pyramid && strcmp(method, "piecewise"))
    return pisa_lines_fail(lines, "method '%.40s' is not known", method);
  if (!(is_pyramid ? pisa_pyramid_read : pisa_method_read)(lines, draft) ||
      !read_text(lines, "validated", &validated))
    return false;
  out->validated = !strcmp(validated, yes_no[1]);
  if (!out->validated && strcmp(validated, yes_no[0]))
    return pisa_lines_fail(lines, "validated is '%.40s', must be yes or no", validated);
  return read_count(lines, "variants", 1, MAX_VARIANTS, &out->n_variants);
}

static bool read_part(struct pisa_lines *lines, const char *kind, struct pisa_part *part) {
  int64_t index, offset, size;
  if (!pisa_lines_expect(lines, "part") || !pisa_lines_split(lines, 5))
    return false;
  if (strcmp(lines->fields[0], kind))
    return pisa_lines_fail(lines, "found part '%.40s' where '%s' is expected", lines->fields[0],
                           kind);
  if (!pisa_lines_parse(lines, "part number", lines->fields[1], 0, 0, &index) ||
      !pisa_lines_parse(lines, "part offset", lines->fields[2], 0, max_part_bytes, &offset) ||
      !pisa_lines_parse(lines, "part size", lines->fields[3], 1, max_part_bytes, &size) ||
      !pisa_lines_digest(lines, lines->fields[4]))
    return false;
  *part = (struct pisa_part){.present = true, .offset = (size_t)offset, .size = (size_t)size};
  memcpy(part->sha256, lines->fields[4], PISA_SHA256_HEX + 1);
  pisa_lines_next(lines);
  return true;
}

static bool read_entry(struct pisa_lines *lines, char *out) {
  const char *entry = pisa_lines_value(lines, "entry");
  if (!entry)
    return false;
  size_t length = strlen(entry);
  size_t word = strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
  if (length == 0 || length >= PISA_ENTRY_LENGTH || word != length)
    return pisa_lines_fail(lines, "entry '%.70s' must be 1 to %d letters, digits and '_'", entry,
                           PISA_ENTRY_LENGTH - 1);
  memcpy(out, entry, length + 1);
  return true;
}

static bool read_smem(struct pisa_lines *lines, enum pisa_kernel_id id, int *out) {
  const char *text = pisa_lines_value(lines, "smem");
  if (!text)
    return false;
  if (strcmp(text, "dynamic"))
    return pisa_lines_int(lines, "smem", 0, MAX_SMEM, out);
  if (id != PISA_KERNEL_ROUTE)
    return pisa_lines_fail(lines, "only the route kernel has smem=dynamic");
  *out = PISA_SMEM_DYNAMIC;
  return true;
}

static bool read_kernel(struct pisa_lines *lines, struct pisa_kernel *kernels) {
  if (!pisa_lines_split(lines, 6))
    return false;
  int id = 0;
  while (id < PISA_N_KERNELS && strcmp(lines->fields[0], pisa_kernel_names[id]))
    id++;
  if (id == PISA_N_KERNELS)
    return pisa_lines_fail(lines, "kernel '%.40s' is not known", lines->fields[0]);
  struct pisa_kernel *kernel = &kernels[id];
  if (kernel->present)
    return pisa_lines_fail(lines, "kernel '%s' is given twice", pisa_kernel_names[id]);
  kernel->present = true;
  if (!read_entry(lines, kernel->entry) ||
      !pisa_lines_int(lines, "threads", 32, 1024, &kernel->threads) ||
      !read_smem(lines, (enum pisa_kernel_id)id, &kernel->smem_bytes) ||
      !pisa_lines_int(lines, "registers", 0, 255, &kernel->registers) ||
      !pisa_lines_int(lines, "spill", 0, 1 << 20, &kernel->spill_bytes))
    return false;
  pisa_lines_next(lines);
  return true;
}

/* The same rule as plan_pyramid_kernels of compiler/plan/pyramid.c. */
static bool wants_pyramid_kernel(const struct pisa_method *method, enum pisa_kernel_id id) {
  switch (id) {
  case PISA_KERNEL_PYRAMID:
  case PISA_KERNEL_PYRAMID_TOP:
  case PISA_KERNEL_CSR_COUNT:
  case PISA_KERNEL_CSR_SCAN:
  case PISA_KERNEL_CSR_FILL:
  case PISA_KERNEL_ATTEND_BLOCKS:
    return method->prefill;
  case PISA_KERNEL_WALK:
    return method->prefill && !method->flat;
  case PISA_KERNEL_CLUSTER:
  case PISA_KERNEL_SCATTER:
  case PISA_KERNEL_LEAF_SCORE:
  case PISA_KERNEL_PICK:
    return method->prefill && pisa_is_clustered(method);
  case PISA_KERNEL_DENSE:
    return method->prefill && method->dense_below > 0 && method->mask == PISA_MASK_NONE;
  case PISA_KERNEL_DENSE_EDGE:
    return method->prefill && method->dense_below > 0;
  case PISA_KERNEL_FLAT:
    return method->prefill && (method->flat || method->flat_below > 0);
  case PISA_KERNEL_APPEND:
  case PISA_KERNEL_DECODE:
    return method->decode;
  default:
    return false;
  }
}

static bool wants_piecewise_kernel(const struct pisa_method *method, enum pisa_kernel_id id) {
  switch (id) {
  case PISA_KERNEL_STATISTICS:
  case PISA_KERNEL_ROUTE:
    return !method->dense;
  case PISA_KERNEL_RESIDUAL:
    return pisa_wants_residual(method);
  case PISA_KERNEL_DENSE:
  case PISA_KERNEL_DENSE_EDGE:
    return method->dense_below > 0;
  case PISA_KERNEL_ATTEND:
    return method->mask == PISA_MASK_NONE;
  case PISA_KERNEL_ATTEND_EDGE:
    return method->prefill;
  case PISA_KERNEL_DECODE_ATTEND:
  case PISA_KERNEL_DECODE_MERGE:
    return method->decode;
  default:
    return false;
  }
}

static bool wants_kernel(const struct pisa_method *method, enum pisa_kernel_id id) {
  return method->family == PISA_PYRAMID ? wants_pyramid_kernel(method, id)
                                        : wants_piecewise_kernel(method, id);
}

static bool read_kernels(struct pisa_lines *lines, struct pisa_variant *variant) {
  while (pisa_lines_at(lines, "kernel"))
    if (!read_kernel(lines, variant->kernels))
      return false;
  for (int i = 0; i < PISA_N_KERNELS; i++) {
    bool wanted = wants_kernel(&variant->method, (enum pisa_kernel_id)i);
    if (variant->kernels[i].present != wanted)
      return pisa_lines_fail(lines, "kernel '%s' is %s", pisa_kernel_names[i],
                             wanted ? "missing" : "not for this method");
  }
  return true;
}

static bool read_variant(struct pisa_lines *lines, int index, struct pisa_draft draft,
                         struct pisa_variant *out) {
  if (!pisa_lines_expect(lines, "variant"))
    return false;
  char *space = strchr(lines->rest, ' ');
  out->choices = space ? space + 1 : "";
  if (space)
    *space = '\0';
  int64_t ignored;
  if (!pisa_lines_parse(lines, "variant number", lines->rest, index, index, &ignored))
    return false;
  pisa_lines_next(lines);
  if (!(draft.method.family == PISA_PYRAMID ? pisa_pyramid_read_changes
                                            : pisa_method_read_changes)(lines, &draft))
    return false;
  out->method = draft.method;
  return read_part(lines, "ptx", &out->ptx) &&
         (!pisa_lines_at(lines, "part") || read_part(lines, "cubin", &out->cubin)) &&
         read_kernels(lines, out);
}

static bool read_manifest(struct pisa_lines *lines, struct pisa_manifest *out) {
  struct pisa_draft base = {.routed = false};
  if (!read_base(lines, out, &base))
    return false;
  out->variants = calloc((size_t)out->n_variants, sizeof *out->variants);
  if (!out->variants) {
    pisa_fail(lines->error, PISA_OUT_OF_MEMORY, "no memory for %d variants", out->n_variants);
    return false;
  }
  for (int i = 0; i < out->n_variants; i++)
    if (!read_variant(lines, i, base, &out->variants[i]))
      return false;
  if (!pisa_lines_expect(lines, "end"))
    return false;
  if (*lines->rest || lines->at != lines->end)
    return pisa_lines_fail(lines, "'end' must be the last line and have no fields");
  return true;
}

static char *copy_text(const char *text, size_t size) {
  char *copy = malloc(size + 1);
  if (!copy)
    return NULL;
  memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

pisa_status pisa_manifest_parse(const char *text, size_t size, struct pisa_manifest *out,
                                pisa_error *error) {
  pisa_error local = {PISA_OK, ""}; /* |error| may be NULL; its status is needed here */
  struct pisa_lines lines;
  memset(out, 0, sizeof *out);
  out->text = copy_text(text, size);
  out->words = copy_text(text, size);
  if (!out->text || !out->words)
    pisa_fail(&local, PISA_OUT_OF_MEMORY, "no memory for a manifest of %zu bytes", size);
  else if (pisa_lines_open(&lines, out->words, size, &local) && read_manifest(&lines, out))
    return PISA_OK;
  pisa_manifest_clear(out);
  return pisa_fail(error, local.status, "%s", local.message);
}

void pisa_manifest_clear(struct pisa_manifest *manifest) {
  free(manifest->text);
  free(manifest->words);
  free(manifest->variants);
  memset(manifest, 0, sizeof *manifest);
}
