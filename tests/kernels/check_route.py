"""usage: check_route.py EMIT PLAN: lists, masks, counts, ids and Hsum of the route kernel against their definitions."""
from dataclasses import dataclass

import numpy as np

from cases import BLOCK, D, GROUP, PLAN, ULP, Case, blocks_of, close, from_bits, kernel_of, rounded, rows_of_parts, slot_sums, to_bits
from machine import F32, Global

QUERY, SCALE, H_SCALE, NEAR = PLAN.query, 0.0883883476, 0.001, 1e-5
NONE_ABOVE = 100  # a threshold


@dataclass
class Call:
    batch: int
    kv_heads: int
    n_q: int
    n_k: int
    budget: tuple  # density_num, density_den, k where num is 0
    ctas: int = 3  # of statistics
    always: tuple = ()  # ranges of tokens, (-n, 0) the last n
    window: int = -1
    lengths: tuple = None
    given: tuple = None  # of query block i: given[i % len(given)]
    specials: bool = False  # equal and strange scores
    ids: bool = True
    threshold: float = 1.0
    size: float = 8.0  # of means


def keep(k):
    return 0, 1, k


CALLS = (
    Call(1, 1, 64, BLOCK, keep(1)),
    Call(1, 2, BLOCK * 33 + 5, BLOCK * 9 - 7, keep(3), 5, window=1),
    Call(2, 1, 300, BLOCK * 40, (1, 8, 0), 7, ((-BLOCK, 0), (0, 1)), 3, ids=False),
    Call(1, 1, 700, BLOCK * 130, keep(20), 3, ((BLOCK * 3, BLOCK * 6),), 12, specials=True),
    Call(1, 1, 129, BLOCK * 50, keep(50), 4, window=50, specials=True),
    Call(1, 1, 129, BLOCK * 50, keep(49), specials=True, threshold=NONE_ABOVE),
    # counts that differ, ranges at the edges
    Call(1, 1, 5 * QUERY, BLOCK * 33 - 1, keep(2), 3, ((5, 5), (BLOCK - 1, BLOCK + 1), (-1, 0), (1 << 30, (1 << 30) + 5)), 2),
    Call(1, 1, QUERY, BLOCK * 7, keep(3), 3, ((0, 1 << 30),), threshold=-100),
    Call(1, 1, 1, BLOCK * 9, (123456789, 10 ** 9, 0), 1, ((-(1 << 30), 0),), 0),
    Call(1, 1, 17, BLOCK * 12, keep(12), specials=True),
    # lengths
    Call(5, 1, 3 * QUERY + 1, BLOCK * 6, (1, 2, 0), 4, ((-1, 0), (2 * BLOCK, 3 * BLOCK - 1)), 1,
         (0, 1, 2 * BLOCK + 1, 6 * BLOCK, BLOCK * 4 - 5)),
    Call(3, 2, 2 * QUERY, BLOCK * 260 - 9, keep(4), 7, ((-BLOCK - 1, 0),), 0, (-3, 1 << 30, BLOCK * 129)),
    # keys in registers to the last one, and in shared memory
    Call(1, 1, 3 * QUERY, BLOCK * 512, keep(64), specials=True, window=5),
    Call(1, 1, 2 * QUERY, BLOCK * 513, keep(64), ids=False, threshold=3),
    Call(2, 1, 3 * QUERY, BLOCK * 700, (15, 100, 0), 3, ((BLOCK * 690, BLOCK * 695),), 3, (BLOCK * 650 + 1, BLOCK * 700)),
    Call(1, 1, QUERY, BLOCK * 640, keep(100), specials=True, size=0),
    # given lists
    Call(1, 2, 5 * QUERY, BLOCK * 30 - 9, keep(0), 5,
         given=((3, 1, 3, 29), (-1, 30, 31, 7), (-1, -1, -1, 1 << 30), (0, 1, 2, 3), (29, 28, 27, 27))),
    Call(2, 1, 40, BLOCK * 600, keep(0), 5, lengths=(BLOCK * 599 - 3, 70), given=(tuple(range(599, -1, -1)), (7,) * 600)),
)


def query_means(c, q_mean):
    """Rounded means of whole query blocks from those of sub-blocks."""
    if QUERY == BLOCK:
        return q_mean
    out = np.empty((c.bh, blocks_of(c.n_q, QUERY), D))
    for i in range(out.shape[1]):
        na = min(BLOCK, c.n_q - QUERY * i)
        nb = max(0, min(BLOCK, c.n_q - QUERY * i - BLOCK))
        out[:, i] = q_mean[:, 2 * i]
        if nb:
            out[:, i] = rounded((na * q_mean[:, 2 * i] + nb * q_mean[:, 2 * i + 1]) / (na + nb))
    return out


