/* run_host.c: three arrays as they stand in files in; a call on arrays of the pack's type out. */
#include <stdlib.h>
#include <string.h>

#include "runtime/shape.h"
#include "runtime/tool/run.h"

/* A rank-4 float array whose last dimension is D. */
static pisa_status check_array(const char *name, const struct array *a, bool bnhd, int head_dim,
                               pisa_error *error) {
  const char *order = bnhd ? "[B, N, H, D]" : "[B, H, N, D]";
  char shape[ARRAY_SHAPE_TEXT];
  array_shape_text(a, shape);
  if (a->type == ARRAY_I32)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s has type int32, expected float32, float16 or bfloat16", name);
  if (a->rank != 4)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s has shape %s, expected four dimensions %s",
                     name, shape, order);
  for (int i = 0; i < 4; i++)
    if (a->shape[i] < 1)
      return pisa_fail(error, PISA_INVALID_ARGUMENT, "%s has shape %s, which is empty", name,
                       shape);
  if (a->shape[3] != head_dim)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "%s has shape %s, but the pack's head_dim is %d, the last dimension", name,
                     shape, head_dim);
  return PISA_OK;
}

static pisa_status check_same(const struct array *k, const struct array *v, pisa_error *error) {
  char a[ARRAY_SHAPE_TEXT], b[ARRAY_SHAPE_TEXT];
  array_shape_text(k, a);
  array_shape_text(v, b);
  for (int i = 0; i < 4; i++)
    if (k->shape[i] != v->shape[i])
      return pisa_fail(error, PISA_INVALID_ARGUMENT,
                       "k has shape %s and v %s, which must be the same", a, b);
  return PISA_OK;
}

/* k and v [pages, Hk, page, D]. */
static pisa_status check_pool(const struct run_call *c, const struct array *k, bool bnhd,
                              pisa_error *error) {
  char shape[ARRAY_SHAPE_TEXT];
  array_shape_text(k, shape);
  if (k->shape[bnhd ? 1 : 2] == c->method->page)
    return PISA_OK;
  return pisa_fail(
      error, PISA_INVALID_ARGUMENT, "k has shape %s, but with --pages it must be %s of %d tokens",
      shape, bnhd ? "[pages, page, Hk, D]: pages" : "[pages, Hk, page, D]: pages", c->method->page);
}

static pisa_status check_arrays(const struct run_call *c, const struct array *q,
                                const struct array *k, const struct array *v,
                                const struct run_wish *wish, pisa_error *error) {
  const bool bnhd = wish->bnhd;
  char a[ARRAY_SHAPE_TEXT], b[ARRAY_SHAPE_TEXT];
  int head_dim = c->method->head_dim;
  pisa_status status = check_array("q", q, bnhd, head_dim, error);
  if (!status)
    status = check_array("k", k, bnhd, head_dim, error);
  if (!status && v)
    status = check_array("v", v, bnhd, head_dim, error);
  if (!status && v)
    status = check_same(k, v, error);
  if (status || wish->pages)
    return status ? status : check_pool(c, k, bnhd, error);
  array_shape_text(k, a);
  array_shape_text(q, b);
  if (q->shape[0] != k->shape[0])
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "q has shape %s and k %s: their batches differ",
                     b, a);
  return PISA_OK;
}

/* Whether the pack does what the command line asks for. */
static pisa_status check_pack(const struct run_call *c, const struct array *v,
                              const struct run_wish *wish, pisa_error *error) {
  if (wish->pages && !c->method->page)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "--pages is for packs that find keys in pages, which this is not");
  if (c->method->family == PISA_PYRAMID && wish->lists)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "--blocks-in is for packs that route for blocks of queries: this one selects "
                     "leaves of its own");
  if (c->method->family == PISA_PYRAMID)
    return PISA_OK;
  if (!v)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "-o FILE is needed: the pack does not select blocks, so it must attend");
  if (wish->worth)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "--worth is for packs of method pyramid, which this is not");
  if (wish->csr)
    return pisa_fail(error, PISA_INVALID_ARGUMENT,
                     "--csr-offsets and --csr-queries are for packs of method pyramid, which this "
                     "is not");
  return PISA_OK;
}

static pisa_tensor tensor_of(void *data, const struct array *a, bool bnhd) {
  int64_t n = a->shape[bnhd ? 1 : 2], h = a->shape[bnhd ? 2 : 1], d = a->shape[3];
  pisa_tensor tensor = {.data = data, .stride = {h * n * d, n * d, d, 1}};
  if (bnhd) {
    tensor.stride[1] = d;
    tensor.stride[2] = h * d;
  }
  return tensor;
}

static pisa_status no_memory(pisa_error *error) {
  return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the arrays");
}

static pisa_status add_inputs(struct run_call *c, const struct array *q, const struct array *k,
                              const struct array *v, pisa_error *error) {
  c->q_size = array_elements(q);
  c->k_size = array_elements(k);
  c->q = malloc((size_t)c->q_size * sizeof *c->q);
  c->k = malloc((size_t)c->k_size * sizeof *c->k);
  if (v) {
    c->o = malloc((size_t)c->q_size * sizeof *c->o);
    c->v = malloc((size_t)c->k_size * sizeof *c->v);
  }
  if (!c->q || !c->k || (v && (!c->o || !c->v)))
    return no_memory(error);
  array_to_type(q, c->method->type, c->q);
  array_to_type(k, c->method->type, c->k);
  if (v)
    array_to_type(v, c->method->type, c->v);
  return PISA_OK;
}

