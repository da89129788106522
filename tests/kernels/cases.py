"""The plan on the command line, random inputs, what the definitions make of them in double, and comparisons."""
import subprocess
import sys

import numpy as np

from machine import F32, bf16_to_f32, f32_to_bf16, half_to_f32
from ptx import Kernel

TERMS = "log_covariance", "log_residual", "log_key_variance"


class Plan:
    """EMIT PLAN on the command line, PLAN being TAIL TERM QUERY [TYPE HEAD_DIM GROUP [KEY]] as emit.c takes it."""

    def __init__(self, words):
        self.emit, self.words = words[0], words[1:]
        tail, term, query, *shape = self.words
        self.tail, self.second_order = tail.removesuffix("_second"), tail.endswith("_second")
        self.term = next((x for x in TERMS if term.startswith(x)), "mean")
        self.window, self.union, self.causal = "_window" in term, "_union" in term, "_causal" in term
        self.threshold = next((x for x in ("diagonal", "full") if "_threshold_" + x in term), None)
        self.type, *numbers = shape or ("bf16", 128, 1)
        self.query, self.head_dim, self.group, self.key = (int(x) for x in (query, *numbers, 64)[:4])


PLAN = Plan(sys.argv[1:])
D, GROUP, IS_FP16, BLOCK = PLAN.head_dim, PLAN.group, PLAN.type == "fp16", PLAN.key
ULP = 2.0 ** (-10 if IS_FP16 else -7)  # between neighbours, relative to the smaller, at most
H_GAIN, VARIANCE_GAIN = (64, 256) if IS_FP16 else (1, 1)  # PISA_FP16_H_GAIN, PISA_FP16_VARIANCE_GAIN


def to_bits(x):
    x = np.asarray(x).astype(F32)
    return x.astype(np.float16).view(np.uint16) if IS_FP16 else f32_to_bf16(x)


def from_bits(bits):
    return half_to_f32(bits, not IS_FP16)


def kernel_of(entry):
    emit, plan = PLAN.emit, PLAN.words
    text = subprocess.run([emit, "ptx", *plan], check=True, capture_output=True, text=True).stdout
    np.seterr(all="ignore")
    return Kernel(text, entry)


def blocks_of(n, size):
    return -(-n // size)


def rounded(x):
    return from_bits(to_bits(x)).astype(np.float64)


class Case:
    """q [B, G Hk, Nq, D], k and v [B, Hk, Nk, D], |size| of each, and their block statistics."""

    def __init__(self, seed, batch, kv_heads, n_q, n_k, size=(1, 1, 1)):
        rng = np.random.default_rng(seed)
        self.batch, self.kv_heads, self.heads, self.n_q, self.n_k = batch, kv_heads, GROUP * kv_heads, n_q, n_k
        shapes = (batch, self.heads, n_q, D), (batch, kv_heads, n_k, D), (batch, kv_heads, n_k, D)
        self.bits = [to_bits(rng.standard_normal(shape) * x) for shape, x in zip(shapes, size)]
        self.q, self.k, self.v = (from_bits(x).astype(np.float64).reshape(-1, x.shape[2], D) for x in self.bits)
        self.bh, self.bhk = batch * self.heads, batch * kv_heads
        self.nqs, self.nt = blocks_of(n_q, BLOCK), blocks_of(n_k, BLOCK)
        self.blocks = max(GROUP * self.nqs, self.nt)

    def mean(self, x):
        return np.stack([x[:, j:j + BLOCK].mean(1) for j in range(0, x.shape[1], BLOCK)], 1)

    def variance(self):
        """Of each key column, over the block's rows."""
        return np.stack([self.k[:, j:j + BLOCK].var(1) for j in range(0, self.n_k, BLOCK)], 1)

    def h(self):
        out = np.empty((self.bhk, self.nt, D, D))
        for j in range(self.nt):
            k, v = (x[:, j * BLOCK:(j + 1) * BLOCK] for x in (self.k, self.v))
            out[:, j] = (k - k.mean(1, keepdims=True)).transpose(0, 2, 1) @ v
        return out


def close(name, got, want, absolute, relative=0.0):
    bad = ~(np.abs(got - want) <= absolute + relative * np.abs(want))
    if bad.any():
        where = tuple(int(x[0]) for x in np.nonzero(bad))
        sys.exit(f"{name}: {bad.sum()} of {bad.size} wrong, first {where}: {got[where]} instead of {want[where]}")


def rows_of_parts(parts):
    """Matrices D x D as statistics leaves them, by 16 rows of a warp in the order of its registers, row by row."""
    *n, D, _ = parts.shape
    x = parts.reshape(-1, D // 16, D // 8, 8, 4, 2, 2)  # warp; 8 columns; lane / 4, lane mod 4; row / 8, column mod 2
    return x.transpose(0, 1, 5, 3, 2, 4, 6).reshape(*n, D, D)


def slot_sums(parts, c, ctas):
    """Sum of a key/value head's partial sums over the CTAs whose range meets the head, and the list of used slots."""
    total, used = c.bhk * c.blocks, set()
    sums = np.zeros((c.bhk, D, D))
    for cta in range(ctas):
        lo, hi = total * cta // ctas, total * (cta + 1) // ctas
        for head in range(c.bhk):
            if max(lo, head * c.blocks) < min(hi, (head + 1) * c.blocks):
                assert cta + head not in used
                used.add(cta + head)
                sums[head] += parts[cta + head]
    return sums, used
