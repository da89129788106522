/* dense_test.c: dense attention of language models. In: packs with phase decode, and packs that
   select blocks with `below N tokens use dense`. Out: what their manifests may say, what their
   calls may say, and which kernels run with which parameters: docs/ABI.md written down once more.
 */
#include <math.h>
#include <string.h>

#include "runtime/launch.h"
#include "runtime/pack.h"
#include "tests/runtime/calls.h"
#include "tests/runtime/check.h"

enum { SMS = 132, HEADS = 32, KV_HEADS = 8, G = 4 };
#define SHAPE(dim) "heads=32 kv_heads=8 head_dim=" #dim " type=bf16 mask=causal"
#define SIZES "leaf=64 group=2 page=0"
#define BELOW "below tokens=2048 use=dense\n"

static pisa_error error;

static pisa_tensor rows(int i, int64_t heads, int64_t n, int64_t dim) {
  return (pisa_tensor){address(i), {n * heads * dim, dim, heads * dim, 1}};
}

static pisa_attention call_of(int64_t batch, int64_t n_q, int64_t n_k, int64_t dim) {
  return (pisa_attention){.struct_size = sizeof(pisa_attention),
                          .batch = batch,
                          .heads = HEADS,
                          .kv_heads = KV_HEADS,
                          .n_q = n_q,
                          .n_k = n_k,
                          .q = rows(1, HEADS, n_q, dim),
                          .k = rows(2, KV_HEADS, n_k, dim),
                          .v = rows(3, KV_HEADS, n_k, dim),
                          .o = rows(4, HEADS, n_q, dim)};
}

/* ---- manifests ---- */

static const struct sample_spec both = {
    .dense = true, .shape = SHAPE(128), .phases = "prefill decode"};
static const struct sample_spec paged = {
    .dense = true, .shape = SHAPE(64), .phases = "decode", .pages = "pages size=16\n"};

static void check_reads(const struct sample_spec *spec, bool prefill, bool decode, int page,
                        int64_t below) {
  struct sample sample;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  CHECK_OK(pisa_pack_read(sample.bytes, sample.size, &pack, &error), error);
  const struct pisa_method *m = &pack->manifest.variants[0].method;
  CHECK(m->prefill == prefill && m->decode == decode && m->page == page);
  CHECK(m->dense_below == below && m->flat_below == 0);
  pisa_pack_close(pack);
  sample_free(&sample);
}

static void check_refused(const struct sample_spec *spec, const char *before, const char *after,
                          const char *words) {
  struct sample sample, edited;
  pisa_pack *pack = NULL;
  sample_make(spec, &sample);
  sample_edit(&sample, before, after, &edited);
  CHECK_FAILS(pisa_pack_read(edited.bytes, edited.size, &pack, &error), PISA_CORRUPT, error, words);
  sample_free(&edited);
  sample_free(&sample);
}

static void check_manifests(void) {
  const struct sample_spec plain = {.dense = true, .shape = SHAPE(128)};
  const struct sample_spec below = {.pyramid = SIZES, .below = BELOW};
  const struct sample_spec last = {.pyramid = SIZES, .below = BELOW, .phases = "decode"};
  check_reads(&plain, true, false, 0, 0);
  check_reads(&both, true, true, 0, 0);
  check_reads(&paged, false, true, 16, 0);
  check_reads(&below, true, true, 0, 2048);
  check_reads(&last, false, true, 0, 2048); /* without effect, and without the kernel */
  check_refused(&both, "phases prefill decode", "phases decode prefill", "phases is 'decode pre");
  check_refused(&both, "phases prefill decode", "phases prefill",
                "kernel 'decode_attend' is not for this method");
  check_refused(&both, "phases prefill decode", "phases decode",
                "kernel 'attend_edge' is not for this method");
  check_refused(&both, "phases prefill decode\n", "",
                "kernel 'decode_attend' is not for this method");
  check_refused(&both, "mask=causal", "mask=none", "phase decode needs");
  check_refused(&both, "decode\nvalidated", "decode\npages size=16\nvalidated",
                "'pages' with phase prefill");
  check_refused(&paged, "size=16", "size=24", "size is 24, must be a power of two");
  check_refused(&paged, "size=16", "size=8", "size is '8', must be a whole number from 16 to 128");
  check_refused(&paged, "phases decode\npages size=16", "pages size=16\nphases decode",
                "'pages' with phase prefill");
  check_refused(&below, "page=0", "page=16", "'below' with use=dense, but keys lie in pages");
  check_refused(&below, "use=dense", "use=flat", "kernel 'dense_edge' is not for this method");
  check_refused(&below, "mask=causal", "mask=none", "kernel 'dense' is missing");
}

/* ---- calls ---- */

