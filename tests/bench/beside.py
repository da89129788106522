"""pisa beside dense attention: one GPU, one run, interleaved, one protocol (protocol.py).

First every pack's output is compared with a double-precision evaluation in torch on a small ragged
shape; only then it is timed. What is timed are the scenes of scenes.py, or --variants at --tokens.
Within a scene all packs take turns, with each other and with the peers at their shapes (head_dim,
type, heads per key/value head). Peers read keys and values that were copied to every query head
before: not all of them know groups. One JSON line per (variant, shape, peer) goes to --out, a table to
stdout. Exit 3 when a check fails.

    python3 tests/bench/beside.py --library build/lib/libpisa.so --packs generated --out bench.jsonl
    ... beside.py --scenes tails,types
    ... beside.py --scenes densities    # only when named: the packs at several densities
    ... beside.py --variants hybrid,flux1_dev:query=64 --tokens 4429
    ... beside.py --variants hybrid,hybrid64:lists=union --inputs FOLDER    # of q.npy, k.npy, v.npy
"""

import argparse
import json
import os
import pathlib
import secrets
import sys

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]
import authors  # noqa: E402
import dense  # noqa: E402
import reference  # noqa: E402
from libpisa import Kernel, Library  # noqa: E402
from protocol import Contestant, facts_of_run, measure  # noqa: E402
from scenes import SCENES, Scene  # noqa: E402

# The attention's 4e-3 and 1e-3 and its summaries' rounding, which this check recomputes.
MAX_REL_L2 = {torch.bfloat16: 6e-3, torch.float16: 1.5e-3}
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
MAX_LSE_ABS = 2e-3


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default="build/lib/libpisa.so")
    parser.add_argument("--packs", default="generated", help="folder of NAME.pack")
    parser.add_argument("--scenes", help="names of scenes.py; default: the speed list, of packs that are there")
    parser.add_argument("--variants", help="in place of scenes: PACK or PACK:NAME=VALUE, ...")
    parser.add_argument("--tokens", default="4096,4608,8192,16384,32768", help="for --variants")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=24, help="for --variants")
    parser.add_argument("--density", type=float, default=0.125, help="for --variants")
    parser.add_argument("--inputs", help="for --variants: folder of q.npy, k.npy, v.npy [B, H, N, D]")
    parser.add_argument("--photograph", help="the same for scenes that want it")
    parser.add_argument("--peers", default="cudnn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--commit", default=os.environ.get("PISA_COMMIT", "unknown"))
    parser.add_argument("--out", default="bench.jsonl")
    return parser.parse_args()


# ---- what is measured ----


def split(text):
    """Commas between packs and between the settings of one: hybrid,flux1_dev:query=64,rest=drop."""
    packs = []
    for word in text.split(","):
        if packs and "=" in word and ":" not in word:
            packs[-1] += "," + word
        else:
            packs.append(word)
    return packs


def scenes_of(arguments):
    if arguments.variants:
        inputs = arguments.inputs or "normal"
        tokens = [0] if arguments.inputs else [int(n) for n in arguments.tokens.split(",")]
        packs = split(arguments.variants)
        return [Scene("variants", packs, tokens, arguments.heads, [arguments.density], inputs)]
    default = [scene.name for scene in SCENES if not scene.asked]
    names = arguments.scenes.split(",") if arguments.scenes else default
    unknown = set(names) - {scene.name for scene in SCENES}
    if unknown:
        sys.exit(f"--scenes: no {', '.join(sorted(unknown))} in scenes.py")
    return [scene for scene in SCENES if scene.name in names]


class Packs:
    """Kernels by the name a scene has for them, each loaded once and checked once per density."""

    def __init__(self, arguments):
        self.library, self.folder = Library(arguments.library), pathlib.Path(arguments.packs)
        self.kernels = {}
        self.checked = set()
        self.passed = True

    def load(self, name, densities):
        if name not in self.kernels:
            pack, _, settings = name.partition(":")
            path = self.folder / f"{pack}.pack"
            if not path.exists():
                print(f"no {path}: left out", flush=True)
                self.kernels[name] = None
            else:
                words = settings.split(",") if settings else []
                self.kernels[name] = Kernel(self.library, str(path), words)
        kernel = self.kernels[name]
        for density in densities if kernel else []:
            if (name, density) not in self.checked:
                self.checked.add((name, density))
                self.passed = check(kernel, density) and self.passed
        return kernel


