"""usage: check_decode_attend.py EMIT dense=1 [KEY=VALUE ...]: o and lse of decode_attend, or of its splits and
decode_merge, against the definition."""
from dataclasses import replace

import numpy as np

from block_attention import D, G, LEAF, PAGE, SCALE, Call, Inputs, Outputs, kernel_of
from machine import F32, Global

UNIT = PAGE or LEAF
SPLITS = (1, 1), (3, 1), (2, G), (5, 3)  # splits, and parts of an item's merge: of the first call all, of others two
CALLS = (
    Call(1, 1, 1, 9 * UNIT, width=0, lse=False),
    Call(3, 1, 2, 3 * UNIT, (2 * UNIT + 9, 1, 0), width=0, size=12),
    Call(1, 1, 2, 3 * UNIT, width=0, nan_key=3 * UNIT - 1),
)
MANY = Call(1, 1, 1, 9 * LEAF, width=0), 70  # rounds of each thread that merges


def attend(kernels, call, seed, parts):
    inputs, memory = Inputs(call, seed), Global(64 << 20)
    common, arrays = inputs.arguments(memory)
    out = Outputs(inputs, memory)
    rows = inputs.sequences.queries * call.kv_heads
    partial = memory.empty((rows, call.splits, G, D + 2), F32)
    kernels[0].launch(rows * call.splits, kernels[0].shared, memory,
                      [*common, *arrays, *out.o, 0, 0, call.splits, partial, out.lse, SCALE])
    if call.splits > 1:
        assert not (memory.read(partial, (rows, call.splits, G, D + 2), np.uint32) == 0xFFFFFFFF).any(), "a part is missing"
        kernels[1].launch(rows * parts, kernels[1].shared, memory, [*common, *out.o, call.splits, partial, out.lse])
    out.check()


def main():
    kernels = kernel_of("decode_attend"), kernel_of("decode_merge")
    if not PAGE:
        call, splits = MANY
        attend(kernels, replace(call, splits=splits), 1, 1)
        print(f"{call} splits {splits}: right", flush=True)
    for seed, call in enumerate(CALLS):
        for splits, parts in SPLITS if seed == 0 else SPLITS[:2]:
            attend(kernels, replace(call, splits=splits), seed, parts)
            print(f"{call} splits {splits} parts {parts}: right", flush=True)


main()