static pisa_status check(const pisa_module *module, const pisa_attention *call) {
  struct pisa_shape shape;
  pisa_clear(&error);
  return pisa_shape_check(&module->method, call, &shape, &error);
}

#define REFUSED(field, value, words)                                                               \
  do {                                                                                             \
    pisa_attention call_ = call;                                                                   \
    call_.field = value;                                                                           \
    CHECK_FAILS(check(module, &call_), PISA_INVALID_ARGUMENT, error, words);                       \
  } while (0)

static void check_decoding_calls(void) {
  pisa_module *module = load_module(&both);
  pisa_attention call = call_of(2, 3, 1000, 128);
  CHECK_OK(check(module, &call), error);
  REFUSED(phase, 2, "phase is 2, must be PISA_PREFILL or PISA_DECODE");
  call.phase = PISA_DECODE;
  call.k_lengths = address(8);
  CHECK_OK(check(module, &call), error);
  REFUSED(n_new, 1, "n_new is set, but the pack is not of method pyramid");
  REFUSED(pyramid, address(9), "pyramid is set");
  REFUSED(q_starts, address(9), "q_starts is set");
  REFUSED(blocks, address(9), "blocks must be NULL");
  REFUSED(keep, 4, "keep is set, but the pack is dense");
  REFUSED(lists, address(9), "lists must be NULL");
  REFUSED(pages, address(9), "pages is set");
  REFUSED(o.data, NULL, "o.data is NULL");
  pisa_module_unload(module);
  module = load_module(&paged);
  call = call_of(2, 3, 1008, 64);
  CHECK_FAILS(check(module, &call), PISA_UNSUPPORTED, error,
              "phase is prefill, but the pack was built without it");
  call.phase = PISA_DECODE;
  CHECK_FAILS(check(module, &call), PISA_INVALID_ARGUMENT, error,
              "pages is NULL: the pack finds keys in pages of 16 tokens");
  call.pages = address(9);
  call.page_columns = 63;
  CHECK_OK(check(module, &call), error);
  REFUSED(page_columns, 62, "page_columns is 62 and n_k 1008");
  REFUSED(pages, (int32_t *)call.o.data, "o overlaps pages in memory");
  pisa_module_unload(module);
}

static void check_short_calls(void) {
  pisa_module *module =
      load_module(&(struct sample_spec){.pyramid = SIZES, .shape = SHAPE(64), .below = BELOW});
  pisa_attention call = call_of(2, 100, 2047, 64);
  CHECK_OK(check(module, &call), error);
  REFUSED(blocks, address(6),
          "blocks must be NULL: below 2048 tokens this pack makes no block "
          "lists, n_k is 2047");
  REFUSED(worth, address(6), "worth must be NULL: below 2048");
  REFUSED(o.data, NULL, "o.data is NULL, but below 2048 tokens this pack selects nothing");
  call.n_k = 2048;
  call.blocks = address(6);
  CHECK_OK(check(module, &call), error);
  call.n_k = 2047;
  call.q_starts = address(8); /* lengths are not known: it selects */
  call.k_starts = address(9);
  CHECK_OK(check(module, &call), error);
  call.q_starts = call.k_starts = NULL;
  call.phase = PISA_DECODE; /* n_k is the room */
  CHECK_OK(check(module, &call), error);
  call = call_of(2, 100, 2047, 64);
  call.o.data = NULL; /* which is not looked at here */
  struct pisa_shape shape;
  CHECK_OK(pisa_shape_sizes(&module->method, &call, &shape, &error), error);
  CHECK(shape.dense && shape.kept == 32);
  pisa_module_unload(module);
}

/* ---- launches ---- */

static const struct fake_launch *launch_of(int i, const char *entry, int64_t grid) {
  const struct fake_launch *l = fake->launch(i);
  if (!l || strcmp(l->entry, entry)) {
    CHECK(l && !strcmp(l->entry, entry)); /* the kernel that is expected here */
    return NULL;
  }
  CHECK_INT(l->grid[0], grid);
  CHECK(l->overlaps && l->stream == address(9));
  return l;
}

static void launch_call(const pisa_module *module, const pisa_attention *call, int64_t wanted) {
  size_t bytes = 0;
  CHECK_OK(pisa_workspace_size(module, call, &bytes, &error), error);
  CHECK_INT((long long)bytes, (wanted + 255) / 256 * 256);
  fake->reset();
  CHECK_OK(pisa_launch(module, call, address(7), bytes, address(9), &error), error);
}

#define IS(KERNEL, name, value) CHECK_INT(whole(l, PISA_##KERNEL##_##name), value)
#define AT(pointer) ((int64_t)(uintptr_t)(pointer))

