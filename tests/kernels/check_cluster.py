"""usage: check_cluster.py EMIT [KEY=VALUE ...]: offsets and items of the kernel cluster, entries of the kernel scatter."""

from clusters import CLUSTER, NEAR, NO_SLOT, SINGLE, Stage, has_singles
from machine import Global
from selection import Case, Sequences, plan_of_arguments

PLAN = plan_of_arguments()
C, g, K = PLAN.C, PLAN.g, PLAN.K


def check_clusters(stage, seg, items):
    """CLUSTER items hold each cluster's entries, whole and once."""
    offsets, entries = stage.read("offsets"), stage.read("entries")
    found, used = {}, set()
    for first, second, start, info in items:
        members = set(entries[seg, start:start + (info & 127)].tolist())
        assert second == first + g // 2 and 1 <= info & 127 <= 64 and len(members) == info & 127
        assert not used & set(range(start, start + len(members)))
        used |= set(range(start, start + len(members)))
        found.setdefault(first, set()).update(members)
    want = {}
    for (s, parent), members in stage.clusters.items():
        if s == seg:
            x = next(x for x in stage.s.each if stage.s.first_parent(x) <= parent < stage.s.first_parent(x) + -(-x.keys // (C * g)))
            want[stage.s.first_leaf(x) + g * (parent - stage.s.first_parent(x))] = members
            n = len(members)
            assert set(entries[seg, offsets[seg, parent]:offsets[seg, parent] + n].tolist()) == members
    assert found == want, "clusters"


def check_runs(stage, seg, items, kind):
    """SINGLE or NEAR items have every scored row once, with its own leaves."""
    group, kv_head = divmod(seg, stage.s.kv_heads)
    seen = []
    for first, second, start, info in items:
        for m in range(info & 127):
            query = group * stage.chunk + start + m
            row = stage.rows[stage.s.row(query, kv_head)]
            leaf, slot = stage.s.first_leaf(row.s), info >> 9 & 1023
            if kind == NEAR:
                assert (first, second) == (leaf + row.own - 1, leaf + row.own)
                assert (info >> 19) + m == row.t % C
                assert [slot, slot + 1] == row.near_slots(PLAN)
            else:
                odd = row.own % 2
                assert (first, second) == (leaf + 1, leaf + 1 if odd else leaf + row.own - 2)
                assert slot == (NO_SLOT if odd else 2 * row.kept.index(row.own // 2 - 1))
            seen.append(query)
    queries = range(group * stage.chunk, min(group * stage.chunk + stage.chunk, stage.s.T))
    wanted = has_singles(PLAN) if kind == SINGLE else PLAN.mass
    want = [q for q in queries if stage.rows[stage.s.row(q, kv_head)].is_scored] if wanted else []
    assert sorted(seen) == want, f"kind {kind}"


def check(stage):
    stage.run_cluster()
    stage.run_scatter()
    items, n_items = stage.read("items"), stage.read("n_items")
    for seg in range(stage.NSEG):
        mine = items[seg, :n_items[seg]]
        assert n_items[seg] <= stage.item_room and (items[seg, n_items[seg]:] == -1).all()
        kinds = mine[:, 3] >> 7 & 3
        check_clusters(stage, seg, mine[kinds == CLUSTER].tolist())
        for kind in (SINGLE, NEAR):
            check_runs(stage, seg, mine[kinds == kind].tolist(), kind)


def main():
    n = (3 * K + 2) * C
    calls = [(dict(kv_heads=2, batch=1, n_q=150, n_k=n), 64),
             (dict(kv_heads=1, batch=3, n_q=50, n_k=n, lengths=(n - C - 5, 7, n)), 40),
             (dict(kv_heads=2, packed=[(70, n), (0, 0), (1, n + 3), (90, (K + 3) * C - 1), (5, 3)]), 100),
             (dict(kv_heads=1, packed=[(2 * C + 3, 9 * K * C + 1)]), 4096)]
    if C * g == 64:  # parents of more than one pass
        calls.append((dict(kv_heads=1, packed=[(20, 2100 * C * g)]), 64))
    for seed, (call, chunk) in enumerate(calls):
        case = Case(seed, Sequences(PLAN, **call))
        check(Stage(case, Global(96 << 20), chunk, 0.125))
        print(f"{call}: right", flush=True)


main()
