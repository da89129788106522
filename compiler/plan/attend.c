/* attend.c: in goes a spec that can be built; out come the shapes of its attend kernels. Tiles and
   rings are tried in order of preference. */
#include <string.h>

#include "compiler/plan/choose.h"
#include "dsl/arena.h"
#include "runtime/abi.def"

enum {
  WORKING_REGISTERS =
      40, /* addresses, masks, row maxima and sums of a consumer thread, beside its fragments */
  BARRIER_BYTES = 8,
  /* Bytes that attend may spill: in the producers' 24 registers and at item boundaries, away from
     the tile loop. With second_order q^2 lives there beside q and (g q), in registers where each
     warpgroup has its own stream. */
  ATTEND_SPILLS = 80,
  ATTEND_SPILLS_SQUARED = 112,
  ATTEND_SPILLS_SQUARED_STREAMS = 256,
  ATTEND_SPILLS_EDGE = 64 /* more, of the producers: sizes differ from item to item */
};

struct attend_candidate {
  int tile_k, k_stages, v_stages;
  const char *measured; /* NULL: take it when it fits; else why measurement spoke against it */
};

/* Query blocks of 128 rows: both computing warpgroups share a tile. */
static const struct attend_candidate SHARED[] = {
    {192, 2, 2, "list entries come in pairs: tiles of two blocks"},
    {176, 2, 2, NULL},
    {128, 3, 3, NULL},
    {128, 3, 2,
     "no faster at 24 heads x 128 than two stages: 65.9 us against 65.6 at 4096 tokens, 2.59 ms "
     "both "
     "at 32768"},
    {128, 2, 2, NULL},
    {64, 5, 5,
     "slower at 24 heads x 128 than tiles of 128: 68.8 us against 65.6 at 4096 tokens, 2.93 ms "
     "against 2.59 at "
     "32768"},
    {0},
};

/* Query blocks of 64 rows: each computing warpgroup has rings of its own. */
static const struct attend_candidate SPLIT[] = {
    {128, 2, 2,
     "slower at 24 heads x 128 than tiles of 64: 91.4 us against 77.3 at 4096 tokens, 3.86 ms "
     "against 3.3 at "
     "32768"},
    {64, 3, 4, NULL},
    {64, 2, 4, NULL},
    {64, 2, 3, NULL},
    {0},
};

bool plan_exps_beside(const struct plan_attend *p) {
  return p->narrow && p->streams > 1;
}

bool plan_reloads_queries(const struct plan_attend *p) {
  return p->pairs && !p->second_order && p->head_dim == 128;
}

int plan_mask_bytes(const struct plan_attend *p) {
  return (p->pairs ? 2 : 1) * PISA_MAX_MASK_WORDS * 4;
}

/* Two copies of Q (the second also stages O), or one where Q moves on to registers; rings of K and
   V, one full and one empty barrier per stage; of pairs those of O too, in the stages of Q. */
static void attend_layout(struct plan_attend *p, const struct attend_candidate *c) {
  int row = row_bytes(p->head_dim);
  p->tile_k = c->tile_k;
  p->q_stages = p->narrow && (p->streams > 1 || plan_reloads_queries(p)) ? 1 : 2;
  p->k_stages = c->k_stages;
  p->v_stages = c->v_stages;
  p->q_offset = 0;
  p->k_offset = p->q_offset + p->streams * p->q_stages * p->tile_q * row;
  p->v_offset = p->k_offset + p->streams * p->k_stages * p->tile_k * row;
  p->barrier_offset = p->v_offset + p->streams * p->v_stages * p->tile_k * row;
  int stages = p->streams * (p->q_stages + p->k_stages + p->v_stages);
  if (p->pairs)
    stages += CONSUMERS * p->q_stages;
  p->mask_offset = (p->barrier_offset + 2 * BARRIER_BYTES * stages + 15) / 16 * 16;
  int mask_bytes = p->means ? plan_mask_bytes(p) : 0;
  p->kernel.smem_bytes = p->mask_offset + p->streams * PLAN_MASK_STAGES * mask_bytes;
}

/* Fragments of a consumer thread at the item boundary, in registers: O and S of 64 rows in fp32, P
   in half pairs, (g q) in half pairs for the first-order term, and Q where each warpgroup has its
   own stream. */
static int fragment_registers(const struct plan_attend *p) {
  int o = 64 * p->head_dim / WARPGROUP, s = 64 * p->tile_k / WARPGROUP;
  int gq = p->first_order || plan_reloads_queries(p) ? o / 2 : 0; /* or q in the place of g q */
  int q = p->streams > 1 ? o / 2 : 0;
  return o + s + s / 2 + gq + q;
}

