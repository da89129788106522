"""usage: check_attend_blocks.py EMIT [KEY=VALUE ...]: o and lse of the kernel attend_blocks against the definition."""
from block_attention import G, LEAF, PAGE, SCALE, Call, Inputs, Outputs, kernel_of
from machine import Global

UNIT = PAGE or LEAF  # n_k is a multiple of it: whole pages
EQUAL = (
    Call(1, 1, 5, 4 * UNIT, width=3),
    Call(2, 2, 3, 5 * UNIT, (4 * UNIT + 7, 2), heads_last=True, lse=False),
    Call(3, 1, 4, 3 * UNIT, (0, 3, 9999), width=6),  # queries before the first key
    Call(1, 1, 2, 40 * UNIT, width=37, size=12),  # more than 32 candidates; large scores
    Call(1, 1, 9, 3 * UNIT, (2 * UNIT + 1,), nan_key=2 * UNIT - 2),
    Call(1, 1, 2, 2 * UNIT, minus_infinity=0, size=40),
    Call(1, 1, 3, 3 * UNIT, size=70),  # scores of 200 and more
)
PACKED = (
    Call(3, 2, 7, 3 * LEAF + 20, q_starts=(0, 2, 2, 7), k_starts=(0, LEAF + 3, LEAF + 20, 3 * LEAF + 20)),
    Call(2, 1, 4, LEAF, q_starts=(0, 1, 4), k_starts=(0, 0, LEAF), heads_last=True),
)


def main():
    kernel = kernel_of("attend_blocks")
    queries = kernel.threads // 32 // (-(-G // 16))
    for seed, call in enumerate(EQUAL if PAGE else EQUAL + PACKED):
        inputs, memory = Inputs(call, seed), Global(64 << 20)
        common, arrays = inputs.arguments(memory)
        out = Outputs(inputs, memory)
        grid = call.kv_heads * -(-inputs.sequences.queries // queries)
        kernel.launch(grid, kernel.shared, memory, [*common, *arrays, *out.o, memory.array(inputs.lists), call.width, out.lse, SCALE])
        out.check()
        print(f"{call}: right", flush=True)


main()
