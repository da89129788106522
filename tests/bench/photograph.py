"""q.npy, k.npy, v.npy [1, H, 4608, 128]: the demo's tokens of a photograph, as bits of bfloat16. Needs numpy.

python3 tests/bench/photograph.py FOLDER [HEADS]
"""

import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/demo"))
import png  # noqa: E402
import tokens  # noqa: E402


def main():
    folder = pathlib.Path(sys.argv[1])
    heads = int(sys.argv[2]) if len(sys.argv) > 2 else tokens.HEADS
    folder.mkdir(parents=True, exist_ok=True)
    pixels = png.read((ROOT / "tests/data/astronaut.png").read_bytes())
    for name, x in zip("qkv", tokens.make(pixels, heads)):
        np.save(folder / f"{name}.npy", tokens.to_bf16(x)[None])


if __name__ == "__main__":
    main()
