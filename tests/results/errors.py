"""The pictures of docs/results/quality: what the tails lose, and what the selectors find.

In: the folder of the records. Out: a Picture each, or Missing.
"""

from canvas import DROP, INK, ORDER_0, ORDER_1, OURS, OURS_PLAIN, OURS_TOO, QUIET, Picture
from records import Missing, lines

TAILS = (("drop", "drop", DROP), ("taylor_0", "order 0", ORDER_0), ("taylor_hybrid", "hybrid", OURS),
         ("taylor_1", "order 1", ORDER_1))
MASSES = (("zeroth_order", "", "-"), ("second_order", " + second-order mass", "--"))  # what is dropped has none
ROUTER = "score=mean+log_covariance"
BETWEEN = 0.5
SELECTORS = (("pyramid_mass", OURS_TOO), ("pyramid_lm", OURS), ("pisa_2", QUIET), ("pisa_1", QUIET),
             ("hils_selector", QUIET), ("nsa_selector", QUIET), ("bsa", OURS_PLAIN))


def percent(x):
    return f"{100 * x:g} %"


def tail_points(records, tail, mass):
    variant = f"{ROUTER} rest={tail} mass={mass}"
    return [(r["read"], r["error"]) for r in records if r["variant"] == variant]


def error_panels(folder):
    """[(name, records)]: the photograph, then tensors by the spread of their logits."""
    panels = [("Photograph", lines(folder / "quality/photograph.jsonl"))]
    made = [r for r in lines(folder / "quality/synthetic-density.jsonl") if r["asked"]["between_std"] == BETWEEN]
    for spread in sorted({r["asked"]["inside_std"] for r in made}):
        panels.append((f"Logit spread {spread:g}", [r for r in made if r["asked"]["inside_std"] == spread]))
    return panels


def piecewise_error(folder):
    panels = error_panels(folder)
    for name, records in panels:
        if len({r["read"] for r in records}) < 2:
            raise Missing(f"quality has no tails at several densities for {name}")
    photograph = panels[0][1][0]
    inside, between = photograph["inside_std"], photograph["between_std"]
    note = [f"Spread: standard deviation of a query's logits inside 64 keys; between blocks {BETWEEN}. Photograph: "
            f"{inside:.2f} and {between:.2f}, {photograph['shape']['Nq']} tokens. bf16, heads of 128.",
            "pisa quality on the CPU executor, router mean + log covariance: docs/results/quality/photograph.jsonl, "
            "synthetic-density.jsonl."]
    picture = Picture("Error of each tail against the share of the keys that is read", 640, 450, note)
    x = 14
    for words, color in [(label, color) for _, label, color in TAILS]:
        picture.text(x, 410, words, color=color, weight="bold")
        x += 9 + 6 * len(words)
    picture.text(x + 8, 410, "dashed: with mass second_order", color=QUIET)
    for i, (name, records) in enumerate(panels):
        box = (58 + 194 * (i % 3), 242 - 172 * (i // 3), 176, 136)
        panel = picture.panel(name, box, "share of the keys read exactly" if i // 3 else "",
                              "relative L2 error" if i % 3 == 0 else "")
        panel.steps([1 / 16, 1 / 8, 1 / 4, 1 / 2], lambda share: f"1/{round(1 / share)}")
        panel.axes.set_xlim(0.037, 0.56)
        panel.log_y(0.002, 2, [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3], percent)
        if i % 3:
            panel.axes.tick_params(labelleft=False)
        for tail, label, color in TAILS:
            for mass, more, style in MASSES[:1] if tail == "drop" else MASSES:
                panel.line(label + more, tail_points(records, tail, mass), color, style, name=False)
    return picture


MODELS = {"lm": "Byte-level model of 52 M, source code", "smollm2": "SmolLM2-135M, Hamlet"}


def layer(tensors):
    """A panel's name and order: 'lm lm_layer4' and 'smollm2 layer04' are layer 4 of two models."""
    model, name = tensors.split()
    return MODELS[model], int(name.rpartition("layer")[2])


def selection_recall(folder):
    records = [r for name in ("lm", "smollm2") for r in lines(folder / f"quality/selection-{name}.jsonl")]
    layers = sorted({layer(r["tensors"]) for r in records})
    note = ["Dot: share of the best 8 blocks that a selector's lists have. Tick: the same of a flat scan with exact "
            "log-sum-exps and the selector's reduction over heads.",
            "pisa quality on the CPU executor, leaves of 64: docs/results/quality/selection-lm.jsonl (4096 tokens), "
            "selection-smollm2.jsonl (8192 tokens)."]
    picture = Picture("Recall of each selector, by layer of two language models", 640, 270, note)
    for i, (model, number) in enumerate(layers):
        if (model, number) == min(place for place in layers if place[0] == model):
            picture.text(98 + 90 * i, 212, model, color=INK)
        panel = picture.panel(f"{model}, layer {number}", (98 + 90 * i, 62, 76, 132), "", "", f"layer {number}")
        recall_panel(panel, [r for r in records if layer(r["tensors"]) == (model, number)], names=i == 0)
    picture.text(98, 38, "recall, %", color=QUIET)
    return picture


def recall_panel(panel, records, names):
    axes, rows = panel.axes, len(SELECTORS)
    for i, (spec, color) in enumerate(SELECTORS):
        found = [r for r in records if r["spec"] == spec]
        if len(found) != 1:
            raise Missing(f"{panel.name}: {len(found)} records of {spec}, not one")
        y = rows - 1 - i
        panel.data[spec] = [found[0]["recall"], found[0]["flat_recall"]]
        axes.plot([found[0]["recall"]], [y], "o", color=color)
        axes.plot([found[0]["flat_recall"]], [y], "|", color=color, markersize=8)
    axes.set_xlim(0.55, 1.02)
    axes.set_xticks([0.6, 0.8, 1.0], ["60", "80", "100"])
    axes.set_ylim(-0.6, rows - 0.4)
    axes.set_yticks(range(rows), [spec for spec, _ in reversed(SELECTORS)] if names else [""] * rows, color=INK)


PICTURES = {"piecewise-error": piecewise_error, "selection-recall": selection_recall}
