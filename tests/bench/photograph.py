"""q.npy, k.npy, v.npy [1, H, 4608, 128]: the demo's tokens of a photograph, as bits of bfloat16. Needs numpy."""

import argparse
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/demo"))
import png  # noqa: E402
import tokens  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("heads", type=int, nargs="?", default=tokens.HEADS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    pixels = png.read((ROOT / "tests/data/astronaut.png").read_bytes())
    for name, x in zip("qkv", tokens.make(pixels, args.heads)):
        np.save(args.folder / f"{name}.npy", tokens.to_bf16(x)[None])


if __name__ == "__main__":
    main()
