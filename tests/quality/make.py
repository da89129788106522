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

HEADS = 4  # of the photograph's 24
SPREADS, BETWEENS = "std=0.25,0.5,1,1.5,2", "0.5,1.5"
DENSITIES = "0.05,0.125,0.25,0.5"
TAILS = ("--all", "--set", "score=mean+log_covariance")  # every tail behind one router
ROUTERS = ("--all", "--set", "rest=taylor_hybrid", "--set", "mass=second_order")  # every router before one tail
PARTS = re.compile(r', "heads": \[.*\], "query_blocks": \[.*\], "query_recall": \[.*\]\}$', re.M)


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
        command = [self.bin / "pisac", "build", ROOT / f"tests/quality/{spec}.pisa", "--no-ptxas", "-o", pack]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return pack

    def tokens(self):
        q, k, v = tokens.make(png.read((ROOT / "tests/data/astronaut.png").read_bytes()), HEADS)
        for name, x in zip("qkv", (q, k, v)):
            np.save(self.work / f"{name}.npy", tokens.to_bf16(x)[None])
        return [a for name in "qkv" for a in (f"--{name}", self.work / f"{name}.npy")]

    def quality(self, *args, pictures=None):
        """JSON lines of one run; |pictures| are cut out of its page: id in the page, name of the file."""
        page = self.work / "page.html"
        command = [self.bin / "pisa", "quality", *args, "--json", "--html", page]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for mark, name in (pictures or {}).items():
            svg = re.search(rf'<svg id="{re.escape(mark)}".*?</svg>', page.read_text(), re.S).group()
            (self.out / f"{name}.svg").write_text(svg + "\n")
        return done.stdout

    def write(self, name, *texts):
        (self.out / f"{name}.jsonl").write_text("".join(texts))


def photograph(maker, tails, thresholds):
    files = (*maker.tokens(), "--name", "photograph", "--densities")
    densities = (*files, DENSITIES)
    maker.write("photograph", maker.quality(
        tails, *TAILS, *densities, pictures={"density-0": "photograph-density", "cost-0": "photograph-cost"}))
    maker.quality(tails, *TAILS, *files, "0.125", pictures={"where": "photograph-where"})
    maker.quality(tails, thresholds, *ROUTERS, *densities,
                  pictures={"density-0": "photograph-routers", "recall-0": "photograph-recall"})
    maker.write("photograph-all", *(PARTS.sub("}", maker.quality(pack, "--all", *densities))
                                    for pack in (tails, thresholds)))


def synthetic(maker, tails, thresholds):
    made = ("--synthetic", SPREADS, "--between", BETWEENS, "--densities", "0.125")
    maker.quality(tails, *TAILS, *made, pictures={f"spread-{b}": f"synthetic-tails-{b}" for b in BETWEENS.split(",")})
    maker.quality(tails, thresholds, *ROUTERS, *made,
                  pictures={f"spread-{b}": f"synthetic-routers-{b}" for b in BETWEENS.split(",")})
    maker.write("synthetic", *(PARTS.sub("}", text) for text in (
        maker.quality(tails, "--all", *made),
        maker.quality(thresholds, "--all", "--set", "threshold=1.0", *made))))
    made = ("--synthetic", SPREADS, "--between", BETWEENS, "--densities", DENSITIES)
    maker.write("synthetic-density", PARTS.sub("}", maker.quality(tails, *TAILS, *made)))


def main():
    o = options()
    with tempfile.TemporaryDirectory() as work:
        maker = Maker(o.build, o.out, work)
        packs = [maker.build(spec) for spec in ("tails", "thresholds")]
        photograph(maker, *packs)
        synthetic(maker, *packs)


main()
