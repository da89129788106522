"""Checks of the demo's own parts. Run as `demo_test.py CASE`; no tool of pisa is needed."""

import sys

import numpy as np

import demo
import page
import png
import tokens


def pictures():
    """PNG files survive writing and reading; the photograph has the known size and colours."""
    noise = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    assert (png.read(png.write(noise)) == noise).all()
    photo = png.read(demo.PHOTO.read_bytes())
    assert photo.shape == (512, 512, 3)
    assert tuple(photo[40, 40]) != tuple(photo[256, 256])
    assert (png.read(png.write(photo)) == photo).all()


def tiles():
    """A key block of the image is a square of 64 x 64 pixels."""
    order = tokens.tile_order(page.SIDE)
    assert sorted(order) == list(range(page.SIDE**2))
    rows, columns = np.divmod(order.reshape(-1, 64), page.SIDE)
    assert (np.ptp(rows, axis=1) == 7).all() and (np.ptp(columns, axis=1) == 7).all()
    assert rows[9].min() == 8 and columns[9].min() == 8
    assert page._box(page.TEXT_BLOCKS + 9) == (64, 64, 64, 64)


def likeness():
    """Tokens are what the demo says: bf16, unit rows, logits in the range where the method holds, same bits again."""
    photo = png.read(demo.PHOTO.read_bytes())
    q, k, v = tokens.make(photo, 1)
    assert q.shape == k.shape == v.shape == (1, demo.N, tokens.HEAD_DIM)
    for x in (q, k, v):
        assert (tokens.from_bf16(tokens.to_bf16(x)) == x).all()
    norms = np.sqrt((k[0] ** 2).mean(axis=1))
    assert abs(norms - 1).max() < 0.01
    inside, between = demo.spread(q[0], k[0])
    assert 0.4 < inside < 1.0 and between > inside, (inside, between)


def bfloat16():
    """Rounding is to nearest, ties to even."""
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-12), 3.0e38], np.float32)
    assert list(tokens.to_bf16(x)) == [0x3F80, 0x3F80, 0x3F82, 0xBF81, 0x7F62]


CASES = {f.__name__: f for f in (pictures, tiles, likeness, bfloat16)}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
