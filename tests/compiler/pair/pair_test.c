/* pair_test.c: an application of four pairs that `pisac build --format c` wrote. usage: pair_test
   cpu|gpu; gpu: on the driver that PISA_LIBCUDA names, whose memory is the host's. In both the
   numbers must be those of attention worked out in double. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causal.h"
#include "lists.h"
#include "paged.h"
#include "piece.h"
#include "tests/compiler/pair/numbers.h"

#define LIMIT 0.02 /* of values up to 4, in bfloat16 */

static bool on_gpu;
static pisa_error error;

static void ok(pisa_status status, const char *file, int line) {
  if (status != PISA_OK)
    fprintf(stderr, "%s: %s\n", pisa_status_name(status), error.message);
  check(status == PISA_OK, "status is PISA_OK", file, line);
}
#define OK(call) ok((call), __FILE__, __LINE__)

/* Makes the primary context of the driver's device current, as the CUDA runtime does. */
static void make_context(void) {
  void *driver = dlopen(getenv("PISA_LIBCUDA"), RTLD_NOW);
  CHECK(driver);
  int (*retain)(void **, int), (*set)(void *);
  *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
  *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
  void *context;
  CHECK(retain && set && retain(&context, 0) == 0 && set(context) == 0);
}

struct arrays {
  uint16_t *q, *k, *v, *o;
  size_t o_bytes;
};

static struct arrays arrays_of(const struct sizes *s) {
  const size_t queries = (size_t)(s->batch * s->heads * s->n_q * s->d);
  const size_t keys = (size_t)(s->batch * s->kv_heads * s->n_k * s->d);
  return (struct arrays){noise(queries, 1), noise(keys, 2), noise(keys, 3), memory(queries * 2),
                         queries * 2};
}

static void free_arrays(struct arrays *a) {
  free(a->q);
  free(a->k);
  free(a->v);
  free(a->o);
}

static double error_in(const struct sizes *s, const struct arrays *a) {
  return error_of(s, a->q, a->k, a->v, a->o);
}

/* ---- piecewise attention ---- */

static piece open_piece(piece_variant variant) {
  piece self;
  OK(on_gpu ? piece_open_gpu(variant, &self, &error) : piece_open_cpu(variant, &self, &error));
  CHECK((self.module != NULL) == on_gpu);
  return self;
}

static void launch(const piece *self, const pisa_attention *call) {
  size_t bytes;
  OK(piece_launch_workspace(self, call, &bytes, &error));
  void *workspace = memory(bytes);
  OK(piece_launch(self, call, workspace, bytes, NULL, &error));
  free(workspace);
}

/* [B, H, N, D] to [B, N, H, D]. */
static void transpose(const struct sizes *s, const uint16_t *from, uint16_t *to) {
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t n = 0; n < s->n_q; n++)
        memcpy(to + ((b * s->n_q + n) * s->heads + h) * s->d,
               from + ((b * s->heads + h) * s->n_q + n) * s->d, (size_t)s->d * 2);
}

/* The typed call is the structure's; other strides give the same numbers; all blocks are exact. */
static void test_piece(void) {
  const struct sizes s = {2, PIECE_HEADS, PIECE_KV_HEADS, 330, 330, PIECE_HEAD_DIM, NULL, false};
  struct arrays a = arrays_of(&s), t = arrays_of(&s);
  uint16_t *again = memory(a.o_bytes);
  piece self = open_piece(PIECE_AS_WRITTEN);
  size_t bytes;
  OK(piece_workspace(&self, s.batch, s.n_q, s.n_k, &bytes, &error));
  CHECK((bytes > 0) == on_gpu);
  void *workspace = memory(bytes);
  OK(piece_attend(&self, s.batch, s.n_q, s.n_k, a.q, a.k, a.v, a.o, workspace, bytes, NULL,
                  &error));
  CHECK(error_in(&s, &a) > LIMIT); /* an eighth of the blocks */
  pisa_attention call = piece_call(s.batch, s.n_q, s.n_k, a.q, a.k, a.v, again);
  launch(&self, &call);
  CHECK(memcmp(a.o, again, a.o_bytes) == 0);

  transpose(&s, a.q, t.q);
  transpose(&s, a.k, t.k);
  transpose(&s, a.v, t.v);
  call = piece_call(s.batch, s.n_q, s.n_k, t.q, t.k, t.v, t.o);
  const int64_t strides[4] = {s.n_q * s.heads * s.d, s.d, s.heads * s.d, 1};
  pisa_tensor *const tensors[] = {&call.q, &call.k, &call.v, &call.o};
  for (int i = 0; i < 4; i++)
    memcpy(tensors[i]->stride, strides, sizeof strides);
  launch(&self, &call);
  transpose(&s, a.o, again);
  CHECK(memcmp(t.o, again, a.o_bytes) == 0);

  call = piece_call(s.batch, s.n_q, s.n_k, a.q, a.k, a.v, a.o);
  call.density = 1;
  launch(&self, &call);
  CHECK(error_in(&s, &a) < LIMIT);
  piece_close(&self);
  free(workspace);
  free(again);
  free_arrays(&a);
  free_arrays(&t);
}

