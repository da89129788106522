/* kernels.h: the kernels. Each function appends one llvm.func to the module, as its plan says;
   parameters in runtime/abi.def, mathematics in docs/DESIGN.md. A kernel file reads as its
   algorithm: no asm string, no descriptor constant, no lane arithmetic and no barrier number here;
   those are the tile layer's (compiler/sm90). */
#ifndef PISA_KERNELS_H
#define PISA_KERNELS_H

#include "compiler/ir/ir.h"
#include "compiler/plan/plan.h"

void kernel_statistics(struct ir *k, const struct plan_statistics *plan);
void kernel_residual(struct ir *k, const struct plan_residual *plan);
void kernel_route(struct ir *k, const struct plan_route *plan);
void kernel_attend(struct ir *k, const struct plan_attend *plan);

/* Block selection. */
void kernel_pyramid(struct ir *k, const struct plan_pyramid *plan);
void kernel_pyramid_top(struct ir *k, const struct plan_pyramid *plan);
void kernel_walk(struct ir *k, const struct plan_pyramid *plan);
void kernel_cluster(struct ir *k, const struct plan_pyramid *plan);
void kernel_scatter(struct ir *k, const struct plan_pyramid *plan);
void kernel_leaf_score(struct ir *k, const struct plan_pyramid *plan);
void kernel_pick(struct ir *k, const struct plan_pyramid *plan);
void kernel_flat(struct ir *k, const struct plan_pyramid *plan);
void kernel_csr_count(struct ir *k, const struct plan_pyramid *plan);
void kernel_csr_scan(struct ir *k, const struct plan_pyramid *plan);
void kernel_csr_fill(struct ir *k, const struct plan_pyramid *plan);
void kernel_attend_blocks(struct ir *k, const struct plan_pyramid *plan);
void kernel_append(struct ir *k, const struct plan_pyramid *plan);
void kernel_decode(struct ir *k, const struct plan_pyramid *plan);
void kernel_decode_attend(struct ir *k, const struct plan_pyramid *plan);
void kernel_decode_merge(struct ir *k, const struct plan_pyramid *plan);

#endif