/* |splits| of all keys, the rule of docs/ABI.md section 6. */
static void check_decode(const struct sample_spec *spec, const pisa_attention *call, int64_t dim,
                         int64_t splits) {
  pisa_module *module = load_module(spec);
  const int64_t queries = call->batch * call->n_q, r = KV_HEADS * queries;
  launch_call(module, call, splits > 1 ? r * splits * G * (dim + 2) * 4 : 0);
  CHECK_INT(fake->calls("cuTensorMapEncodeTiled"), 0);
  CHECK_INT(fake->n_launches(), splits > 1 ? 2 : 1);
  const struct fake_launch *l = launch_of(0, "pisa_decode_attend", r * splits);
  if (!l)
    return;
  IS(DECODE_ATTEND, batch, call->batch);
  IS(DECODE_ATTEND, kv_heads, KV_HEADS);
  IS(DECODE_ATTEND, n_q, call->n_q);
  IS(DECODE_ATTEND, n_k, call->n_k);
  IS(DECODE_ATTEND, queries, queries);
  IS(DECODE_ATTEND, q_starts, 0);
  IS(DECODE_ATTEND, lengths, AT(call->k_lengths));
  IS(DECODE_ATTEND, pages, AT(call->pages));
  IS(DECODE_ATTEND, page_columns, call->page_columns);
  IS(DECODE_ATTEND, q, AT(call->q.data));
  IS(DECODE_ATTEND, k, AT(call->k.data));
  IS(DECODE_ATTEND, v, AT(call->v.data));
  IS(DECODE_ATTEND, o, AT(call->o.data));
  IS(DECODE_ATTEND, k_batch, call->batch > 1 || call->pages ? 2 * call->k.stride[0] : 0);
  IS(DECODE_ATTEND, v_token, 2 * call->v.stride[2]);
  IS(DECODE_ATTEND, lists, 0);
  IS(DECODE_ATTEND, width, 0);
  IS(DECODE_ATTEND, splits, splits);
  IS(DECODE_ATTEND, partial, splits > 1 ? AT(address(7)) : 0);
  IS(DECODE_ATTEND, lse, AT(call->lse));
  CHECK(fabs(l->params[PISA_DECODE_ATTEND_scale].real - 1 / sqrt((double)dim)) < 1e-6);
  const int64_t fill = SMS / r < G * dim / 64 ? SMS / r : G * dim / 64;
  const int64_t parts = splits > 4 && fill > 1 ? fill : 1;
  if (splits > 1 && (l = launch_of(1, "pisa_decode_merge", r * parts)) != NULL) {
    IS(DECODE_MERGE, queries, queries);
    IS(DECODE_MERGE, splits, splits);
    IS(DECODE_MERGE, partial, AT(address(7)));
    IS(DECODE_MERGE, o, AT(call->o.data));
    IS(DECODE_MERGE, lse, AT(call->lse));
  }
  pisa_module_unload(module);
}

static void check_decodes(void) {
  static const struct {
    int64_t batch, n_q, n_k, splits, splits_64;
  } cases[] = {
      {1, 1, 100000, 16, 33}, {1, 1, 128, 1, 1},  {1, 1, 129, 2, 2},   {1, 1, 1000, 8, 8},
      {1, 4, 100000, 4, 8},   {8, 1, 5000, 2, 4}, {64, 1, 5000, 1, 1}, {3, 2, 1 << 20, 2, 5},
  };
  struct sample_spec narrow = both;
  narrow.shape = SHAPE(64);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_attention call = call_of(cases[i].batch, cases[i].n_q, cases[i].n_k, 128);
    call.phase = PISA_DECODE;
    check_decode(&both, &call, 128, cases[i].splits);
    call = call_of(cases[i].batch, cases[i].n_q, cases[i].n_k, 64);
    call.phase = PISA_DECODE;
    call.lse = address(5);
    call.k_lengths = address(8);
    check_decode(&narrow, &call, 64, cases[i].splits_64);
  }
  pisa_attention call = call_of(2, 1, 1008, 64);
  call.phase = PISA_DECODE;
  call.pages = address(10);
  call.page_columns = 63;
  call.k = call.v = rows(2, KV_HEADS, 16, 64);
  check_decode(&paged, &call, 64, 8);
}

/* In phase prefill such a pack is a dense one as ever. */
static void check_prefill(void) {
  pisa_module *module = load_module(&both);
  const pisa_attention call = call_of(2, 300, 1000, 128);
  launch_call(module, &call, 0);
  CHECK_INT(fake->n_launches(), 1);
  CHECK(launch_of(0, "pisa_attend_edge", SMS));
  pisa_module_unload(module);
  const pisa_attention large = {.struct_size = sizeof large,
                                .batch = 1 << 14,
                                .heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .n_q = 1 << 14,
                                .n_k = 1 << 14,
                                .phase = PISA_DECODE};
  size_t bytes = 0;
  module = load_module(&both);
  CHECK_FAILS(pisa_workspace_size(module, &large, &bytes, &error), PISA_UNSUPPORTED, error,
              "heads * queries is 32 * 268435456, at most 2147483647 fit");
  pisa_module_unload(module);
}

