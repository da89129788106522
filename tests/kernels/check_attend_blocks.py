"""usage: check_attend_blocks.py EMIT [KEY=VALUE ...]: o and lse of the kernel attend_blocks against the definition; and that
queries are attended to alone (by mma.sync) only where a tile of them cannot be: other sequences, longer lists, sums that
are not finite."""
import sys

from block_attention import D, G, KEYS, LEAF, PAGE, SCALE, Call, Inputs, Outputs, kernel_of
from machine import Global, TensorMap

KEEP = int(KEYS.get("keep", 8))
IN_TILES = G <= 32 and LEAF >= 64 and not PAGE and D in (64, 128)  # runtime/pyramid.def
UNIT = PAGE or LEAF  # n_k is a multiple of it: whole pages
EQUAL = (
    Call(1, 1, 5, 4 * UNIT, width=3),
    Call(2, 2, 3, 5 * UNIT, (4 * UNIT + 7, 2), heads_last=True, lse=False),
    Call(3, 1, 4, 3 * UNIT, (0, 3, 9999), width=6),  # queries before the first key
    Call(1, 1, 2, 40 * UNIT, width=37, size=12),  # more than 32 candidates; large scores
    Call(1, 1, 9, 3 * UNIT, (2 * UNIT + 1,), nan_key=2 * UNIT - 2),
    Call(1, 1, 2, 2 * UNIT, minus_infinity=0, size=40),
    Call(1, 1, 3, 3 * UNIT, size=70),  # scores of 200 and more
    Call(2, 1, 8, 11 * UNIT, width=8),  # whole tiles
    Call(1, 2, 10, 4 * UNIT, (3 * UNIT + 4,), width=8),  # a tile before and behind the end of a leaf
)
LONG = (  # of tiles of up to 16 queries
    Call(2, 1, 32, 11 * UNIT, width=8),  # whole ones
    Call(1, 2, 21, 4 * UNIT, width=8, heads_last=True, minus_infinity=1),  # one with an end; -inf
    Call(1, 1, 25, 4 * UNIT, (3 * UNIT + 9,), width=8),  # before and behind the end of a leaf
    Call(1, 1, 20, 3 * UNIT, (7,), width=6),  # queries before the first key
    Call(1, 1, 32, 9 * UNIT, width=8, size=70),  # scores of 200 and more
    Call(1, 1, 18, 9 * UNIT, width=8, nan_key=3 * UNIT + 1),  # in leaves that some list
)
PACKED = (
    Call(3, 2, 7, 3 * LEAF + 20, q_starts=(0, 2, 2, 7), k_starts=(0, LEAF + 3, LEAF + 20, 3 * LEAF + 20)),
    Call(2, 1, 4, LEAF, q_starts=(0, 1, 4), k_starts=(0, 0, LEAF), heads_last=True),
    Call(3, 2, 48, 5 * LEAF + 5, q_starts=(0, 16, 32, 48), k_starts=(0, LEAF + 3, 4 * LEAF, 5 * LEAF + 5)),
    Call(2, 1, 40, 7 * LEAF, q_starts=(0, 17, 40), k_starts=(0, 4 * LEAF + 3, 7 * LEAF), width=6),
)


def count_alone(kernel):
    """Counts products that a warp does by itself."""
    counts = [0]

    def counted(run):
        def also(w):
            counts[0] += 1
            return run(w)
        return also
    for i, text in enumerate(kernel.source):
        if text.startswith("mma.sync"):
            kernel.code[i] = counted(kernel.code[i])
    return counts


def tiles_suffice(call, sequences, queries):
    firsts = range(0, sequences.queries, queries)
    whole = all(sequences.of(i)[0] == sequences.of(min(i + queries, sequences.queries) - 1)[0] for i in firsts)
    return whole and call.width <= KEEP and call.nan_key < 0 and not call.lengths


def maps_of(call, memory, arrays):
    """Tensor maps of k and v, whose pointers and strides [batch, head, token] in bytes stand in |arrays| behind those of q."""
    shape = (1 if call.q_starts else call.batch, call.kv_heads, call.n_k, D)
    return [TensorMap(memory, arrays[i], shape, tuple(x // 2 for x in arrays[i + 1:i + 4])) if IN_TILES else 0 for i in (4, 8)]


def main():
    kernel = kernel_of("attend_blocks")
    counts = count_alone(kernel)
    each = 16 // max(4, 1 << (G - 1).bit_length()) if IN_TILES and G <= 8 else 1  # queries of a warp
    queries = kernel.threads // 32 // (-(-G // 16)) * each
    for seed, call in enumerate(EQUAL + LONG * IN_TILES + PACKED * (not PAGE)):
        inputs, memory = Inputs(call, seed), Global(64 << 20)
        common, arrays = inputs.arguments(memory)
        out = Outputs(inputs, memory)
        grid = call.kv_heads * -(-inputs.sequences.queries // queries)
        kernel.launch(grid, kernel.shared, memory, [*common, *arrays, *out.o, memory.array(inputs.lists), call.width, out.lse, SCALE,
                                                    *maps_of(call, memory, arrays)])
        out.check()
        if IN_TILES and tiles_suffice(call, inputs.sequences, queries) and counts[0]:
            sys.exit(f"{call}: {counts[0]} products alone")
        counts[0] = 0
        print(f"{call}: right", flush=True)


main()
