/* verify_select_fetch.c: a finished call in, copies of its outputs and the differences of two of
   them out. */
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/verify_select.h"

enum { POISON = 0xff };

/* Moves o's rows from the image to |out|; what stays must be poison. */
static void extract_o(struct select_call *c, uint16_t *out, struct verify_result *result) {
  int64_t missing = 0, rows = c->o.batch * c->o.heads * c->o.n;
  size_t row_bytes = (size_t)c->o.d * sizeof *out;
  for (int64_t row = 0; row < rows; row++, out += c->o.d) {
    int64_t bh = row / c->o.n;
    uint16_t *in = verify_row(&c->o, bh / c->o.heads, bh % c->o.heads, row % c->o.n);
    memcpy(out, in, row_bytes);
    memset(in, POISON, row_bytes);
    for (int64_t d = 0; d < c->o.d; d++)
      missing += out[d] == VERIFY_POISON;
  }
  if (missing && select_call_attends(c))
    verify_fail(result, "o: %lld elements were never written", (long long)missing);
  if (missing != rows * c->o.d && !select_call_attends(c))
    verify_fail(result, "o was written though not asked for");
  if (!select_all_poison(c->o.image, (size_t)c->o.elements * sizeof *c->o.image))
    verify_fail(result, "o: something was written outside of it");
}

static pisa_status fetch_o(struct select_call *c, struct select_outputs *outputs,
                           struct verify_result *result, pisa_error *error) {
  int64_t elements = c->o.batch * c->o.heads * c->o.n * c->o.d;
  outputs->o = malloc((size_t)elements * sizeof *outputs->o);
  if (!outputs->o)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for o");
  pisa_status status = pisa_device_download(
      c->device, c->o.image, c->o_memory, (size_t)c->o.device_elements * sizeof *c->o.image, error);
  if (!status)
    extract_o(c, outputs->o, result);
  return status;
}

static size_t means_bytes(const struct select_call *c) {
  return (size_t)(c->request.kv_heads * c->node_rows * c->module->method.head_dim) * 2;
}

/* Rows that lie in pairs, one behind the other. */
static void part_rows(uint16_t *means, int64_t rows, int d) {
  uint16_t pair[2 * CPU_MAX_HEAD_DIM];
  for (int64_t row = 0; row < rows; row += 2, means += 2 * d) {
    memcpy(pair, means, 2 * (size_t)d * sizeof *pair);
    for (int i = 0; i < 2 * d; i++)
      means[i] = pair[pisa_mean_place(i / d, i % d, d)];
  }
}

static pisa_status fetch_means(const struct select_call *c, struct select_outputs *outputs,
                               struct verify_result *result, pisa_error *error) {
  void *means = NULL;
  bool own = c->pyramid.memory != NULL;
  size_t offset =
      own ? 0 : c->workspace.bytes - c->layout.bytes + c->layout.parts[PISA_WORKSPACE_MEANS].offset;
  pisa_status status = select_buffer_fetch(c->device, own ? &c->pyramid : &c->workspace,
                                           own ? "pyramid" : "workspace", offset, means_bytes(c),
                                           &means, result, error);
  if (!status)
    part_rows(means, c->request.kv_heads * c->node_rows, c->module->method.head_dim);
  outputs->means = means;
  return status;
}

/* Words of |n| all of whose bytes are |poison|. */
static int64_t unwritten(const void *words, int64_t n, unsigned poison) {
  const uint32_t *word = words;
  int64_t missing = 0;
  for (int64_t i = 0; i < n; i++)
    missing += word[i] == poison * 0x01010101U;
  return missing;
}

