"""usage: check_leaf_score.py EMIT [KEY=VALUE ...]: scores of the kernel leaf_score, behind cluster and scatter, against
log-sum-exps in double: every slot that is wanted, and no other one. Of CTAs 1 to 3; logits of 3, of 60 and of 250."""
import sys

import numpy as np

from clusters import Stage
from machine import Global
from selection import Case, Sequences, plan_of_arguments

PLAN = plan_of_arguments()
C, g, K, D = PLAN.C, PLAN.g, PLAN.K, PLAN.D
NOTHING = 0xFFFFFFFF  # what stays where nothing is written


def combined(x):
    """Over heads, as the kernel does: [G] -> a number, or [G] with mass."""
    if PLAN.mass:
        return x
    if PLAN.reduce == "lse":
        most = x.max()
        return most if np.isinf(most) else most + np.log2(np.exp2(x - most).sum())
    return x.max() if PLAN.reduce == "max" else x.sum()


def check(stage, size):
    scores = stage.read("scores")
    wrong, worst = 0, 0
    for i, row in enumerate(stage.rows):
        wanted = row.wanted(PLAN)
        for slot in range(stage.slots):
            got = scores[i, slot]
            if slot not in wanted:
                # candidates of clusters that are forced or invisible may be written, those of other rows not
                if not row.is_scored and (np.atleast_1d(got).view(np.uint32) != NOTHING).any():
                    sys.exit(f"row {i} slot {slot}: written")
                continue
            want = row.score(wanted[slot])
            want = combined(np.where(np.isnan(want), -np.inf, want))
            error = np.where(got == want, 0, np.abs(got - want)).max()
            limit = (2e-4 + 2e-6 * size * size) * (PLAN.G if not PLAN.mass else 1)
            if not error <= limit:
                sys.exit(f"row {i} (query {row.query}, t {row.t}) slot {slot} leaf {wanted[slot]}: {got} instead of {want}")
            worst = max(worst, error)
            wrong += 1
    return wrong, worst


def main():
    n = (K + 3) * C + C // 2
    few = 24 if PLAN.G >= 16 else 40
    calls = [(dict(kv_heads=2, batch=1, n_q=few, n_k=n), 64, 1, 1.0),
             (dict(kv_heads=1, batch=3, n_q=9, n_k=n, lengths=(n - C - 5, 7, n)), 16, 1, 1.0),
             (dict(kv_heads=1, packed=[(19, n), (0, 0), (1, n + 3), (11, (K + 2) * C - 1), (5, 3)]), 32, 3, 1.0),
             (dict(kv_heads=1, batch=1, n_q=C + 5, n_k=n + 2 * C), 4096, 2, 8.0),
             (dict(kv_heads=1, batch=1, n_q=7, n_k=n), 4096, 1, 16.0)]
    scale = 0.125
    for seed, (call, chunk, ctas, size) in enumerate(calls):
        case = Case(seed, Sequences(PLAN, **call), (size, size if size > 8 else 1, 1), token_major=seed % 2 == 1)
        if size > 8:
            case.q[:, :, -2:] = PLAN.to_bits(PLAN.from_bits(case.q[:, :, -2:]) * 0.01)  # some within the range
        stage = Stage(case, Global(96 << 20), chunk, scale)
        stage.run_cluster()
        stage.run_scatter()
        stage.run_leaf_score(ctas)
        n_right, worst = check(stage, size)
        print(f"{call} size {size}: {n_right} scores right, error at most {worst:.2g} (log2)", flush=True)


main()
