/* quality_scene.c: three array files in; the chosen heads, contiguous and in the packs' type, out.
   Query heads that share keys stay together, for that is how a pack runs them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/size.h"
#include "runtime/tool/quality.h"
#include "runtime/tool/run.h"

pisa_status quality_scene_alloc(struct quality_scene *s, pisa_error *error) {
  size_t q = (size_t)(s->heads * s->n_q * s->head_dim);
  size_t k = (size_t)(s->kv_heads * s->n_k * s->head_dim);
  s->q = malloc(q * sizeof *s->q);
  s->k = malloc(k * sizeof *s->k);
  s->v = malloc(k * sizeof *s->v);
  s->where = calloc((size_t)s->heads, sizeof *s->where);
  if (!s->q || !s->k || !s->v || !s->where)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for the heads");
  return PISA_OK;
}

void quality_scene_forget(struct quality_scene *s) {
  free(s->q);
  free(s->k);
  free(s->v);
  s->q = s->k = s->v = NULL;
}

void quality_scene_free(struct quality_scene *s) {
  quality_scene_forget(s);
  free(s->where);
  s->where = NULL;
}

static bool is_wanted(const struct quality_options *o, int64_t h) {
  bool wanted = o->n_heads == 0;
  for (int i = 0; i < o->n_heads; i++)
    wanted = wanted || o->heads[i] == h;
  return wanted;
}

/* Whether a query head of key head |h| is wanted. */
static bool group_is_wanted(const struct quality_options *o, int64_t h, int64_t group) {
  bool wanted = false;
  for (int64_t i = 0; i < group; i++)
    wanted = wanted || is_wanted(o, h * group + i);
  return wanted;
}

/* out [n, D] = head (b, h) of |from|. */
static void copy_head(const pisa_tensor *from, int64_t b, int64_t h, int64_t n, int64_t d,
                      uint16_t *out) {
  const uint16_t *at = (const uint16_t *)from->data + b * from->stride[0] + h * from->stride[1];
  for (int64_t i = 0; i < n; i++)
    memcpy(out + i * d, at + i * from->stride[2], (size_t)d * sizeof *out);
}

/* The same of keys or values, which may lie in pages. */
static void copy_keys(const struct run_call *c, const pisa_tensor *from, int64_t b, int64_t h,
                      uint16_t *out) {
  const int64_t page = c->pages ? c->method->page : c->keys, columns = c->call.page_columns;
  const int64_t d = c->method->head_dim;
  for (int64_t n = 0; n < c->keys; n += page)
    copy_head(from, c->pages ? c->pages[b * columns + n / page] : b, h, pisa_min(page, c->keys - n),
              d, out + n * d);
}

/* Head |h| of batch entry |b| with all its queries becomes key head |at|. */
static void add_group(struct quality_scene *s, const struct quality_options *o,
                      const struct run_call *c, int64_t b, int64_t h, int64_t at) {
  const pisa_attention *call = &c->call;
  int64_t group = call->heads / call->kv_heads, d = s->head_dim;
  copy_keys(c, &call->k, b, h, s->k + at * s->n_k * d);
  copy_keys(c, &call->v, b, h, s->v + at * s->n_k * d);
  for (int64_t i = 0; i < group; i++) {
    int64_t head = h * group + i, to = at * group + i;
    copy_head(&call->q, b, head, s->n_q, d, s->q + to * s->n_q * d);
    s->where[to] = (struct quality_head){.b = b, .h = head, .wanted = is_wanted(o, head)};
    s->n_wanted += s->where[to].wanted;
  }
}

static pisa_status gather(const struct quality_options *o, const struct run_call *c,
                          struct quality_scene *s, pisa_error *error) {
  const pisa_attention *call = &c->call;
  int64_t group = call->heads / call->kv_heads, n = 0;
  if (o->n_heads && o->heads[o->n_heads - 1] >= call->heads)
    return pisa_fail(error, PISA_INVALID_ARGUMENT, "--heads names head %lld, but q has %lld heads",
                     (long long)o->heads[o->n_heads - 1], (long long)call->heads);
  for (int64_t h = 0; h < call->kv_heads; h++)
    n += group_is_wanted(o, h, group);
  s->kv_heads = n * call->batch;
  s->heads = s->kv_heads * group;
  s->n_q = call->n_q;
  s->n_k = c->keys;
  pisa_status status = quality_scene_alloc(s, error);
  int64_t at = 0;
  for (int64_t b = 0; !status && b < call->batch; b++)
    for (int64_t h = 0; h < call->kv_heads; h++)
      if (group_is_wanted(o, h, group))
        add_group(s, o, c, b, h, at++);
  return status;
}

/* Checks the arrays as `pisa run` does; dense packs and others want the same of them. */
static pisa_status convert(const struct quality_options *o, const struct quality_packs *packs,
                           struct array arrays[3], struct quality_scene *out, pisa_error *error) {
  struct run_call c = {.pack = packs->items[0].pack, .variant = packs->items[0].variant};
  const struct run_wish wish = {.bnhd = o->bnhd, .scale = o->scale};
  pisa_status status = run_call_init(&c, &arrays[0], &arrays[1], &arrays[2], &wish, error);
  for (int i = 0; i < 3; i++)
    array_free(&arrays[i]);
  if (!status)
    status = gather(o, &c, out, error);
  run_call_free(&c);
  return status;
}

pisa_status quality_scene_read(const struct quality_options *o, const struct quality_packs *packs,
                               struct quality_scene *out, pisa_error *error) {
  struct array arrays[3] = {0};
  const char *const paths[3] = {o->q, o->k, o->v ? o->v : o->k}; /* selections read no values */
  pisa_status status = PISA_OK;
  double scale = o->scale > 0 ? o->scale : 1 / sqrt(packs->head_dim);
  *out = (struct quality_scene){
      .type = packs->type, .head_dim = packs->head_dim, .scale = (float)scale};
  snprintf(out->name, sizeof out->name, "%s", o->name ? o->name : o->q);
  for (int i = 0; !status && i < 3; i++)
    status = array_read(paths[i], &arrays[i], error);
  if (!status)
    status = convert(o, packs, arrays, out, error);
  for (int i = 0; i < 3; i++)
    array_free(&arrays[i]);
  return status;
}
