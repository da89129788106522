"""Random inputs, what the definitions make of them in double, and comparisons."""
import subprocess
import sys

import numpy as np

from machine import F32, bf16_to_f32, f32_to_bf16
from ptx import Kernel

D, BLOCK = 128, 64


def kernel_of(entry):
    """From the command line: EMIT TAIL TERM QUERY."""
    emit, *plan = sys.argv[1:]
    text = subprocess.run([emit, "ptx", *plan], check=True, capture_output=True, text=True).stdout
    np.seterr(all="ignore")
    return Kernel(text, entry)


def blocks_of(n, size):
    return -(-n // size)


def rounded(x):
    return bf16_to_f32(f32_to_bf16(x.astype(F32))).astype(np.float64)


class Case:
    """q, k, v [B, H, N, D] and their block statistics."""

    def __init__(self, seed, batch, heads, n_q, n_k):
        rng = np.random.default_rng(seed)
        self.batch, self.heads, self.n_q, self.n_k = batch, heads, n_q, n_k
        self.bits = [f32_to_bf16(rng.standard_normal((batch, heads, n, D)).astype(F32)) for n in (n_q, n_k, n_k)]
        self.q, self.k, self.v = (bf16_to_f32(x).astype(np.float64).reshape(batch * heads, -1, D) for x in self.bits)
        self.bh, self.nq64, self.nt = batch * heads, blocks_of(n_q, BLOCK), blocks_of(n_k, BLOCK)
        self.blocks = max(self.nq64, self.nt)

    def mean(self, x):
        return np.stack([x[:, j:j + BLOCK].mean(1) for j in range(0, x.shape[1], BLOCK)], 1)

    def h(self):
        out = np.empty((self.bh, self.nt, D, D))
        for j in range(self.nt):
            k, v = (x[:, j * BLOCK:(j + 1) * BLOCK] for x in (self.k, self.v))
            out[:, j] = (k - k.mean(1, keepdims=True)).transpose(0, 2, 1) @ v
        return out


def close(name, got, want, absolute, relative=0.0):
    bad = ~(np.abs(got - want) <= absolute + relative * np.abs(want))
    if bad.any():
        where = tuple(int(x[0]) for x in np.nonzero(bad))
        sys.exit(f"{name}: {bad.sum()} of {bad.size} wrong, first {where}: {got[where]} instead of {want[where]}")


def slot_sums(parts, c, ctas):
    """Sum of a head's partial sums over the CTAs whose range meets the head, and the list of used slots."""
    total, used = c.bh * c.blocks, set()
    sums = np.zeros((c.bh, D, D))
    for cta in range(ctas):
        lo, hi = total * cta // ctas, total * (cta + 1) // ctas
        for head in range(c.bh):
            if max(lo, head * c.blocks) < min(hi, (head + 1) * c.blocks):
                assert cta + head not in used
                used.add(cta + head)
                sums[head] += parts[cta + head]
    return sums, used
