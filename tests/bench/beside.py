"""pisa beside dense attention: one GPU, one run, interleaved, one protocol (protocol.py).

First every pack's output is compared with a double-precision evaluation in torch on a small ragged
shape; only then it is timed. Packs of one shape (head_dim, type, heads per key/value head) are
measured together with the peers at that shape. Peers read keys and values that were copied to every
query head before: not all of them know groups. One JSON line per (variant, shape, peer) goes to
--out, a table to stdout. Exit 3 when a check fails.

    python3 tests/bench/beside.py --library build/lib/libpisa.so --packs generated --out bench.jsonl
    ... beside.py --variants hybrid,hybrid_second,flux1_dev --set flux1_dev:query=64
    ... beside.py --variants sd35_medium --tokens 4429
"""

import argparse
import datetime
import json
import os
import pathlib
import secrets
import subprocess
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]
import authors  # noqa: E402
import dense  # noqa: E402
import reference  # noqa: E402
from libpisa import Kernel, Library  # noqa: E402
from protocol import Contestant, measure  # noqa: E402

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
    parser.add_argument(
        "--variants", default="hybrid,dense,taylor0,keep_or_drop", help="pack names"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PACK:NAME=VALUE[,NAME=VALUE]",
        help="measures this variant of a pack too; may be repeated",
    )
    parser.add_argument("--tokens", default="4096,4608,8192,16384,32768")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=24)
    parser.add_argument("--density", type=float, default=0.125)
    parser.add_argument("--peers", default="cudnn,fa2,authors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--commit", default=os.environ.get("PISA_COMMIT", "unknown"))
    parser.add_argument("--out", default="bench.jsonl")
    return parser.parse_args()


def driver_version():
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]


def random_inputs(kernel, b, kv_heads, n):
    """q [B, H, N, D], k and v [B, Hk, N, D] as |kernel| takes them."""
    heads = (kv_heads * kernel.group, kv_heads, kv_heads)
    return [torch.randn(b, h, n, kernel.head_dim, device="cuda").to(kernel.dtype) for h in heads]


def shape_of(kernel):
    return kernel.head_dim, TYPES[kernel.dtype], kernel.group


def check(kernel, density):
    """o and lse against double precision, on a ragged shape."""
    q, k, v = random_inputs(kernel, 2, 3, 1000)
    v = (0.5 * v.float() + k.float().roll(1, 3)).to(v.dtype)  # a first-order term that matters
    launch = kernel.bind(q, k, v, density, want_lse=True, want_blocks=True)
    launch()
    torch.cuda.synchronize()
    scale = q.shape[3] ** -0.5
    if kernel.dense:
        o, lse = reference.dense(q, k, v, scale)
    else:
        blocks = kernel.query, kernel.key
        o, lse = reference.piecewise(q, k, v, launch.blocks, kernel.attend, blocks, scale)
    error = ((launch.o.double() - o).norm() / o.norm()).item()
    lse_error = (launch.lse.double() - lse).abs().max().item()
    passed = error <= MAX_REL_L2[kernel.dtype] and lse_error <= MAX_LSE_ABS  # false for NaN
    print(
        f"check {kernel.name:24s} rel L2 {error:.2e}  lse {lse_error:.1e}",
        "ok" if passed else "FAILED",
        flush=True,
    )
    return passed


def peers_of(names, q, k, v, density):
    k, v = reference.shared(k, q), reference.shared(v, q)
    found = dense.contestants(q, k, v, [name for name in names if name in dense.BACKENDS])
    if "authors" in names:
        found += authors.contestants(q, k, v, density)
    return found


def lines_of(arguments, facts, kernels, n):
    """Measures kernels of one shape and peers at |n| tokens; a dictionary per (variant, peer)."""
    kv_heads = arguments.heads // kernels[0].group
    q, k, v = random_inputs(kernels[0], arguments.batch, kv_heads, n)
    ours = [Contestant(kernel.name, kernel.bind(q, k, v, arguments.density)) for kernel in kernels]
    peers = peers_of(arguments.peers.split(","), q, k, v, arguments.density)
    times = measure(ours + peers, arguments.rounds)
    for kernel in kernels:
        shape = {
            "B": arguments.batch,
            "H": arguments.heads,
            "Hk": kv_heads,
            "Nq": n,
            "Nk": n,
            "D": kernel.head_dim,
            "type": TYPES[kernel.dtype],
            "density": 1.0 if kernel.dense else arguments.density,
        }
        for peer in peers:
            ms, loaded = times[kernel.name]
            peer_ms, peer_loaded = times[peer.name]
            yield {
                **facts,
                "bench": "piecewise",
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
    """A line of JSON and a row of the table."""
    out.write(json.dumps(line) + "\n")
    out.flush()
    print(
        f"{line['shape']['Nk']:7d} {line['variant']:24} {line['ms']:9.4f} "
        f"{line['ms_sustained']:9.4f}  {line['peer']:8} {line['peer_ms']:9.4f} "
        f"{line['peer_ms_sustained']:9.4f} {line['ratio']:6.2f}",
        flush=True,
    )


def variant_of(text):
    """flux1_dev:query=64,rest=drop -> the pack's name and the settings."""
    pack, _, settings = text.partition(":")
    if "=" not in settings:
        sys.exit(f"--set {text}: expected PACK:NAME=VALUE[,NAME=VALUE]")
    return pack, settings.split(",")


def run(arguments):
    library = Library(arguments.library)
    folder = pathlib.Path(arguments.packs)
    wanted = [(name, []) for name in arguments.variants.split(",")]
    wanted += [variant_of(text) for text in arguments.set]
    kernels = [Kernel(library, str(folder / f"{name}.pack"), words) for name, words in wanted]
    for kernel in kernels:
        if arguments.heads % kernel.group:
            sys.exit(f"--heads {arguments.heads}: {kernel.name} needs a multiple of {kernel.group}")
    if not all([check(kernel, arguments.density) for kernel in kernels]):
        sys.exit(3)
    shapes = {}
    for kernel in kernels:
        shapes.setdefault(shape_of(kernel), []).append(kernel)
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    facts = {
        "run": f"{stamp}-{secrets.token_hex(3)}",
        "commit": arguments.commit,
        "device": torch.cuda.get_device_name(0),
        "driver": driver_version(),
    }
    print(
        f"{'tokens':>7} {'variant':24} {'ms':>9} {'sustained':>9}  "
        f"{'peer':8} {'ms':>9} {'sustained':>9} {'ratio':>6}"
    )
    with open(arguments.out, "a", encoding="utf-8") as out:
        for n in map(int, arguments.tokens.split(",")):
            for same in shapes.values():
                for line in lines_of(arguments, facts, same, n):
                    record(out, line)


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
