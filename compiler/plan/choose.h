/* choose.h: what the files that choose kernels share: what every kernel has, and what a spec asks
   of them. */
#ifndef PISA_PLAN_CHOOSE_H
#define PISA_PLAN_CHOOSE_H

#include "compiler/plan/plan.h"

enum {
  WARPGROUP = 128,
  CONSUMERS =
      2, /* computing warpgroups, each 64 query rows (attend) or 64 rows of H (statistics) */
  PRODUCER_REGISTERS = 24, /* 24 * 128 + 240 * 256 = 64512 of 65536 */
  CONSUMER_REGISTERS = 240,
  ELEMENT_BYTES = 2,
  MAX_REJECTIONS = 32
};

/* Registers at entry of a kernel with setmaxnreg: all of the SM, shared evenly, in steps of 8. */
static inline int entry_registers(const struct target *target, int threads) {
  return target->registers / threads / 8 * 8;
}

static inline struct plan_kernel specialised(const struct target *target, const char *entry) {
  int threads = (1 + CONSUMERS) * WARPGROUP;
  return (struct plan_kernel){
      .entry = entry,
      .threads = threads,
      .entry_registers = entry_registers(target, threads),
  };
}

/* Bytes of a row in shared memory: whole panels of 64 columns (128 bytes). */
static inline int row_bytes(int head_dim) {
  enum { PANEL_COLUMNS = 64 };
  return (head_dim + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * ELEMENT_BYTES;
}

/* |candidate| is not built, for |reason|: both live as long as the plan. */
static inline void reject(struct plan *plan, const char *candidate, const char *reason) {
  if (plan->n_rejections < MAX_REJECTIONS)
    plan->rejections[plan->n_rejections++] = (struct rejection){candidate, reason};
}

/* ---- what a spec asks for ---- */

static inline bool has_rest(const struct spec *spec, enum spec_tail rest) {
  return !spec->attend.all_exact && spec->attend.rest == rest;
}

static inline bool is_hybrid(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_HYBRID);
}

/* Whether unlisted blocks count as their means. */
static inline bool has_means(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_0) || is_hybrid(spec);
}

static inline bool is_linear(const struct spec *spec) {
  return has_rest(spec, TAIL_TAYLOR_1);
}

static inline bool ranks_by(const struct spec *spec, enum spec_term term) {
  return spec->route.kind == ROUTE_TOP_K && spec->route.term == term;
}

static inline bool is_second_order(const struct spec *spec) {
  return !spec->attend.all_exact && spec->attend.mass_second_order;
}

static inline bool walks_pairs(const struct spec *spec) {
  return spec->route.kind == ROUTE_TOP_K && spec->lists == LISTS_UNION;
}

/* plan->attend and plan->attend_edge; attend.c. */
void plan_choose_attend(struct arena *arena, struct plan *plan);

#endif