/* -1 behind the last query. */
static pisa_status add_csr(struct run_call *c, const struct pisa_shape *shape, pisa_error *error) {
  const size_t queries = (size_t)(shape->kv_heads * shape->queries * shape->kept);
  c->leaves = shape->keys / c->method->key + shape->batch;
  const size_t offsets = (size_t)(shape->kv_heads * (c->leaves + 1));
  c->call.csr_offsets = c->csr_offsets = malloc(offsets * sizeof *c->csr_offsets);
  c->call.csr_queries = c->csr_queries = malloc(queries * sizeof *c->csr_queries);
  if (!c->csr_offsets || !c->csr_queries)
    return no_memory(error);
  memset(c->csr_queries, 0xff, queries * sizeof *c->csr_queries);
  return PISA_OK;
}

/* Room for what is asked for beside o; its size needs the checked call. */
static pisa_status add_outputs(struct run_call *c, const struct run_wish *wish, pisa_error *error) {
  struct pisa_shape shape;
  pisa_status status = pisa_shape_sizes(c->method, &c->call, &shape, error);
  if (status)
    return status;
  c->list_heads = c->method->family == PISA_PYRAMID ? shape.kv_heads : shape.heads;
  c->q_blocks = shape.nt_q;
  c->kept = shape.kept;
  const size_t entries = (size_t)(shape.batch * c->list_heads * c->q_blocks * c->kept);
  if (wish->lse)
    c->call.lse = c->lse = malloc((size_t)(shape.bh * shape.n_q) * sizeof *c->lse);
  if (wish->blocks)
    c->call.blocks = c->blocks = malloc(entries * sizeof *c->blocks);
  if (wish->worth)
    c->call.worth = c->worth = malloc(entries * sizeof *c->worth);
  if ((wish->lse && !c->lse) || (wish->blocks && !c->blocks) || (wish->worth && !c->worth))
    return no_memory(error);
  status = wish->csr ? add_csr(c, &shape, error) : PISA_OK;
  return status ? status : pisa_shape_check(c->method, &c->call, &shape, error);
}

/* Keys and values where the pack looks for them, and how many there are. |pool|: pages of k, if
   the arrays are pages. */
static pisa_status add_cache(struct run_call *c, const struct run_wish *wish, int64_t pool,
                             pisa_error *error) {
  uint16_t *const k = c->k, *const v = c->v;
  pisa_status status = PISA_OK;
  c->keys = c->call.n_k;
  if (wish->pages)
    status = run_read_pages(c, wish->pages, error);
  else if (c->method->page) {
    status = run_lay_pages(c, error);
    if (c->k != k) {
      free(k);
      free(v);
    }
  }
  if (!status)
    status = run_add_lengths(c, wish, error);
  return status || !wish->pages ? status : run_check_pages(c, pool, error);
}

static int phase_of(const struct run_call *c, const struct run_wish *wish) {
  bool decode = wish->phase ? strcmp(wish->phase, "decode") == 0 : !c->method->prefill;
  return decode ? PISA_DECODE : PISA_PREFILL;
}

pisa_status run_call_init(struct run_call *c, const struct array *q, const struct array *k,
                          const struct array *v, const struct run_wish *wish, pisa_error *error) {
  const struct pisa_variant *variant;
  pisa_status status = pisa_pack_variant(c->pack, c->variant, &variant, error);
  if (status)
    return status;
  c->method = &variant->method;
  status = check_pack(c, v, wish, error);
  if (!status)
    status = check_arrays(c, q, k, v, wish, error);
  if (!status)
    status = add_inputs(c, q, k, v, error);
  if (status)
    return status;
  int heads = wish->bnhd ? 2 : 1, tokens = wish->bnhd ? 1 : 2;
  c->call = (pisa_attention){.struct_size = sizeof c->call,
                             .batch = q->shape[0],
                             .heads = q->shape[heads],
                             .kv_heads = k->shape[heads],
                             .n_q = q->shape[tokens],
                             .n_k = k->shape[tokens],
                             .q = tensor_of(c->q, q, wish->bnhd),
                             .k = tensor_of(c->k, k, wish->bnhd),
                             .v = tensor_of(c->v, k, wish->bnhd),
                             .o = tensor_of(c->o, q, wish->bnhd),
                             .density = wish->density,
                             .keep = wish->keep,
                             .scale = (float)wish->scale,
                             .phase = phase_of(c, wish)};
  status = add_cache(c, wish, k->shape[0], error);
  if (!status)
    status = run_add_lists(c, wish, error);
  return status ? status : add_outputs(c, wish, error);
}

void run_call_free(struct run_call *c) {
  free(c->q);
  free(c->k);
  free(c->v);
  free(c->o);
  free(c->lse);
  free(c->blocks);
  free(c->worth);
  free(c->csr_offsets);
  free(c->csr_queries);
  free(c->lists);
  free(c->lengths);
  free(c->pages);
}
