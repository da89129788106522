"""What attend_blocks and decode_attend take and give: sequences, pages, lists, and their attention in double. The plan is
on the command line as select_emit takes it: EMIT KEY=VALUE ..."""
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

from machine import F32, S32, f32_to_bf16, half_to_f32
from ptx import Kernel

EMIT, WORDS = sys.argv[1], sys.argv[2:]
KEYS = dict(x.split("=") for x in WORDS)
TYPE, CAUSAL = KEYS.get("type", "bf16"), KEYS.get("causal", "1") == "1"
D, G, LEAF, PAGE = (int(KEYS.get(key, value)) for key, value in (("d", 64), ("heads", 16), ("leaf", 64), ("page", 0)))
IS_FP16 = TYPE == "fp16"
ULP = 2.0 ** (-10 if IS_FP16 else -7)
SCALE = D ** -0.5


def to_bits(x):
    x = np.asarray(x).astype(F32)
    return x.astype(np.float16).view(np.uint16) if IS_FP16 else f32_to_bf16(x)


def from_bits(bits):
    return half_to_f32(bits, not IS_FP16).astype(np.float64)


def kernel_of(name):
    text = subprocess.run([EMIT, "ptx", name, *WORDS], check=True, capture_output=True, text=True).stdout
    np.seterr(all="ignore")
    return Kernel(text, "pisa_" + name)


@dataclass
class Call:
    batch: int
    kv_heads: int
    n_q: int  # with starts the sum
    n_k: int
    lengths: tuple = None
    q_starts: tuple = None
    k_starts: tuple = None
    width: int = 4  # of lists; 0: none
    size: float = 1.0  # of q
    nan_key: int = -1  # of every sequence
    minus_infinity: int = -1  # a key whose scores are -inf
    heads_last: bool = False  # strides: [B, H, N, D], or [B, N, H, D]
    lse: bool = True
    splits: int = 1


class Sequences:
    """Where queries and keys lie, as pyramid.def says."""

    def __init__(self, call):
        self.call, self.packed = call, call.q_starts is not None
        self.queries = call.n_q if self.packed else call.batch * call.n_q
        self.spans = []  # first query, queries, first key, keys
        for b in range(call.batch):
            if self.packed:
                q, k = (x[b] for x in (call.q_starts, call.k_starts))
                self.spans.append((q, call.q_starts[b + 1] - q, k, call.k_starts[b + 1] - k))
            else:
                keys = call.n_k if call.lengths is None else min(max(call.lengths[b], 0), call.n_k)
                self.spans.append((b * call.n_q, call.n_q, b * call.n_k, keys))

    def of(self, query):
        """Sequence, and the query's row in it."""
        for b, (first, n, _, _) in enumerate(self.spans):
            if first <= query < first + n:
                return b, query - first
        raise IndexError(query)

    def limit(self, query):
        b, row = self.of(query)
        _, n, _, keys = self.spans[b]
        return keys - n + row + 1 if CAUSAL else keys

    def head_row(self, query, head, heads):
        b, row = self.of(query)
        return head * self.queries + query if self.packed else (b * heads + head) * self.call.n_q + row


def strided(memory, x, heads_last):
    """x [B, N, H, D] of 16 bits with rows apart: pointer and strides in bytes; and the array that it lies in."""
    b, n, h, d = x.shape
    order = (0, 1, 2, 3) if heads_last else (0, 2, 1, 3)
    padded = np.full((*(x.shape[i] for i in order[:3]), d + 8), to_bits(np.nan), np.uint16)
    padded[..., :d] = x.transpose(order)
    row = 2 * (d + 8)
    batch, token, head = (n * h * row, h * row, row) if heads_last else (n * h * row, row, n * row)
    return [memory.array(padded), batch, head, token], padded.shape, order


