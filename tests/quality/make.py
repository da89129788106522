"""Makes the records of docs/results/quality: JSON lines and pictures of `pisa quality`.

In: pisac and pisa of a build, the specs, the photograph of tests/data. Out: OUT/photograph.* and OUT/synthetic.*.
Needs numpy for the photograph's tokens.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/demo"))
import png  # noqa: E402 (the demo's)
import tokens  # noqa: E402

SPECS = ("keep_or_drop", "taylor0", "hybrid")
HEADS = 4  # of the photograph's 24
PICTURES = {  # id in the page: name of the file
    "photograph": {"density-0": "density", "cost-0": "cost", "where": "where"},
    "synthetic": {"spread-0.5": "spread-0.5", "spread-1.5": "spread-1.5"},
}


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", required=True, help="build folder with bin/pisac and bin/pisa")
    p.add_argument("--out", required=True, help="folder of the records")
    return p.parse_args()


class Maker:
    def __init__(self, build, out, work):
        self.bin, self.out, self.work = pathlib.Path(build) / "bin", pathlib.Path(out), pathlib.Path(work)
        self.out.mkdir(parents=True, exist_ok=True)

    def build(self, spec):
        pack = self.work / f"{spec}.pack"
        command = [self.bin / "pisac", "build", ROOT / f"specs/{spec}.pisa", "--no-ptxas", "-o", pack]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return pack

    def tokens(self):
        q, k, v = tokens.make(png.read((ROOT / "tests/data/astronaut.png").read_bytes()), HEADS)
        for name, x in zip("qkv", (q, k, v)):
            np.save(self.work / f"{name}.npy", tokens.to_bf16(x)[None])
        return [a for name in "qkv" for a in (f"--{name}", self.work / f"{name}.npy")]

    def quality(self, name, packs, *args):
        page = self.work / f"{name}.html"
        command = [self.bin / "pisa", "quality", *packs, *args, "--json", "--html", page]
        with (self.out / f"{name}.jsonl").open("w") as lines:
            subprocess.run(command, check=True, stdout=lines)
        text = page.read_text()
        for mark, picture in PICTURES[name].items():
            svg = re.search(rf'<svg id="{re.escape(mark)}".*?</svg>', text, re.S).group()
            (self.out / f"{name}-{picture}.svg").write_text(svg + "\n")


def main():
    o = options()
    with tempfile.TemporaryDirectory() as work:
        maker = Maker(o.build, o.out, work)
        packs = [maker.build(spec) for spec in SPECS]
        densities = ("--densities", "0.05,0.1,0.125,0.15,0.25,0.35,0.5")
        maker.quality("photograph", packs, *maker.tokens(), "--name", "photograph", *densities)
        maker.quality("synthetic", packs, "--synthetic", "std=0.25,0.5,0.75,1,1.5,2", "--between", "0.5,1.5",
                      "--densities", "0.05,0.125,0.25,0.5")


main()
