"""The demo: a spec becomes a pack, the pack runs on a photograph's tokens, a page shows what was read and the error.

In: the tools in BUILD/bin, the specs, tests/data/astronaut.png. Out: a table on stdout and OUT/index.html.
Attention is always `pisa run`; this script makes the tokens, compares the outputs and draws.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

import page
import png
import tokens

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHOTO = ROOT / "tests/data/astronaut.png"
N = tokens.TEXT + page.SIDE**2
KEY, QUERY = 64, 128
DENSITY = "0.15"  # what flux1_dev says; given to all, so that all read the same number of blocks
MAIN = "flux1_dev"
DENSE = "dense"
TAILS = {  # spec: what becomes of the blocks that are not read
    "keep_or_drop": "dropped",
    "taylor0": "their means, weighted by their lengths (order 0)",
    MAIN: "their means, and one first-order term for all (hybrid)",
    DENSE: "there are none: every block is read",
}
SHARPER = (2, 3)  # the logits are also multiplied by these, to see when the tails stop helping
TEXT_QUERIES = tokens.TEXT // QUERY
SHOWN = {  # query block: what it shows; four blocks of two tiles make a row of the photograph
    1: "some text",
    TEXT_QUERIES + 4: "the flag",
    TEXT_QUERIES + 5: "the face",
    TEXT_QUERIES + 15: "the shuttle",
    TEXT_QUERIES + 25: "the mission patch",
    TEXT_QUERIES + 26: "the helmet",
}


class Tools:
    """pisac and pisa of one build, and a folder for what they write."""

    def __init__(self, build, out):
        self.bin, self.out = pathlib.Path(build) / "bin", pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)

    def call(self, tool, *args, quiet=False):
        """stdout of a call; a failed one ends the demo with its own words and exit code. |quiet|: without its notes."""
        words = [str(self.bin / tool), *map(str, args)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None, text=True)
        if done.returncode:
            print(done.stderr or "", f"demo: `{' '.join(words)}` failed", sep="", file=sys.stderr)
            sys.exit(done.returncode)
        return done.stdout

    def build(self, spec):
        pack = self.out / f"{spec}.pack"
        self.call("pisac", "build", ROOT / f"specs/{spec}.pisa", "-o", pack)
        return pack


def options():
    p = argparse.ArgumentParser(description="Run pisa on a photograph and write a page about it.")
    p.add_argument("--build", default=ROOT / "build", help="build folder with bin/pisac and bin/pisa")
    p.add_argument("--out", help="where packs, arrays and index.html go; else BUILD/demo")
    p.add_argument("--device", help="cpu or cuda:N; else cuda:0 where there is a GPU, cpu elsewhere")
    p.add_argument("--heads", type=int, help="of 24; else 24 on a GPU, 6 on a CPU")
    o = p.parse_args()
    o.out = o.out or pathlib.Path(o.build) / "demo"
    o.device = o.device or ("cuda:0" if os.path.exists("/dev/nvidiactl") else "cpu")
    o.heads = o.heads or (6 if o.device == "cpu" else tokens.HEADS)
    return o


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def main():
    o = options()
    tools = Tools(o.build, o.out)
    say(f"compiling specs/{MAIN}.pisa")
    packs = {MAIN: tools.build(MAIN)}
    plan = tools.call("pisac", "explain", ROOT / f"specs/{MAIN}.pisa", "--tokens", N, quiet=True)
    print(plan, flush=True)
    say("compiling the specs to compare it with")
    packs |= {spec: tools.build(spec) for spec in TAILS if spec != MAIN}
    say(f"making {N} tokens of {PHOTO.name} for {o.heads} heads")
    photo = PHOTO.read_bytes()
    q, k, v = tokens.make(png.read(photo), o.heads)
    for name, x in zip("qkv", (q, k, v)):
        np.save(tools.out / f"{name}.npy", tokens.to_bf16(x)[None])
    results = attend_all(tools, packs, o.device)
    sharper = {factor: attend_all(tools, packs, o.device, factor) for factor in SHARPER}
    rows = [row(r, o) for r in results]
    head = ["spec", "the blocks not read", "error against dense", "FLOP of dense", clock(o)]
    print_table(head, rows)
    path = tools.out / "index.html"
    page.write(path, photo, sections(o, head, rows, results, sharper, plan, spread(q[0], k[0])))
    say(f"wrote {path}")


def attend_all(tools, packs, device, factor=1):
    """One result per spec, with its error against dense; logits multiplied by |factor|."""
    results = [attend(tools, spec, packs[spec], device, factor) for spec in TAILS]
    for r in results:
        r["error"] = relative(r["o"], results[-1]["o"])
    return results


def attend(tools, spec, pack, device, factor):
    """Output [H, N, D] of one pack, the blocks it read [H, NTq, kept] and the milliseconds it took."""
    say(f"{spec} on {device}" + (f", logits times {factor}" if factor != 1 else ""))
    files = [a for name in "qkv" for a in (f"--{name}", tools.out / f"{name}.npy")]
    o, ids = tools.out / f"o_{spec}.npy", tools.out / f"blocks_{spec}.npy"
    budget = [] if spec == DENSE else ["--density", DENSITY]
    extra = [] if spec == DENSE else ["--blocks", ids]
    scale = ["--scale", factor / tokens.HEAD_DIM**0.5]
    start = time.monotonic()
    tools.call("pisa", "run", pack, *files, "-o", o, *budget, *extra, *scale, "--device", device)
    ms = 1e3 * (time.monotonic() - start)
    if device != "cpu" and factor == 1:
        ms = bench(tools, pack, budget)
    blocks = np.load(ids)[0] if extra else None
    return {"spec": spec, "o": tokens.from_bf16(np.load(o)[0]), "blocks": blocks, "ms": ms}


def bench(tools, pack, budget):
    """Milliseconds of the whole method on the GPU, without reading files."""
    lines = tools.call("pisa", "bench", pack, "--tokens", N, *budget, "--json").splitlines()
    return json.loads(lines[0])["ms"]


def relative(o, dense):
    """Relative L2 error of a whole output, or, per token [N], over all heads."""
    return {
        "all": float(np.linalg.norm(o - dense) / np.linalg.norm(dense)),
        "token": np.linalg.norm(o - dense, axis=(0, 2)) / np.linalg.norm(dense, axis=(0, 2)),
    }


def cost(spec, kept):
    """FLOP of everything from q, k, v to o, in units of dense attention's 4 N^2 D."""
    blocks = N // KEY
    if spec == DENSE:
        return 1.0
    share = kept / blocks + 2 / (4 * QUERY * KEY)  # exact tiles; scores of block means
    share += tokens.HEAD_DIM / (2 * N)  # H_j = k^T v of every block, for log covariance
    if spec != "keep_or_drop":
        share += 1 / KEY  # one column per block
    if spec == MAIN:
        share += tokens.HEAD_DIM / (2 * N)  # q Hsum
    return share


