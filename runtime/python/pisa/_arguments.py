"""Arguments as a caller gave them in; what is of another kind than the call takes raises ArgumentError.

Shapes, types and sizes are checked where a call is made (_request, _numpy, _torch, libpisa)."""

import math
import numbers
import sys

import numpy

from . import _pack
from ._request import argument, check

HIGHEST = 2**63 - 1  # of int64, which calls count in


def check_arrays(pack, pyramid, arrays):
    """|pack| is one, |pyramid| has memory, and the others, by their names in pisa_attention, are arrays or None."""
    check_pack(pack)
    if pyramid is not None:
        check_pyramid(pyramid)
        arrays = {**arrays, "pyramid": pyramid.memory}
    for name, x in arrays.items():
        check(
            x is None or hasattr(x, "__dlpack__"),
            f"{argument(name)} is a {type(x).__name__}, must be an array: of NumPy, torch or with __dlpack__",
        )
    for name in ("q", "k", "v"):
        check(name not in arrays or arrays[name] is not None, f"{name} is None, must be an array")
    _check_kinds(arrays)
    for name in ("lists", "pages"):
        x = arrays.get(name)
        check(x is None or len(x.shape) > 0, f"{argument(name)} has shape (), must have dimensions")
    starts = arrays.get("q_starts")
    check(starts is None or len(starts.shape) == 1, "q_starts must have one dimension, [B + 1]")


def _check_kinds(arrays):
    """Foreign arrays are looked at through views of one kind, and NumPy reads integers of any."""
    if isinstance(arrays["q"], numpy.ndarray):
        for name in ("k", "v", "out", "pyramid"):
            x = arrays.get(name)
            check(x is None or isinstance(x, numpy.ndarray), f"{name} is a {type(x).__name__}, but q is one of NumPy")
    elif is_tensor(arrays["q"]):
        for name, x in arrays.items():
            check(x is None or is_tensor(x), f"{argument(name)} is a {type(x).__name__}, but q is a tensor of torch")


def is_tensor(x):
    return "torch" in sys.modules and sys.modules["torch"].is_tensor(x)


def check_pack(pack):
    check(isinstance(pack, _pack.Pack), f"pack is a {type(pack).__name__}, must be what pisa.load returns")


def check_pyramid(pyramid):
    check(hasattr(pyramid, "memory"), f"pyramid is a {type(pyramid).__name__}, must be a pisa.Pyramid or None")


def whole(name, value):
    check(
        isinstance(value, numbers.Integral) and -HIGHEST <= value <= HIGHEST,
        f"{name} is {value!r}, must be a whole number",
    )
    return value


def real(name, value):
    check(isinstance(value, numbers.Real), f"{name} is {value!r}, must be a number")
    return value


def scale(value):
    if value is None:
        return 0.0
    good = isinstance(value, numbers.Real) and value > 0 and math.isfinite(value)
    check(good, f"scale is {value!r}, must be a positive and finite number, or None for 1/sqrt(D)")
    return float(value)


def budget(name, value, kind):
    """density or keep; 0: the spec's. kind: `real` or `whole`."""
    if value is None:
        return 0
    check(kind(name, value) > 0, f"{name} is {value}, must be positive, or None for the spec's budget")
    return value
