/* expect.c: the grids, shared memory, maps and parameters of docs/ABI.md sections 3 and 4. In: a
   routed call. Out: a failed check for everything that was recorded otherwise. */
#include "tests/runtime/expect.h"

#include <math.h>
#include <string.h>

#include "tests/runtime/check.h"

/* Where docs/ABI.md section 4 puts the parts, and the numbers of section 3. */
struct layout {
  uintptr_t q_mean, k_mean, v_mean, h_norm2, h_part, h_sum, k_variance, lists, masks, counts,
      shared;
  int64_t bh, bh_k, nt, nq, nt_q; /* BH, BHk, NT, NQS, NTq */
  int64_t ctas, blocks, row_tiles, list_stride, mask_words;
  size_t bytes;
};

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t whole(const struct fake_launch *launch, int parameter) {
  return launch->params[parameter].whole;
}

bool is_zero(const struct fake_map *map) {
  static const struct fake_map zero;
  return !memcmp(map, &zero, sizeof zero);
}

static int64_t at_most(int64_t a, int64_t most) {
  return a < most ? a : most;
}

/* 0 for a part without bytes. */
static uintptr_t place(const struct expect *e, size_t *end, int64_t bytes) {
  if (bytes == 0)
    return 0;
  uintptr_t at = (uintptr_t)e->workspace + *end;
  *end = (*end + (size_t)bytes + 255) / 256 * 256;
  return at;
}

static struct layout lay_out(const struct expect *e) {
  const pisa_attention *c = &e->call;
  struct layout l = {.bh = c->batch * c->heads,
                     .bh_k = c->batch * c->kv_heads,
                     .nt = ceil_div(c->n_k, e->key),
                     .nq = ceil_div(c->n_q, e->key),
                     .nt_q = ceil_div(c->n_q, e->query)};
  int64_t q_blocks = c->heads / c->kv_heads * l.nq;
  l.blocks = l.nt > q_blocks ? l.nt : q_blocks;
  l.ctas = at_most(l.bh_k * l.blocks, EXPECT_SMS);
  l.row_tiles = ceil_div(l.nt_q, 16);
  l.list_stride = ceil_div((e->tail == PISA_TAIL_TAYLOR_1 ? l.nt : e->kept) + 8, 4) * 4;
  l.mask_words = 4 * ceil_div(l.nt, 128);
  const bool means = e->tail == PISA_TAIL_TAYLOR_0 || e->tail == PISA_TAIL_TAYLOR_HYBRID;
  const bool first_order = e->tail == PISA_TAIL_TAYLOR_HYBRID;
  const bool all_h = first_order || e->term == PISA_TERM_LOG_RESIDUAL;
  const int64_t of_k = l.bh_k * l.nt, lists = l.bh * l.nt_q;
  l.q_mean = place(e, &l.bytes, 2 * l.bh * l.nq * e->d);
  l.k_mean = place(e, &l.bytes, 2 * of_k * e->d);
  l.v_mean = place(e, &l.bytes, means ? 2 * of_k * e->d : 0);
  l.h_norm2 = place(e, &l.bytes, e->term == PISA_TERM_NONE ? 0 : 4 * of_k * 8);
  l.h_part = place(e, &l.bytes, all_h ? 4 * (l.bh_k + l.ctas - 1) * e->d * e->d : 0);
  l.h_sum = place(e, &l.bytes, first_order ? 2 * l.bh_k * e->d * e->d : 0);
  l.k_variance = place(e, &l.bytes, means && e->second_order ? 2 * of_k * e->d : 0);
  l.lists = place(e, &l.bytes, 4 * lists * l.list_stride);
  l.masks = place(e, &l.bytes, 4 * lists * l.mask_words);
  l.counts = place(e, &l.bytes, 4 * lists);
  l.shared = place(e, &l.bytes, e->is_union ? 4 * l.bh * ceil_div(l.nt_q, 2) : 0);
  return l;
}

size_t expect_bytes(const struct expect *expect) {
  return lay_out(expect).bytes;
}