class Inputs:
    def __init__(self, call, seed):
        rng = np.random.default_rng(seed)
        self.call, self.sequences = call, Sequences(call)
        entries = 1 if self.sequences.packed else call.batch
        self.q = to_bits(rng.standard_normal((entries, call.n_q, call.kv_heads * G, D)) * call.size)
        shape = (entries, call.n_k, call.kv_heads, D)
        self.k, self.v = (to_bits(rng.standard_normal(shape)) for _ in range(2))
        for b, (_, _, first, keys) in enumerate(self.sequences.spans):
            entry, first = (0, first) if self.sequences.packed else (b, 0)
            if 0 <= call.nan_key < keys:
                self.k[entry, first + call.nan_key] = self.v[entry, first + call.nan_key] = to_bits(np.nan)
            if 0 <= call.minus_infinity < keys:
                self.k[entry, first + call.minus_infinity] = 0
                self.k[entry, first + call.minus_infinity, :, 0] = to_bits(-np.inf)
                self.q[..., 0] = to_bits(np.abs(from_bits(self.q[..., 0])) + 1)
            if not self.sequences.packed:
                self.k[entry, keys:] = self.v[entry, keys:] = to_bits(np.nan)
        self.lists = self.make_lists(rng) if call.width else None

    def make_lists(self, rng):
        """Different leaves in any order among -1 and numbers outside, the own one often among them."""
        rows = np.full((self.sequences.queries * self.call.kv_heads, self.call.width), -1, S32)
        for query in range(self.sequences.queries):
            leaves = -(-max(self.sequences.limit(query), 0) // LEAF)
            for head in range(self.call.kv_heads):
                some = rng.permutation(leaves + 2)[:self.call.width].astype(S32)
                some[rng.random(len(some)) < 0.25] = -1
                if leaves and rng.random() < 0.7:
                    some = np.append(some[some != leaves - 1], S32(leaves - 1))[-self.call.width:]
                if rng.random() < 0.3:
                    some[:1] = 1 << 30 if rng.random() < 0.5 else -(1 << 31)
                row = self.sequences.head_row(query, head, self.call.kv_heads)
                rows[row, rng.permutation(self.call.width)[:len(some)]] = some
        return rows

    def keys_of(self, b, array):
        _, _, first, keys = self.sequences.spans[b]
        whole = from_bits(array)
        return whole[0, first:first + keys] if self.sequences.packed else whole[b, :keys]

    def pages(self, memory, rng):
        """k and v cut in shuffled pages of a pool; table, its columns."""
        call = self.call
        columns = call.n_k // PAGE
        assert columns * PAGE == call.n_k and not self.sequences.packed
        table = rng.permutation(call.batch * columns + 3)[:call.batch * columns].reshape(call.batch, columns)
        pools = []
        for array in (self.k, self.v):
            pool = np.full((call.batch * columns + 3, PAGE, call.kv_heads, D), to_bits(np.nan), np.uint16)
            pool[table] = array.reshape(call.batch, columns, PAGE, call.kv_heads, D)
            pools.append(pool)
        used = np.array([[c * PAGE < keys for c in range(columns)] for _, _, _, keys in self.sequences.spans])
        return pools, memory.array(np.where(used, table, 1 << 29).astype(S32)), columns

    def arguments(self, memory, seed=7):
        """Of the sequences, and of q, k, v with strides."""
        call, table, columns, k, v = self.call, 0, 0, self.k, self.v
        if PAGE:
            (k, v), table, columns = self.pages(memory, np.random.default_rng(seed))
        ints = [memory.array(np.array(x, S32)) if x is not None else 0 for x in (call.q_starts, call.k_starts, call.lengths)]
        common = [call.batch, call.kv_heads, call.n_q, call.n_k, self.sequences.queries, 0, *ints, table, columns]
        arrays = [strided(memory, x, call.heads_last)[0] for x in (self.q, k, v)]
        return common, [x for array in arrays for x in array]

    def attention(self):
        """o like q, lse [rows of heads], and for each o the sum of p |v|."""
        o, bound = np.zeros(self.q.shape), np.zeros(self.q.shape)
        lse = np.full(self.sequences.queries * self.call.kv_heads * G, -np.inf)
        q = from_bits(self.q)
        keys, values = ([self.keys_of(b, x) for b in range(self.call.batch)] for x in (self.k, self.v))
        for query in range(self.sequences.queries):
            b, row = self.sequences.of(query)
            place = (0, query) if self.sequences.packed else (b, row)
            for head in range(self.call.kv_heads * G):
                tokens = self.tokens(query, head // G)
                s = keys[b][tokens, head // G] @ q[(*place, head)] * np.float64(F32(SCALE))
                if not len(tokens) or s.max() == -np.inf:
                    continue
                p = np.exp(s - s.max())
                at = self.sequences.head_row(query, head, self.call.kv_heads * G)
                lse[at] = s.max() + np.log(p.sum())
                v = values[b][tokens, head // G]
                o[(*place, head)] = p @ v / p.sum()
                bound[(*place, head)] = p @ np.abs(v) / p.sum()
        return o, lse, bound

    def tokens(self, query, kv_head):
        limit = max(self.sequences.limit(query), 0)
        if self.lists is None:
            return np.arange(limit)
        listed = self.lists[self.sequences.head_row(query, kv_head, self.call.kv_heads)].astype(np.int64)
        listed = listed[(listed >= 0) & (listed * LEAF < limit)]
        tokens = (listed[:, None] * LEAF + np.arange(LEAF)).reshape(-1)
        return tokens[tokens < limit]


class Outputs:
    def __init__(self, inputs, memory):
        call = inputs.call
        self.inputs, self.memory = inputs, memory
        poison = np.full(inputs.q.shape, 0xFFFF, np.uint16)
        self.o, self.shape, self.order = strided(memory, poison, not call.heads_last)
        self.rows = inputs.sequences.queries * call.kv_heads * G
        self.lse = memory.empty(self.rows, F32) if call.lse else 0

    def check(self):
        o, lse, bound = self.inputs.attention()
        padded = self.memory.read(self.o[0], self.shape, np.uint16)
        assert (padded[..., D:] == to_bits(np.nan)).all(), "something between rows"
        got = from_bits(padded[..., :D].transpose(np.argsort(self.order)))
        # p is rounded once, o once; what is left are rounding of f32 and of the polynomials
        same("o", got, o, ULP / 2 * (bound + np.abs(o)) * 1.05 + 2e-4)
        if self.lse:
            same("lse", self.memory.read(self.lse, lse.shape, F32).astype(np.float64), lse, 1e-4 + 1e-6 * np.abs(lse))


def same(name, got, want, allowed):
    odd = ~np.isfinite(want)
    wrong = np.where(odd, ~((got == want) | (np.isnan(got) & np.isnan(want))), ~(np.abs(got - want) <= allowed))
    if wrong.any():
        where = tuple(int(x[0]) for x in np.nonzero(wrong))
        sys.exit(f"{name}: {wrong.sum()} of {wrong.size} wrong, first {where}: {got[where]} instead of {want[where]}")
