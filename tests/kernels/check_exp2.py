"""usage: check_exp2.py EXP2: frag_exp2 with 0 to 4 polynomials of every 8 registers, against 2^x in double."""
import subprocess
import sys

import numpy as np

from machine import F32, Global
from ptx import Kernel

THREADS, REGISTERS, FACTOR, OFFSET = 128, 64, 0.5, -3.25
MOST_ERROR, SMALLEST = 9e-5, 2.0 ** -126
POLYNOMIALS = ((), (0,), (0, 6), (0, 3, 6), (0, 3, 5, 6))  # registers i with these i mod 8, of 0 to 4 of 8


def inputs():
    """Exponents of all sizes, the same for all registers of a lane: whole numbers, their neighbours, -inf."""
    rng = np.random.default_rng(1)
    whole = -np.arange(128.0)
    x = np.concatenate([whole, np.nextafter(F32(whole), F32(-np.inf)), np.nextafter(F32(whole), F32(0)),
                        -128 * rng.random(5000), -2.0 ** rng.uniform(-30, 7, 2000), [-126.5, -150, -1e4, -1e30, -np.inf]])
    x = np.resize(x, (THREADS, REGISTERS)).astype(F32)
    s = ((x.astype(np.float64) - OFFSET) / FACTOR).astype(F32)
    return s, s.astype(np.float64) * FACTOR + OFFSET


def check(emit, polynomials):
    kernel = Kernel(subprocess.run([emit, str(polynomials)], check=True, capture_output=True, text=True).stdout, "exp2")
    assert sum(".sat" in line for line in kernel.source) == 8 * polynomials
    s, x = inputs()
    ours = np.isin(np.arange(REGISTERS) % 8, POLYNOMIALS[polynomials])
    worst = 0
    for shift in range(8):  # every exponent in every kind of register
        memory = Global(1 << 20)
        out, sums = memory.empty((THREADS, REGISTERS), F32), memory.empty((THREADS, 2), F32)
        kernel.launch(1, 16, memory, [memory.array(np.roll(s, shift, 1)), out, sums, FACTOR, OFFSET])
        got, want = memory.read(out, (THREADS, REGISTERS), F32), np.exp2(np.minimum(np.roll(x, shift, 1), 0))
        normal = want >= SMALLEST
        error = np.abs(got[normal] / want[normal] - 1)
        worst = max(worst, error.max())
        assert (got >= 0).all() and (got[~normal] <= SMALLEST).all() and (got[want == 0] == 0).all()
        exact = ours[None, :] & (np.roll(x, shift, 1) == 0)
        assert (got[exact] == 1).all()
        rows = np.arange(REGISTERS) >> 1 & 1
        total = np.stack([got[:, rows == r].astype(np.float64).sum(1) for r in range(2)], 1)
        assert np.allclose(memory.read(sums, (THREADS, 2), F32), total, rtol=1e-6)
    assert worst <= (MOST_ERROR if polynomials else 1e-6), worst
    print(f"{polynomials} of 8: relative error {worst:.2e}")


np.seterr(all="ignore")
for n in range(len(POLYNOMIALS)):
    check(sys.argv[1], n)