static int64_t kept(piece_variant variant) {
  piece self = open_piece(variant);
  const pisa_attention call = piece_call(1, 1024, 1024, NULL, NULL, NULL, NULL);
  int64_t blocks;
  int same;
  OK(pisa_kept_blocks(self.pack, self.variant, &call, &blocks, &error));
  const char *const setting = variant == PIECE_AS_WRITTEN ? "density=0.125" : "density=0.25";
  OK(pisa_pack_find_variant(self.pack, &setting, 1, &same, &error));
  CHECK(same == (int)variant);
  piece_close(&self);
  piece_close(&self);
  return blocks;
}

static void test_variants(void) {
  CHECK(kept(PIECE_AS_WRITTEN) == 2);
  CHECK(kept(PIECE_DENSITY_0_25) == 4);
}

/* ---- dense, both phases ---- */

static void test_causal(void) {
  const int32_t lengths[] = {100, 37};
  struct sizes s = {2, CAUSAL_HEADS, CAUSAL_KV_HEADS, 20, 112, CAUSAL_HEAD_DIM, lengths, true};
  struct arrays a = arrays_of(&s);
  causal self;
  OK(on_gpu ? causal_open_gpu(&self, &error) : causal_open_cpu(&self, &error));
  size_t bytes;
  OK(causal_workspace(&self, s.batch, s.n_q, s.n_k, &bytes, &error));
  void *workspace = memory(bytes);
  OK(causal_attend(&self, s.batch, s.n_q, s.n_k, lengths, a.q, a.k, a.v, a.o, workspace, bytes,
                   NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  free(workspace);
  s.n_q = 1;
  OK(causal_decode_workspace(&self, s.batch, s.n_q, s.n_k, &bytes, &error));
  workspace = memory(bytes);
  OK(causal_decode(&self, s.batch, s.n_q, s.n_k, lengths, a.q, a.k, a.v, a.o, workspace, bytes,
                   NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  causal_close(&self);
  free(workspace);
  free_arrays(&a);
}

/* ---- block selection: as many leaves as there are, so that it is exact ---- */

/* Every query of sequence b has the leaves it sees, then -1. */
static void check_blocks(const struct sizes *s, const int32_t *blocks, int64_t leaf, int64_t keep) {
  for (int64_t row = 0; row < s->batch * s->kv_heads * s->n_q; row++) {
    const int64_t b = row / (s->kv_heads * s->n_q), i = row % s->n_q;
    const int64_t token = s->lengths[b] - s->n_q + i;
    for (int64_t j = 0; j < keep; j++)
      CHECK(blocks[row * keep + j] == (j <= token / leaf ? (int32_t)j : -1));
  }
}

static void test_lists(void) {
  int32_t lengths[] = {300, 129};
  struct sizes s = {2, LISTS_HEADS, LISTS_KV_HEADS, 64, 512, LISTS_HEAD_DIM, lengths, true};
  struct arrays a = arrays_of(&s);
  int32_t *blocks = memory((size_t)(s.batch * s.kv_heads * s.n_q * LISTS_KEEP) * 4);
  lists self;
  OK(on_gpu ? lists_open_gpu(&self, &error) : lists_open_cpu(&self, &error));
  size_t bytes, pyramid_bytes;
  OK(lists_workspace(&self, s.batch, s.n_q, s.n_k, &bytes, &error));
  OK(lists_pyramid_size(&self, s.batch, s.n_k, &pyramid_bytes, &error));
  void *workspace = memory(bytes), *pyramid = memory(pyramid_bytes);
  OK(lists_attend(&self, s.batch, s.n_q, s.n_k, lengths, a.q, a.k, a.v, a.o, NULL, workspace, bytes,
                  NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  memset(a.o, 0, a.o_bytes);
  OK(lists_attend(&self, s.batch, s.n_q, s.n_k, lengths, a.q, a.k, a.v, a.o, pyramid, workspace,
                  bytes, NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  OK(lists_select(&self, s.batch, s.n_q, s.n_k, lengths, a.q, a.k, blocks, pyramid, workspace,
                  bytes, NULL, &error));
  check_blocks(&s, blocks, LISTS_LEAF, LISTS_KEEP);
  free(workspace);
  s.n_q = 1;
  OK(lists_decode_workspace(&self, s.batch, s.n_q, s.n_k, &bytes, &error));
  workspace = memory(bytes);
  void *before = memory(pyramid_bytes);
  for (int step = 0; step < 3; step++) {
    lengths[0]++;
    lengths[1]++;
    memcpy(before, pyramid, pyramid_bytes);
    OK(lists_decode(&self, s.batch, s.n_q, s.n_k, lengths, 1, a.q, a.k, a.v, a.o, pyramid,
                    workspace, bytes, NULL, &error));
    CHECK(error_in(&s, &a) < LIMIT);
    CHECK(memcmp(before, pyramid, pyramid_bytes) != 0); /* it grew */
  }
  lists_close(&self);
  free(before);
  free(workspace);
  free(pyramid);
  free(blocks);
  free_arrays(&a);
}

/* ---- the same in pages ---- */

enum { COLUMNS = 12 };

/* [B, Hk, N, D] to pages in another order, [B * COLUMNS, Hk, page, D]. */
static uint16_t *to_pages(const struct sizes *s, const uint16_t *from, const int32_t *pages) {
  uint16_t *to = memory((size_t)(s->batch * s->kv_heads * s->n_k * s->d) * 2);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->kv_heads; h++)
      for (int64_t n = 0; n < s->n_k; n++) {
        const int64_t page = pages[b * COLUMNS + n / PAGED_PAGE];
        memcpy(to + ((page * s->kv_heads + h) * PAGED_PAGE + n % PAGED_PAGE) * s->d,
               from + ((b * s->kv_heads + h) * s->n_k + n) * s->d, (size_t)s->d * 2);
      }
  return to;
}

static void test_paged(void) {
  const int32_t lengths[] = {190, 70};
  struct sizes s = {2,       PAGED_HEADS, PAGED_KV_HEADS, 40, COLUMNS * PAGED_PAGE, PAGED_HEAD_DIM,
                    lengths, true};
  struct arrays a = arrays_of(&s);
  int32_t pages[2 * COLUMNS];
  for (int i = 0; i < 2 * COLUMNS; i++)
    pages[i] = (i * 7 + 3) % (2 * COLUMNS);
  uint16_t *k = to_pages(&s, a.k, pages), *v = to_pages(&s, a.v, pages);
  paged self;
  OK(on_gpu ? paged_open_gpu(&self, &error) : paged_open_cpu(&self, &error));
  size_t bytes, pyramid_bytes;
  OK(paged_workspace(&self, s.batch, s.n_q, COLUMNS, &bytes, &error));
  OK(paged_pyramid_size(&self, s.batch, COLUMNS, &pyramid_bytes, &error));
  void *workspace = memory(bytes), *pyramid = memory(pyramid_bytes);
  OK(paged_attend(&self, s.batch, s.n_q, COLUMNS, pages, lengths, a.q, k, v, a.o, pyramid,
                  workspace, bytes, NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  free(workspace);
  s.n_q = 2;
  OK(paged_decode_workspace(&self, s.batch, s.n_q, COLUMNS, &bytes, &error));
  workspace = memory(bytes);
  OK(paged_decode(&self, s.batch, s.n_q, COLUMNS, pages, lengths, 0, a.q, k, v, a.o, pyramid,
                  workspace, bytes, NULL, &error));
  CHECK(error_in(&s, &a) < LIMIT);
  paged_close(&self);
  free(workspace);
  free(pyramid);
  free(k);
  free(v);
  free_arrays(&a);
}

/* ---- what is wrong is said ---- */

static void test_errors(void) {
  uint16_t *array = memory(1 << 16);
  size_t bytes = 77;
  piece self = open_piece(PIECE_AS_WRITTEN);
  CHECK(piece_workspace(&self, 1, 0, 64, &bytes, &error) == PISA_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "n_q is 0") && bytes == 77);
  CHECK(piece_workspace(&self, 1, 64, INT64_MAX, &bytes, NULL) != PISA_OK);
  CHECK(piece_attend(&self, 1, 8, 8, array, array, NULL, array, NULL, 0, NULL, &error) ==
        PISA_INVALID_ARGUMENT);
  piece_close(&self);
  CHECK(piece_attend(&self, 1, 8, 8, array, array, array, array, NULL, 0, NULL, &error) ==
        PISA_INVALID_ARGUMENT);
  free(array);
}

/* Without a driver an opening fails, and leaves what was there. */
static void test_no_gpu(void) {
  lists self = {NULL, NULL, 7};
  CHECK(lists_open_gpu(&self, &error) == PISA_NO_DEVICE && error.message[0]);
  CHECK(self.variant == 7 && !self.pack && !self.module);
}

int main(int argc, char **argv) {
  on_gpu = argc == 2 && strcmp(argv[1], "gpu") == 0;
  if (on_gpu)
    make_context();
  else
    test_no_gpu();
  test_piece();
  test_variants();
  test_causal();
  test_lists();
  test_paged();
  test_errors();
  puts("all as it should be");
  return 0;
}