def clock(o):
    return "seconds, this CPU" if o.device == "cpu" else "ms, this GPU"


def row(r, o):
    kept = r["blocks"].shape[-1] if r["blocks"] is not None else N // KEY
    ms = f"{r['ms'] / 1e3:.1f}" if o.device == "cpu" else f"{r['ms']:.3f}"
    error = "0" if r["spec"] == DENSE else f"{100 * r['error']['all']:.1f} %"
    return [r["spec"], TAILS[r["spec"]], error, f"{100 * cost(r['spec'], kept):.0f} %", ms]


def print_table(head, rows):
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    for line in [head, *rows]:
        cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def spread(q, k):
    """Standard deviation of one head's logits inside a key block (mean over a sample of queries) and between blocks."""
    logits = (q[::18] @ k.T / np.sqrt(tokens.HEAD_DIM)).reshape(-1, N // KEY, KEY)
    return logits.std(axis=2).mean(), logits.mean(axis=2).std(axis=1).mean()


def sections(o, head, rows, results, sharper, plan, logits):
    """The page, as (heading, html) pairs."""
    main_result = next(r for r in results if r["spec"] == MAIN)
    kept = main_result["blocks"].shape[-1]
    where = "this machine's CPU" if o.device == "cpu" else "this machine's GPU"
    intro = (
        f"<p>A 512 x 512 photograph becomes 4096 patch tokens behind 512 text tokens, shaped like one attention layer "
        f"of FLUX.1: {o.heads} of 24 heads of 128, QK-norm, rotary embedding, tokens in 8 x 8 tiles. "
        f"<code>specs/{MAIN}.pisa</code>, compiled by <code>pisac</code>, ran on {where}: every block of 128 queries "
        f"reads {kept} of {N // KEY} blocks of 64 keys exactly, and approximates the rest.</p>"
        f'<p class="soft">The weights are seeded, not trained. In head 0 the logits spread by {logits[0]:.2f} inside a '
        f"key block and by {logits[1]:.2f} between blocks (standard deviations).</p>"
    )
    return [
        ("One photograph through piecewise attention", intro + page.table(head, rows, list(TAILS).index(MAIN))),
        ("What is read exactly", read_blocks(main_result["blocks"])),
        ("Where the error is", error_maps(results)),
        ("When the first-order term stops helping", limits(results, sharper, logits[0])),
        ("How it was made", page.listing("the spec", (ROOT / f"specs/{MAIN}.pisa").read_text()) +
         page.listing(f"pisac explain specs/{MAIN}.pisa --tokens {N}", plan)),
    ]


def read_blocks(blocks):
    """One picture per chosen query block: how many heads read each key block."""
    pictures = []
    for query, shows in SHOWN.items():
        share = np.bincount(blocks[:, query].reshape(-1), minlength=N // KEY) / len(blocks)
        caption = f"{np.count_nonzero(share)} blocks are read by at least one head, {np.count_nonzero(share == 1)} by all."
        pictures.append(page.figure(page.overlay(query, share), shows.capitalize() + ".", caption))
    note = (
        f"<p>The blue squares are a block of 128 queries. A key block is as bright as the share of the {len(blocks)} "
        f"heads that read it exactly; yellow borders mark those that half of them or more read.</p>"
    )
    return note + f'<div class="row">{"".join(pictures)}</div>'


def error_maps(results):
    """One map per tail, all on one scale."""
    tails = [r for r in results if r["spec"] != DENSE]
    seen = np.concatenate([r["error"]["token"] for r in tails])
    low, high = np.quantile(seen, 0.01), np.quantile(seen, 0.99)
    maps = []
    for r in tails:
        caption = f"Half of the tokens are off by less than {100 * np.median(r['error']['token']):.1f} %."
        maps.append(page.figure(page.error_map(r["error"]["token"], low, high), r["spec"] + ".", caption))
    note = "<p>Relative L2 error of every query token against dense attention, all heads together; the strip above is text.</p>"
    return note + f'<div class="row">{"".join(maps)}</div>' + page.scale_bar(low, high)


def limits(results, sharper, inside):
    """Errors with the same tokens and larger logits."""
    tails = [spec for spec in TAILS if spec != DENSE]
    rows = []
    for factor, some in {1: results, **sharper}.items():
        error = {r["spec"]: r["error"]["all"] for r in some}
        rows.append([f"times {factor}", f"{factor * inside:.2f}"] + [f"{100 * error[spec]:.1f} %" for spec in tails])
    note = (
        "<p>The tail expands around each block's mean, which is good while a query's logits spread by less than about 1 "
        "inside a block. Here are the same tokens with larger logits. Attention then sits more in the blocks that are "
        "read, so all errors fall; what to look at is how little the first-order term still adds to order 0.</p>"
    )
    return note + page.table(["logits", "spread inside a block", *tails], rows, -1)


if __name__ == "__main__":
    main()
