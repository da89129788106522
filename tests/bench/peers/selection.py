"""Selectors of blocks that a PyTorch user would write, in Triton, at the geometry of the pyramid paper:
bf16, causal, heads a multiple of 16, the number of leaves a power of two.

flat-heads-folded    mean keys against the sum of the group's queries: a linear score
flat-heads-separate  mean keys against every query head, e^score summed over the group
pyramid-per-query    a walk over means, one program a query and key head, then exact leaf log-sum-exps

Times include the means of the leaves, not the upper levels of the pyramid. Forced blocks are not known.
As a program: selection.py [N ...]
"""

import functools
import json
import pathlib
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from protocol import Contestant, measure  # noqa: E402

LOG2_E = 1.4426950408889634
FOLDED_TILE, SEPARATE_TILE, LEAVES_AT_ONCE = 64, 8, 64


@triton.jit
def with_index(score, index):
    """Keys that sort as scores do, with an index in the low half."""
    bits = score.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | index.to(tl.int64)


@triton.jit
def join_best(best, score, columns, visible, TILE: tl.constexpr, LEAVES: tl.constexpr, K: tl.constexpr):
    keys = with_index(score, tl.broadcast_to(columns[None, :], (TILE, LEAVES)))
    keys = tl.where(visible, keys, -0x7FFFFFFFFFFFFFFF)
    pair = tl.join(best, tl.topk(keys, K, dim=1))
    return tl.topk(tl.reshape(pair, (TILE, 2 * K)), K, dim=1)


@triton.jit
def store_lists(out, best, head, rows, n, K: tl.constexpr):
    slot = tl.arange(0, K)[None, :]
    tl.store(out + (head * n + rows[:, None]) * K + slot, (best & 0xFFFFFFFF).to(tl.int32))


