"""The pictures of docs/results/h200: times and speed-ups on a GPU.

In: the folder of the records. Out: a Picture each, or Missing.
"""

import textwrap

from canvas import CUDNN, DROP, FA2, ORDER_0, OURS, OURS_PLAIN, OURS_TOO, QUIET, TRITON, Picture
from records import PACK, PEER, Missing, by_length, main_run, matching, of_newest_code, one_device, scenes

EIGHTH = 0.125
NOTE_LETTERS = 145  # of a line under a picture
PIECEWISE = {"B": 1, "H": 24, "Hk": 24, "D": 128, "type": "bf16"}
SELECTION = {"H": 32, "Hk": 2, "D": 64, "type": "bf16", "leaf": 64, "keep": 8}
CUDNN_DENSE = (PEER, "cudnn", None)


def origin(found, *what):
    """The run most times of a picture are of, and the lines under it: what was measured, which runs and commits.
    |found|: the scene of each time."""
    device, run = one_device(found), main_run(found)
    runs = {scene.run: scene for scene in found}
    latest = runs.pop(run)
    words = f"{device}, driver {latest.driver}, commit {latest.commit}, run {latest.run}."
    if runs:
        older = "; ".join(f"commit {s.commit}, run {s.run}" for _, s in sorted(runs.items()))
        words += f" Hollow points: {older}."
    return run, [*what, *textwrap.wrap(words, NOTE_LETTERS, break_on_hyphens=False)]


def drawn(table):
    return [scene for row in table.values() for _, scene in row.values()]


def column(table, member, run, value):
    """[(tokens, value)] of a member, and the tokens where it is of another run than |run|."""
    found = [(n, *row[member]) for n, row in table.items() if member in row]
    return [(n, value(ms, scene)) for n, ms, scene in found], {n for n, _, scene in found if scene.run != run}


def draw(panel, table, series, run, value=lambda ms, scene: ms):
    for member, label, color, style in series:
        points, others = column(table, member, run, value)
        panel.line(label, points, color, style, hollow=others)
    panel.label_ends()


def against_cudnn(ms, scene):
    if "cudnn" not in scene.peers:
        raise Missing(f"run {scene.run} has no cuDNN beside {scene.bench}")
    return scene.peers["cudnn"] / ms


def piecewise_time(folder):
    found = matching(scenes(folder / "h200/piecewise.jsonl"), "piecewise", **PIECEWISE)
    hybrid, lists64, dense = (PACK, "hybrid", EIGHTH), (PACK, "hybrid64", EIGHTH), (PACK, "dense", 1.0)
    series = [((PEER, "fa2", None), "FlashAttention-2", FA2, "-"), (CUDNN_DENSE, "cuDNN", CUDNN, "-"),
              (dense, "pisa dense", OURS_PLAIN, "-"), (lists64, "hybrid, 64-row lists", OURS_TOO, "-"),
              (hybrid, "hybrid", OURS, "-")]
    table = by_length(found, [hybrid, lists64], [member for member, *_ in series])
    if len(table) < 2:
        raise Missing("piecewise.jsonl has the hybrid tail at fewer than two lengths")
    run, note = origin(drawn(table),
                       "Batch 1, 24 heads of 128, bf16, one eighth of the key blocks read exactly; random inputs; all from "
                       "q, k, v to o counted.")
    picture = Picture("Piecewise attention against dense attention", 640, 314, note)
    times = picture.panel("Time", (52, 62, 190, 198), "tokens", "ms")
    times.lengths(list(table))
    times.log_y(0.07, 60, [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000])
    draw(times, table, series, run)
    ratio = picture.panel("Speed-up over cuDNN", (406, 62, 120, 198), "tokens", "times as fast")
    ratio.lengths(list(table))
    ratio.axes.axhline(1, color=CUDNN, linewidth=1)
    ratio.axes.set_ylim(0, 8.2)
    draw(ratio, table, [s for s in series if s[0][0] == PACK], run, against_cudnn)
    return picture


def density_scenes(folder):
    """{tokens: scene} where a tail was measured at two densities at least, the newest of each length."""
    found = matching(scenes(folder / "h200/piecewise.jsonl"), "piecewise", **PIECEWISE)
    able = [s for s in found if len({share for variant, share in s.packs if variant == "hybrid"}) > 1]
    return {scene.shape["Nk"]: scene for scene in sorted(able, key=lambda s: (s.shape["Nk"], s.run))}


def fraction(density):
    return f"1/{round(1 / density)}"


