"""usage: check_attend.py EMIT PLAN: o and LSE of both attend kernels against the definition, lists random."""
import numpy as np

from cases import BLOCK, D, GROUP, H_GAIN, IS_FP16, PLAN, Case, blocks_of, from_bits, kernel_of, rounded, to_bits
from machine import F32, Global, TensorMap

QUERY, SCALE, LOG2_E = PLAN.query, 0.0883883476, 1.4426950408889634
O_ERROR = 6e-4 if IS_FP16 else 4e-3
CASES = (  # kernel, batch, key/value heads, n_q, n_k, keep, CTAs, sizes of q, k and v
    ("pisa_attend", 1, 1, 128, 640, 2, 1),
    ("pisa_attend", 1, 1, 128, 640, 2, 1, (400, 1e-3, 1e3)),
    ("pisa_attend", 1, 2, 200, 384, 3, 2),
    ("pisa_attend_edge", 1, 1, 1, 1, 1, 1),
    ("pisa_attend_edge", 2, 1, 150, 65, 1, 2),
    ("pisa_attend_edge", 1, 2, 100, 700, 3, 1),
)


class Lists:
    """A random list for every query block, every other one with the last block, as route would write it."""

    def __init__(self, c, keep):
        rng = np.random.default_rng(keep)
        self.keep, self.n = keep, blocks_of(c.n_q, QUERY)
        self.list = np.zeros((c.bh, self.n, blocks_of(keep, 4) * 4 + 8), np.int32)
        self.mask = np.zeros((c.bh, self.n, blocks_of(c.nt, 128) * 4), np.uint32)
        for h in range(c.bh):
            for i in range(self.n):
                picked = rng.permutation(c.nt - i % 2)[:keep - i % 2]
                self.list[h, i, :keep] = np.sort(np.append(picked, [c.nt - 1] * (i % 2)))
                bits = np.arange(32 * self.mask.shape[2]) >= c.nt
                bits[self.list[h, i, :keep]] = True
                self.mask[h, i] = np.packbits(bits, bitorder="little").view(np.uint32)

    def of(self, h, i):
        return self.list[h, i, :self.keep]


class Summaries:
    """What attend reads of the tail, rounded as it is stored."""

    def __init__(self, c):
        self.k_mean, self.v_mean = rounded(c.mean(c.k)), rounded(c.mean(c.v))
        self.h_sum = rounded(c.h().sum(1) * SCALE / c.n_k * H_GAIN)
        self.k_variance = rounded(SCALE / 2 * c.variance())
        self.log_length = np.log(np.minimum(BLOCK, c.n_k - BLOCK * np.arange(c.nt)))


def expected(c, lists, summaries, tail):
    o, lse = np.empty((c.bh, c.n_q, D)), np.empty((c.bh, c.n_q))
    for h in range(c.bh):
        for i in range(lists.n):
            rows = slice(QUERY * i, min(c.n_q, QUERY * (i + 1)))
            kv, q, listed = h // GROUP, c.q[h, rows], lists.of(h, i)
            tokens = np.flatnonzero(np.isin(np.arange(c.n_k) // BLOCK, listed))
            s, v = SCALE * q @ c.k[kv, tokens].T, c.v[kv, tokens]
            if tail.startswith("taylor"):
                rest = np.setdiff1d(np.arange(c.nt), listed)
                means = SCALE * q @ summaries.k_mean[kv, rest].T + summaries.log_length[rest]
                if PLAN.second_order:
                    means += SCALE * rounded(q ** 2) @ summaries.k_variance[kv, rest].T
                s, v = np.append(s, means, 1), np.append(v, summaries.v_mean[kv, rest], 0)
            m = s.max(1, keepdims=True)
            p = np.exp(s - m)
            total, mass = p.sum(1, keepdims=True), p[:, len(tokens):].sum(1, keepdims=True)
            first_order = mass * (q @ summaries.h_sum[kv]) / H_GAIN if tail == "taylor_hybrid" else 0
            o[h, rows] = (p @ v + first_order) / total
            lse[h, rows] = (m + np.log(total))[:, 0]
    return o, lse


def check(kernel, tail, c, keep, ctas):
    lists, summaries, memory = Lists(c, c.nt if tail == "dense" else keep), Summaries(c), Global(16 << 20)

    def stored(x):
        return TensorMap(memory, memory.array(to_bits(x)), (c.batch, c.kv_heads) + x.shape[1:])

    maps = [TensorMap(memory, memory.array(x), x.shape) for x in c.bits]
    maps += [stored(x) for x in (summaries.k_mean, summaries.v_mean, summaries.h_sum)]
    o, lse = memory.empty((c.bh, c.n_q, D), np.uint16), memory.empty((c.bh, c.n_q), F32)
    maps.append(TensorMap(memory, o, (c.batch, c.heads, c.n_q, D)))
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, memory.array(lists.list), memory.array(lists.mask), lse, c.bh * lists.n, lists.n, c.heads, c.n_q, c.n_k,
        lists.keep, lists.list.shape[2], lists.mask.shape[2], SCALE * LOG2_E, stored(summaries.k_variance)])
    want_o, want_lse = expected(c, lists, summaries, tail)
    got_o = from_bits(memory.read(o, (c.bh, c.n_q, D), np.uint16))
    error = np.linalg.norm(got_o - want_o) / np.linalg.norm(want_o)
    lse_error = np.abs(memory.read(lse, (c.bh, c.n_q), F32) - want_lse).max()
    assert error <= O_ERROR and lse_error <= 1e-3, f"o {error:.2e}, LSE {lse_error:.2e}"
    return error, lse_error


def main():
    kernels = {}
    for entry, batch, kv_heads, n_q, n_k, keep, ctas, *size in CASES:
        if size and IS_FP16 and PLAN.second_order:
            continue  # q^2 of 400 is past fp16
        shape = batch, kv_heads, n_q, n_k
        kernel = kernels.setdefault(entry, kernel_of(entry))
        error = check(kernel, PLAN.tail, Case(sum(shape), *shape, *size), keep, ctas)
        print("{} B {} Hk {} Nq {} Nk {}: o {:.1e}, LSE {:.1e}".format(entry, *shape, *error), flush=True)


main()
