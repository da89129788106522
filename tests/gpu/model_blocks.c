/* model_blocks.c: attention over lists of leaves on the host, in float: attend_blocks, what decode
   attends to, decode_attend and decode_merge, which finds in |partial| what decode_attend would
   have written with one part. */
#include "tests/gpu/model_select.h"

struct attention { /* all queries */
  const union model_value *args;
  int q, k, v, o, lists, lse, scale;
  int64_t width;  /* of a list */
  bool split;     /* o goes to |partial| */
  float *partial; /* [R, splits, G, D + 2], the first part alone: o, then lse */
  int64_t splits;
};

static void attend_head(const struct attention *a, const struct model_sequence *s, int64_t hk,
                        int h, int64_t n, const int32_t *list, float *o, float *lse) {
  float q[MAX_D], k[MAX_D], v[MAX_D], largest = -INFINITY, sum = 0;
  const int64_t leaf = list ? model_now.leaf : 64, t = s->keys - s->queries + n;
  const int64_t width = list ? a->width : (s->keys + leaf - 1) / leaf;
  memset(o, 0, (size_t)D * sizeof *o);
  model_widen_row(model_row(s, a->q, false, hk * GROUP + h, n), q);
  for (int64_t e = 0; e < width; e++) {
    const int64_t block = list ? list[e] : e;
    for (int64_t j = block * leaf; block >= 0 && j < least(s->keys, (block + 1) * leaf); j++) {
      if (model_now.causal && j > t && !model_fault("future"))
        continue;
      float x = 0;
      model_widen_row(model_row(s, a->k, true, hk, j), k);
      model_widen_row(model_row(s, a->v, true, hk, j), v);
      for (int d = 0; d < D; d++)
        x += q[d] * k[d];
      x *= a->args[a->scale].number;
      float old = largest;
      largest = isnan(x) || isnan(largest) ? NAN : fmaxf(largest, x);
      float kept = old == -INFINITY ? 0 : expf(old - largest), weight = expf(x - largest);
      sum = sum * kept + weight;
      for (int d = 0; d < D; d++)
        o[d] = o[d] * kept + weight * v[d];
    }
  }
  bool empty = largest == -INFINITY;
  for (int d = 0; d < D && !empty; d++)
    o[d] /= sum;
  *lse = empty ? -INFINITY : largest + logf(sum) + (model_fault("blocks_lse") ? 0.01F : 0);
}

static void store(const struct attention *a, const struct model_sequence *s, int64_t h, int64_t n,
                  const float *o, float lse) {
  uint16_t *out = model_row(s, a->o, false, h, n);
  float *logs = pointer(a->args, a->lse);
  int64_t heads = (int64_t)integer(a->args, PISA_SEQUENCE_kv_heads) * GROUP;
  for (int d = model_fault("unwritten_row"); d < D; d++)
    out[d] = narrow(o[d]);
  if (logs)
    logs[model_out_row(s, heads, h, n)] = lse;
}

static void attend(void *context, int thread, int64_t task) {
  const struct attention *a = context;
  int64_t kv_heads = integer(a->args, PISA_SEQUENCE_kv_heads), hk = task % kv_heads;
  int64_t queries = integer(a->args, PISA_SEQUENCE_queries);
  struct model_sequence s = model_sequence_at(a->args, task / kv_heads);
  float local[MAX_D + 2];
  (void)thread;
  for (int64_t n = 0; n < s.queries; n++) {
    const int32_t *list = pointer(a->args, a->lists);
    if (list)
      list += model_out_row(&s, kv_heads, hk, n) * a->width;
    for (int h = 0; h < GROUP; h++) {
      int64_t row = (hk * queries + s.first + n) * a->splits;
      float *o = a->split ? a->partial + (row * GROUP + h) * (D + 2) : local;
      attend_head(a, &s, hk, h, n, list, o, o + D);
      if (!a->split)
        store(a, &s, hk * GROUP + h, n, o, o[D]);
    }
  }
}

static void merge(void *context, int thread, int64_t task) {
  const struct attention *a = context;
  int64_t kv_heads = integer(a->args, PISA_SEQUENCE_kv_heads), hk = task % kv_heads;
  struct model_sequence s = model_sequence_at(a->args, task / kv_heads);
  (void)thread;
  for (int64_t n = 0; n < s.queries; n++)
    for (int h = 0; h < GROUP; h++) {
      int64_t row = (hk * integer(a->args, PISA_SEQUENCE_queries) + s.first + n) * a->splits;
      const float *o = a->partial + (row * GROUP + h) * (D + 2);
      store(a, &s, hk * GROUP + h, n, o, o[D]);
    }
}

static void for_all(struct attention *a, void (*body)(void *context, int thread, int64_t task)) {
  cpu_parallel(cpu_threads(0),
               (int64_t)integer(a->args, PISA_SEQUENCE_batch) *
                   integer(a->args, PISA_SEQUENCE_kv_heads),
               body, a);
}

void model_attend_blocks(const union model_value *args) {
  struct attention a = {.args = args,
                        .q = PISA_ATTEND_BLOCKS_q,
                        .k = PISA_ATTEND_BLOCKS_k,
                        .v = PISA_ATTEND_BLOCKS_v,
                        .o = PISA_ATTEND_BLOCKS_o,
                        .lists = PISA_ATTEND_BLOCKS_lists,
                        .width = integer(args, PISA_ATTEND_BLOCKS_width),
                        .lse = PISA_ATTEND_BLOCKS_lse,
                        .scale = PISA_ATTEND_BLOCKS_scale};
  for_all(&a, attend);
}

void model_decode_attend(const union model_value *args) {
  struct attention a = {.args = args,
                        .q = PISA_DECODE_ATTEND_q,
                        .k = PISA_DECODE_ATTEND_k,
                        .v = PISA_DECODE_ATTEND_v,
                        .o = PISA_DECODE_ATTEND_o,
                        .lists = PISA_DECODE_ATTEND_lists,
                        .lse = PISA_DECODE_ATTEND_lse,
                        .scale = PISA_DECODE_ATTEND_scale,
                        .split = pointer(args, PISA_DECODE_ATTEND_partial) != NULL,
                        .partial = pointer(args, PISA_DECODE_ATTEND_partial),
                        .splits = integer(args, PISA_DECODE_ATTEND_splits)};
  for_all(&a, attend);
}

void model_decode_blocks(const union model_value *args) {
  struct attention a = {.args = args,
                        .q = PISA_DECODE_q,
                        .k = PISA_DECODE_k,
                        .v = PISA_DECODE_v,
                        .o = PISA_DECODE_o,
                        .lists = PISA_DECODE_ids,
                        .width = model_now.keep,
                        .lse = PISA_DECODE_lse,
                        .scale = PISA_DECODE_scale};
  if (pointer(args, PISA_DECODE_o))
    for_all(&a, attend);
}

void model_decode_merge(const union model_value *args) {
  struct attention a = {.args = args,
                        .o = PISA_DECODE_MERGE_o,
                        .lse = PISA_DECODE_MERGE_lse,
                        .partial = pointer(args, PISA_DECODE_MERGE_partial),
                        .splits = integer(args, PISA_DECODE_MERGE_splits)};
  for_all(&a, merge);
}
