"""pisa's block selection beside other selectors and dense attention: one GPU, one run, interleaved, one
protocol (protocol.py).

First every pack's lists and output are compared with a double-precision evaluation (select_reference.py)
on a sample of queries; only then it is timed. What is timed are the scenes of select_scenes.py.

A decode step appends a token, selects and attends; it and its dense peer run in CUDA graphs of STEPS
steps, each behind a memset that fills L2. The same graph of memsets alone takes its turn too and is taken
off: keys come from memory, as in a model whose other layers ran before.

One JSON line per (variant, shape, peer) goes to --out, a table to stdout. Exit 3 when a check fails.

    python3 tests/bench/select_beside.py --library build/lib/libpisa.so --packs generated --out bench.jsonl
    ... select_beside.py --scenes lists,step --tokens 65536
"""

import argparse
import json
import os
import pathlib
import secrets
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]
import causal  # noqa: E402
import select_reference  # noqa: E402
import selection  # noqa: E402
from libpisa import DECODE, Kernel, Library, Selection, pyramid_of  # noqa: E402
from protocol import Contestant, facts_of_run, measure  # noqa: E402
from select_scenes import SCENES  # noqa: E402
from select_scenes import DECODE as STEP  # noqa: E402
from select_scenes import SELECTION as LISTS  # noqa: E402

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
MAX_REL_L2 = {torch.bfloat16: 4e-3, torch.float16: 1e-3}
MAX_LSE_ABS = 2e-3
NEAR = 1e-3  # a choice nearer than this may fall the other way
CHECKED_TOKENS, CHECKED_QUERIES = 2085, 48
STEPS, FLUSH_BYTES = 8, 256 * 2**20


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default="build/lib/libpisa.so")
    parser.add_argument("--packs", default="generated", help="folder of NAME.pack")
    parser.add_argument("--scenes", help="names of select_scenes.py; default: all whose packs are there")
    parser.add_argument("--tokens", help="lengths in place of the scenes'")
    parser.add_argument("--batches", help="batches in place of the decode scenes'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--commit", default=os.environ.get("PISA_COMMIT", "unknown"))
    parser.add_argument("--out", default="bench.jsonl")
    return parser.parse_args()


def numbers(text):
    return [int(word) for word in text.split(",")]


# ---- calls ----


def random_inputs(kernel, b, n_q, n_k):
    heads = kernel.info.heads, kernel.info.kv_heads, kernel.info.kv_heads
    return [
        torch.randn(b, h, n, kernel.head_dim, device="cuda").to(kernel.dtype)
        for h, n in zip(heads, (n_q, n_k, n_k))
    ]


