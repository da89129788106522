"""usage: check_decode_attend.py EMIT [KEY=VALUE ...]: o and lse of decode_attend against the definition: of lists, whose
splits are a cluster, or with dense=1 of all keys, whose splits decode_merge joins."""
from dataclasses import replace

import numpy as np

from block_attention import D, G, KEYS, LEAF, PAGE, SCALE, Call, Inputs, Outputs, kernel_of
from machine import F32, Global

DENSE = KEYS.get("dense", "0") == "1"
UNIT = PAGE or LEAF
MOST = 8  # splits of a list
SPLITS = ((1, 1), (3, 1), (2, G), (5, 3)) if DENSE else ((1, 1), (4, 1), (2, 1), (3, 1), (MOST, 1))
LISTS = (  # splits, and parts of an item's merge: of the first call all, of others two
    Call(2, 2, 1, 6 * UNIT, (5 * UNIT + 3, 1), width=5, heads_last=True),
    Call(2, 1, 2, 4 * UNIT, (0, 3 * UNIT), width=8, size=70),  # scores of 200 and more
    Call(1, 1, 1, 3 * UNIT, width=2, nan_key=3 * UNIT - 1),
)
ALL = (
    Call(1, 1, 1, 9 * UNIT, width=0, lse=False),
    Call(3, 1, 2, 3 * UNIT, (2 * UNIT + 9, 1, 0), width=0, size=12),
    Call(1, 1, 2, 3 * UNIT, width=0, nan_key=3 * UNIT - 1),
)
PACKED = (Call(2, 2, 3, 2 * LEAF + 9, q_starts=(0, 1, 3), k_starts=(0, LEAF + 5, 2 * LEAF + 9), width=3),)


def attend(kernels, call, seed, parts):
    inputs, memory = Inputs(call, seed), Global(64 << 20)
    common, arrays = inputs.arguments(memory)
    out = Outputs(inputs, memory)
    rows = inputs.sequences.queries * call.kv_heads
    lists = memory.array(inputs.lists) if call.width else 0
    partial = memory.empty((rows, call.splits, G, D + 2), F32) if DENSE and call.splits > 1 else 0
    kernels[0].launch(rows * call.splits, kernels[0].shared, memory,
                      [*common, *arrays, *out.o, lists, call.width, call.splits, partial, out.lse, SCALE],
                      cluster=1 if DENSE else call.splits)
    if partial:
        written = memory.read(partial, (rows, call.splits, G, D + 2), np.uint32) != 0xFFFFFFFF
        assert written.all(), "a part is missing"
        kernels[1].launch(rows * parts, kernels[1].shared, memory, [*common, *out.o, call.splits, partial, out.lse])
    out.check()


MANY = Call(1, 1, 1, 9 * LEAF, width=0), 70  # rounds of each thread that merges


def main():
    kernels = kernel_of("decode_attend"), kernel_of("decode_merge") if DENSE else None
    if DENSE and not PAGE:
        call, splits = MANY
        attend(kernels, replace(call, splits=splits), 1, 1)
        print(f"{call} splits {splits}: right", flush=True)
    for seed, call in enumerate(ALL if DENSE else LISTS if PAGE else LISTS + PACKED):
        for splits, parts in SPLITS if seed == 0 else SPLITS[:2]:
            attend(kernels, replace(call, splits=splits), seed, parts)
            print(f"{call} splits {splits} parts {parts}: right", flush=True)


main()
