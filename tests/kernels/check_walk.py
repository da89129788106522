"""The kernel walk against the definition (select.h): check_walk.py EMIT KEY=VALUE ...

Clustered: kept parents, each wanted pair's place in its cluster (a permutation, in any order), sizes of clusters, and the
sink's scores. Fused: ids and worth. Sets may differ from the definition only where it ranks two candidates whose scores
rounding may order otherwise; such rows are counted."""
import sys

import numpy as np

from machine import F32, S32, Global
from selection import Case, Selector, Sequences, ceil_div, close, plan_of_arguments, stored_means

PLAN = plan_of_arguments()
SCALE = F32(0.125)
LOG2_E = 1.44269504088896340736
NEAR = 2e-4
TIES = "equal", "zero"  # keys alike: equal scores are equal to the bit, and the smaller number counts


class Watched(Selector):
    """Remembers the smallest gap between what was kept and what was not."""
    gap = np.inf

    def best(self, level, candidates, worth):
        kept, mine = super().best(level, candidates, worth)
        ranked = mine[mine < np.inf]
        rest = worth[~np.isin(candidates, kept)]
        if len(ranked) and len(rest):
            finite = min(ranked.min() - rest.max(), np.inf)
            if ranked.min() > rest.max() or self.plan.mass:
                self.gap = min(self.gap, finite / max(1, 0 if self.plan.mass else abs(ranked.min())))
        return kept, mine


class Call:
    def __init__(self, seed, kv_heads, size=1.0, special=None, ctas=2, chunk=8, worth=True, token_major=False, **shape):
        self.sequences = Sequences(PLAN, kv_heads, **shape)
        self.case = Case(seed, self.sequences, (size, 1, 1), token_major)
        self.ctas, self.chunk, self.worth = ctas, chunk, worth
        self.near = 0 if special in TIES else NEAR
        k = self.case.k
        if special == "equal":
            k[...] = k[:, :, :1]
        if special == "nan":
            k[..., ::37, 3] = PLAN.to_bits(np.nan)
        if special == "offset":  # logits of +-300, all keys alike: sums leave the range of floats, by head
            k[..., 0] = PLAN.to_bits(np.full(k[..., 0].shape, 40.0))
            signs = np.where(np.arange(self.case.q.shape[1]) % 3 == 0, -60.0, 60.0)
            self.case.q[..., 0] = PLAN.to_bits(np.broadcast_to(signs[None, :, None], self.case.q[..., 0].shape))
        if special == "zero":
            self.case.q[...] = 0


def selectors(call):
    """query, key head, sequence, Selector"""
    s = call.sequences
    pyramids = {}
    for query in range(s.T):
        x = s.of_query(query)
        for kv_head in range(s.kv_heads):
            key = x.index, kv_head
            if key not in pyramids:
                pyramids[key] = call.case.pyramid(x, kv_head)
            yield query, kv_head, x, Watched(PLAN, pyramids[key], call.case.query(query, kv_head), x.token(query), SCALE)


def tolerance(worth):
    return 1e-4 * np.maximum(1, np.abs(np.where(np.isfinite(worth), worth, 0)))


class Launch:
    def __init__(self, kernel, call):
        s, self.memory = call.sequences, Global(96 << 20)
        m, K, G = self.memory, PLAN.K, PLAN.G
        self.segments = ceil_div(s.T, call.chunk) * s.kv_heads
        self.kept, self.positions = m.empty((s.R, K), S32), m.empty((s.R, K), S32)
        self.counts = m.array(np.zeros((self.segments, s.NP), S32))
        self.forced = m.empty((s.R, G), F32) if PLAN.mass else 0
        self.ids = m.empty((s.R, K), S32)
        self.worth = m.empty((s.R, K), F32) if call.worth else 0
        means = m.array(stored_means(call.case.means()))
        kernel.launch(call.ctas, kernel.shared, m,
                      [*call.case.sequence_arguments(m), *call.case.array_arguments(m, call.case.q),
                       *call.case.array_arguments(m, call.case.k), means, self.kept, self.positions, self.counts,
                       self.forced, self.ids, self.worth, call.chunk, s.NP, float(SCALE)])

    def read(self, name, shape, dtype):
        return self.memory.read(getattr(self, name), shape, dtype)


def check_lists(call, launch):
    s, swaps = call.sequences, 0
    ids = launch.read("ids", (s.R, PLAN.K), S32)
    worth = launch.read("worth", (s.R, PLAN.K), F32) if call.worth else None
    for query, kv_head, x, selector in selectors(call):
        row = s.list_row(query, kv_head)
        want, value = selector.lists()
        if not (ids[row] == want).all():
            assert selector.gap < call.near, f"query {query} head {kv_head} t {selector.t}: {ids[row]} instead of {want}, " \
                f"gap {selector.gap}, worth {value}"
            swaps += 1
            continue
        if call.worth:
            got = worth[row].astype(float)
            same = (got == value) | (np.abs(got - value) <= tolerance(value))
            assert same.all(), f"query {query} head {kv_head} t {selector.t}: worth {got} instead of {value} of {want}"
    return swaps


