"""usage: check_schedule.py [--more] EMIT PLAN: attend with lists=union (query blocks in pairs) or half tiles."""
import sys

import numpy as np

IS_MORE = sys.argv[1] == "--more"
sys.argv[1:2] = [] if IS_MORE else sys.argv[1:2]
from cases import D, GROUP, H_GAIN, IS_FP16, PLAN, Case, blocks_of, from_bits, kernel_of, rounded, to_bits
from machine import F32, Global, TensorMap

BLOCK, QUERY, SCALE, LOG2_E = 64, PLAN.query, 0.0883883476, 1.4426950408889634
O_ERROR = 6e-4 if IS_FP16 else 4e-3
CASES = {  # batch, key/value heads, n_q, n_k, blocks of a list, CTAs, entries shared by the pairs in turn
    "union": ((1, 1, 384, 768, 5, 1, (0, 4, 2)), (1, 2, 200, 512, 4, 2, (2, 4, 0, 2))),
    # blocks and means by the 64: 2 + 1, 3 + 1, 5 + 2
    "half": ((1, 1, 300, 640, 2, 1, ()), (1, 2, 200, 384, 3, 2, ()), (1, 1, 128, 4480, 5, 1, ())),
}
MORE_CASES = {
    "union": ((1, 1, 640, 640, 2, 1, (2, 0, 0, 2, 2)), (2, 1, 321, 448, 3, 1, (0, 2)), (1, 1, 128, 384, 6, 1, (6,)),
              (1, 2, 64, 1024, 9, 2, (8, 0)), (2, 1, 256, 8384, 7, 2, (6, 0, 2))),
    "half": ((1, 1, 200, 4480, 4, 1, ()), (1, 1, 384, 8256, 9, 2, ()), (2, 1, 256, 1024, 16, 3, ()),
             (1, 2, 64, 128, 2, 1, ()), (1, 1, 200, 8256, 4, 1, ())),
}


class Lists:
    """Random lists; both of a pair begin with the same |shared| entries, a lone one pairs with itself."""

    def __init__(self, c, keep, shared):
        rng = np.random.default_rng(keep)
        self.keep, self.n, together = keep, blocks_of(c.n_q, QUERY), 2 if PLAN.union else 1
        self.items = blocks_of(self.n, together)
        self.list = np.zeros((c.bh, self.n, blocks_of(keep, 4) * 4 + 8), np.int32)
        self.mask = np.zeros((c.bh, self.n, blocks_of(c.nt, 128) * 4), np.uint32)
        self.shared = np.zeros((c.bh, self.items), np.int32)
        for item, (h, p) in enumerate(np.ndindex(c.bh, self.items)):
            n = self.shared[h, p] = shared[item % len(shared)] if PLAN.union else 0
            blocks = rng.permutation(c.nt)
            for i in range(together * p, min(self.n, together * (p + 1))):
                own = np.sort(rng.permutation(blocks[n:])[:keep - n])
                self.list[h, i, :keep] = np.append(np.sort(blocks[:n]), own)
                bits = np.arange(32 * self.mask.shape[2]) >= c.nt
                bits[self.list[h, i, :keep]] = True
                self.mask[h, i] = np.packbits(bits, bitorder="little").view(np.uint32)


def expected(c, lists, k_mean, v_mean, h_sum, variance):
    o, lse = np.empty((c.bh, c.n_q, D)), np.empty((c.bh, c.n_q))
    for h, i in np.ndindex(c.bh, lists.n):
        rows, kv, listed = slice(QUERY * i, QUERY * i + QUERY), h // GROUP, lists.list[h, i, :lists.keep]
        q, tokens = c.q[h, rows], (BLOCK * listed[:, None] + np.arange(BLOCK)).ravel()
        s, v, first_order = SCALE * q @ c.k[kv, tokens].T, c.v[kv, tokens], 0
        if PLAN.tail.startswith("taylor"):
            rest = np.setdiff1d(np.arange(c.nt), listed)
            means = SCALE * q @ k_mean[kv, rest].T + np.log(BLOCK)
            means += SCALE * rounded(q ** 2) @ variance[kv, rest].T if PLAN.second_order else 0
            s, v = np.append(s, means, 1), np.append(v, v_mean[kv, rest], 0)
            first_order = q @ h_sum[kv] / H_GAIN if PLAN.tail == "taylor_hybrid" else 0
        m = s.max(1, keepdims=True)
        p = np.exp(s - m)
        total, mass = p.sum(1, keepdims=True), p[:, len(tokens):].sum(1, keepdims=True)
        o[h, rows] = (p @ v + mass * first_order) / total
        lse[h, rows] = (m + np.log(total))[:, 0]
    return o, lse


def check(kernel, c, keep, ctas, shared):
    lists, memory = Lists(c, keep, shared), Global(16 << 20)
    summaries = [rounded(x) for x in (c.mean(c.k), c.mean(c.v), c.h().sum(1) * SCALE / c.n_k * H_GAIN,
                                      SCALE / 2 * c.variance())]

    def stored(x):
        return TensorMap(memory, memory.array(to_bits(x)), (c.batch, c.kv_heads) + x.shape[1:])

    maps = [TensorMap(memory, memory.array(x), x.shape) for x in c.bits] + [stored(x) for x in summaries[:3]]
    o, lse = memory.empty((c.bh, c.n_q, D), np.uint16), memory.empty((c.bh, c.n_q), F32)
    maps.append(TensorMap(memory, o, (c.batch, c.heads, c.n_q, D)))
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, memory.array(lists.list), memory.array(lists.mask), lse, c.bh * lists.items, lists.items, c.heads, c.n_q,
        c.n_k, keep, lists.list.shape[2], lists.mask.shape[2], SCALE * LOG2_E, stored(summaries[3]), 0, 0,
        np.log2(64) / (SCALE * LOG2_E), memory.array(lists.shared)])
    want_o, want_lse = expected(c, lists, *summaries)
    error = np.linalg.norm(from_bits(memory.read(o, want_o.shape, np.uint16)) - want_o) / np.linalg.norm(want_o)
    lse_error = np.abs(memory.read(lse, want_lse.shape, F32) - want_lse).max()
    assert error <= O_ERROR and lse_error <= 1e-3, f"o {error:.2e}, LSE {lse_error:.2e}"
    return error, lse_error


kernel_under_test = kernel_of("pisa_attend")
for *shape, keep, ctas, shared in (MORE_CASES if IS_MORE else CASES)["union" if PLAN.union else "half"]:
    error = check(kernel_under_test, Case(sum(shape), *shape), keep, ctas, shared)
    print("B {} Hk {} Nq {} Nk {} k {} {}: o {:.1e}, LSE {:.1e}".format(*shape, keep, shared, *error), flush=True)
