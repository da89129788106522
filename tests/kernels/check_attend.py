"""usage: check_attend.py [--more] EMIT PLAN: o and LSE of both attend kernels against the definition, lists random."""
import sys

import numpy as np

IS_MORE = sys.argv[1] == "--more"
sys.argv[1:2] = [] if IS_MORE else sys.argv[1:2]
from cases import (BLOCK, D, GROUP, H_GAIN, IS_FP16, PLAN, VARIANCE_GAIN, Case, blocks_of, from_bits, kernel_of, rounded,
                   to_bits)
from machine import F32, Global, TensorMap

QUERY, SCALE, LOG2_E = PLAN.query, 0.0883883476, 1.4426950408889634
O_ERROR = 6e-4 if IS_FP16 else 4e-3
CASES = (  # kernel, batch, key/value heads, n_q, n_k, blocks listed in turn, CTAs, keys of each sequence, size of q, k, v
    ("pisa_attend", 1, 1, 128, 640, (2,), 1),
    ("pisa_attend", 1, 1, 128, 640, (2,), 1, None, (400, 1e-3, 1e3)),
    ("pisa_attend", 1, 2, 200, 384, (3,), 2),
    ("pisa_attend_edge", 1, 1, 1, 1, (1,), 1),
    ("pisa_attend_edge", 2, 1, 150, 65, (1,), 2, (65, 0)),
    ("pisa_attend_edge", 1, 2, 100, 700, (3, 0), 1),
    ("pisa_attend_edge", 2, 1, 300, 330, (0, 1, 2, 5, 9), 2, (130, 329)),
)
MORE_CASES = (
    ("pisa_attend_edge", 5, 1, 130, 256, (1, 4, 2, 3), 3, (0, 63, 64, 65, 256)),
    ("pisa_attend_edge", 3, 1, 200, 512, (7, 8, 0), 1, (511, -3, 999)),
    ("pisa_attend_edge", 1, 1, 257, 8321, (1, 7, 99), 1, (8300,)),
    ("pisa_attend_edge", 1, 1, 257, 192, (0,), 2),
    ("pisa_attend_edge", 2, 2, 128, 1000, (16, 15), 3),
    ("pisa_attend", 1, 1, 300, 8448, (5,), 1),
)

CAUSAL_CASES = (
    ("pisa_attend_edge", 1, 1, 300, 300, (1,), 1),
    ("pisa_attend_edge", 1, 2, 130, 641, (1,), 3),
    ("pisa_attend_edge", 1, 1, 128, 512, (1,), 1, None, (400, 1e-3, 1e3)),
    ("pisa_attend_edge", 4, 1, 200, 260, (1,), 2, (0, 100, 199, 260)),  # the first queries see nothing
    ("pisa_attend_edge", 2, 1, 1, 300, (1,), 2, (129, 1)),
)