def random_inputs(kernel, b, kv_heads, n):
    """q [B, H, N, D], k and v [B, Hk, N, D] as |kernel| takes them."""
    heads = (kv_heads * kernel.group, kv_heads, kv_heads)
    return [torch.randn(b, h, n, kernel.head_dim, device="cuda").to(kernel.dtype) for h in heads]


def file_inputs(kernel, folder):
    """q, k and v from FOLDER/*.npy: 16-bit integers are bits of bfloat16, all else is numbers."""
    found = []
    for name in "qkv":
        x = numpy.load(pathlib.Path(folder) / f"{name}.npy")
        if x.dtype == numpy.uint16:
            tensor = torch.from_numpy(x.view(numpy.int16)).cuda().view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(x).cuda()
        found.append(tensor.to(kernel.dtype).contiguous())
    return found


# ---- first the check ----


def check(kernel, density):
    """o and lse against double precision, on a ragged shape; where short calls are dense, both."""
    lengths = [1000, kernel.dense_below + 104] if kernel.dense_below else [1000]
    return all([check_length(kernel, density, n) for n in lengths])


def check_length(kernel, density, n):
    q, k, v = random_inputs(kernel, 2, 3, n)
    v = (0.5 * v.float() + k.float().roll(1, 3)).to(v.dtype)  # a first-order term that matters
    launch = kernel.bind(q, k, v, density, want_lse=True, want_blocks=True)
    launch()
    torch.cuda.synchronize()
    scale = q.shape[3] ** -0.5
    if kernel.dense(n):
        o, lse = reference.dense(q, k, v, scale)
    else:
        blocks = kernel.query, kernel.key
        o, lse = reference.piecewise(q, k, v, launch.blocks, kernel.attend, blocks, scale)
    error = ((launch.o.double() - o).norm() / o.norm()).item()
    lse_error = (launch.lse.double() - lse).abs().max().item()
    passed = error <= MAX_REL_L2[kernel.dtype] and lse_error <= MAX_LSE_ABS  # false for NaN
    print(
        f"check {kernel.name:28s} {density:7.4f} {n:5d} rel L2 {error:.2e}  lse {lse_error:.1e}",
        "ok" if passed else "FAILED",
        flush=True,
    )
    return passed


# ---- then the clock ----


def shape_of(kernel):
    return kernel.head_dim, TYPES[kernel.dtype], kernel.group


def densities_of(kernel, scene, n):
    """Those at which |kernel| takes turns; where the call's density says nothing, one."""
    return scene.densities[:1] if kernel.dense(n) or kernel.threshold else scene.densities


def peers_of(names, q, k, v, densities):
    k, v = reference.shared(k, q), reference.shared(v, q)
    found = dense.contestants(q, k, v, [name for name in names if name in dense.BACKENDS])
    if "authors" in names:
        if len(densities) > 1:
            sys.exit("--peers authors: a scene of one density, for a peer has one time")
        found += authors.contestants(q, k, v, densities[0])
    return found