def piecewise_speedup(folder):
    table = density_scenes(folder)
    if not table:
        raise Missing("piecewise.jsonl has no scene of several densities; record one with "
                      'BESIDE="--scenes densities" tests/gpu/on_device.sh bench piecewise')
    run, note = origin(list(table.values()),
                       "Batch 1, 24 heads of 128, bf16; random inputs; all from q, k, v to o counted; cuDNN's dense attention "
                       "beside it in the same run.")
    picture = Picture("What reading less brings: speed-up over cuDNN", 640, 314, note)
    width = 190 if len(table) > 1 else 506
    for i, (n, scene) in enumerate(table.items()):
        shares = sorted({share for _, share in scene.packs if share < 1})
        panel = picture.panel(f"{n} tokens", (52 + 316 * i, 62, width, 198), "share of the key blocks read exactly",
                              "times as fast as cuDNN")
        panel.steps(shares, fraction)
        panel.log_y(0.7, 40, [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64])
        panel.axes.axhline(1, color=CUDNN, linewidth=1)
        panel.line("1 / share", [(share, 1 / share) for share in shares], QUIET, ":", marks=False)
        for variant, label, color in (("keep_or_drop", "drop", DROP), ("taylor0", "order 0", ORDER_0),
                                      ("hybrid", "hybrid", OURS)):
            points = [(share, against_cudnn(ms, scene)) for (name, share), ms in scene.packs.items() if name == variant]
            panel.line(label, points, color, hollow=shares if scene.run != run else ())
        panel.label_ends()
    return picture


def selection_time(folder):
    record = scenes(folder / "h200/pyramid.jsonl")
    lists = matching(record, "selection", **SELECTION)
    both = matching(record, "selection_attention", **SELECTION)
    walk, bsa = (PACK, "pyramid_lm", None), (PACK, "bsa", None)
    series = [((PEER, "flat-heads-separate", None), "Triton scan, heads apart", TRITON[1], "-"),
              ((PEER, "pyramid-per-query", None), "Triton walk", TRITON[0], "-"),
              ((PEER, "flat-heads-folded", None), "Triton scan, heads folded", TRITON[2], "-"),
              ((PACK, "pyramid_mass", None), "pyramid_mass", OURS_TOO, "-"), (walk, "pyramid_lm", OURS, "-"),
              (bsa, "bsa, a flat scan", OURS_PLAIN, "-")]
    attend = [(CUDNN_DENSE, "cuDNN, causal", CUDNN, "-"), (walk, "pyramid_lm", OURS, "-")]
    left, right = (by_length(found, [walk], [m for m, *_ in drawn_here])
                   for found, drawn_here in ((lists, series), (both, attend)))
    if len(left) < 2 or len(right) < 2:
        raise Missing("pyramid.jsonl has pyramid_lm at fewer than two lengths")
    run, note = origin(drawn(left) + drawn(right),
                       "Batch 1, 32 query and 2 key heads of 64, bf16, causal, leaves of 64, 8 of them read; random inputs; "
                       "the pyramid is counted.")
    picture = Picture("Selecting blocks, and attention over them", 640, 314, note)
    panel = picture.panel("Select: from q, k to lists", (52, 62, 182, 198), "tokens", "ms")
    panel.lengths(list(left))
    panel.log_y(0.03, 200, [0.01, 0.1, 1, 10, 100, 1000])
    draw(panel, left, series, run)
    panel = picture.panel("Select and attend: from q, k, v to o", (408, 62, 152, 198), "tokens", "ms")
    panel.lengths(list(right))
    panel.log_y(0.03, 200, [0.01, 0.1, 1, 10, 100, 1000])
    draw(panel, right, attend, run)
    return picture


def decode_step(folder):
    found = matching(scenes(folder / "h200/pyramid.jsonl"), "decode", **SELECTION)
    found = of_newest_code(found, "pyramid_lm")
    step = (PACK, "pyramid_lm", None)
    series = [((PEER, "fa2", None), "FlashAttention-2", FA2, "-"), (CUDNN_DENSE, "cuDNN", CUDNN, "-"),
              ((PACK, "pyramid_mass", None), "pyramid_mass", OURS_TOO, "-"), (step, "pyramid_lm", OURS, "-")]
    tables = {}
    for batch in sorted({scene.shape["B"] for scene in found}):
        table = by_length(matching(found, "decode", B=batch), [step], [member for member, *_ in series])
        if len(table) > 1:
            tables[batch] = table
    if not tables:
        raise Missing("pyramid.jsonl has no decode steps at two lengths")
    run, note = origin([scene for table in tables.values() for scene in drawn(table)],
                       "32 query and 2 key heads of 64, bf16, leaves of 64, 8 of them read; keys come from memory.",
                       "A step of ours appends the token, selects and attends; a dense one reads every key.")
    picture = Picture("One decode step", 640, 314, note)
    for i, (batch, table) in enumerate(tables.items()):
        panel = picture.panel(f"Batch {batch}", (52 + 310 * i, 62, 170, 198), "keys in the cache", "microseconds")
        panel.lengths(list(table))
        panel.log_y(5, 700, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000])
        draw(panel, table, series, run, lambda ms, scene: ms * 1e3)
    return picture


PICTURES = {"piecewise-time": piecewise_time, "piecewise-speedup": piecewise_speedup,
            "selection-time": selection_time, "decode-step": decode_step}
