/* select_launch.h: the launches of a call that selects blocks, or decodes. */
#ifndef PISA_RUNTIME_SELECT_LAUNCH_H
#define PISA_RUNTIME_SELECT_LAUNCH_H

#include "runtime/args.h"

/* Those of |kernels| (launch.h) that the checked call has, "prefill" and "decode" being its phase:
   prefill: pyramid, pyramid_top, then flat, or walk and where the leaf stage is clustered cluster,
   scatter, leaf_score, pick; csr_count, csr_scan and csr_fill for csr_*; then attend_blocks. Dense:
   the first two, where it has a pyramid. decode: append where there are new keys, decode, then
   decode_attend. Dense: decode_attend, decode_merge. */
pisa_status pisa_select_launch(const struct pisa_job *job, unsigned kernels, pisa_error *error);

#endif