def share_read(kernel, inputs, density):
    """Of the key blocks; a threshold makes it a matter of the inputs."""
    n_k = inputs[1].shape[2]
    if kernel.dense(n_k):
        return 1.0
    if not kernel.threshold:
        return density
    launch = kernel.bind(*inputs, density, want_blocks=True)
    launch()
    read = (launch.blocks >= 0).double().sum().item()
    lists = launch.blocks.shape[0] * launch.blocks.shape[1] * launch.blocks.shape[2]
    return round(read / lists / -(-n_k // kernel.key), 4)


class Side:
    """Kernels of one shape, their inputs and the peers at that shape."""

    def __init__(self, arguments, scene, kernels, n):
        first = kernels[0]
        kv_heads = scene.heads // first.group
        folder = arguments.photograph if scene.inputs == "photograph" else scene.inputs
        if scene.inputs == "normal":
            self.inputs = random_inputs(first, arguments.batch, kv_heads, n)
        else:
            self.inputs = file_inputs(first, folder)
        self.peers = peers_of(arguments.peers.split(","), *self.inputs, scene.densities)
        self.key = "/".join(map(str, shape_of(first)))
        self.turns = [(k, d) for k in kernels for d in densities_of(k, scene, n)]

    def contestants(self):
        ours = [Contestant((k.name, d), k.bind(*self.inputs, d)) for k, d in self.turns]
        return ours + [Contestant((p.name, self.key), p.call, p.scope) for p in self.peers]


def lines_of(arguments, facts, scene, kernels, n):
    """Measures all kernels of a scene and their peers at |n| tokens; a dictionary per (variant, peer)."""
    shapes = {}
    for kernel in kernels:
        shapes.setdefault(shape_of(kernel), []).append(kernel)
    sides = [Side(arguments, scene, same, n) for same in shapes.values()]
    contestants = [c for side in sides for c in side.contestants()]
    times = measure(contestants, arguments.rounds)
    for side in sides:
        q, k, _ = side.inputs
        for kernel, density in side.turns:
            shape = {
                "B": q.shape[0],
                "H": q.shape[1],
                "Hk": k.shape[1],
                "Nq": q.shape[2],
                "Nk": k.shape[2],
                "D": q.shape[3],
                "type": TYPES[kernel.dtype],
                "density": share_read(kernel, side.inputs, density),
            }
            for peer in side.peers:
                ms, loaded = times[kernel.name, density]
                peer_ms, peer_loaded = times[peer.name, side.key]
                yield {
                    **facts,
                    "bench": "piecewise" if scene.inputs == "normal" else "photograph",
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


def record(out, line, first_ms):
    """A line of JSON and a row of the table; |first_ms|: of the first pack of its scene."""
    out.write(json.dumps(line) + "\n")
    out.flush()
    print(
        f"{line['shape']['Nk']:7d} {line['variant']:28} {line['shape']['density']:7.4f} {line['ms']:9.4f} "
        f"{line['ms_sustained']:9.4f}  {line['peer']:8} {line['peer_ms']:9.4f} "
        f"{line['peer_ms_sustained']:9.4f} {line['ratio']:6.2f} {line['ms'] / first_ms:9.3f}",
        flush=True,
    )


def measure_scene(arguments, facts, scene, kernels, out):
    if scene.inputs == "photograph" and not arguments.photograph:
        print(f"scene {scene.name}: left out, no --photograph", flush=True)
        return
    print(f"scene {scene.name}", flush=True)
    for n in scene.tokens:
        lines = list(lines_of(arguments, facts, scene, kernels, n))
        for line in lines:
            record(out, line, lines[0]["ms"])
        torch.cuda.empty_cache()


def run(arguments):
    packs = Packs(arguments)
    scenes = []
    for scene in scenes_of(arguments):
        kernels = [packs.load(name, scene.densities) for name in scene.packs]
        kernels = [kernel for kernel in kernels if kernel]
        if any(scene.heads % kernel.group for kernel in kernels):
            sys.exit(f"{scene.name}: {scene.heads} heads are no multiple of a pack's group")
        if kernels:
            scenes.append((scene, kernels))
    if not packs.passed:
        sys.exit(3)
    facts = facts_of_run(arguments.commit)
    print(
        f"{'tokens':>7} {'variant':28} {'density':7} {'ms':>9} {'sustained':>9}  "
        f"{'peer':8} {'ms':>9} {'sustained':>9} {'ratio':>6} {'/ first':>9}"
    )
    with open(arguments.out, "a", encoding="utf-8") as out:
        for scene, kernels in scenes:
            measure_scene(arguments, facts, scene, kernels, out)


def main():
    arguments = options()
    torch.manual_seed(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    with torch.cuda.stream(
        torch.cuda.Stream()
    ):  # not the legacy default stream: others wait for it
        run(arguments)


if __name__ == "__main__":
    main()