class Pages:
    """k and v in pages of random places, for packs that have them; else as they are."""

    def __init__(self, kernel, k, v):
        self.k, self.v, self.table, self.room = k, v, None, k.shape[2]
        if not kernel.page:
            return
        b, h, n, d = k.shape
        columns = -(-n // kernel.page)
        self.room = columns * kernel.page
        self.table = torch.randperm(b * columns, device="cuda").int().view(b, columns)
        self.k, self.v = [self.scatter(x, kernel.page, columns) for x in (k, v)]
        self.lengths = torch.full((b,), n, device="cuda", dtype=torch.int32)

    def scatter(self, x, page, columns):
        b, h, n, d = x.shape
        padded = torch.nn.functional.pad(x, (0, 0, 0, columns * page - n))
        pages = padded.view(b, h, columns, page, d).transpose(1, 2).reshape(b * columns, h, page, d)
        out = torch.empty_like(pages)
        out[self.table.view(-1).long()] = pages
        return out


def prefill(kernel, q, pages, attends, want_lists=False):
    v = pages.v if attends else None
    return Selection(kernel, q, pages, v, want_lists=want_lists)


def decode(kernel, q, pages):
    """A step whose pyramid holds all keys: what it appends is there already, which costs the same."""
    pyramid = pyramid_of(kernel, q, pages)
    Selection(kernel, q, pages, pages.v, pyramid=pyramid)()
    return Selection(kernel, q, pages, pages.v, pyramid=pyramid, phase=DECODE, n_new=1)


# ---- first the check ----


class Checked:
    """One key head of one call in double."""

    def __init__(self, kernel, call, q, k, v, head):
        self.kernel, self.call, self.head = kernel, call, head
        flat = kernel.route_kind == "flat"
        group = slice(head * kernel.group, (head + 1) * kernel.group)
        self.q = (q[0, group].double() * kernel.head_dim**-0.5).cpu().numpy()
        self.k, self.v = [x[0, head].double().cpu() for x in (k, v)]
        self.walk = select_reference.Walk(
            self.k, kernel.key, kernel.children, kernel.keep, kernel.route, kernel.always, flat,
            kernel.dtype,
        )  # fmt: skip
        self.o = call.o[0, group].double().cpu().numpy()
        self.lse = call.lse[0, group].double().cpu().numpy()
        self.lists = call.blocks[0, head].cpu().numpy()

    def query(self, t):
        """(whether the list is right, squared error and size of o, error of lse)"""
        got = [leaf for leaf in self.lists[t] if leaf >= 0]
        expected, gap = self.walk.list_of(self.q[:, t], t)
        if got != expected and gap > NEAR:
            print(f"  query {t}, head {self.head}: {got}, expected {expected} (gap {gap:.1e})")
            return False, 0.0, 1.0, 0.0
        o, lse = select_reference.attention(
            self.q[:, t], self.k.numpy(), self.v.numpy(), got, self.kernel.key, t
        )
        error = ((self.o[:, t] - o) ** 2).sum(), (o**2).sum()
        return True, *error, abs(self.lse[:, t] - lse).max()


def check(kernel):
    """Lists, o and lse of sampled queries against double precision, on a ragged shape."""
    q, k, v = random_inputs(kernel, 1, CHECKED_TOKENS, CHECKED_TOKENS)
    q, k = 2 * q, k + torch.randn_like(k[:, :, ::37]).repeat_interleave(37, 2)[:, :, : k.shape[2]]
    call = prefill(kernel, q, Pages(kernel, k, v), True, want_lists=True)
    call()
    torch.cuda.synchronize()
    last = CHECKED_TOKENS - 1
    queries = [0, last] + torch.randint(0, last, (CHECKED_QUERIES,)).tolist()
    results = []
    for head in {0, k.shape[1] - 1}:
        checked = Checked(kernel, call, q, k, v, head)
        results += [checked.query(t) for t in queries]
    wrong = sum(not right for right, *_ in results)
    error = (sum(r[1] for r in results) / sum(r[2] for r in results)) ** 0.5
    lse_error = max(r[3] for r in results)
    passed = wrong == 0 and error <= MAX_REL_L2[kernel.dtype] and lse_error <= MAX_LSE_ABS
    print(
        f"check {kernel.name:28s} lists {len(results) - wrong}/{len(results)} rel L2 {error:.2e}  "
        f"lse {lse_error:.1e}",
        "ok" if passed else "FAILED",
        flush=True,
    )
    return passed


# ---- then the clock ----


class Graph:
    """STEPS times a memset that fills L2 and a call, or the memset alone."""

    def __init__(self, contestant):
        self.buffer = torch.empty(FLUSH_BYTES, device="cuda", dtype=torch.uint8)
        self.graph = torch.cuda.CUDAGraph()
        scope = contestant.scope if contestant else None
        for _ in range(2):
            self.steps(contestant, scope)  # what a first call makes stays outside
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.steps(contestant, scope)

    def steps(self, contestant, scope):
        for _ in range(STEPS):
            self.buffer.zero_()
            if contestant:
                with scope():
                    contestant.call()

    def __call__(self):
        self.graph.replay()


def measure_steps(contestants, rounds):
    graphs = [Contestant(c.name, Graph(c)) for c in contestants]
    times = measure([Contestant("flush", Graph(None)), *graphs], rounds)
    flush = times.pop("flush")
    return {n: tuple((x - y) / STEPS for x, y in zip(t, flush)) for n, t in times.items()}


def contestants_of(scene, kernels, b, n):
    """Of kernels of one shape: theirs and their peers; and the inputs."""
    first = kernels[0]
    q, k, v = random_inputs(first, b, 1 if scene.bench == STEP else n, n)
    ours = []
    for kernel in kernels:
        pages = Pages(kernel, k, v)
        if scene.bench == STEP:
            call = decode(kernel, q, pages)
        else:
            call = prefill(kernel, q, pages, scene.bench != LISTS)
        ours.append(Contestant(kernel.name, call))
    if scene.bench == LISTS:
        peers = selection.contestants(q, k, first.key, first.keep)
    elif scene.bench == STEP:
        peers = causal.contestants(q, k, v, ("cudnn", "fa2"), causal=False)
    else:
        peers = causal.contestants(q, k, v)
    return ours, peers


def lines_of(arguments, facts, scene, kernels, b, n):
    """A dictionary per (variant, peer)."""
    ours, peers = contestants_of(scene, kernels, b, n)
    clock = measure_steps if scene.bench == STEP else measure
    times = clock(ours + peers, arguments.rounds)
    for kernel in kernels:
        shape = {
            "B": b,
            "H": kernel.info.heads,
            "Hk": kernel.info.kv_heads,
            "Nq": 1 if scene.bench == STEP else n,
            "Nk": n,
            "D": kernel.head_dim,
            "type": TYPES[kernel.dtype],
            "leaf": kernel.key,
            "keep": kernel.keep,
        }
        for peer in peers:
            (ms, loaded), (peer_ms, peer_loaded) = times[kernel.name], times[peer.name]
            yield {
                **facts,
                "bench": scene.bench,
                "variant": kernel.name,
                "shape": shape,
                "ms": round(ms, 5),
                "ms_sustained": round(loaded, 5),
                "peer": peer.name,
                "peer_ms": round(peer_ms, 5),
                "peer_ms_sustained": round(peer_loaded, 5),
                "ratio": round(peer_ms / ms, 3),
                "ptx_sha256": kernel.ptx_sha256,
            }


def record(out, line):
    out.write(json.dumps(line) + "\n")
    out.flush()
    print(
        f"{line['shape']['Nk']:7d} {line['shape']['B']:3d} {line['variant']:20} {line['ms']:9.4f} "
        f"{line['ms_sustained']:9.4f}  {line['peer']:20} {line['peer_ms']:9.4f} "
        f"{line['peer_ms_sustained']:9.4f} {line['ratio']:7.2f}",
        flush=True,
    )


def measure_scene(arguments, facts, scene, kernels, out):
    print(f"scene {scene.name}", flush=True)
    batches = scene.batches
    if arguments.batches and scene.bench == STEP:
        batches = numbers(arguments.batches)
    for n in numbers(arguments.tokens) if arguments.tokens else scene.tokens:
        for b in batches:
            for line in lines_of(arguments, facts, scene, kernels, b, n):
                record(out, line)
            torch.cuda.empty_cache()


def load(arguments):
    """(scenes with their kernels, whether all checks passed)"""
    library, folder, kernels, passed = Library(arguments.library), pathlib.Path(arguments.packs), {}, True
    names = arguments.scenes.split(",") if arguments.scenes else [scene.name for scene in SCENES]
    unknown = set(names) - {scene.name for scene in SCENES}
    if unknown:
        sys.exit(f"--scenes: no {', '.join(sorted(unknown))} in select_scenes.py")
    scenes = [scene for scene in SCENES if scene.name in names]
    for name in dict.fromkeys(name for scene in scenes for name in scene.packs):
        path = folder / f"{name}.pack"
        if not path.exists():
            print(f"no {path}: left out", flush=True)
            continue
        kernels[name] = Kernel(library, str(path))
        passed = check(kernels[name]) and passed
    found = [(s, [kernels[n] for n in s.packs if n in kernels]) for s in scenes]
    return [(scene, packs) for scene, packs in found if packs], passed


def run(arguments):
    scenes, passed = load(arguments)
    if not passed:
        sys.exit(3)
    facts = facts_of_run(arguments.commit)
    print(
        f"{'tokens':>7} {'B':>3} {'variant':20} {'ms':>9} {'sustained':>9}  "
        f"{'peer':20} {'ms':>9} {'sustained':>9} {'ratio':>7}"
    )
    with open(arguments.out, "a", encoding="utf-8") as out:
        for scene, kernels in scenes:
            measure_scene(arguments, facts, scene, kernels, out)


def main():
    arguments = options()
    torch.manual_seed(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    with torch.cuda.stream(torch.cuda.Stream()):  # not the legacy default stream: others wait for it
        run(arguments)


if __name__ == "__main__":
    main()
