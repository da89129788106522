"""usage: check_pyramid.py SELECT_EMIT [KEY=VALUE ...]: means, images and growing sums of the kernels pyramid and pyramid_top
against their definitions."""
import numpy as np

from machine import F32, Global
from selection import Case, Sequences, ceil_div, close, ordered_means, plan_of_arguments

PLAN = plan_of_arguments()
C, D, SPAN = PLAN.C, PLAN.D, PLAN.C * PLAN.span
OPEN_LEVELS = 32
NAN_ROW = 0xFFFF  # what memory.empty leaves


def build(case, kernels, opens=True, images=True, zeros=0):
    """Runs both kernels; means bits [Hk, P, D], open [B, Hk, 32, D], images [Hk, NL, C, D], zeros."""
    s, memory = case.s, Global(64 << 20)
    means = memory.empty((s.kv_heads, s.P, D), np.uint16)
    sums = memory.empty((s.kv_heads, s.NS, D), F32)
    open_at = memory.empty((s.batch, s.kv_heads, OPEN_LEVELS, D), F32) if opens else 0
    image_at = memory.empty((s.kv_heads, s.NL, C, D), np.uint16) if images else 0
    zeros_at = memory.empty(zeros, np.int32) if zeros else 0
    first = case.sequence_arguments(memory)
    kernels[0].launch(s.NS * s.kv_heads, kernels[0].shared, memory, [
        *first, *case.array_arguments(memory, case.k), means, sums, open_at, image_at, s.NS, s.NL, zeros_at, zeros])
    kernels[1].launch(s.batch * s.kv_heads, kernels[1].shared, memory, [*first, means, sums, open_at, s.NS])
    return (ordered_means(memory.read(means, (s.kv_heads, s.P, D), np.uint16)),
            memory.read(open_at, (s.batch, s.kv_heads, OPEN_LEVELS, D), F32) if opens else None,
            memory.read(image_at, (s.kv_heads, s.NL, C, D), np.uint16) if images else None,
            memory.read(zeros_at, zeros, np.int32) if zeros else None)


def check_means(case, got):
    want = case.means()
    nothing = np.isnan(PLAN.from_bits(want)).all(-1)
    assert (got[nothing] == NAN_ROW).all(), "rows of no node are written"
    close("means", PLAN.from_bits(got)[~nothing], PLAN.from_bits(want)[~nothing], 1e-6, PLAN.ulp)
    wrong = (got != want)[~nothing].mean()
    assert wrong < 0.01, f"{wrong:.4f} of the means are rounded otherwise"