class Lists:
    """Random lists in any order, but the short block last, in turn with it and without."""

    def __init__(self, c, counts, lengths):
        rng = np.random.default_rng(sum(counts))
        self.n, self.lengths = blocks_of(c.n_q, QUERY), np.clip(lengths or [c.n_k] * c.batch, 0, c.n_k)
        self.list = np.zeros((c.bh, self.n, blocks_of(c.nt, 4) * 4 + 8), np.int32)
        self.mask = np.zeros((c.bh, self.n, blocks_of(c.nt, 128) * 4), np.uint32)
        self.count = np.zeros((c.bh, self.n), np.int32)
        for item, (h, i) in enumerate(np.ndindex(c.bh, self.n)):
            length = self.lengths[h // c.heads]
            nt, whole = blocks_of(length, BLOCK), length // BLOCK
            count = min(nt, counts[item % len(counts)])
            short = int(nt > whole and count > 0 and (count == nt or item % 2))
            listed = np.append(rng.permutation(whole)[:count - short], [nt - 1] * short).astype(int)
            bits = np.arange(32 * self.mask.shape[2]) >= nt
            bits[listed] = True
            if PLAN.tail == "taylor_1":
                listed = np.append(listed, np.setdiff1d(np.arange(nt), listed))
            self.count[h, i], self.list[h, i, :len(listed)] = count, listed
            self.mask[h, i] = np.packbits(bits, bitorder="little").view(np.uint32)

    def of(self, h, i):
        return self.list[h, i, :self.count[h, i]]


class Summaries:
    """What attend reads of the tail, rounded as it is stored; means that it must not count are far off."""

    def __init__(self, c, lengths):
        shape = c.bhk, c.nt, D
        self.k_mean, self.v_mean, self.k_variance = np.full((3, *shape), 50.0)
        self.h_sum, self.log_length = np.zeros((c.bhk, D, D)), np.zeros(shape[:2])
        for h, n in enumerate(np.repeat(lengths, c.kv_heads)):
            for j in range(blocks_of(n, BLOCK)):
                k, v = (x[h, j * BLOCK:min(n, (j + 1) * BLOCK)] for x in (c.k, c.v))
                self.k_mean[h, j], self.v_mean[h, j] = k.mean(0), v.mean(0)
                self.k_variance[h, j] = SCALE / 2 * VARIANCE_GAIN * k.var(0)
                self.h_sum[h] += SCALE / n * H_GAIN * (k - k.mean(0)).T @ v
                self.log_length[h, j] = np.log(len(k))
        for x in (self.k_mean, self.v_mean, self.k_variance, self.h_sum):
            x[:] = rounded(x)


def token_by_token(q, k, v, rest):
    """Scores, weights and values of the tokens of the blocks |rest|."""
    scores, weights, tokens = [np.empty((len(q), 0))], [np.empty((len(q), 0))], []
    for j in rest:
        tokens += range(j * BLOCK, min(len(k), (j + 1) * BLOCK))
        s = SCALE * q @ k[j * BLOCK:(j + 1) * BLOCK].T
        mean = s.mean(1, keepdims=True)
        peak = mean + s.var(1, keepdims=True) / 2 if PLAN.second_order else mean
        scores.append(np.repeat(peak, s.shape[1], 1))
        weights.append(1 + s - mean)
    return np.concatenate(scores, 1), np.concatenate(weights, 1), v[tokens]


def means(q, kv, rest, summaries):
    """Scores and values of the blocks |rest|, and what first order adds to a unit of their mass."""
    s = SCALE * q @ summaries.k_mean[kv, rest].T + summaries.log_length[kv, rest]
    if PLAN.second_order:
        s += SCALE * rounded(q ** 2 / VARIANCE_GAIN) @ summaries.k_variance[kv, rest].T
    return s, summaries.v_mean[kv, rest], q @ summaries.h_sum[kv] / H_GAIN if PLAN.tail == "taylor_hybrid" else 0


def causal(s, v, hidden):
    """o and LSE of scores s over the values v; rows that see nothing have 0 and -inf."""
    s = np.append(np.where(hidden, -np.inf, s), np.full((len(s), 1), -np.inf), 1)
    m = s.max(1, keepdims=True)
    p = np.exp(s - np.where(np.isneginf(m), 0, m))[:, :-1]
    total = p.sum(1, keepdims=True)
    return p @ v / np.where(total == 0, 1, total), (m + np.log(total))[:, 0]


def expected(c, lists, summaries):
    o, lse = np.zeros((c.bh, c.n_q, D)), np.full((c.bh, c.n_q), -np.inf)
    for h, i in np.ndindex(c.bh, lists.n):
        rows = slice(QUERY * i, min(c.n_q, QUERY * (i + 1)))
        n, kv, q = lists.lengths[h // c.heads], h // GROUP, c.q[h, rows]
        blocks = np.arange(blocks_of(n, BLOCK))
        listed = blocks if PLAN.tail == "dense" else lists.of(h, i)
        tokens = np.flatnonzero(np.isin(np.arange(n) // BLOCK, listed))
        s, v, first_order = SCALE * q @ c.k[kv, tokens].T, c.v[kv, tokens], 0
        rest, rest_s, rest_w, rest_v = np.setdiff1d(blocks, listed), s[:, :0], s[:, :0], v[:0]
        if PLAN.tail == "taylor_1":
            rest_s, rest_w, rest_v = token_by_token(q, c.k[kv, :n], c.v[kv, :n], rest)
        elif PLAN.tail.startswith("taylor"):
            rest_s, rest_v, first_order = means(q, kv, rest, summaries)
            rest_w = np.ones_like(rest_s)
        if PLAN.causal:
            hidden = tokens > n - c.n_q + np.arange(c.n_q)[rows, None]
            o[h, rows], lse[h, rows] = causal(s, v, hidden)
            continue
        s, w, v = np.append(s, rest_s, 1), np.append(np.ones_like(s), rest_w, 1), np.append(v, rest_v, 0)
        if s.size:
            m = s.max(1, keepdims=True)
            p = np.exp(s - m) * w
            total, mass = p.sum(1, keepdims=True), p[:, len(tokens):].sum(1, keepdims=True)
            o[h, rows] = (p @ v + mass * first_order) / total
            lse[h, rows] = (m + np.log(total))[:, 0]
    return o, lse


def check(kernel, c, counts, ctas, lengths):
    lists, memory = Lists(c, counts, lengths), Global(16 << 20)
    summaries = Summaries(c, lists.lengths)

    def stored(x):
        return TensorMap(memory, memory.array(to_bits(x)), (c.batch, c.kv_heads) + x.shape[1:])

    maps = [TensorMap(memory, memory.array(x), x.shape) for x in c.bits]
    maps += [stored(x) for x in (summaries.k_mean, summaries.v_mean, summaries.h_sum)]
    o, lse = memory.empty((c.bh, c.n_q, D), np.uint16), memory.empty((c.bh, c.n_q), F32)
    maps.append(TensorMap(memory, o, (c.batch, c.heads, c.n_q, D)))
    alike = len(counts) == 1 and not lengths
    routed = [0, 0] if PLAN.tail == "dense" else [memory.array(lists.list), memory.array(lists.mask)]
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, *routed, lse, c.bh * lists.n, lists.n, c.heads, c.n_q, c.n_k, c.nt if PLAN.tail == "dense" else counts[0],
        lists.list.shape[2], lists.mask.shape[2], SCALE * LOG2_E, stored(summaries.k_variance),
        0 if alike or PLAN.tail == "dense" else memory.array(lists.count),
        memory.array(np.array(lengths, np.int32)) if lengths else 0, np.log2(PLAN.key) / (SCALE * LOG2_E), 0])
    want_o, want_lse = expected(c, lists, summaries)
    got_o, got_lse = from_bits(memory.read(o, want_o.shape, np.uint16)), memory.read(lse, want_lse.shape, F32)
    empty = np.isneginf(want_lse)
    assert (got_o[empty] == 0).all() and np.isneginf(got_lse[empty]).all(), "rows without keys"
    error = np.linalg.norm(got_o - want_o) / max(np.linalg.norm(want_o), 1e-9)
    lse_error = np.abs(got_lse[~empty] - want_lse[~empty]).max(initial=0)
    assert error <= O_ERROR and lse_error <= 1e-3, f"o {error:.2e}, LSE {lse_error:.2e}"
    return error, lse_error


def main():
    kernels = {}
    for entry, batch, kv_heads, n_q, n_k, counts, ctas, *more in CAUSAL_CASES if PLAN.causal else MORE_CASES if IS_MORE else CASES:
        lengths, size = (*more, None, None)[:2]
        shape = batch, kv_heads, n_q, n_k
        kernel = kernels.setdefault(entry, kernel_of(entry))
        error = check(kernel, Case(sum(shape), *shape, *([size] if size else [])), counts, ctas, lengths)
        print("{} B {} Hk {} Nq {} Nk {}: o {:.1e}, LSE {:.1e}".format(entry, *shape, *error), flush=True)


main()
