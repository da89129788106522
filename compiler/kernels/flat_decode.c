/* flat_decode.c: decode of a selection without a walk. In go a query and the means of leaves, or
   keys; out come its ids and worth. The warps of a CTA scan steps in turn, each with a list of its
   own; with mass they first add up what they have seen. The first warp joins the lists. */
#include <assert.h>
#include <math.h>

#include "compiler/kernels/flat.h"
#include "compiler/plan/decode.h"
#include "compiler/sm90/sync.h"

enum { F32 = 4, TOTAL_BYTES = 2 * F32 };

static_assert((int)PISA_FLAT_means == (int)PISA_DECODE_means &&
                  (int)PISA_FLAT_scale == (int)PISA_DECODE_scale,
              "the words of flat read the arguments of decode");

/* ---- what all warps have seen ---- */

static val total_place(struct ir *k, const struct flat *a, val warp, int tile, int r) {
  val row = add_const(k, mma_lane_row(k, &a->lanes), 16 * tile + 8 * r);
  val place = add(k, mul_const(k, warp, FLAT_TOTAL_ROWS), row);
  return at(k, a->totals, mul_const(k, place, TOTAL_BYTES));
}

void flat_join_totals(struct ir *k, const struct flat *a, int tile, int r, val *max, val *sum) {
  val mine = total_place(k, a, a->lanes.warp, tile, r);
  store(k, *max, mine, F32); /* the quad's lanes store the same */
  store(k, *sum, at_const(k, mine, F32), F32);
  cta_sync(k);
  struct var all_max = var_init(k, f32(k, -INFINITY)), all_sum = var_init(k, f32(k, 0));
  int warps = a->plan->decode_select.threads / 32;
  FOR (k, warp, i32(k, 0), i32(k, warps)) {
    val place = total_place(k, a, warp, tile, r), old = get(k, all_max);
    val other = load(k, k->f32, place, F32), part = load(k, k->f32, at_const(k, place, F32), F32);
    val most = maximum(k, old, other);
    val base = choose(k, is_eq(k, most, f32(k, -INFINITY)), f32(k, 0), most);
    val x = mul(k, get(k, all_sum), exp2_approx(k, sub(k, old, base)));
    set(k, all_sum, fused(k, part, exp2_approx(k, sub(k, other, base)), x));
    set(k, all_max, most);
  }
  *max = get(k, all_max);
  *sum = get(k, all_sum);
}

/* ---- the kernel ---- */

static void score_and_join(struct ir *k, struct flat *a, int warps, int bytes) {
  flat_score(k, a);
  cta_sync(k);
  IF (k, is_eq(k, a->lanes.warp, i32(k, 0))) {
    FOR (k, warp, i32(k, 1), i32(k, warps)) {
      flat_best_merge(k, a, at(k, k->smem, mul_const(k, warp, bytes)));
    }
  }
}

void flat_decode(struct ir *k, const struct plan_pyramid *plan, val query, val kv_head) {
  const int warps = plan->decode_select.threads / 32;
  struct flat a = flat_new(k, plan);
  const int bytes = pisa_flat_unit_bytes(a.queries, plan->keep);
  assert(plan->decode_select.smem_bytes >= warps * (bytes + FLAT_TOTAL_ROWS * TOTAL_BYTES));
  a.stride = FLAT_STEP * warps;
  a.start = mul_const(k, a.lanes.warp, FLAT_STEP);
  a.totals = at_const(k, k->smem, (int64_t)warps * bytes);
  a.kv_head = kv_head;
  flat_unit(k, &a, query, add_const(k, query, 1));
  flat_best_clear(k, &a);
  IF (k, is_lt(k, i32(k, plan->keep), a.visible)) {
    score_and_join(k, &a, warps, bytes);
  }
  IF (k, is_eq(k, a.lanes.warp, i32(k, 0))) {
    flat_write(k, &a);
  }
}
