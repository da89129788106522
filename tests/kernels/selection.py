"""Block selection: a plan on the command line, sequences and where their rows and nodes lie (runtime/pyramid.def), random
inputs, and what the definitions of runtime/cpu/pyramid.h and select.h make of them in double."""
import subprocess
import sys

import numpy as np

from machine import F32, S32, bf16_to_f32, f32_to_bf16
from ptx import Kernel

DEFAULTS = dict(type="bf16", d=64, heads=16, causal=1, leaf=64, children=2, keep=8, flat=0, start=0, decode_start=-1,
                score="lse", reduce="sum", previous=1, current=1, page=0, clustered=1, window=0, depths=0)
FIRST, LAST, RANGE = "first", "last", "range"


class Plan:
    """EMIT KEY=VALUE ... as select_emit.c takes them; every key is a field, |always| the forced ranges (begin, end) of
    tokens, begin < 0: the last -begin ones."""

    def __init__(self, emit, words):
        self.emit, self.words, self.always = emit, list(words), []
        for key, value in DEFAULTS.items():
            setattr(self, key, value)
        for word in words:
            key, value = word.split("=")
            if key in (FIRST, LAST):
                self.always.append((0, int(value)) if key == FIRST else (-int(value), 0))
            elif key == RANGE:
                self.always.append(tuple(int(x) for x in value.split(":")))
            else:
                setattr(self, key, value if isinstance(getattr(self, key), str) else int(value))
        self.D, self.G, self.C, self.K, self.g = self.d, self.heads, self.leaf, self.keep, self.children
        self.is_fp16, self.mass = self.type == "fp16", self.reduce in ("mass", "max_mass")
        self.early = not self.flat  # decode begins beside append, and may end beside it where new tokens are forced
        self.forces_new = self.early and self.causal and self.previous and self.current
        self.overlaps = self.forces_new and not self.mass
        self.span = 64 if self.g == 8 else 16
        self.ulp = 2.0 ** (-10 if self.is_fp16 else -7)  # between neighbours, relative to the smaller, at most

    def to_bits(self, x):
        x = np.asarray(x).astype(F32)
        return x.astype(np.float16).view(np.uint16) if self.is_fp16 else f32_to_bf16(x)

    def from_bits(self, bits):
        bits = np.asarray(bits).astype(np.uint16)
        return bits.view(np.float16).astype(np.float64) if self.is_fp16 else bf16_to_f32(bits).astype(np.float64)

    def rounded(self, x):
        return self.from_bits(self.to_bits(x))

    def size(self, level):
        """Tokens of a full node, 1 on level 0."""
        return self.C * self.g ** (level - 1) if level else 1

    def kernel(self, name):
        """|name| as select_emit knows it; .shared and .threads say how it is launched."""
        text = subprocess.run([self.emit, "ptx", name, *self.words], check=True, capture_output=True, text=True).stdout
        np.seterr(all="ignore")
        return Kernel(text, text.split()[1])


def plan_of_arguments():
    return Plan(sys.argv[1], sys.argv[2:])