def forced_blocks(call, i, n):
    """Of query block i in a sequence of n keys."""
    forced = np.zeros(blocks_of(n, BLOCK), bool)
    if PLAN.window and call.window >= 0:
        touched = QUERY * i // BLOCK, (QUERY * (i + 1) - 1) // BLOCK + 1
        forced[max(0, touched[0] - call.window):touched[1] + call.window] = True
    for begin, end in call.always:
        tokens = np.arange(n)
        tokens = tokens[max(0, n + begin):] if begin < 0 else tokens[begin:end]
        forced[tokens // BLOCK] = True
    return forced


def given_list(call, i):
    return call.given[i % len(call.given)]


class Inputs:
    def __init__(self, c, call, seed):
        rng = np.random.default_rng(seed)
        self.lengths = np.clip(call.lengths or (c.n_k,) * c.batch, 0, c.n_k)
        self.q, self.k = (to_bits(x) for x in (c.mean(c.q) * call.size, c.mean(c.k) * call.size))
        self.h_norm2 = rng.uniform(0, 50, (c.bhk, c.nt, 8)).astype(F32)
        self.h_norm2[:, ::5] = 0
        if call.specials:  # equal keys, zeros of both signs, nan, infinite norms
            self.k[:, 1::7] = self.k[:, :1]
            self.k[:, 2::9] = 0
            self.k[:, 3::11] = 0x8000
            self.h_norm2[:] = self.h_norm2[:, :1]
            if not PLAN.threshold or call.threshold == NONE_ABOVE:
                self.k[:, 5:6] = to_bits(np.nan)
                self.h_norm2[:, 4:5] = np.inf
                self.h_norm2[:, 7:8] = np.nan
        for h, n in enumerate(np.repeat(self.lengths, c.kv_heads)):
            self.k[h, blocks_of(n, BLOCK):] = to_bits(77)  # not to be read
        self.h_part = rng.standard_normal((c.bhk + call.ctas - 1, D, D)).astype(F32)

    def scores(self, c):
        """Without their term, and with it."""
        qm = query_means(c, from_bits(self.q).astype(np.float64))
        km = np.repeat(from_bits(self.k).astype(np.float64), GROUP, 0)
        plain = np.einsum("hid,hjd->hij", qm, km) * F32(SCALE)
        parts = self.h_norm2.astype(np.float64).sum(2)
        spread = {"mean": np.ones_like(parts), "log_key_variance": np.fmax(parts, 1e-8)}.get(PLAN.term, np.sqrt(parts) + 1e-5)
        return qm, km, plain, plain + np.repeat(np.log(spread), GROUP, 0)[:, None]


def limit_of(call, q, k, t):
    if PLAN.threshold == "full":
        spread = t.var()
    else:
        spread = (np.float64(F32(SCALE)) ** 2 * q ** 2 * k.var(0)).sum()
    return t.mean() + call.threshold * np.sqrt(spread + 1e-6)


def best_blocks(call, score, forced):
    num, den, k = call.budget
    count = max(max(1, num * len(score) // den) if num else k, forced.sum())
    return np.lexsort((np.arange(len(score)), -score, ~forced))[:count]


def check_chosen(call, i, chosen, forced, score, limit):
    """Whether these are the blocks to be listed, but for scores that rounding may order otherwise."""
    if call.given:
        want = [j for j in given_list(call, i) if 0 <= j < len(score)]
    elif PLAN.threshold:
        want = np.flatnonzero(forced | (score > limit))
        want = want if len(want) or not len(score) else [score.argmax()]
    else:
        want = best_blocks(call, score, forced)
    wrong = set(np.flatnonzero(chosen)) ^ set(want)
    if not wrong:
        return 0
    assert not call.given and (PLAN.threshold or len(want) == chosen.sum()), f"{np.flatnonzero(chosen)} instead of {want}"
    gap = np.abs(score[list(wrong)] - limit).max() if PLAN.threshold else np.ptp(score[list(wrong)])
    assert gap < NEAR and not (PLAN.threshold or call.specials and call.size), f"{wrong}: gap {gap}"
    return 1


def list_of(chosen, shared, nt):
    """Blocks that |shared| holds first."""
    mine = np.flatnonzero(chosen)
    listed = np.append(shared, np.setdiff1d(mine, shared))
    return np.append(listed, np.setdiff1d(np.arange(nt), mine)) if PLAN.tail == "taylor_1" else listed


def shared_of(a, b, n):
    common = np.flatnonzero(a & b)
    common = common[common < n // BLOCK]
    return common[:len(common) // 2 * 2]


class Outputs:
    def __init__(self, c, call, memory, inputs):
        self.n = blocks_of(c.n_q, QUERY)
        num, den, k = call.budget
        most = max(forced_blocks(call, i, n).sum() for i in range(self.n) for n in inputs.lengths)
        self.keep = len(call.given[0]) if call.given else c.nt if PLAN.threshold else \
            min(c.nt, max(num * c.nt // den if num else k, 1, most))
        self.list_stride = ((c.nt if PLAN.tail == "taylor_1" else self.keep) + 3) // 4 * 4 + 8
        self.mask_words = (c.nt + 127) // 128 * 4 + 4
        shapes = {"lists": self.list_stride, "masks": self.mask_words, "ids": self.keep}
        self.shapes = {name: (c.bh, self.n, x) for name, x in shapes.items()}
        self.shapes |= {"counts": (c.bh, self.n), "shared": (c.bh, blocks_of(self.n, 2)), "h_sum": (c.bhk, D, D)}
        self.types = {"masks": np.uint32, "h_sum": np.uint16}
        self.at = {name: memory.empty(shape, self.types.get(name, np.int32)) for name, shape in self.shapes.items()}

    def read(self, memory):
        for name, shape in self.shapes.items():
            setattr(self, name, memory.read(self.at[name], shape, self.types.get(name, np.int32)))


def launch(kernel, c, call, memory, inputs, out, reduces):
    row_tiles = blocks_of(out.n, 16)
    given = 0
    if call.given:
        rows = np.array([given_list(call, i) for i in range(out.n)], np.int32)
        given = memory.array(np.broadcast_to(rows, (c.bh, *rows.shape)))
    lengths = memory.array(np.array(call.lengths, np.int32)) if call.lengths else 0
    ranges = [x for r in (list(call.always) + [(0, 0)] * 4)[:4] for x in r]
    arrays = [memory.array(x) for x in (inputs.q, inputs.k, inputs.h_norm2, inputs.h_part)]
    at = out.at
    shared_bytes = 16 * (128 * blocks_of(c.nt, 128) + 4) * 4
    kernel.launch(c.bh * row_tiles + (c.bhk * D // 32 if reduces else 0), shared_bytes, memory,
                  [*arrays, at["lists"], at["masks"], at["ids"] if call.ids else 0, at["h_sum"], c.bh, c.n_q, c.n_k, out.keep,
                   out.list_stride, out.mask_words, row_tiles, call.ctas, c.blocks, *ranges, SCALE, H_SCALE, call.window,
                   at["counts"], at["shared"] if PLAN.union else 0, lengths, given, len(call.given[0]) if call.given else 0,
                   c.heads, *call.budget, float(call.threshold)])
    out.read(memory)


def check_row(call, out, h, i, chosen, shared, nt):
    count, bits = chosen.sum(), out.masks[h, i]
    mask = (bits[:, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(-1).astype(bool)
    want = list_of(chosen, shared, nt)
    assert mask[nt:].all(), "bits of absent blocks"
    assert out.counts[h, i] == count, f"count {out.counts[h, i]}"
    assert (out.lists[h, i, :len(want)] == want).all(), f"list {out.lists[h, i]} instead of {want}"
    assert (out.lists[h, i, len(want):] == 0).all(), "padding of the list"
    if call.ids:
        ids = np.append(np.flatnonzero(chosen), [-1] * (out.keep - count))
        assert (out.ids[h, i] == ids).all(), f"ids {out.ids[h, i]} instead of {ids}"


def check_rows(c, call, inputs, out):
    swaps = 0
    with np.errstate(all="ignore"):
        qm, km, plain, score = inputs.scores(c)
    score[np.isnan(score)] = -np.inf
    masks = (out.masks[..., None] >> np.arange(32, dtype=np.uint32) & 1).reshape(c.bh, out.n, -1).astype(bool)
    for h, i in np.ndindex(c.bh, out.n):
        n = inputs.lengths[h // c.heads]
        nt = blocks_of(n, BLOCK)
        chosen, neighbour = (masks[h, x, :nt] for x in (i, min(i ^ 1, out.n - 1)))
        limit = limit_of(call, qm[h, i], km[h, :nt], plain[h, i, :nt]) if PLAN.threshold and nt else 0
        try:
            swaps += check_chosen(call, i, chosen, forced_blocks(call, i, n), score[h, i, :nt], limit)
            shared = shared_of(chosen, neighbour, n) if PLAN.union else []
            if PLAN.union:
                assert out.shared[h, i // 2] == len(shared), f"shared {out.shared[h, i // 2]}"
            check_row(call, out, h, i, chosen, np.array(shared, int), nt)
        except AssertionError as wrong:
            raise SystemExit(f"head {h} query block {i}: {wrong}")
    return swaps


def check_h_sum(c, call, inputs, out):
    sums, _ = slot_sums(rows_of_parts(inputs.h_part.astype(np.float64)), c, call.ctas)
    for h, n in enumerate(np.repeat(inputs.lengths, c.kv_heads)):
        sums[h] *= H_SCALE * c.n_k / n if n else 0
    close("h_sum", from_bits(out.h_sum), sums, 1e-7, ULP / 2 + 1e-6)


def main():
    kernel = kernel_of("pisa_route")
    reduces = PLAN.tail == "taylor_hybrid"
    for i, call in enumerate(CALLS):
        c, memory = Case(i, call.batch, call.kv_heads, call.n_q, call.n_k), Global(192 << 20)
        call.ctas = min(call.ctas, c.bhk * c.blocks)
        inputs = Inputs(c, call, 5)
        out = Outputs(c, call, memory, inputs)
        launch(kernel, c, call, memory, inputs, out, reduces)
        swaps = check_rows(c, call, inputs, out)
        if reduces:
            check_h_sum(c, call, inputs, out)
        print(f"call {i}, B {c.batch} Hk {c.kv_heads} Nq {c.n_q} Nk {c.n_k}: right, {swaps} swaps", flush=True)


main()