/* A map of [batch, heads, rows, D] at |data| with these strides in elements. */
static void check_map(const struct expect *e, const struct fake_map *map, const void *data,
                      int64_t heads, int64_t rows, const int64_t stride[3]) {
  const int64_t batch = e->call.batch;
  CHECK_INT((long long)map->address, (long long)(uintptr_t)data);
  CHECK(map->rank == 4 && map->extents[0] == (uint64_t)e->d && map->extents[1] == (uint64_t)rows);
  CHECK(map->extents[2] == (uint64_t)heads && map->extents[3] == (uint64_t)batch);
  CHECK(rows == 1 || map->strides[0] == 2 * (uint64_t)stride[2]);
  CHECK(heads == 1 || map->strides[1] == 2 * (uint64_t)stride[1]);
  CHECK(batch == 1 || map->strides[2] == 2 * (uint64_t)stride[0]);
  CHECK(map->box[0] == 64 && map->box[1] == 64 && map->box[2] == 1 && map->box[3] == 1);
  CHECK(map->type == e->type && map->swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  CHECK(map->promotion == CU_TENSOR_MAP_L2_PROMOTION_256B && map->fill == CU_TENSOR_MAP_FILL_ZERO);
}

/* The same for a contiguous array [batch, kv_heads, rows, D] in the workspace; zero for none. */
static void check_part(const struct expect *e, const struct fake_map *map, uintptr_t data,
                       int64_t rows) {
  const int64_t stride[3] = {e->call.kv_heads * rows * e->d, rows * e->d, e->d};
  if (data)
    check_map(e, map, (const void *)data, e->call.kv_heads, rows, stride);
  else
    CHECK(is_zero(map));
}

static void check_inputs(const struct expect *e, const struct fake_map *q, const struct fake_map *k,
                         const struct fake_map *v) {
  const pisa_attention *c = &e->call;
  check_map(e, q, c->q.data, c->heads, c->n_q, c->q.stride);
  check_map(e, k, c->k.data, c->kv_heads, c->n_k, c->k.stride);
  check_map(e, v, c->v.data, c->kv_heads, c->n_k, c->v.stride);
}

static void check_common(const struct expect *e, const struct fake_launch *l, const char *entry,
                         int64_t grid, int64_t threads, int64_t smem) {
  CHECK(!strcmp(l->entry, entry));
  CHECK_INT(l->grid[0], grid);
  CHECK(l->grid[1] == 1 && l->grid[2] == 1 && l->block[1] == 1 && l->block[2] == 1);
  CHECK_INT(l->block[0], threads);
  CHECK_INT(l->shared_bytes, smem);
  CHECK(l->stream == e->stream);
  CHECK(l->overlaps);
}

static void check_real(double got, double wanted) {
  CHECK(fabs(got / wanted - 1) < 1e-6);
}

static double scale_of(const struct expect *e) {
  return e->call.scale > 0 ? (double)e->call.scale : 1 / sqrt((double)e->d);
}

static void check_statistics(const struct expect *e, const struct layout *w,
                             const struct fake_launch *l) {
  const pisa_attention *c = &e->call;
  check_common(e, l, "pisa_statistics", w->ctas, 384, 197888);
  check_inputs(e, &l->params[PISA_STATISTICS_q].map, &l->params[PISA_STATISTICS_k].map,
               &l->params[PISA_STATISTICS_v].map);
  CHECK_INT(whole(l, PISA_STATISTICS_q_mean), (int64_t)w->q_mean);
  CHECK_INT(whole(l, PISA_STATISTICS_k_mean), (int64_t)w->k_mean);
  CHECK_INT(whole(l, PISA_STATISTICS_v_mean), (int64_t)w->v_mean);
  const bool norms_later = e->term == PISA_TERM_LOG_RESIDUAL;
  CHECK_INT(whole(l, PISA_STATISTICS_h_norm2), norms_later ? 0 : (int64_t)w->h_norm2);
  CHECK_INT(whole(l, PISA_STATISTICS_h_part), (int64_t)w->h_part);
  CHECK_INT(whole(l, PISA_STATISTICS_total_heads), w->bh_k);
  CHECK_INT(whole(l, PISA_STATISTICS_heads), c->kv_heads);
  CHECK_INT(whole(l, PISA_STATISTICS_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_STATISTICS_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_STATISTICS_blocks), w->blocks);
  CHECK_INT(whole(l, PISA_STATISTICS_k_variance), (int64_t)w->k_variance);
  check_real(l->params[PISA_STATISTICS_variance_scale].real,
             scale_of(e) / 2 * (e->type == CU_TENSOR_MAP_FLOAT16 ? 256 : 1));
  CHECK_INT(whole(l, PISA_STATISTICS_lengths), (int64_t)(uintptr_t)c->k_lengths);
}

static void check_residual(const struct expect *e, const struct layout *w,
                           const struct fake_launch *l) {
  const pisa_attention *c = &e->call;
  check_common(e, l, "pisa_residual", at_most(w->bh_k * w->nt, EXPECT_SMS), 384, 197504);
  check_map(e, &l->params[PISA_RESIDUAL_k].map, c->k.data, c->kv_heads, c->n_k, c->k.stride);
  check_map(e, &l->params[PISA_RESIDUAL_v].map, c->v.data, c->kv_heads, c->n_k, c->v.stride);
  CHECK_INT(whole(l, PISA_RESIDUAL_h_part), (int64_t)w->h_part);
  CHECK_INT(whole(l, PISA_RESIDUAL_h_norm2), (int64_t)w->h_norm2);
  CHECK_INT(whole(l, PISA_RESIDUAL_total_heads), w->bh_k);
  CHECK_INT(whole(l, PISA_RESIDUAL_heads), c->kv_heads);
  CHECK_INT(whole(l, PISA_RESIDUAL_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_RESIDUAL_blocks), w->nt);
  CHECK_INT(whole(l, PISA_RESIDUAL_stat_ctas), w->ctas);
  CHECK_INT(whole(l, PISA_RESIDUAL_stat_blocks), w->blocks);
  CHECK_INT(whole(l, PISA_RESIDUAL_lengths), (int64_t)(uintptr_t)c->k_lengths);
}

/* Which blocks: forced ranges, budget, and the caller's arrays. */
static void check_choice(const struct expect *e, const struct fake_launch *l) {
  const pisa_attention *c = &e->call;
  for (int i = 0; i < 8; i++)
    CHECK_INT(whole(l, PISA_ROUTE_always_0_begin + i), e->always[i]);
  CHECK_INT(whole(l, PISA_ROUTE_window), e->window);
  CHECK_INT(whole(l, PISA_ROUTE_keep), e->kept);
  const bool by_density = e->num > 0, on_device = by_density && c->k_lengths;
  const int64_t blocks = (c->n_k + e->key - 1) / e->key, k = blocks * e->num / e->den;
  CHECK_INT(whole(l, PISA_ROUTE_density_num), on_device ? e->num : 0);
  CHECK_INT(whole(l, PISA_ROUTE_density_den), on_device || !by_density ? e->den : 1);
  CHECK_INT(whole(l, PISA_ROUTE_budget), on_device || !by_density ? e->budget : k > 0 ? k : 1);
  CHECK(l->params[PISA_ROUTE_threshold].real == (double)(float)e->threshold);
  CHECK_INT(whole(l, PISA_ROUTE_lengths), (int64_t)(uintptr_t)c->k_lengths);
  CHECK_INT(whole(l, PISA_ROUTE_given), (int64_t)(uintptr_t)c->lists);
  CHECK_INT(whole(l, PISA_ROUTE_n_given), c->n_listed);
}

static void check_route(const struct expect *e, const struct layout *w,
                        const struct fake_launch *l) {
  const pisa_attention *c = &e->call;
  const double gain = e->type == CU_TENSOR_MAP_FLOAT16 ? 64 : 1;
  const int64_t reducers = w->h_sum ? w->bh_k * (e->d / 32) : 0;
  check_common(e, l, "pisa_route", w->bh * w->row_tiles + reducers, 512,
               16 * (128 * ceil_div(w->nt, 128) + 4) * 4);
  CHECK_INT(whole(l, PISA_ROUTE_q_mean), (int64_t)w->q_mean);
  CHECK_INT(whole(l, PISA_ROUTE_k_mean), (int64_t)w->k_mean);
  CHECK_INT(whole(l, PISA_ROUTE_h_norm2), (int64_t)w->h_norm2);
  CHECK_INT(whole(l, PISA_ROUTE_h_part), w->h_sum ? (int64_t)w->h_part : 0);
  CHECK_INT(whole(l, PISA_ROUTE_lists), (int64_t)w->lists);
  CHECK_INT(whole(l, PISA_ROUTE_masks), (int64_t)w->masks);
  CHECK_INT(whole(l, PISA_ROUTE_ids), (int64_t)(uintptr_t)c->blocks);
  CHECK_INT(whole(l, PISA_ROUTE_h_sum), (int64_t)w->h_sum);
  CHECK_INT(whole(l, PISA_ROUTE_total_heads), w->bh);
  CHECK_INT(whole(l, PISA_ROUTE_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_ROUTE_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_ROUTE_heads), c->heads);
  CHECK_INT(whole(l, PISA_ROUTE_counts), (int64_t)w->counts);
  CHECK_INT(whole(l, PISA_ROUTE_shared), (int64_t)w->shared);
  CHECK_INT(whole(l, PISA_ROUTE_list_stride), w->list_stride);
  CHECK_INT(whole(l, PISA_ROUTE_mask_words), w->mask_words);
  CHECK_INT(whole(l, PISA_ROUTE_row_tiles), w->row_tiles);
  CHECK_INT(whole(l, PISA_ROUTE_stat_ctas), w->ctas);
  CHECK_INT(whole(l, PISA_ROUTE_stat_blocks), w->blocks);
  check_choice(e, l);
  check_real(l->params[PISA_ROUTE_scale].real, scale_of(e));
  check_real(l->params[PISA_ROUTE_h_scale].real, scale_of(e) / (double)c->n_k * gain);
}

static void check_attend(const struct expect *e, const struct layout *w,
                         const struct fake_launch *l) {
  const pisa_attention *c = &e->call;
  const bool plain = !e->uneven && c->n_k % e->key == 0 && e->kept >= 2;
  const int64_t q_blocks = plain && e->is_union ? ceil_div(c->n_q, 128) : w->nt_q;
  check_common(e, l, plain ? "pisa_attend" : "pisa_attend_edge",
               at_most(w->bh * q_blocks, EXPECT_SMS), 384, 196704);
  check_inputs(e, &l->params[PISA_ATTEND_q].map, &l->params[PISA_ATTEND_k].map,
               &l->params[PISA_ATTEND_v].map);
  check_map(e, &l->params[PISA_ATTEND_o].map, c->o.data, c->heads, c->n_q, c->o.stride);
  check_part(e, &l->params[PISA_ATTEND_k_mean].map, w->v_mean ? w->k_mean : 0, w->nt);
  check_part(e, &l->params[PISA_ATTEND_v_mean].map, w->v_mean, w->nt);
  check_part(e, &l->params[PISA_ATTEND_h_sum].map, w->h_sum, e->d);
  check_part(e, &l->params[PISA_ATTEND_k_variance].map, w->k_variance, w->nt);
  CHECK_INT(whole(l, PISA_ATTEND_lists), (int64_t)w->lists);
  CHECK_INT(whole(l, PISA_ATTEND_masks), (int64_t)w->masks);
  CHECK_INT(whole(l, PISA_ATTEND_lse), (int64_t)(uintptr_t)c->lse);
  CHECK_INT(whole(l, PISA_ATTEND_items), w->bh * q_blocks);
  CHECK_INT(whole(l, PISA_ATTEND_q_blocks), q_blocks);
  CHECK_INT(whole(l, PISA_ATTEND_heads), c->heads);
  CHECK_INT(whole(l, PISA_ATTEND_n_q), c->n_q);
  CHECK_INT(whole(l, PISA_ATTEND_n_k), c->n_k);
  CHECK_INT(whole(l, PISA_ATTEND_keep), e->kept);
  CHECK_INT(whole(l, PISA_ATTEND_list_stride), w->list_stride);
  CHECK_INT(whole(l, PISA_ATTEND_mask_words), w->mask_words);
  CHECK_INT(whole(l, PISA_ATTEND_counts), (int64_t)w->counts);
  CHECK_INT(whole(l, PISA_ATTEND_shared), (int64_t)w->shared);
  CHECK_INT(whole(l, PISA_ATTEND_lengths), (int64_t)(uintptr_t)c->k_lengths);
  check_real(l->params[PISA_ATTEND_scale_log2].real, scale_of(e) * 1.4426950408889634);
  check_real(l->params[PISA_ATTEND_mean_bias].real,
             log2((double)e->key) / (scale_of(e) * 1.4426950408889634));
}

void expect_launches(const struct expect *expect, const struct fake_cuda *fake) {
  struct layout w = lay_out(expect);
  const int n = expect->term == PISA_TERM_LOG_RESIDUAL ? 4 : 3;
  CHECK_INT(fake->n_launches(), n);
  if (fake->n_launches() != n)
    return;
  check_statistics(expect, &w, fake->launch(0));
  if (n == 4)
    check_residual(expect, &w, fake->launch(1));
  check_route(expect, &w, fake->launch(n - 2));
  check_attend(expect, &w, fake->launch(n - 1));
}
