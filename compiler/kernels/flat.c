/* flat: the K best of all visible leaves, for every query and key head. In go queries, keys and the
   means of leaves; out come lists.

       score[h, j] = scale q_h . mean_j, or of the keys of leaf j (runtime/cpu/select.h)
       worth[j]    = the scores of G heads reduced
       list        = the K largest, ties to the smaller j, forced leaves first; ascending

   Nothing of size [N, N / C] is written: see flat.h. With mass the scores are made twice, first for
   what they sum up to. Any number of CTAs takes the units in turn, late queries first, as they see
   most. */
#include "compiler/kernels/flat.h"

#include <assert.h>

#include "compiler/kernels/kernels.h"
#include "compiler/sm90/sync.h"

static const struct ir_arg flat_args[] = {
#define X(kind, name, meaning) {IR_ARG_##kind, #name},
    PISA_FLAT_ARGS(X)
#undef X
};

struct flat flat_new(struct ir *k, const struct plan_pyramid *plan) {
  struct flat a = {.plan = plan, .lanes = lanes_new(k)};
  a.start = i32(k, 0);
  a.stride = FLAT_STEP;
  a.folded = plan->score == SCORE_MEAN && plan->reduce == REDUCE_SUM;
  a.heads = a.folded ? 1 : power_of_two_from(plan->group);
  a.tiles = a.heads > MMA_ROWS ? 2 : 1;
  a.queries = a.heads > MMA_ROWS ? 1 : MMA_ROWS / a.heads;
  assert(a.heads <= 2 * MMA_ROWS);
  assert(PISA_FLAT_WARPS * a.queries == pisa_flat_queries(plan->group, a.folded));
  int bytes = pisa_flat_unit_bytes(a.queries, plan->keep);
  a.smem = at(k, k->smem, mul_const(k, a.lanes.warp, bytes));
  a.keys =
      (struct sequence_array){FLAT_ARG(k), FLAT_ARG(k_batch), FLAT_ARG(k_head), FLAT_ARG(k_token)};
  a.unit = mul(k, FLAT_ARG(scale), f32(k, 1 / FLAT_LN2));
  if (a.folded) /* the sum of heads is kept divided by as many, not to overflow */
    a.unit = mul(k, a.unit, f32(k, power_of_two_from(plan->group)));
  for (int which = 0; which < 2; which++)
    for (int r = 0; r < FRAG_ROWS; r++) {
      a.match[which][r] = var_new(k, k->i32);
      for (int tile = 0; tile < a.tiles; tile++)
        a.special[which][tile][r] = var_new(k, k->f32);
    }
  return a;
}

/* 2 where 128 registers a thread are enough. */
static int ctas_per_sm(const struct flat *a) {
  int columns = a->tiles * a->plan->head_dim * (a->folded && a->plan->group > 1 ? 2 : 1);
  return columns > (plan_is_mass(a->plan) ? 64 : 128) ? 1 : 2;
}

void flat_score(struct ir *k, struct flat *a) {
  val shift[2][FRAG_ROWS] = {{{0}}};
  flat_load(k, a);
  if (flat_has_special(a))
    flat_specials(k, a);
  if (plan_is_mass(a->plan))
    flat_normalise(k, a, shift);
  flat_scan(k, a, shift);
}

/* The queries of [first, end) that are of one sequence. */
static void select_unit(struct ir *k, struct flat *a, val first, val end) {
  flat_unit(k, a, first, end);
  flat_best_clear(k, a);
  IF (k, is_lt(k, i32(k, a->plan->keep), a->visible)) {
    flat_score(k, a);
  }
  flat_write(k, a);
}

void kernel_flat(struct ir *k, const struct plan_pyramid *plan) {
  assert(plan->flat_scan.threads == 32 * PISA_FLAT_WARPS);
  ir_set_half(k, plan->type == TYPE_FP16);
  kernel_begin(k, PISA_FLAT_N_ARGS, flat_args);
  struct flat a = flat_new(k, plan);
  assert(PISA_FLAT_WARPS * pisa_flat_unit_bytes(a.queries, plan->keep) <=
         plan->flat_scan.smem_bytes);
  launch_handover(k);
  val queries = SEQUENCE_ARG(queries), kv_heads = SEQUENCE_ARG(kv_heads);
  int tile_queries = PISA_FLAT_WARPS * a.queries;
  val tiles = udiv(k, add_const(k, queries, tile_queries - 1), i32(k, tile_queries));
  val items = mul(k, tiles, kv_heads);
  FOR_STEP(k, i, cta_index(k), items, cta_count(k)) {
    val item = sub(k, add_const(k, items, -1), i), tile = udiv(k, item, kv_heads);
    a.kv_head = sub(k, item, mul(k, tile, kv_heads));
    val unit = add(k, mul_const(k, tile, PISA_FLAT_WARPS), a.lanes.warp);
    val begin = mul_const(k, unit, a.queries);
    val end = smin(k, add_const(k, begin, a.queries), queries);
    struct var next = var_init(k, begin);
    WHILE (k, is_lt(k, get(k, next), end)) {
      select_unit(k, &a, get(k, next), end);
      set(k, next, add(k, a.first, a.count));
    }
  }
  kernel_end(k, plan->flat_scan.entry, plan->flat_scan.threads, ctas_per_sm(&a));
}
