/* target.c: one record of facts per chip. Rates were measured on an H200 (docs/DESIGN.md). */
#include "compiler/plan/plan.h"

const struct target target_sm90a = {
    .name = "sm_90a",
    .ptx_version = 86, /* shared::cta form of the TMA load */
    .sm_count = 132,
    .smem_bytes = 227 * 1024,
    .registers = 65536,
    .tensor_flops = 785e12, /* a warp-specialised attention loop, short bursts */
    .exp2_rate = 4.05e12,
    .hbm_bytes = 4.26e12,
    .l2_bytes = 9.0e12,
    .launch_seconds = 5e-6,
};