def wanted(selector, parent):
    """Whether the pair of a row that sees more than K leaves is in a cluster: see cluster.h."""
    leaves = [j for j in range(parent * PLAN.g, (parent + 1) * PLAN.g) if j < selector.visible(1)]
    forced = [selector.forced(1, j) for j in leaves]
    singles = PLAN.g == 2 and PLAN.previous and PLAN.current and len(PLAN.always) == 1 and \
        PLAN.always[0][0] == 0 and 0 < PLAN.always[0][1] <= PLAN.C
    return not any(forced) if singles else not all(forced)


def kept_parents(selector):
    if selector.visible(1) <= PLAN.K:
        return np.arange(selector.visible(2))
    return selector.walk(2)[0]


def check_sink(call, launch, row, selector):
    got = launch.read("forced", (call.sequences.R, PLAN.G), F32)[row].astype(float)
    counts = selector.t // PLAN.C > 1 and selector.forced(1, 0)
    score = SCALE * selector.q @ selector.p.level[1][0] + np.log(PLAN.C) if counts else np.full(PLAN.G, -np.inf)
    score = np.where(np.isnan(score), -np.inf, score)
    if selector.visible(1) > PLAN.K:
        close("forced", got, score * LOG2_E, 1e-4, 1e-5)


def check_parents(call, launch):
    s, swaps = call.sequences, 0
    kept, positions = (launch.read(name, (s.R, PLAN.K), S32) for name in ("kept", "positions"))
    counts = launch.read("counts", (launch.segments, s.NP), S32)
    members = [[[] for _ in range(s.NP)] for _ in range(launch.segments)]
    for query, kv_head, x, selector in selectors(call):
        row, want = s.row(query, kv_head), np.full(PLAN.K, -1)
        parents = kept_parents(selector)
        want[:len(parents)] = parents
        if not (kept[row] == want).all():
            assert selector.gap < call.near, f"query {query} head {kv_head} t {selector.t}: {kept[row]} instead of {want}, " \
                f"gap {selector.gap}"
            swaps += 1
        for parent, position in zip(kept[row], positions[row]):
            want_one = parent >= 0 and selector.visible(1) > PLAN.K and wanted(selector, parent)
            assert (position >= 0) == want_one, f"query {query} parent {parent}: position {position}"
            if want_one:
                segment = query // call.chunk * s.kv_heads + kv_head
                members[segment][s.first_parent(x) + parent].append(position)
        if PLAN.mass:
            check_sink(call, launch, row, selector)
    for segment, of_segment in enumerate(members):
        for parent, places in enumerate(of_segment):
            assert sorted(places) == list(range(len(places))) and counts[segment, parent] == len(places), \
                f"cluster {segment} {parent}: {sorted(places)} of {counts[segment, parent]}"
    return swaps


def calls():
    """Long enough for several levels; short, ragged, more queries than keys; packed; ties, nan, great numbers."""
    C, K, g, page = PLAN.C, PLAN.K, PLAN.g, PLAN.page
    deep = C * K * g * g
    n = deep + 3 * C + 5 if not page else ceil_div(deep + 3 * C, page) * page
    some = 40 * C // (page or 1) * (page or 1) if page else 2 * C * K + 7
    yield dict(kv_heads=1, batch=1, n_q=5, n_k=n)
    yield dict(kv_heads=2, batch=2, n_q=4, n_k=n, lengths=[n - C // 2 - 1, 3 * C + 1], worth=False, ctas=1)
    yield dict(kv_heads=1, batch=3, n_q=3, n_k=some, lengths=[some, 0, 2], size=40.0)
    if not page:
        yield dict(kv_heads=2, packed=[(2, n), (0, 3), (4, 2 * C * K), (3, 1), (2, C * K + C + 1)], token_major=True)
    yield dict(kv_heads=1, batch=3, n_q=8, n_k=n, lengths=[n, n - 4, n - C - 5], special="equal")
    yield dict(kv_heads=1, batch=1, n_q=3, n_k=n, special="nan")
    yield dict(kv_heads=1, batch=1, n_q=2, n_k=n, special="zero")
    yield dict(kv_heads=1, batch=1, n_q=3, n_k=n, special="offset")


def main():
    kernel = PLAN.kernel("walk")
    for i, options in enumerate(calls()):
        call = Call(i, **options)
        launch = Launch(kernel, call)
        try:
            swaps = check_parents(call, launch) if PLAN.clustered else check_lists(call, launch)
        except AssertionError as wrong:
            sys.exit(f"call {i} {options}: {wrong}")
        print(f"call {i} {options}: right, {swaps} swaps", flush=True)


main()
