"""usage: check_pick.py EMIT [KEY=VALUE ...]: lists of the kernel pick: from random scores with ties, nan and infinite ones;
and behind cluster, scatter and leaf_score against the definition, given the parents that were kept."""
import sys

import numpy as np

from clusters import LOG2_E, Stage
from machine import F32, Global
from selection import Case, Sequences, plan_of_arguments

PLAN = plan_of_arguments()
C, g, K, D, G = PLAN.C, PLAN.g, PLAN.K, PLAN.D, PLAN.G
NEAR = 2e-3  # worths that rounding may order otherwise


def read_lists(stage, with_worth):
    ids, worth = stage.read("ids"), stage.read("worth")
    for row in stage.rows:
        at = stage.s.list_row(row.query, row.kv_head)
        if not with_worth and not (worth[at].view(np.uint32) == 0xFFFFFFFF).all():
            sys.exit("worth: written")
        yield row, ids[at], worth[at]


def scored_worth(stage, i, row):
    """{leaf: worth} that the scores in memory say."""
    scores = stage.read_scores[i].astype(np.float64)
    leaves = [x for x in row.leaves if not row.forced(x)]
    slots = [row.kept.index(x // g) * g + x % g for x in leaves]
    if not PLAN.mass:
        x = scores[slots] / LOG2_E
        return dict(zip(leaves, np.where(np.isnan(x), -np.inf, x)))
    previous, own = row.near_slots(PLAN)
    others = [scores[own], stage.forced[i].astype(np.float64)]
    if row.forced(row.own - 1):
        others.append(scores[previous])
    every = np.vstack([scores[slots], *others]) / LOG2_E
    worth = row.selector.reduce(every.T)[:len(leaves)]
    return dict(zip(leaves, worth))


def check_scored(stage, with_worth):
    """Exactly what the scores say, but for parts of a softmax that rounding may order otherwise."""
    stage.read_scores = stage.read("scores")
    for i, (row, ids, worth) in enumerate(read_lists(stage, with_worth)):
        if not row.is_scored:
            n = row.own + 1
            want, want_worth = [*range(n), *[-1] * (K - n)], [np.inf] * n + [-np.inf] * (K - n)
        else:
            of = scored_worth(stage, stage.s.row(row.query, row.kv_head), row)
            forced = [x for x in row.leaves if row.forced(x)]
            best = sorted(of, key=lambda x: (-of[x], x))[:K - len(forced)]
            want = sorted(forced + best)
            want_worth = [np.inf if x in forced else min(of[x], np.finfo(F32).max) for x in want]
            n = len(want)
            want, want_worth = want + [-1] * (K - n), want_worth + [-np.inf] * (K - n)
            swapped = set(want) ^ set(ids.tolist())
            if PLAN.mass and swapped and swapped <= of.keys() and np.ptp([of[x] for x in swapped]) <= 1e-5:
                continue
        if ids.tolist() != want:
            sys.exit(f"query {row.query} t {row.t}: {ids} instead of {want}")
        if with_worth:
            want_worth = np.array(want_worth)
            same = worth.astype(np.float64) == want_worth
            with np.errstate(invalid="ignore"):
                ok = same | (np.abs(worth - want_worth) <= 1e-6 + 1e-5 * np.abs(want_worth))
            if not ok.all():
                sys.exit(f"query {row.query} t {row.t}: worth {worth} instead of {want_worth}")


def random_scores(stage, rng):
    """Few different values, some strange; nan where nothing reads."""
    out = rng.integers(-3, 4, stage.shapes["scores"]).astype(F32) * F32(7.5)
    out[::5] *= 12  # of which powers of 2 are no floats
    strange = rng.random(out.shape)
    out[strange < 0.1] = -np.inf
    if not PLAN.mass:
        out[strange > 0.97], out[(strange > 0.94) & (strange < 0.97)] = np.nan, np.inf
    for i, row in enumerate(stage.rows):
        hidden = [s for s in range(K * g) if s // g >= len(row.kept) or row.kept[s // g] * g + s % g > row.own]
        out[i, hidden] = np.nan
    return out


def from_random(call, chunk, seed, with_worth):
    case = Case(seed, Sequences(PLAN, **call))
    stage = Stage(case, Global(96 << 20), chunk, 0.125)
    stage.at["scores"] = stage.memory.array(random_scores(stage, case.rng))
    stage.run_pick(with_worth)
    check_scored(stage, with_worth)
    print(f"{call}: right", flush=True)


def end_to_end(call, chunk, seed, size):
    case = Case(seed, Sequences(PLAN, **call), (size, size, 1))
    stage = Stage(case, Global(96 << 20), chunk, 0.125)
    stage.run_cluster()
    stage.run_scatter()
    stage.run_leaf_score(2)
    stage.run_pick()
    swaps = 0
    for row, ids, worth in read_lists(stage, True):
        want, want_worth = stage.lists(row)
        if set(ids.tolist()) != set(want.tolist()):
            candidates = np.array(row.leaves, int)
            of = dict(zip(candidates, row.selector.reduce(row.selector.scores(1, candidates))))
            swapped = set(ids.tolist()) ^ set(want.tolist())
            if -1 in swapped or np.ptp([of[x] for x in swapped]) > NEAR * (1 + size * size):
                sys.exit(f"query {row.query} t {row.t}: {ids} instead of {want}")
            swaps += 1
            continue
        with np.errstate(invalid="ignore"):
            far = np.abs(worth - want_worth) > (1e-3 + 1e-5 * size * size) * (1 if PLAN.mass else G)
        if (ids != want).any() or (far & (worth != want_worth)).any():
            sys.exit(f"query {row.query} t {row.t}: {ids}, {worth} instead of {want}, {want_worth}")
    print(f"{call} size {size}: right to the end, {swaps} swaps", flush=True)


def main():
    n = (2 * K + 3) * C + 5
    from_random(dict(kv_heads=2, batch=1, n_q=200, n_k=n), 64, 1, True)
    from_random(dict(kv_heads=1, batch=3, n_q=40, n_k=n, lengths=(n - C - 5, 7, n)), 16, 2, False)
    from_random(dict(kv_heads=2, packed=[(70, n), (0, 0), (1, n + 3), (30, (K + 2) * C - 1), (5, 3)]), 64, 3, True)
    few = 12 if G > 8 else 30
    end_to_end(dict(kv_heads=2, batch=1, n_q=few, n_k=n), 64, 4, 1.0)
    end_to_end(dict(kv_heads=1, packed=[(5, (K + 2) * C - 1), (few, n)]), 64, 5, 2.0)
    end_to_end(dict(kv_heads=1, batch=1, n_q=6, n_k=n), 64, 6, 14.0)


main()
