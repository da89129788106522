/* wgmma.h: asynchronous matrix products of a warpgroup, m64 nC k16, half (bf16 or f16) in, f32 out.

   Order per product: wgmma_fence, the products, wgmma_commit; later wgmma_wait(n): all but the n
   youngest groups are done. An accumulator may be touched only after the wait it is passed to; the
   registers of an A operand only after the wait it is kept by. All mbarrier waits go before the
   fence: a branch between fence and product makes ptxas serialise every wgmma of the kernel
   (C7520). */
#ifndef PISA_SM90_WGMMA_H
#define PISA_SM90_WGMMA_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/frag.h"
#include "compiler/sm90/tile.h"

enum wgmma_start { WGMMA_FRESH, WGMMA_ACCUMULATE };

void wgmma_fence(struct ir *k);
void wgmma_commit(struct ir *k);
/* acc (=, +=) a b over |steps| k steps of 16; both operands from shared memory. */
void wgmma_ss(struct ir *k, const struct frag *acc, enum wgmma_start start, const struct operand *a,
              const struct operand *b, int steps);
/* The same with A in registers, from its k step |a_step| on. */
void wgmma_rs(struct ir *k, const struct frag *acc, enum wgmma_start start, const struct frag_a *a,
              int a_step, const struct operand *b, int steps);
/* Waits until at most |pending| groups are in flight; acc (may be NULL) is ready then, and the A
   operands |kept| (n_kept of them) are in use until then. */
void wgmma_wait(struct ir *k, int pending, const struct frag *acc, int n_kept,
                const struct frag_a *const *kept);

#endif
