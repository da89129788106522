"""Draws docs/results/plots from the records of docs/results.

    python3 tests/results/plot.py [--records docs/results] [--out docs/results/plots]

In: the .jsonl files of h200/ and quality/. Out: an SVG a picture, whose bytes depend on them and on matplotlib's version
alone. A picture whose measurements are not there yet is left out, with a line that says what is missing; a file of it
that is there from before goes. So is a line of a picture. Exit 2, with nothing written: a record contradicts itself or cannot be read, or there is no
matplotlib.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    import canvas
except ImportError as error:
    print(f"plot.py: {error} (Debian's package python3-matplotlib)", file=sys.stderr)
    sys.exit(2)
import errors
import times
from records import Bad, Missing


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=pathlib.Path, default=ROOT / "docs/results")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results/plots")
    return parser.parse_args()


def drawn(folder):
    """{name: Picture, or None where its measurements are missing}, all of them before any is written."""
    pictures = {}
    for name, draw in {**times.PICTURES, **errors.PICTURES}.items():
        try:
            pictures[name] = draw(folder)
            for label in pictures[name].absent:
                print(f"{name}.svg: without {label}: no record has it")
        except Missing as missing:
            pictures[name] = None
            print(f"{name}.svg: left out: {missing}")
        except (Bad, OSError) as bad:
            print(f"plot.py: {name}.svg: {bad}", file=sys.stderr)
            sys.exit(2)
    return pictures


def main():
    arguments = options()
    canvas.settle()
    pictures = drawn(arguments.records)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        path = arguments.out / f"{name}.svg"
        if picture:
            picture.write(path)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
