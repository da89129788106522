"""Calls of a kernel that writes ids and worth, and its lists against the definition (select.h). A list may differ from it
only where a level ranks two candidates whose scores rounding may order otherwise; such lists are counted."""
import sys

import numpy as np

from machine import F32, S32, Global
from selection import Case, Selector, Sequences, ceil_div, plan_of_arguments, stored_means

PLAN = plan_of_arguments()
SCALE = F32(0.125)
NEAR = 3e-5  # relative to the largest score of a level, or to a worth of 1 with mass
TIES = "equal", "zero"  # keys alike: equal scores are equal to the bit, and the smaller number counts
GREATEST = np.finfo(F32).max


class Watched(Selector):
    """Remembers the smallest gap, as a part of what is near, between what was kept and what was not."""
    gap = np.inf

    def best(self, level, candidates, worth):
        kept, mine = super().best(level, candidates, worth)
        rest, ranked = worth[~np.isin(candidates, kept)], mine[mine < np.inf]
        finite = np.abs(worth[np.isfinite(worth)])
        self.near = NEAR * max(1, 0 if self.plan.mass else finite.max(initial=0))
        if len(ranked) and len(rest) and (ranked.min() > rest.max() or self.plan.mass):
            self.gap = min(self.gap, (ranked.min() - rest.max()) / self.near)
        return kept, mine


