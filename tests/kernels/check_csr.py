"""usage: check_csr.py EMIT [KEY=VALUE ...]: the queries that list each leaf, of the kernels csr_count, csr_scan and csr_fill,
against random lists turned around in Python. Segments may be cut in any way: some calls are launched in two."""
import sys

import numpy as np

from machine import S32, Global
from selection import Case, Sequences, ceil_div, plan_of_arguments

PLAN = plan_of_arguments()
C, K = PLAN.C, PLAN.K
POISON = -1


def random_list(rng, leaves, own, always):
    """Ascending: first, previous and own leaf always, others at random, at times fewer than there is room for."""
    seen = min(own + 1, leaves) if PLAN.causal else leaves
    forced = {x for x in (0, own - 1, own) if always and 0 <= x < seen}
    forced = set(sorted(forced)[:K])
    n = min(seen, K) if rng.random() < 0.8 else rng.integers(len(forced), max(min(seen, K), len(forced)) + 1)
    others = rng.permutation([x for x in range(seen) if x not in forced])[:n - len(forced)]
    return sorted({*forced, *(int(x) for x in others)})


def lists_of(case, always):
    """ids [R, K] and, for every key head and leaf number, the query numbers."""
    s = case.s
    ids = np.full((s.R, K), -1, S32)
    want = [[[] for _ in range(s.NL)] for _ in range(s.kv_heads)]
    for kv_head in range(s.kv_heads):
        for query in range(s.T):
            of = s.of_query(query)
            t = of.token(query)
            found = random_list(case.rng, ceil_div(of.keys, C), t // C, always) if t >= 0 else []
            ids[s.list_row(query, kv_head), :len(found)] = found
            for leaf in found:
                want[kv_head][s.first_leaf(of) + leaf].append(query)
    return ids, want


def launch(case, ids, chunk):
    s, memory = case.s, Global(64 << 20)
    common, segments = case.sequence_arguments(memory), ceil_div(s.T, chunk)
    at_ids = memory.array(ids)
    counts, begins = (memory.empty((segments * s.kv_heads, s.NL), S32) for _ in range(2))
    offsets, members = memory.empty((s.kv_heads, s.NL + 1), S32), memory.empty((s.kv_heads, K * s.T), S32)
    kernels = [PLAN.kernel(name) for name in ("csr_count", "csr_scan", "csr_fill")]
    count, scan, fill = kernels
    count.launch(segments * s.kv_heads, count.shared, memory, [*common, at_ids, counts, chunk, s.NL])
    scan.launch(s.kv_heads, scan.shared, memory, [*common, counts, begins, offsets, segments, s.NL])
    fill.launch(segments * s.kv_heads, fill.shared, memory, [*common, at_ids, begins, members, chunk, s.NL])
    return memory.read(offsets, (s.kv_heads, s.NL + 1), S32), memory.read(members, (s.kv_heads, K * s.T), S32)


def check(call, chunks, seed, always=True):
    case = Case(seed, Sequences(PLAN, **call))
    ids, want = lists_of(case, always)
    for chunk in chunks:
        offsets, members = launch(case, ids, chunk)
        for kv_head, leaves in enumerate(want):
            ends = np.cumsum([0, *(len(x) for x in leaves)])
            if (offsets[kv_head] != ends).any():
                sys.exit(f"{call}: offsets {offsets[kv_head]} instead of {ends}")
            for leaf, queries in enumerate(leaves):
                got = members[kv_head, ends[leaf]:ends[leaf + 1]]
                if got.tolist() != queries:
                    sys.exit(f"{call}: leaf {leaf}: {got} instead of {queries}")
            if (members[kv_head, ends[-1]:] != POISON).any():
                sys.exit(f"{call}: written behind the last member")
    print(f"{call} in segments of {chunks}: right", flush=True)


def main():
    n = (2 * K + 3) * C + 5
    check(dict(kv_heads=2, batch=1, n_q=150, n_k=n), (32, 96), 1)
    check(dict(kv_heads=1, batch=3, n_q=70, n_k=n, lengths=(n - C - 5, 7, n)), (64, 256), 2)
    check(dict(kv_heads=2, packed=[(70, n), (0, 0), (1, n + 3), (0, C), (90, (K + 2) * C - 1), (5, 3), (3, 0)]), (32, 64), 3)
    check(dict(kv_heads=1, batch=2, n_q=40, n_k=n), (32, ), 4, always=False)
    if not PLAN.window:  # more leaves than csr_scan has threads, more segments than it loads at once
        check(dict(kv_heads=1, batch=540, n_q=1, n_k=C + 1), (32, ), 5)


main()