def ceil_div(n, size):
    return -(-n // size)


PIECE = 32  # of a row of means: two rows' pieces take turns


def stored_means(means):
    """Rows [..., P, D] -> as they are stored."""
    *heads, P, D = means.shape
    return means.reshape(*heads, P // 2, 2, D // PIECE, PIECE).swapaxes(-3, -2).reshape(means.shape)


def ordered_means(bits):
    """Rows as they are stored -> in order."""
    *heads, P, D = bits.shape
    return bits.reshape(*heads, P // 2, D // PIECE, 2, PIECE).swapaxes(-3, -2).reshape(bits.shape)


# ---- sequences


class Sequence:
    def __init__(self, index, q_begin, queries, k_begin, room, keys):
        self.index, self.q_begin, self.queries = index, q_begin, queries
        self.k_begin, self.room, self.keys = k_begin, room, keys

    def token(self, query):
        """Of query number |query|."""
        return self.keys - self.queries + query - self.q_begin


class Sequences:
    """Of a call: equal ones (n_q, n_k; keys by |lengths|), or packed ones by their queries and rooms."""

    def __init__(self, plan, kv_heads, batch=0, n_q=0, n_k=0, lengths=None, packed=None):
        self.plan, self.kv_heads, self.lengths = plan, kv_heads, lengths
        self.packed = packed is not None
        if self.packed:  # [(queries, keys), ...]
            self.batch = len(packed)
            self.q_starts, self.k_starts = (np.cumsum([0, *x]).astype(S32) for x in zip(*packed))
            self.n_q, self.n_k = int(self.q_starts[-1]), int(self.k_starts[-1])
            self.T, self.all_keys = self.n_q, self.n_k
            self.each = [Sequence(b, int(self.q_starts[b]), q, int(self.k_starts[b]), n, n)
                         for b, (q, n) in enumerate(packed)]
        else:
            self.batch, self.n_q, self.n_k = batch, n_q, n_k
            self.T, self.all_keys = batch * n_q, batch * n_k
            self.each = [Sequence(b, b * n_q, n_q, b * n_k, n_k,
                                  n_k if lengths is None else min(max(lengths[b], 0), n_k)) for b in range(batch)]
        C, span = plan.C, plan.C * plan.span
        self.P = 4 * (self.all_keys // (2 * C)) + 128 * self.batch + 32
        self.NS = self.all_keys // span + self.batch
        self.NL = self.all_keys // C + self.batch
        self.NP = self.all_keys // (C * plan.g) + self.batch
        self.R = kv_heads * self.T

    def of_query(self, query):
        return next(s for s in self.each if s.q_begin <= query < s.q_begin + s.queries)

    def first_part(self, s, tokens):
        """Number of the first part (span, leaf, parent) of |tokens| tokens of a sequence."""
        return s.k_begin // tokens + s.index

    def first_leaf(self, s):
        return self.first_part(s, self.plan.C)

    def first_parent(self, s):
        return self.first_part(s, self.plan.C * self.plan.g)

    def row(self, query, kv_head):
        """Of internal arrays [R, ...]."""
        return kv_head * self.T + query

    def list_row(self, query, kv_head):
        """Of the caller's ids and worth."""
        s = self.of_query(query)
        return self.row(query, kv_head) if self.packed else (s.index * self.kv_heads + kv_head) * self.n_q + query - s.q_begin

    def head_row(self, query, head):
        """Of lse [B, H, n_q]."""
        s, heads = self.of_query(query), self.kv_heads * self.plan.G
        return head * self.T + query if self.packed else (s.index * heads + head) * self.n_q + query - s.q_begin

    # nodes

    def nodes(self, tokens, level):
        return ceil_div(tokens, self.plan.size(level))

    def offset(self, s, level):
        return sum(4 * ceil_div(self.nodes(s.room, below), 4) for below in range(1, level))

    def node_row(self, s, kv_head, level, node):
        base = 4 * (s.k_begin // (2 * self.plan.C)) + 128 * s.index
        return kv_head * self.P + base + self.offset(s, level) + node


# ---- inputs


class Case:
    """Sequences with q [B, H, n_q, D], k and v [B, Hk, n_k, D] (packed: B = 1; with pages of k and v [pages, Hk, page, D],
    in random order), of normal numbers times |size|. token_major: rows of all heads are adjacent."""

    def __init__(self, seed, sequences, size=(1, 1, 1), token_major=False, spare_pages=3):
        self.rng = np.random.default_rng(seed)
        self.s, self.plan = sequences, sequences.plan
        self.token_major = token_major
        s, D, page = sequences, self.plan.D, self.plan.page
        entries = 1 if s.packed else s.batch
        self.pages, self.page_columns = None, 0
        kv_shape = entries, s.kv_heads, s.n_k, D
        if page:
            assert s.n_k % page == 0 and not s.packed
            self.page_columns = s.n_k // page
            n = s.batch * self.page_columns
            self.pages = self.rng.permutation(n + spare_pages)[:n].astype(S32).reshape(s.batch, -1)
            kv_shape = n + spare_pages, s.kv_heads, page, D
        shapes = (entries, s.kv_heads * self.plan.G, s.n_q, D), kv_shape, kv_shape
        self.q, self.k, self.v = (self.plan.to_bits(self.rng.standard_normal(shape) * x) for shape, x in zip(shapes, size))

    def query(self, query, kv_head):
        """[G, D] in double."""
        s, G = self.s.of_query(query), self.plan.G
        b, i = (0, query) if self.s.packed else (s.index, query - s.q_begin)
        return self.plan.from_bits(self.q[b, kv_head * G:(kv_head + 1) * G, i])

    def place(self, s, token):
        """(entry, row) of a key in k and v."""
        if self.pages is not None:
            return int(self.pages[s.index, token // self.plan.page]), token % self.plan.page
        return (0, s.k_begin + token) if self.s.packed else (s.index, token)

    def rows(self, array, s, kv_head, tokens=None):
        """Bits [keys, D] of a sequence."""
        places = [self.place(s, j) for j in range(s.keys if tokens is None else tokens)]
        e, r = (np.array(x, int) for x in zip(*places)) if places else (np.zeros(0, int),) * 2
        return array[e, kv_head, r]

    def keys(self, s, kv_head):
        """[keys, D] in double."""
        return self.plan.from_bits(self.rows(self.k, s, kv_head))

    def values(self, s, kv_head):
        return self.plan.from_bits(self.rows(self.v, s, kv_head))

    def pyramid(self, s, kv_head):
        return Pyramid(self.plan, self.keys(s, kv_head))

    def means(self, fill=np.nan):
        """Bits [Hk, P, D] of all pyramids; rows of nothing hold |fill|."""
        out = np.broadcast_to(self.plan.to_bits(np.array(fill)), (self.s.kv_heads * self.s.P, self.plan.D)).copy()
        for s in self.s.each:
            for kv_head in range(self.s.kv_heads if s.keys else 0):
                for level, mean in enumerate(self.pyramid(s, kv_head).level[1:], 1):
                    first = self.s.node_row(s, kv_head, level, 0)
                    out[first:first + len(mean)] = self.plan.to_bits(mean)
        return out.reshape(self.s.kv_heads, self.s.P, self.plan.D)

    # arguments of a kernel

    def sequence_arguments(self, memory):
        s = self.s
        starts = [memory.array(x) for x in (s.q_starts, s.k_starts)] if s.packed else [0, 0]
        lengths = memory.array(np.array(s.lengths, S32)) if s.lengths is not None else 0
        pages = memory.array(self.pages) if self.pages is not None else 0
        return [s.batch, s.kv_heads, s.n_q, s.n_k, s.T, s.P, *starts, lengths, pages, self.page_columns]

    def strides(self, shape):
        """Bytes from entry to entry, head to head, row to row."""
        _, heads, rows, D = shape
        return [2 * heads * rows * D, *((2 * D, 2 * heads * D) if self.token_major else (2 * rows * D, 2 * D))]

    def array_arguments(self, memory, bits):
        """Pointer and strides of q, k, v, or of an output given by its poison."""
        stored = bits.transpose(0, 2, 1, 3) if self.token_major else bits
        return [memory.array(stored), *self.strides(bits.shape)]

    def read_array(self, memory, address, shape):
        """What array_arguments put at |address|, [entries, heads, rows, D] bits."""
        B, heads, rows, D = shape
        if self.token_major:
            return memory.read(address, (B, rows, heads, D), np.uint16).transpose(0, 2, 1, 3)
        return memory.read(address, shape, np.uint16)


# ---- runtime/cpu/pyramid.h


class Pyramid:
    """level[l]: means [nodes, D], rounded; level[0]: keys. Of no keys: one level without nodes."""

    def __init__(self, plan, keys):
        self.plan, self.tokens, self.level = plan, len(keys), [keys]
        while True:
            size = plan.size(len(self.level))
            self.level.append(np.array([plan.rounded(keys[j:j + size].mean(0)) for j in range(0, len(keys), size)])
                              .reshape(-1, plan.D))
            if len(self.level[-1]) <= 1:
                break

    @property
    def root(self):
        return len(self.level) - 1

    def nodes(self, level):
        return ceil_div(self.tokens, self.plan.size(level))

    def count(self, level, node):
        size = self.plan.size(level)
        return min(size, self.tokens - node * size)


# ---- runtime/cpu/select.h


def log_sum(x):
    most = np.max(x, initial=-np.inf)
    return most if np.isinf(most) else most + np.log(np.exp(x - most).sum())


class Selector:
    """The selection of one query: q [G, D] at token t of a pyramid."""

    def __init__(self, plan, pyramid, q, t, scale, start=None):
        self.plan, self.p, self.q, self.t, self.scale = plan, pyramid, q, t, scale
        self.start_nodes = plan.start if start is None else start

    def children(self, level):
        return self.plan.C if level == 1 else self.plan.g

    def visible(self, level):
        nodes = self.p.nodes(level)
        return min(nodes, self.t // self.plan.size(level) + 1 if self.t >= 0 else 0) if self.plan.causal else nodes

    def forced(self, level, node):
        size, C = self.plan.size(level), self.plan.C
        begin = node * size
        end = min(begin + self.p.count(level, node), self.visible(1) * C)
        own = self.t // C * C
        ranges = [(self.p.tokens + a, self.p.tokens) if a < 0 else (a, b) for a, b in self.plan.always]
        ranges += [(own, own + C)] if self.plan.current and self.t >= 0 else []
        ranges += [(own - C, own)] if self.plan.previous and self.t >= 0 else []
        return any(begin < b and a < end and a < b and begin < end for a, b in ranges)

    def start(self):
        level, most = 1, max(self.start_nodes, 1)
        while not self.plan.flat and level < self.p.root and self.visible(level) > most:
            level += 1
        return level

    def children_logits(self, level, node):
        """x [G, n] and weights [n] of the children that count."""
        first, size = node * self.children(level), self.plan.size(level - 1)
        end = (self.t + 1) // size if self.plan.causal else self.p.nodes(level - 1)
        which = range(first, first + min(max(end - first, 0), self.children(level)))
        weight = np.array([self.p.count(level - 1, r) / size for r in which])
        return self.scale * self.q @ self.p.level[level - 1][list(which)].T if len(weight) else None, weight

    def node_score(self, level, node):
        """[G]"""
        mass, forced, score = self.plan.mass, self.forced(level, node), self.plan.score
        if forced and not mass:
            return np.zeros(self.plan.G)
        if forced and level == 1:
            own = self.t // self.plan.C if self.t >= 0 else -1
            score = "lse" if own >= 0 and node in (own, own - 1) else "mean"
        if score == "mean" and (not self.plan.causal or (node + 1) * self.plan.size(level) <= self.t + 1):
            n = self.p.count(level, node) / self.plan.size(level - 1)
            return self.scale * self.q @ self.p.level[level][node] + (np.log(n) if mass else 0)
        x, n = self.children_logits(level, node)
        if x is None:
            return np.full(self.plan.G, -np.inf)
        if score == "lse":
            return np.array([log_sum(row + np.log(n)) for row in x])
        mean = x[:, 0] + (x - x[:, :1]) @ n / n.sum()  # equal ones are their mean to the bit
        half = ((x - mean[:, None]) ** 2 @ n / n.sum() / 2) if score == "half_variance" else 0
        return mean + half + (np.log(n.sum()) if mass else 0)

    def scores(self, level, candidates):
        """[G, n]"""
        x = np.stack([self.node_score(level, c) for c in candidates], 1)
        return np.where(np.isnan(x), -np.inf, x)

    def reduce(self, x):
        how = self.plan.reduce
        if how == "lse":
            return np.array([log_sum(c) for c in x.T])
        if self.plan.mass:
            x = np.stack([np.where(row == -np.inf, 0, np.exp(row - log_sum(row))) for row in x])
        worth = x.sum(0) if how in ("sum", "mass") else x.max(0)
        return np.where(np.isnan(worth), -np.inf, worth)

    def best(self, level, candidates, worth):
        """Kept candidates, ascending, and their worth."""
        forced = np.array([self.forced(level, c) for c in candidates])
        worth = np.where(forced, np.inf, np.minimum(worth, np.finfo(float).max))
        ranked = sorted(np.flatnonzero(~forced), key=lambda e: (-worth[e], e))
        kept = sorted([*np.flatnonzero(forced), *ranked[:max(self.plan.K - forced.sum(), 0)]])
        return candidates[kept], worth[kept]

    def keep(self, level, candidates):
        if len(candidates) <= self.plan.K:
            return candidates, np.full(len(candidates), np.inf)
        return self.best(level, candidates, self.reduce(self.scores(level, candidates)))

    def below(self, level, nodes):
        n = self.children(level)
        return np.array([r for node in nodes for r in range(node * n, node * n + n) if r < self.visible(level - 1)], int)

    def walk(self, down_to=1):
        """Kept nodes of level |down_to| (or of the first level, if that is lower), ascending, and their worth."""
        level = self.start()
        candidates = np.arange(self.visible(level))
        while True:
            kept, worth = self.keep(level, candidates)
            if level <= down_to:
                return kept, worth
            candidates = self.below(level, kept)
            level -= 1

    def lists(self):
        """ids [K] and worth [K] as the kernels write them."""
        kept, worth = self.walk()
        assert len(kept) <= self.plan.K, "more forced leaves than K"
        ids, out = np.full(self.plan.K, -1, S32), np.full(self.plan.K, -np.inf)
        ids[:len(kept)], out[:len(kept)] = kept, worth
        return ids, out


def close(name, got, want, absolute, relative=0.0):
    """Equal infinities are close; nan is close to nan."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    bad = ~(same | (np.abs(got - want) <= absolute + relative * np.abs(want)))
    if bad.any():
        where = tuple(int(x[0]) for x in np.nonzero(bad))
        sys.exit(f"{name}: {bad.sum()} of {bad.size} wrong, first {where}: {got[where]} instead of {want[where]}")
