"""Makes the records of docs/results/quality about block selection: JSON lines and pictures of `pisa quality`.

In: pisac and pisa of a build, the specs, tensors of language models in folders of .safetensors with q, k, v. Out: for each
folder OUT/selection-NAME.jsonl and, of one layer, OUT/selection-NAME-recall.svg and -captured.svg.
"""

import argparse
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SELECTORS = "pyramid_mass", "pyramid_lm", "pisa_2", "pisa_1", "hils_selector", "nsa_selector", "bsa"
SHAPE = re.compile(r"heads \d+;(\s*kv_heads \d+;)?\s*head_dim \d+")
CHOICES = re.compile(r"^ *(tune|vary|below)\b.*\n", re.M)
TILE = re.compile(r"prefill \{[^}]*\}")  # that of other heads
POSITIONS = re.compile(r', "positions": \[.*\]\}$', re.M)


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", required=True, help="build folder with bin/pisac and bin/pisa")
    p.add_argument("--out", required=True, help="folder of the records")
    p.add_argument("--keep", type=int, default=8, help="leaves of every list (default: %(default)s)")
    p.add_argument("--every", default="4", help="look at one query in so many (default: %(default)s)")
    p.add_argument("tensors", nargs="+", metavar="NAME:SHAPE:LAYER:FOLDER",
                   help="SHAPE as 16/2x64: query heads, key heads, head_dim; LAYER: the file whose pictures are kept")
    return p.parse_args()


class Maker:
    def __init__(self, o, work):
        self.bin, self.out, self.work = pathlib.Path(o.build) / "bin", pathlib.Path(o.out), pathlib.Path(work)
        self.keep, self.every = o.keep, o.every
        self.out.mkdir(parents=True, exist_ok=True)

    def build(self, spec, heads, kv_heads, head_dim):
        """The published spec for another number of heads, all lists equally long."""
        text = (ROOT / f"specs/{spec}.pisa").read_text()
        text, n = SHAPE.subn(f"heads {heads}; kv_heads {kv_heads}; head_dim {head_dim}", text)
        text, m = re.subn(r"\bkeep \d+", f"keep {self.keep}", TILE.sub("prefill", CHOICES.sub("", text)))
        assert n == 1 and m == 1, f"{spec}: a shape and a keep"
        source, pack = self.work / f"{spec}.pisa", self.work / f"{spec}.pack"
        source.write_text(text)
        done = subprocess.run([self.bin / "pisac", "build", source, "--no-ptxas", "-o", pack], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return pack

    def quality(self, packs, path, name, pictures):
        page = self.work / "page.html"
        tensors = [a for x in "qk" for a in (f"--{x}", f"{path}:{x}")]
        command = [self.bin / "pisa", "quality", *packs, *tensors, "--name", name, "--every", self.every, "--json",
                   "--html", page]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        for figure in pictures:
            svg = re.search(rf'<svg id="{figure}".*?</svg>', page.read_text(), re.S).group()
            (self.out / f"selection-{name.split()[0]}-{figure}.svg").write_text(svg + "\n")
        return done.stdout

    def model(self, name, shape, layer, folder):
        packs = [self.build(spec, *map(int, re.split("[/x]", shape))) for spec in SELECTORS]
        lines = ""
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            pictures = ("recall", "captured") if path.stem == layer else ()
            lines += self.quality(packs, path, f"{name} {path.stem}", pictures)
        (self.out / f"selection-{name}.jsonl").write_text(POSITIONS.sub("}", lines))


def main():
    o = options()
    with tempfile.TemporaryDirectory() as work:
        for tensors in o.tensors:
            Maker(o, work).model(*tensors.split(":", 3))


main()
