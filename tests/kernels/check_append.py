"""usage: check_append.py SELECT_EMIT [KEY=VALUE ...]: sequences that grow by the kernel append have the bits that pyramid and
pyramid_top make of all their keys: means and sums."""
import copy

import numpy as np

from check_pyramid import NAN_ROW, OPEN_LEVELS, SPAN, build
from machine import F32, Global
from selection import Case, Sequences, ordered_means, plan_of_arguments, stored_means

PLAN = plan_of_arguments()
C, D = PLAN.C, PLAN.D


def at_lengths(case, lengths):
    """The same keys, of which each sequence has so many."""
    s = case.s
    out = copy.copy(case)
    out.s = Sequences(PLAN, s.kv_heads, s.batch, s.n_q, s.n_k, tuple(lengths))
    return out


def append(case, kernel, means, opens, n_new, completed):
    s, memory = case.s, Global(64 << 20)
    means_at, open_at = memory.array(stored_means(means)), memory.array(opens)
    kernel.launch(s.batch * s.kv_heads, kernel.shared, memory, [
        *case.sequence_arguments(memory), *case.array_arguments(memory, case.k), means_at, open_at, n_new, completed])
    return ordered_means(memory.read(means_at, means.shape, np.uint16)), memory.read(open_at, opens.shape, F32)


def full_rows(case):
    """Rows [Hk P] of nodes that have all their tokens."""
    rows = np.zeros(case.s.kv_heads * case.s.P, bool)
    for s in case.s.each:
        for h in range(case.s.kv_heads):
            level = 1
            while s.keys >= PLAN.size(level):
                first = case.s.node_row(s, h, level, 0)
                rows[first:first + s.keys // PLAN.size(level)] = True
                level += 1
    return rows.reshape(case.s.kv_heads, case.s.P)


def compare(case, got, want, completed, alone):
    (means, opens), (all_means, all_opens) = got, want
    rows = full_rows(case) if completed else (all_means != NAN_ROW).any(-1)
    wrong = (means != all_means).any(-1) & rows
    lengths = [s.keys for s in case.s.each]
    assert not wrong.any(), f"means of rows {np.argwhere(wrong)[:4].tolist()} at lengths {lengths}"
    assert (opens == all_opens).all(), f"open of {np.argwhere((opens != all_opens).any(-1))[:4].tolist()} at {lengths}"
    if completed and alone:
        written = (means != NAN_ROW).any(-1) & ~rows
        assert not written.any(), f"nodes that are not full, {np.argwhere(written)[:4].tolist()} at lengths {lengths}"


def grow(case, kernels, steps, completed, start=None):
    """From |start| keys each, 0 if None, by |steps| of new keys; compared after the last, and all but full steps."""
    lengths = list(start or [0] * case.s.batch)
    means = np.full((case.s.kv_heads, case.s.P, D), NAN_ROW, np.uint16)
    opens = np.zeros((case.s.batch, case.s.kv_heads, OPEN_LEVELS, D), F32)
    if start:
        means, opens, *_ = build(at_lengths(case, lengths), kernels, True, False)
    for i, n_new in enumerate(steps):
        lengths = [n + n_new for n in lengths]
        now = at_lengths(case, lengths)
        means, opens = append(now, kernels[2], means, opens, n_new, completed)
        if n_new < C or i % 8 == 7 or i + 1 == len(steps):
            compare(now, (means, opens), build(now, kernels, True, False)[:2], completed, not start)
    print(f"from {start}, {len(steps)} steps, to {lengths}, completed {completed}: right", flush=True)


def steps_around(boundaries, most):
    """Steps that stop one token before, at and behind each boundary."""
    places = sorted({b + d for b in boundaries for d in (-1, 0, 1) if b + d > 0})
    steps, now = [], 0
    for place in places:
        while now < place:
            steps.append(min(place - now, most))
            now += steps[-1]
    return steps


def main():
    kernels = [PLAN.kernel(name) for name in ("pyramid", "pyramid_top", "append")]
    boundaries = [C, *(PLAN.size(level) for level in range(2, 8) if PLAN.size(level) <= 2 * SPAN), 2 * SPAN + C]
    room = -(-(2 * SPAN + 2 * C) // (PLAN.page or 1)) * (PLAN.page or 1)
    case = Case(7, Sequences(PLAN, 1, 1, 1, room), size=(1, 9, 1))
    steps = steps_around(boundaries, C)
    grow(case, kernels, steps, 0)
    grow(case, kernels, steps, 1)
    case = Case(8, Sequences(PLAN, 2, 3, 1, room), token_major=not PLAN.page)
    grow(case, kernels, [1, C, C - 1, 3, C // 2], 0, [SPAN - 1, 0, 2 * C + 5])
    grow(case, kernels, [C, C, 1, 1], 1, [2 * SPAN - 2 * C, PLAN.size(2) - 1, 1])


main()