@triton.jit
def flat_folded(
    q, means, out, n, leaves, scale,
    G: tl.constexpr, D: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, LEAVES: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    rows, d = tile * TILE + tl.arange(0, TILE), tl.arange(0, D)[None, :]
    total = tl.zeros([TILE, D], tl.float32)
    for g in range(G):
        total += tl.load(q + ((head * G + g) * n + rows[:, None]) * D + d).to(tl.float32)
    total = total.to(tl.bfloat16)
    best = tl.full([TILE, K], -0x7FFFFFFFFFFFFFFF, tl.int64)
    for first in range(0, (tile * TILE + TILE - 1) // C + 1, LEAVES):
        columns = first + tl.arange(0, LEAVES)
        inside = columns[:, None] < leaves
        mean = tl.load(means + (head * leaves + columns[:, None]) * D + d, mask=inside, other=0.0)
        score = tl.dot(total, tl.trans(mean)) * scale
        best = join_best(best, score, columns, columns[None, :] <= rows[:, None] // C, TILE, LEAVES, K)
    store_lists(out, best, head, rows, n, K)


@triton.jit
def flat_separate(
    q, means, out, n, leaves, scale,
    G: tl.constexpr, D: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, LEAVES: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    rows, d = tile * TILE + tl.arange(0, TILE), tl.arange(0, D)[None, :]
    each = tl.arange(0, TILE * G)  # a row for every query and head
    place = (head * G + each % G) * n + tile * TILE + each // G
    queries = tl.load(q + place[:, None] * D + d)
    best = tl.full([TILE, K], -0x7FFFFFFFFFFFFFFF, tl.int64)
    for first in range(0, (tile * TILE + TILE - 1) // C + 1, LEAVES):
        columns = first + tl.arange(0, LEAVES)
        inside = columns[:, None] < leaves
        mean = tl.load(means + (head * leaves + columns[:, None]) * D + d, mask=inside, other=0.0)
        score = tl.exp2(tl.dot(queries, tl.trans(mean)) * scale)
        score = tl.sum(tl.reshape(score, (TILE, G, LEAVES)), axis=1)
        best = join_best(best, score, columns, columns[None, :] <= rows[:, None] // C, TILE, LEAVES, K)
    store_lists(out, best, head, rows, n, K)


@triton.jit
def walk(
    q, pyramid, candidates, offsets, n, all_rows, scale,
    TOP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    query, head = tl.program_id(0), tl.program_id(1)
    d, g = tl.arange(0, D)[None, :], tl.arange(0, G)[:, None]
    rows = tl.load(q + ((head * G + g) * n + query) * D + d)
    candidate = tl.arange(0, 2 * K)
    for down in tl.static_range(TOP):
        level = TOP - down
        child = tl.reshape(tl.join(candidate * 2, candidate * 2 + 1), (4 * K,))
        visible = child <= ((query // C) >> (level - 1))
        at = head * all_rows + tl.load(offsets + level - 1) + child[:, None]
        mean = tl.load(pyramid + at * D + d, mask=visible[:, None], other=0.0)
        score = tl.dot(rows, tl.trans(mean)) * scale
        score = tl.where(visible[None, :], score, float("-inf"))
        pairs = tl.reshape(score, (G, 2 * K, 2))
        largest = tl.max(pairs, axis=2)
        shift = tl.where(largest == float("-inf"), 0.0, largest)
        logs = shift + tl.log2(tl.sum(tl.exp2(pairs - shift[:, :, None]), axis=2))
        keys = with_index(
            tl.reshape(tl.sum(logs, axis=0), (1, 2 * K)), tl.reshape(candidate, (1, 2 * K))
        )
        kept = tl.reshape((tl.topk(keys, K, dim=1) & 0xFFFFFFFF).to(tl.int32), (K,))
        candidate = tl.reshape(tl.join(kept * 2, kept * 2 + 1), (2 * K,))
    tl.store(candidates + (head * n + query) * 2 * K + tl.arange(0, 2 * K), candidate)


@triton.jit
def score_leaves(
    q, k, candidates, out, n, leaves, scale,
    G: tl.constexpr, D: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    query, head = tl.program_id(0), tl.program_id(1)
    d, g, slot = tl.arange(0, D)[None, :], tl.arange(0, G)[:, None], tl.arange(0, 2 * K)
    rows = tl.load(q + ((head * G + g) * n + query) * D + d)
    scores = tl.full([2 * K], float("-inf"), tl.float32)
    row = candidates + (head * n + query) * 2 * K
    for j in range(2 * K):
        token = tl.minimum(tl.load(row + j), leaves - 1) * C + tl.arange(0, C)
        past = token <= query
        keys = tl.load(k + (head * n + token[:, None]) * D + d, mask=past[:, None], other=0.0)
        score = tl.dot(rows, tl.trans(keys)) * scale
        score = tl.where(past[None, :], score, float("-inf"))
        largest = tl.max(score, axis=1)
        shift = tl.where(largest == float("-inf"), 0.0, largest)
        logs = shift + tl.log2(tl.sum(tl.exp2(score - shift[:, None]), axis=1))
        scores = tl.where(slot == j, tl.sum(logs, axis=0), scores)
    candidate = tl.minimum(tl.load(row + slot), leaves - 1)
    keys = with_index(tl.reshape(scores, (1, 2 * K)), tl.reshape(candidate, (1, 2 * K)))
    kept = (tl.topk(keys, K, dim=1) & 0xFFFFFFFF).to(tl.int32)
    tl.store(out + (head * n + query) * K + tl.arange(0, K)[None, :], kept)


class Peers:
    """q [1, H, N, D], k [1, Hk, N, D], contiguous."""

    def __init__(self, q, k, leaf, keep):
        self.q, self.k, self.leaf, self.keep = q[0], k[0], leaf, keep
        self.heads, self.n, self.d = k.shape[1], k.shape[2], k.shape[3]
        self.group, self.leaves = q.shape[1] // k.shape[1], k.shape[2] // leaf
        self.scale = self.d**-0.5 * LOG2_E
        self.out = torch.empty(self.heads, self.n, keep, device="cuda", dtype=torch.int32)
        self.sizes = {"G": self.group, "D": self.d, "C": leaf, "K": keep}

    def means(self):
        return self.k.view(self.heads, self.leaves, self.leaf, self.d).float().mean(2).bfloat16()

    def flat(self, kernel, tile):
        kernel[(self.n // tile, self.heads)](
            self.q, self.means(), self.out, self.n, self.leaves, self.scale, **self.sizes,
            TILE=tile, LEAVES=LEAVES_AT_ONCE, num_warps=4,
        )  # fmt: skip

    def build(self):
        """The levels down from the lowest that has at most 2 K nodes."""
        levels = [self.means().float()]
        while levels[-1].shape[1] > 2 * self.keep:
            levels.append(levels[-1].view(self.heads, -1, 2, self.d).mean(2))
        rows = torch.tensor([0] + [level.shape[1] for level in levels], device="cuda")
        self.offsets = rows.cumsum(0).int()
        self.pyramid = torch.cat([level.bfloat16() for level in levels], 1).contiguous()
        shape = self.heads, self.n, 2 * self.keep
        self.candidates = torch.zeros(shape, device="cuda", dtype=torch.int32)
        self.top = len(levels) - 1

    def per_query(self):
        self.means()
        walk[(self.n, self.heads)](
            self.q, self.pyramid, self.candidates, self.offsets, self.n, self.pyramid.shape[1],
            self.scale, TOP=self.top, **self.sizes, num_warps=1,
        )  # fmt: skip
        score_leaves[(self.n, self.heads)](
            self.q, self.k, self.candidates, self.out, self.n, self.leaves, self.scale, **self.sizes,
            num_warps=1,
        )  # fmt: skip


def fits(q, k, leaf):
    leaves = k.shape[2] // leaf
    shape = q.shape[1] // k.shape[1] >= 16 and leaves & (leaves - 1) == 0
    return shape and k.shape[2] % leaf == 0 and q.dtype == torch.bfloat16


def contestants(q, k, leaf, keep):
    """Empty for shapes that the kernels cannot."""
    if not fits(q, k, leaf):
        return []
    peers = Peers(q, k, leaf, keep)
    peers.build()
    return [
        Contestant("pyramid-per-query", peers.per_query),
        Contestant("flat-heads-separate", functools.partial(peers.flat, flat_separate, SEPARATE_TILE)),
        Contestant("flat-heads-folded", functools.partial(peers.flat, flat_folded, FOLDED_TILE)),
    ]


def main():
    torch.manual_seed(0)
    for n in map(int, sys.argv[1:] or (4096, 16384, 65536, 131072, 262144)):
        q, k = [torch.randn(1, h, n, 64, device="cuda", dtype=torch.bfloat16) for h in (32, 2)]
        for name, (ms, loaded) in measure(contestants(q, k, 64, 8), rounds=5).items():
            line = {"peer": name, "n": n, "ms": ms, "ms_sustained": loaded}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
