"""NumPy arrays: a call on the CPU (pisa_cpu_run), with what it needs of their types and strides."""

from ctypes import byref
from types import SimpleNamespace

import numpy as np

from . import _library as lib
from ._request import (
    Layout,
    argument,
    array_shapes,
    check,
    check_array_shape,
    check_pages,
    check_pyramid,
    make,
    mark,
    outputs,
    pyramid_bytes,
)

WORD = {"bf16": np.uint16, "fp16": np.float16}
TYPES = {"lse": np.float32, "blocks": np.int32, "worth": np.float32, "csr_offsets": np.int32, "csr_queries": np.int32}


def round_bf16(x):
    """float32 to the bits of bf16 as uint16, to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def widen_bf16(bits):
    """The bits of bf16 as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def elements(name, x, pack):
    """|x| as an array of the pack's words: float32 and float64 are rounded to it; others must have its type."""
    word = WORD[pack.dtype]
    if x.dtype in (np.float32, np.float64):
        return round_bf16(x) if pack.dtype == "bf16" else x.astype(word, order="C")
    if x.dtype.name == "bfloat16" and pack.dtype == "bf16":
        return x.view(word)
    allowed = "uint16 (the bits of bf16), bfloat16" if pack.dtype == "bf16" else "float16"
    check(x.dtype == word, f"{name} has type {x.dtype}, must be {allowed} or float32 for {pack.name}")
    return x


def layout(name, x):
    """Shape and strides in elements."""
    whole = all(stride % x.itemsize == 0 for stride in x.strides)
    check(whole, f"{name} has strides {x.strides} in bytes, must be multiples of its elements' {x.itemsize}")
    return Layout(x.shape, tuple(stride // x.itemsize for stride in x.strides))


def fits(x):
    """Whether kernels take |x| as it lies (pisa.h, pisa_tensor)."""
    strides = [stride // x.itemsize for stride, extent in zip(x.strides[:3], x.shape[:3]) if extent > 1]
    inner = x.strides[3] == x.itemsize or x.shape[3] == 1
    return inner and x.ctypes.data % 16 == 0 and all(stride >= 0 and stride % 8 == 0 for stride in strides)


def empty(shape, dtype, alignment=16):
    """A contiguous array whose first byte is aligned."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + alignment, np.uint8)
    first = -memory.ctypes.data % alignment
    return memory[first : first + size].view(dtype).reshape(shape)


def place(name, x, pack, copy):
    """|x| in the pack's words, moved to where kernels can read it if |copy|."""
    if x is None:
        return None
    words = elements(name, x, pack)
    if not copy or words.ndim != 4 or fits(words):
        return words
    moved = empty(words.shape, words.dtype)
    moved[...] = words
    return moved


def from_dlpack(x):
    """A view of |x|. NumPy before 2.1 calls all such views read-only, but the exporter lets out only what is not."""
    view = np.from_dlpack(x)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        return view
    whole = {**view.__array_interface__, "data": (view.ctypes.data, False)}
    return np.asarray(SimpleNamespace(__array_interface__=whole, owner=view))


def integers(name, x):
    """An int32 array, contiguous; None stays None."""
    if x is None:
        return None
    x = np.asarray(x)
    check(np.issubdtype(x.dtype, np.integer), f"{argument(name)} has type {x.dtype}, must be int32")
    narrow = np.ascontiguousarray(x, np.int32)
    check(np.array_equal(narrow, x), f"{argument(name)} has numbers that are not of int32")
    return narrow


def address(x):
    return None if x is None else x.ctypes.data


def is_distinct(x):
    """Whether no two elements of |x| share memory: each stride steps over what the shorter ones reach."""
    reach = x.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(x.strides, x.shape) if extent > 1):
        if stride < reach:
            return False
        reach += (extent - 1) * stride
    return True


def output(x, out, pack):
    """The array that o is written to, and the one to return where that is known: |out|, or a new one of |x|'s type."""
    word = WORD[pack.dtype]
    if out is None:
        o = empty(x.shape, word)
        return o, o.view(x.dtype) if x.dtype.itemsize == 2 else None
    check(out.shape == x.shape, f"out has shape {out.shape}, must be q's {x.shape}")
    check(out.dtype == x.dtype, f"out has type {out.dtype}, must be q's {x.dtype}")
    check(out.flags.writeable, "out is read-only")
    check(is_distinct(out), f"out has strides {out.strides} in bytes: its elements overlap")
    return (out.view(word), out) if out.dtype.itemsize == 2 else (empty(x.shape, word), out)


def finish(o, result, x, pack):
    """What the caller gets: o itself, or o in float."""
    wide = widen_bf16(o) if pack.dtype == "bf16" else o
    if result is None:
        return wide.astype(x.dtype)
    if result.dtype.itemsize != 2:
        result[...] = wide
    return result


def run(pack, q, k, v, options, arrays, *, pyramid, out, copy):
    """One call on the CPU. arrays: the integer inputs by their names in pisa_attention, or None.
    Returns (o, lse, blocks, worth, csr_offsets, csr_queries), None for what is not asked for."""
    arrays = {name: integers(name, x) for name, x in arrays.items()}
    words = [place(name, x, pack, copy) for name, x in (("q", q), ("k", k), ("v", v))]
    o, result = output(q, out, pack) if options.attend else (None, None)
    layouts = [None if x is None else layout(name, x) for name, x in zip(("q", "k", "v", "out"), (*words, o))]
    request = make(pack, *layouts, options)
    for name, shape in array_shapes(pack, request).items():
        if arrays[name] is not None:
            check_array_shape(name, arrays[name], shape)
    if options.page_columns:
        check_pages(pack, request, arrays["pages"], arrays["k_lengths"], len(k))
        apart = o is None or not (np.may_share_memory(o, words[1]) or np.may_share_memory(o, words[2]))
        check(apart, "out overlaps the pages of k or v in memory: outputs must be apart from all else")
    mark(request, options)
    if pyramid is not None:
        check_pyramid(pyramid.size, pyramid_bytes(pack, request))
    shapes = outputs(pack, request, options)
    made = {name: None if shape is None else empty(shape, TYPES[name]) for name, shape in shapes._asdict().items()}
    for tensor, x in zip((request.q, request.k, request.v, request.o), (*words, o)):
        tensor.data = address(x)
    for name, x in {**arrays, **made, "pyramid": pyramid}.items():
        setattr(request, name, address(x))
    lib.call("pisa_cpu_run", pack._handle, pack.variant, byref(request), None)
    return (finish(o, result, q, pack) if options.attend else None, *made.values())


def make_memory(size):
    """Memory for a pyramid of |size| bytes."""
    return empty((size,), np.uint8, alignment=256)
