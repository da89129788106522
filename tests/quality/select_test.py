"""`pisa quality` of packs that select blocks: what must hold, the schema of the JSON lines, and refusals.

usage: select_test.py PISA PISAC, in an empty folder of its own.
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml

from selection_lines import selection_record

PISA, PISAC = sys.argv[1:3]
H, HK, N, D, LEAF, KEEP = 4, 2, 1500, 64, 64, 6
SPEC = """spec {name} {{
  target sm_90a
  shape   {{ heads 4; kv_heads 2; head_dim 64; type bf16; mask causal }}
  pyramid {{ leaf 64; group 2 }}
  route   {route} {{ keep 6; score {score}; reduce heads {reduce}; always first, previous, current }}
  attend  {{ selected exact; rest drop }}{more}
}}
"""


def write(path, heads, seed, size):
    """A float32 .npy [1, heads, N, D] of tokens that change slowly."""
    noise, rows = random.Random(seed), []
    for _ in range(heads):
        slow = [0.0] * D
        for _ in range(N):
            slow = [0.98 * x + 0.2 * noise.gauss(0, 1) for x in slow]
            rows += [size * (x + 0.5 * noise.gauss(0, 1)) for x in slow]
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, {heads}, {N}, {D}), }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                                   + struct.pack(f"<{len(rows)}f", *rows))


def build(name, route, score, reduce, more=""):
    text = SPEC.format(name=name, route=route, score=score, reduce=reduce, more=more)
    pathlib.Path(f"{name}.pisa").write_text(text)
    subprocess.run([PISAC, "build", f"{name}.pisa", "--no-ptxas", "-o", f"{name}.pack"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return f"{name}.pack"


def quality(*words, code=0):
    done = subprocess.run([PISA, "quality", *words], capture_output=True, text=True)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}"
    return done


def sweep(*words):
    return subprocess.run([PISA, "sweep", *words], capture_output=True, text=True)


def all_read(packs, tensors):
    """Where no query sees more leaves than a list holds nothing is chosen: no recall, and every bound on it holds."""
    few = N // 4 // LEAF * LEAF  # 5 leaves
    assert few // LEAF < KEEP
    for name, heads in (("q", H), ("k", HK)):
        values = pathlib.Path(f"{name}.npy").read_bytes()[-heads * N * D * 4:]
        rows = [values[h * N * D * 4:][:few * D * 4] for h in range(heads)]
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, {heads}, {few}, {D}), }}"
        head += " " * (63 - (10 + len(head)) % 64) + "\n"
        pathlib.Path(f"few_{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                                                   + b"".join(rows))
    few_tensors = ("--q", "few_q.npy", "--k", "few_k.npy", "--every", "8")
    done = quality(packs[1], *few_tensors, "--json", "--html", "few.html")
    r = selection_record(done.stdout, "few", True)
    assert r["queries"] == 0 and r["recall"] is None and r["flat_recall"] is None, r
    assert quality(packs[1], *few_tensors).stdout.split()[-5:] == ["-"] * 5
    assert "<td>-</td>" in pathlib.Path("few.html").read_text()
    done = sweep(packs[1], *few_tensors, "--min-recall", "1", "--json")
    assert done.returncode == 0, done.stderr
    point = json.loads(done.stdout)
    assert point["recall"] == 1 and point["mass"] == 1 and point["chosen"], point
    assert sweep(packs[2], *tensors, "--min-recall", "1").returncode == 1


def caches(tensors, walk):
    """Packs that find keys in pages, the last of which is not full, or have phase decode alone: the same lists."""
    pages = "\n  pages { size 64 }"
    for name, more in (("paged", "; phases prefill, decode" + pages), ("decoder", "; phases decode"),
                       ("both", "; phases decode" + pages)):
        pack = build(name, "pyramid", "lse", "mass", more)
        r = selection_record(quality(pack, *tensors, "--json").stdout, name, True)
        assert {**r, "spec": "", "variant": ""} == {**walk, "spec": "", "variant": ""}, (name, r["recall"], walk["recall"])
        done = sweep(pack, *tensors, "--json")
        assert done.returncode == 0 and abs(json.loads(done.stdout)["recall"] / walk["recall"] - 1) < 1e-3, done


def main():
    write("q.npy", H, 1, 1.5)
    write("k.npy", HK, 2, 1.0)
    packs = [build("exact", "flat", "lse", "mass"), build("walk", "pyramid", "lse", "mass"), build("mean", "flat", "mean", "sum")]
    tensors = ("--q", "q.npy", "--k", "k.npy", "--every", "8")
    done = quality(*packs, *tensors, "--json", "--html", "page.html")
    exact, walk, mean = (selection_record(line, "fresh", True) for line in done.stdout.splitlines())
    for r in (exact, walk, mean):
        assert (r["leaf"], r["keep"], r["every"], len(r["heads"])) == (LEAF, KEEP, 8, HK)
        seen = [i for i in range(0, N, 8) if i // LEAF + 1 > KEEP]
        assert r["queries"] == HK * len(seen), r["queries"]
    assert exact["recall"] > 0.99 and exact["ratio"] > 0.999 and exact["flat_recall"] == 1, exact
    assert exact["recall"] >= walk["recall"] > mean["recall"], (walk["recall"], mean["recall"])
    assert walk["ratio"] > mean["ratio"] and walk["captured"] > mean["captured"]
    all_read(packs, tensors)
    caches(tensors, walk)
    page = pathlib.Path("page.html").read_text()
    for figure in ("recall", "ratio", "captured"):
        begin = page.index(f'<svg id="{figure}"')
        xml.fromstring(page[begin:page.index("</svg>", begin) + 6])
    assert "walk" in quality(packs[1], *tensors).stdout
    quality(packs[0], "--synthetic", "std=1", code=1)
    quality(packs[0], "--k", "k.npy", code=1)


main()