/* Outputs nobody asked for are untouched, the others written. */
static void check_written(const struct select_call *c, const struct select_outputs *outputs,
                          struct verify_result *result) {
  const pisa_attention *r = &c->request;
  int64_t rows = c->shape.queries * r->heads, entries = select_rows(c) * c->shape.kept;
  int64_t no_lse = unwritten(outputs->lse, rows, POISON);
  int64_t no_worth = unwritten(outputs->worth, entries, POISON);
  int64_t no_blocks = unwritten(outputs->blocks, entries, SELECT_NO_ID);
  if (r->lse && no_lse)
    verify_fail(result, "lse: %lld rows were never written", (long long)no_lse);
  if (!r->lse && no_lse != rows)
    verify_fail(result, "lse was written though not asked for");
  if (r->worth && no_worth)
    verify_fail(result, "worth: %lld entries were never written", (long long)no_worth);
  if (!r->worth && no_worth != entries)
    verify_fail(result, "worth was written though not asked for");
  if (r->blocks && no_blocks)
    verify_fail(result, "blocks: %lld entries were never written", (long long)no_blocks);
  if (!r->blocks && no_blocks != entries)
    verify_fail(result, "blocks were written though not asked for");
}

pisa_status select_call_fetch(struct select_call *c, struct select_outputs *outputs,
                              struct verify_result *result, pisa_error *error) {
  void *lse = NULL, *blocks = NULL, *worth = NULL;
  pisa_status status = pisa_device_wait(c->device, error);
  if (!status)
    status = fetch_o(c, outputs, result, error);
  if (!status)
    status = select_buffer_fetch(c->device, &c->lse, "lse", 0, c->lse.bytes, &lse, result, error);
  if (!status)
    status = select_buffer_fetch(c->device, &c->blocks, "blocks", 0, c->blocks.bytes, &blocks,
                                 result, error);
  if (!status)
    status = select_buffer_fetch(c->device, &c->worth, "worth", 0, c->worth.bytes, &worth, result,
                                 error);
  outputs->lse = lse;
  outputs->blocks = blocks;
  outputs->worth = worth;
  if (!status)
    status = fetch_means(c, outputs, result, error);
  if (!status)
    check_written(c, outputs, result);
  return status;
}

void select_outputs_free(struct select_outputs *outputs) {
  free(outputs->o);
  free(outputs->lse);
  free(outputs->blocks);
  free(outputs->worth);
  free(outputs->means);
  *outputs = (struct select_outputs){0};
}

static int root_of(const struct pisa_method *m, int64_t keys) {
  int level = 1;
  for (int64_t size = m->key; size < keys; size *= m->group)
    level++;
  return level;
}

static int64_t differ_on_level(const struct select_call *c, const struct select_outputs *a,
                               const struct select_outputs *b, int64_t sequence, int level,
                               int64_t nodes) {
  int64_t count = 0, d = c->module->method.head_dim;
  for (int64_t hk = 0; hk < c->request.kv_heads; hk++)
    for (int64_t node = 0; node < nodes; node++) {
      int64_t at = select_node(c, sequence, hk, level, node);
      count += memcmp(a->means + at, b->means + at, (size_t)d * sizeof *a->means) != 0;
    }
  return count;
}

int64_t select_means_differ(const struct select_call *c, const struct select_outputs *a,
                            const struct select_outputs *b, bool completed) {
  const struct pisa_method *m = &c->module->method;
  int64_t count = 0;
  for (int64_t s = 0; s < c->arrays.batch; s++) {
    int64_t keys = c->arrays.sequence[s].keys, size = m->key;
    for (int level = 1; keys && level <= root_of(m, keys); level++, size *= m->group) {
      int64_t nodes = completed ? keys / size : (keys + size - 1) / size;
      count += differ_on_level(c, a, b, s, level, nodes);
    }
  }
  return count;
}

const char *select_difference(const struct select_call *c, const struct select_outputs *a,
                              const struct select_outputs *b, enum select_mode mode) {
  size_t o = (size_t)(c->o.batch * c->o.heads * c->o.n * c->o.d) * sizeof *a->o;
  bool alone = mode == SELECT_ALONE, bare = mode == SELECT_BARE;
  if (!alone && memcmp(a->o, b->o, o) != 0)
    return "o";
  if (!alone && !bare && memcmp(a->lse, b->lse, c->lse.bytes) != 0)
    return "lse";
  if (!bare && memcmp(a->blocks, b->blocks, c->blocks.bytes) != 0)
    return "blocks";
  if (!alone && !bare && memcmp(a->worth, b->worth, c->worth.bytes) != 0)
    return "worth";
  return select_means_differ(c, a, b, false) ? "means" : NULL;
}