static void check_dense(const pisa_module *module, const pisa_attention *call, const char *entry,
                        bool has_pyramid) {
  const int64_t keys = call->batch * call->n_k, spans = keys / (16 * 64) + call->batch;
  const int64_t q_blocks = ceil_div(call->n_q, 128), items = call->batch * HEADS * q_blocks;
  launch_call(module, call, has_pyramid ? KV_HEADS * spans * 64 * 4 : 0);
  CHECK_INT(fake->n_launches(), has_pyramid ? 3 : 1);
  CHECK_INT(fake->calls("cuTensorMapEncodeTiled"), 4);
  const struct fake_launch *l;
  if (has_pyramid && (l = launch_of(0, "pisa_pyramid", KV_HEADS * spans)) != NULL) {
    IS(PYRAMID, means, AT(call->pyramid));
    IS(PYRAMID, images, 0);
    IS(PYRAMID, zeros, 0);
    IS(PYRAMID, n_zeros, 0);
    CHECK(launch_of(1, "pisa_pyramid_top", KV_HEADS * call->batch));
  }
  l = launch_of(has_pyramid ? 2 : 0, entry, items < SMS ? items : SMS);
  if (!l)
    return;
  IS(ATTEND, items, items);
  IS(ATTEND, q_blocks, q_blocks);
  IS(ATTEND, heads, HEADS);
  IS(ATTEND, n_q, call->n_q);
  IS(ATTEND, n_k, call->n_k);
  IS(ATTEND, keep, ceil_div(call->n_k, PISA_DENSE_KEY));
  IS(ATTEND, lists, 0);
  IS(ATTEND, counts, 0);
  IS(ATTEND, lengths, AT(call->k_lengths));
  IS(ATTEND, lse, AT(call->lse));
  CHECK(l->params[PISA_ATTEND_k].map.address == (uint64_t)(uintptr_t)call->k.data);
  CHECK(l->params[PISA_ATTEND_k].map.extents[1] == (uint64_t)call->n_k);
  CHECK(is_zero(&l->params[PISA_ATTEND_k_mean].map));
}

static void check_below(void) {
  static const struct {
    const char *shape, *sizes;
    int64_t n_k;
    bool lengths;
    const char *entry;
  } cases[] = {
      {SHAPE(64), SIZES, 1024, false, "pisa_dense_edge"},
      {SHAPE(64), SIZES, 2047, true, "pisa_dense_edge"},
      {"heads=32 kv_heads=8 head_dim=64 type=bf16 mask=none", SIZES, 1024, false, "pisa_dense"},
      {"heads=32 kv_heads=8 head_dim=64 type=bf16 mask=none", SIZES, 1024, true, "pisa_dense_edge"},
      {"heads=32 kv_heads=8 head_dim=64 type=bf16 mask=none", SIZES, 1025, false,
       "pisa_dense_edge"},
      {"heads=32 kv_heads=8 head_dim=64 type=bf16 mask=none", SIZES, 64, false, "pisa_dense_edge"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pisa_module *module = load_module(
        &(struct sample_spec){.pyramid = cases[i].sizes, .shape = cases[i].shape, .below = BELOW});
    pisa_attention call = call_of(2, 300, cases[i].n_k, 64);
    call.k_lengths = cases[i].lengths ? address(8) : NULL;
    check_dense(module, &call, cases[i].entry, false);
    call.lse = address(5);
    call.pyramid = address(13);
    check_dense(module, &call, cases[i].entry, true);
    pisa_module_unload(module);
  }
}

/* From N tokens on, and packed, it selects. */
static void check_selects(void) {
  pisa_module *module =
      load_module(&(struct sample_spec){.pyramid = SIZES, .shape = SHAPE(64), .below = BELOW});
  pisa_attention call = call_of(1, 100, 2048, 64);
  size_t bytes = 0;
  for (int packed = 0; packed < 2; packed++) {
    CHECK_OK(pisa_workspace_size(module, &call, &bytes, &error), error);
    fake->reset();
    CHECK_OK(pisa_launch(module, &call, address(7), bytes, address(9), &error), error);
    CHECK_INT(fake->n_launches(), 8);
    CHECK(!strcmp(fake->launch(2)->entry, "pisa_walk"));
    call = call_of(1, 100, 2047, 64);
    call.q_starts = address(8);
    call.k_starts = address(10);
  }
  pisa_module_unload(module);
}

int main(void) {
  fake = fake_open();
  check_manifests();
  check_decoding_calls();
  check_short_calls();
  check_decodes();
  check_prefill();
  check_below();
  check_selects();
  return check_result();
}