class Call:
    """|splits|: CTAs of a cluster, of the kernel decode, which attends to its lists too; 0: it does not. It begins beside
    append. Where it need not wait for it, means of nodes with new tokens, as many as there may be, are anything; else they
    are not touched before it has waited."""

    def __init__(self, seed, kv_heads, size=1.0, special=None, ctas=3, worth=True, token_major=False, splits=0, **shape):
        self.s = Sequences(PLAN, kv_heads, **shape)
        self.case = Case(seed, self.s, (size, 1, 1), token_major)
        self.ctas, self.worth, self.splits = ctas, worth, splits
        self.near = 0 if special in TIES else 1
        self.beside = PLAN.early and not self.s.packed
        k, q = self.case.k, self.case.q
        if special == "equal":
            k[...] = k[:, :, :1]
        if special == "nan":
            k[..., ::37, 3] = PLAN.to_bits(np.nan)
            q[:, 0, ::3] = PLAN.to_bits(np.nan)
        if special == "nan value":  # of one leaf, which few lists have
            self.case.v[:, :, 5 * PLAN.C + 1, 3] = PLAN.to_bits(np.nan)
        if special == "zero":
            q[...] = 0

    def launch(self, kernel, ctas):
        s, case, self.memory = self.s, self.case, Global(96 << 20)
        m = self.memory
        self.ids = m.empty((s.R, PLAN.K), S32)
        self.out = m.empty((s.R, PLAN.K), F32) if self.worth else 0
        clusters = max(self.splits, 1)
        kernel.launch(ctas * clusters, kernel.shared, m,
                      [*case.sequence_arguments(m), *case.array_arguments(m, case.q), *case.array_arguments(m, case.k),
                       self.means(), self.ids, self.out, float(SCALE),
                       *(self.attend_arguments() if kernel.entry == "pisa_decode" else ())], cluster=clusters)

    def means(self):
        means = self.case.means()
        if self.beside:
            new = self.new_rows(means)
            if PLAN.overlaps:
                random = np.random.default_rng(1)
                means[new] = random.integers(0, 1 << 16, (new.sum(), PLAN.D))
        address = self.memory.array(stored_means(means))
        if self.beside and not PLAN.overlaps:
            late = np.zeros(means.shape, np.uint16)
            late[new] = 0xFFFF
            self.memory.keep_until_wait(address, stored_means(late).reshape(-1).view(np.uint8) > 0)
        return address

    def new_rows(self, means):
        """Of nodes with new tokens, as many as there may be."""
        s, new = self.s, np.zeros(means.shape[:-1], bool)
        for x in s.each:
            for level in range(1, 32):
                size = PLAN.size(level)
                for node in range(max(x.keys - PLAN.C, 0) // size, ceil_div(x.keys, size)):
                    for kv_head in range(s.kv_heads):
                        new.reshape(-1)[s.node_row(x, kv_head, level, node)] = True
                if size >= x.keys:
                    break
        return new

    def attend_arguments(self):
        """v, o, lse, splits and beside."""
        m, case = self.memory, self.case
        if not self.splits:
            return [0] * 9 + [1, int(self.beside)]
        self.o = case.array_arguments(m, np.full(case.q.shape, 0xFFFF, np.uint16))
        self.lse = m.empty(self.s.T * self.s.kv_heads * PLAN.G, F32)
        return [*case.array_arguments(m, case.v), *self.o, self.lse, self.splits, int(self.beside)]

    def check_attention(self):
        """o and lse, of the lists as they are. p is rounded once, o once."""
        s, case = self.s, self.case
        ids = self.memory.read(self.ids, (s.R, PLAN.K), S32)
        o = PLAN.from_bits(case.read_array(self.memory, self.o[0], case.q.shape))
        lse = self.memory.read(self.lse, s.T * s.kv_heads * PLAN.G, F32).astype(float)
        for query in range(s.T):
            x = s.of_query(query)
            b, i = (0, query) if s.packed else (x.index, query - x.q_begin)
            end = x.token(query) + 1 if PLAN.causal else x.keys
            for kv_head in range(s.kv_heads):
                keys, values = case.keys(x, kv_head), case.values(x, kv_head)
                tokens = [t for leaf in ids[s.list_row(query, kv_head)] if leaf >= 0
                          for t in range(leaf * PLAN.C, min((leaf + 1) * PLAN.C, end))]
                heads = range(kv_head * PLAN.G, (kv_head + 1) * PLAN.G)
                got = np.array([o[b, head, i] for head in heads])
                logs = np.array([lse[s.head_row(query, head)] for head in heads])
                want, log, bound = attention(case.query(query, kv_head), keys[tokens], values[tokens])
                where = f"query {query} head {kv_head} t {x.token(query)}"
                for name, a, e, near in (("o", got, want, PLAN.ulp / 2 * (bound + np.abs(want)) * 1.05 + 2e-4),
                                         ("lse", logs, log, 1e-4 + 1e-6 * np.abs(log))):
                    same = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= near)
                    assert same.all(), f"{where}: {name} {a[~same][:4]} instead of {e[~same][:4]}"

    def selectors(self, start):
        """query, key head, Watched"""
        pyramids = {}
        for query in range(self.s.T):
            x = self.s.of_query(query)
            for kv_head in range(self.s.kv_heads):
                key = x.index, kv_head
                if key not in pyramids:
                    pyramids[key] = self.case.pyramid(x, kv_head)
                yield query, kv_head, Watched(PLAN, pyramids[key], self.case.query(query, kv_head), x.token(query), SCALE,
                                              start)

    def check(self, start=None):
        """How many lists differ."""
        ids = self.memory.read(self.ids, (self.s.R, PLAN.K), S32)
        worth = self.memory.read(self.out, (self.s.R, PLAN.K), F32).astype(float) if self.worth else None
        swaps = 0
        for query, kv_head, selector in self.selectors(start):
            row, (want, value) = self.s.list_row(query, kv_head), selector.lists()
            where = f"query {query} head {kv_head} t {selector.t}"
            if not (ids[row] == want).all():
                assert selector.gap < self.near, f"{where}: {ids[row]} instead of {want}, gap {selector.gap}, worth {value}"
                assert (np.diff(ids[row][ids[row] >= 0]) > 0).all() and (ids[row] >= 0).sum() == (want >= 0).sum(), where
                swaps += 1
            elif self.worth:
                self.check_worth(where, worth[row], value, selector)
        return swaps

    @staticmethod
    def check_worth(where, got, want, selector):
        """Scores that would be infinite are the greatest number, in one unit or the other."""
        near = getattr(selector, "near", 0) + 4e-6 * np.abs(np.where(np.isfinite(want), want, 0)) * \
            (np.nanmax(np.abs(selector.q), initial=1) if PLAN.mass else 1)
        great = (want > 1e300) & (want < np.inf) & (got > GREATEST / 2)
        same = (got == want) | great | (np.abs(got - want) <= near)
        assert same.all(), f"{where}: worth {got} instead of {want}"


def attention(q, keys, values):
    """o [G, D], lse [G] and the sum of p |v|, of no keys 0 and -inf."""
    if not len(keys):
        return np.zeros(q.shape), np.full(len(q), -np.inf), np.zeros(q.shape)
    x = q @ keys.T * float(SCALE)
    most = x.max(1, keepdims=True)
    p = np.exp(x - most)
    total = p.sum(1, keepdims=True)
    return p @ values / total, (most + np.log(total))[:, 0], p @ np.abs(values) / total


def run(kernel, calls, ctas_of, start=None):
    """ctas_of(call): CTAs to launch."""
    kernel = PLAN.kernel(kernel)
    for i, options in enumerate(calls):
        call = Call(i, **options)
        call.launch(kernel, ctas_of(call))
        try:
            print(f"call {i} {options}: right, {call.check(start)} swaps", flush=True)
            if call.splits:
                call.check_attention()
        except AssertionError as wrong:
            sys.exit(f"call {i} {options}: {wrong}")