def open_of(keys):
    """Sums of the full children of the nodes that grow."""
    out = np.zeros((OPEN_LEVELS, D))
    for level in range(OPEN_LEVELS):
        size, above = PLAN.size(level), PLAN.size(level + 1)
        out[level] = keys[len(keys) // above * above:len(keys) // size * size].sum(0)
    return out


def check_open(case, got):
    for s in case.s.each:
        for h in range(case.s.kv_heads):
            close(f"open of sequence {s.index}", got[s.index, h], open_of(case.keys(s, h)), 1e-3)


def image_of(keys):
    """Bits [C, D] of a leaf -> those of its image, as key_image.h draws it."""
    words = keys.view(np.uint32).reshape(C, D // 32, 4, 4).transpose(0, 1, 3, 2).reshape(C, D // 8, 4)
    out = np.empty((C // 8, D // 64, 8, 8, 4), np.uint32)
    for row, chunk in np.ndindex(C, D // 8):
        out[row // 8, chunk // 8, row % 8, chunk % 8 ^ row % 8] = words[row, chunk]
    return out.reshape(-1).view(np.uint16).reshape(C, D)


def check_images(case, got):
    used = np.zeros(got.shape[:2], bool)
    for s in case.s.each:
        for h in range(case.s.kv_heads):
            keys = np.zeros((ceil_div(s.keys, C) * C, D), np.uint16)
            keys[:s.keys] = case.rows(case.k, s, h)
            for leaf, part in enumerate(keys.reshape(-1, C, D)):
                number = case.s.first_leaf(s) + leaf
                used[h, number] = True
                assert (got[h, number] == image_of(part)).all(), f"image of leaf {leaf} of sequence {s.index}"
    assert (got[~used] == NAN_ROW).all(), "images of no leaf are written"


def check_top(kernel, spans, keys):
    """pyramid_top alone, on sums of |spans| spans, whole numbers, of which |keys| keys are there."""
    rng, memory, levels = np.random.default_rng(spans), Global(96 << 20), 1
    s = Sequences(PLAN, 2, 2, 1, spans * SPAN, (keys, 0))
    one = s.each[0]
    while PLAN.size(levels) < SPAN:
        levels += 1
    sums = rng.integers(-99, 99, (2, s.NS, D)).astype(F32)
    n = ceil_div(keys, SPAN)
    sums[:, n:] = np.nan
    means, open_at = memory.empty((2, s.P, D), np.uint16), memory.empty((2, 2, OPEN_LEVELS, D), F32)
    starts = [s.batch, 2, s.n_q, s.n_k, s.T, s.P, 0, 0, memory.array(np.array(s.lengths, np.int32)), 0, 0]
    kernel.launch(4, kernel.shared, memory, [*starts, means, memory.array(sums), open_at, s.NS])
    got, opened = ordered_means(memory.read(means, (2, s.P, D), np.uint16)), memory.read(open_at, (2, 2, OPEN_LEVELS, D), F32)
    want = np.full((2 * s.P, D), np.nan)
    for h in range(2):
        below, level = sums[h, :n].astype(np.float64), levels
        while True:
            whole, g = keys // PLAN.size(level), PLAN.g
            assert (opened[0, h, level] == below[whole // g * g:whole].sum(0)).all(), f"open of level {level}"
            if len(below) == 1 and not (whole and level < OPEN_LEVELS - 1):
                break
            level += 1
            below = np.array([below[j:j + g].sum(0) for j in range(0, len(below), g)])
            count = np.minimum(keys - np.arange(len(below)) * PLAN.size(level), PLAN.size(level))
            if s.nodes(keys, level - 1) > 1:
                first = s.node_row(one, h, level, 0)
                want[first:first + len(below)] = below / count[:, None]
        assert (opened[0, h, level + 1:] == 0).all(), "open above the root"
    low = opened[0, :, :levels]
    assert (low == 0).all() if keys % SPAN == 0 else np.isnan(low).all(), "open within spans"
    assert (opened[1] == 0).all(), "open of an empty sequence"
    want = want.reshape(got.shape)
    nothing = np.isnan(want).all(-1)
    assert (got[nothing] == NAN_ROW).all(), "rows of no node are written"
    close("means", PLAN.from_bits(got)[~nothing], PLAN.rounded(want[~nothing]), 1e-6, PLAN.ulp)
    print(f"top, {n} spans, keys {keys}: right", flush=True)


def calls():
    """(sequences, token_major, zeros)"""
    def equal(batch, kv_heads, n_k, lengths=None):
        return Sequences(PLAN, kv_heads, batch, 1, n_k, lengths)
    if PLAN.page:
        n = 3 * SPAN // PLAN.page * PLAN.page
        yield equal(2, 2, n, (n - 3, C + 1)), False, 5
        yield equal(1, 1, SPAN), True, 0
        return
    yield equal(1, 2, 2 * SPAN + C + 5), True, 4001
    yield equal(3, 1, SPAN + 7, (SPAN, 0, SPAN + 9)), False, 3
    yield equal(2, 1, 4 * SPAN, (PLAN.size(3), 1)), False, 0
    yield Sequences(PLAN, 2, packed=[(1, C), (0, 0), (2, 3), (1, SPAN + 1), (0, 0), (1, 2 * C + 1)]), False, 64
    for keys in (1, C - 1, C, C + 1, PLAN.size(2), PLAN.size(2) + 1, PLAN.size(3) - 1):
        yield equal(1, 1, keys), False, 0


def main():
    kernels = [PLAN.kernel(name) for name in ("pyramid", "pyramid_top")]
    images = bool(PLAN.clustered)
    width = 64 if PLAN.g == 8 else 256  # rows that pyramid_top has in shared memory
    for spans, keys in ((width, width * SPAN), (width + 1, width * SPAN + 3), (2 * width, 2 * width * SPAN),
                        (3 * width, (2 * width + 9) * SPAN - C)):
        check_top(kernels[1], spans, keys)
    for seed, (sequences, token_major, zeros) in enumerate(calls()):
        case = Case(seed, sequences, size=(1, 1 + seed, 1), token_major=token_major)
        means, sums, image, cleared = build(case, kernels, True, images, zeros)
        check_means(case, means)
        check_open(case, sums)
        if images:
            check_images(case, image)
        assert not zeros or (cleared == 0).all(), "zeros"
        if seed < 2:
            others = build(case, kernels, False, False)[0]
            assert (others == means).all(), "means depend on what else is wanted"
        print(f"call {seed}, B {sequences.batch} Hk {sequences.kv_heads} keys {[s.keys for s in sequences.each]}: right",
              flush=True)


if __name__ == "__main__":
    main()
