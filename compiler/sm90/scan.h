/* scan.h: running sums over the lanes of a warp and the threads of a CTA. */
#ifndef PISA_SM90_SCAN_H
#define PISA_SM90_SCAN_H

#include "compiler/ir/ir.h"
#include "compiler/sm90/lanes.h"

/* Sum (i32) of the lanes up to and with this one; all lanes take part. */
val warp_running_sum(struct ir *k, val v, const struct lanes *lanes);

enum { SCAN_MAX = 2 };
static inline int scan_bytes(int n) {
  return n * 32 * 4;
}
/* Of n values (i32) a thread at once: |before| the sums over threads of lower number, |total| over
   all |warps| warps of the CTA, all of which take part. |scratch|: scan_bytes(n) of shared memory,
   free before and again after. */
void cta_scan(struct ir *k, int n, const val *v, val *before, val *total, val scratch, int warps,
              const struct lanes *lanes);

#endif