/* NULL when |c| is laid out in |p| and fits. */
static const char *why_not(struct arena *arena, const struct plan *plan, struct plan_attend *p,
                           const struct attend_candidate *c) {
  attend_layout(p, c);
  int room = p->consumer_registers - WORKING_REGISTERS;
  if (p->tile_k % p->block != 0)
    return arena_printf(arena, "a tile holds whole blocks of %d keys", p->block);
  if (p->kernel.smem_bytes > plan->target->smem_bytes)
    return arena_printf(arena, "%d bytes of shared memory, a CTA has %d", p->kernel.smem_bytes,
                        plan->target->smem_bytes);
  if (fragment_registers(p) > room)
    return arena_printf(arena, "fragments take %d registers of a thread, %d of %d are free",
                        fragment_registers(p), room, p->consumer_registers);
  return c->measured;
}

static int attend_spills(const struct plan_attend *p) {
  if (!p->second_order)
    return ATTEND_SPILLS;
  return p->streams > 1 ? ATTEND_SPILLS_SQUARED_STREAMS : ATTEND_SPILLS_SQUARED;
}

/* What the spec says of an attend kernel; a pair of query blocks is walked like one of twice the
   rows. */
static struct plan_attend attend_of(const struct plan *plan, const char *entry, bool pairs) {
  const struct spec *spec = plan->spec;
  int tile_q = pairs ? 2 * spec->blocks.query : spec->blocks.query;
  struct plan_attend p = {
      .kernel = specialised(plan->target, entry),
      .type = spec->shape.type,
      .head_dim = spec->shape.head_dim,
      .group = spec->shape.heads / spec->shape.kv_heads,
      .tile_q = tile_q,
      .streams = CONSUMERS * 64 / tile_q,
      .block = spec->blocks.key,
      .producer_registers = PRODUCER_REGISTERS,
      .consumer_registers = CONSUMER_REGISTERS,
      .dense = spec->attend.all_exact,
      .linear = is_linear(spec),
      .means = has_means(spec),
      .first_order = is_hybrid(spec),
      .second_order = is_second_order(spec),
      .pairs = pairs,
      /* us at 24 heads x 128, 8192 tokens, with and without: union 202, 229, separate 227, 237.
         Query blocks of 128 rows gain at 4096 tokens, 63.5, 66.1, and lose at 16384, 697, 684. */
      .narrow = !spec->attend.all_exact && spec->blocks.query == 64,
  };
  p.kernel.spill_budget = attend_spills(&p);
  return p;
}

/* |fixed| with the first candidate that fits; every other one leaves its reason. */
static struct plan_attend fit_attend(struct arena *arena, struct plan *plan,
                                     const struct plan_attend *fixed) {
  struct plan_attend taken = *fixed;
  bool chosen = false;
  for (const struct attend_candidate *c = fixed->streams > 1 ? SPLIT : SHARED; c->tile_k; c++) {
    struct plan_attend p = *fixed;
    const char *reason = why_not(arena, plan, &p, c);
    if (!reason && !chosen) {
      taken = p;
      chosen = true;
    } else if (reason) {
      reject(plan,
             arena_printf(arena, "%s tile_k=%d k_stages=%d v_stages=%d",
                          fixed->kernel.entry + strlen("pisa_"), c->tile_k, c->k_stages,
                          c->v_stages),
             reason);
    }
  }
  return taken;
}

void plan_choose_attend(struct arena *arena, struct plan *plan) {
  bool pairs = walks_pairs(plan->spec);
  struct plan_attend p = attend_of(plan, "pisa_attend", pairs);
  p.half_tile = plan->spec->half_tile;
  if (p.head_dim == 64)
    reject(plan, "attend fma_exp2=1",
           "slower at 24 heads x 64, 4429 tokens: 63.2 us against 62.5; 66.5 with 2 of 8, 71.0 "
           "with 4");
  plan->attend = fit_attend(arena, plan, &p);
  plan->attend_edge = plan->attend;
  plan->attend_edge.kernel.entry = "pisa_attend_edge";
  plan->attend_edge.half_tile = false;
  if (pairs) { /* each list by itself */
    p = attend_of(plan, "pisa_attend_edge", false);
    plan->attend_edge = fit_attend(arena, plan, &p);
  }
  plan->attend_edge.edge = true;
  plan->attend_edge.causal = plan->spec->shape.mask == MASK_CAUSAL && plan->spec->attend.all_exact;
  plan->attend_edge.kernel.spill_budget += ATTEND_SPILLS_EDGE;
}
