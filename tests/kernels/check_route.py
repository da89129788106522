"""usage: check_route.py EMIT PLAN: lists, masks, ids and Hsum of the route kernel against their definitions."""
import numpy as np

from cases import BLOCK, D, GROUP, PLAN, ULP, Case, blocks_of, close, from_bits, kernel_of, rounded, slot_sums, to_bits
from machine import F32, Global

NEVER = (0, 0)
CASES = (  # batch, key/value heads, n_q, n_k, keep, CTAs of statistics, always, equal and strange scores, ids
    (1, 1, 64, 64, 1, 1, (), False, True),
    (1, 2, BLOCK * 33 + 5, BLOCK * 9 - 7, 3, 5, (), False, True),
    (2, 1, 300, BLOCK * 40, 5, 7, ((39, 40), (0, 1)), False, False),
    (1, 1, 700, BLOCK * 130, 20, 3, ((3, 6),), True, True),
    (1, 1, 129, BLOCK * 50, 50, 4, (), True, True),
)
WINDOWS = 0, 1, 3, 12, 50  # of these cases, in plans with a window


def query_means(c, query, q_mean):
    """Rounded means of whole query blocks from those of sub-blocks."""
    if query == BLOCK:
        return q_mean
    out = np.empty((c.bh, blocks_of(c.n_q, query), D))
    for i in range(out.shape[1]):
        na = min(BLOCK, c.n_q - query * i)
        nb = max(0, min(BLOCK, c.n_q - query * i - BLOCK))
        out[:, i] = q_mean[:, 2 * i]
        if nb:
            out[:, i] = rounded((na * q_mean[:, 2 * i] + nb * q_mean[:, 2 * i + 1]) / (na + nb))
    return out


def forced_blocks(c, query, window, always):
    """[query block, key block]"""
    forced = np.zeros((blocks_of(c.n_q, query), c.nt), bool)
    for i in range(len(forced)):
        if window >= 0:
            touched = query * i // BLOCK, (query * (i + 1) - 1) // BLOCK + 1
            forced[i, max(0, touched[0] - window):touched[1] + window] = True
        for begin, end in always:
            forced[i, begin:end] = True
    return forced


def check_route(kernel, c, query, keep, ctas, window, reduces, always=(), specials=False, ids_wanted=True, seed=5):
    rng = np.random.default_rng(seed)
    ntq, forced = blocks_of(c.n_q, query), forced_blocks(c, query, window, always)
    keep = max(keep, forced.sum(1).max())
    q_bits, k_bits = (to_bits(x) for x in (c.mean(c.q) * 8, c.mean(c.k) * 8))
    h_norm2 = rng.uniform(0, 50, (c.bhk, c.nt, 8)).astype(F32)
    h_norm2[:, ::5] = 0
    if specials:  # equal keys, zeros of both signs, nan, infinite norms
        k_bits[:, 1::7] = k_bits[:, :1]
        k_bits[:, 2::9] = 0
        k_bits[:, 3::11] = 0x8000
        k_bits[:, 5] = to_bits(np.nan)
        h_norm2[:] = h_norm2[:, :1]
    h_part = rng.standard_normal((c.bhk + ctas - 1, D, D)).astype(F32)
    memory = Global(64 << 20)
    list_stride, mask_words = (keep + 3) // 4 * 4 + 8, (c.nt + 127) // 128 * 4 + 4
    inputs = [memory.array(x) for x in (q_bits, k_bits, h_norm2, h_part)]
    lists = memory.empty((c.bh, ntq, list_stride), np.int32)
    masks = memory.empty((c.bh, ntq, mask_words), np.uint32)
    ids = memory.empty((c.bh, ntq, keep), np.int32) if ids_wanted else 0
    h_sum = memory.empty((c.bhk, D, D), np.uint16)
    row_tiles, scale, h_scale = blocks_of(ntq, 16), 0.0883883476, 0.001
    ranges = [x for r in (list(always) + [NEVER] * 4)[:4] for x in r]
    shared = 16 * (128 * blocks_of(c.nt, 128) + 4) * 4
    kernel.launch(c.bh * row_tiles + (c.bhk * D // 32 if reduces else 0), shared, memory,
                  [*inputs, lists, masks, ids, h_sum, c.bh, c.n_q, c.n_k, keep, list_stride, mask_words, row_tiles, ctas,
                   c.blocks, *ranges, scale, h_scale, window])
    with np.errstate(all="ignore"):
        qm = query_means(c, query, from_bits(q_bits).astype(np.float64))
        km = np.repeat(from_bits(k_bits).astype(np.float64), GROUP, 0)
        score = np.einsum("hid,hjd->hij", qm, km) * F32(scale)
        parts = h_norm2.astype(np.float64).sum(2)
        spread = {"mean": np.ones_like(parts), "log_covariance": np.sqrt(parts) + 1e-5,
                  "log_key_variance": np.maximum(parts, 1e-8)}[PLAN.term]
        score += np.repeat(np.log(spread), GROUP, 0)[:, None]
    score[np.isnan(score)] = -np.inf
    score[:, forced] = np.inf
    got = memory.read(lists, (c.bh, ntq, list_stride), np.int32)
    bits = memory.read(masks, (c.bh, ntq, mask_words), np.uint32)
    swaps = 0
    for h in range(c.bh):
        for i in range(ntq):
            row = score[h, i] if not specials else np.round(score[h, i], 5)
            want = np.sort(np.argsort(-row, kind="stable")[:keep])
            mine = got[h, i, :keep]
            assert (np.diff(mine) > 0).all() and 0 <= mine[0] and mine[-1] < c.nt, f"list {h} {i}: {mine}"
            assert (got[h, i, keep:] == 0).all(), f"list {h} {i} padding"
            assert forced[i, mine].sum() == forced[i].sum(), f"forced {h} {i}: {mine}"
            wrong = set(mine) ^ set(want)
            if wrong:
                gap = np.ptp(score[h, i, list(wrong)])
                assert not specials and gap < 1e-5, f"list {h} {i}: {mine} instead of {want}, gap {gap}"
                swaps += 1
            listed = np.zeros(32 * mask_words, bool)
            listed[mine] = True
            listed[c.nt:] = True
            mask = (bits[h, i][:, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(-1).astype(bool)
            assert (mask == listed).all(), f"mask {h} {i}"
    if ids_wanted:
        assert (memory.read(ids, (c.bh, ntq, keep), np.int32) == got[:, :, :keep]).all(), "ids"
    if reduces:
        sums, _ = slot_sums(h_part.astype(np.float64), c, ctas)
        close("h_sum", from_bits(memory.read(h_sum, (c.bhk, D, D), np.uint16)), sums * h_scale, 1e-7, ULP / 2)
    return swaps


def main():
    kernel = kernel_of("pisa_route")
    for i, (batch, heads, n_q, n_k, keep, ctas, *rest) in enumerate(CASES):
        c = Case(i, batch, heads, n_q, n_k)
        plan = PLAN.query, keep, min(ctas, c.bhk * c.blocks), WINDOWS[i] if PLAN.window else -1, PLAN.tail == "taylor_hybrid"
        swaps = check_route(kernel, c, *plan, *rest)
        print(f"B {batch} Hk {heads} Nq {n_q} Nk {n_k} keep {keep}: right, {swaps} swaps", flush=True)


main()
