"""Calls: shapes and options in; a pisa_attention without pointers, and the shapes of its outputs, out."""

from ctypes import byref, c_int64, c_size_t, sizeof
from typing import NamedTuple, Optional

from . import _library as lib


class Layout(NamedTuple):
    """What a call knows of an array [B, H, N, D] beside its address."""

    shape: tuple
    stride: tuple  # in elements


class Options(NamedTuple):
    """Everything a call is made of beside its arrays."""

    scale: float = 0.0
    density: float = 0.0
    keep: int = 0
    sequences: int = 0  # with starts: how many; else 0
    has_lengths: bool = False
    n_listed: int = 0  # with given lists: entries of each; else 0
    page_columns: int = 0  # with pages: columns of the table; else 0
    decode: bool = False
    n_new: int = 0
    append_completed: bool = False
    has_pyramid: bool = False
    attend: bool = True
    lse: bool = False
    blocks: bool = False
    worth: bool = False
    by_leaf: bool = False


def check(condition, message):
    if not condition:
        raise lib.ArgumentError(message)


def check_layouts(pack, q, k, v, options):
    """What libpisa cannot see, as it gets numbers in place of arrays."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array is None:
            continue
        shape = tuple(array.shape)
        check(len(shape) == 4, f"{name} has shape {shape}, must have four dimensions [B, H, N, D]")
        check(shape[3] == pack.head_dim, f"{name} has shape {shape}, but head_dim of {pack.name} is {pack.head_dim}")
    if v is not None:
        check(k.shape == v.shape, f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}, which must be the same")
    if not options.page_columns:
        check(q.shape[0] == k.shape[0], f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: their batches differ")
    if options.sequences:
        check(q.shape[0] == 1, f"q has shape {tuple(q.shape)}, must be [1, H, Nq, D] with q_starts")
    if options.page_columns:
        check(pack.page, f"pages is set, but {pack.name} has no pages")
        shape = tuple(k.shape)
        check(shape[2] == pack.page, f"k has shape {shape}, must be [pages, Hk, {pack.page}, D], as pages is set")


def make(pack, q, k, v, o, options):
    """A pisa_attention with layouts and options, all pointers NULL. v and o are None for a call that selects."""
    check_layouts(pack, q, k, v, options)
    request = lib.Attention(
        struct_size=sizeof(lib.Attention),
        batch=options.sequences or q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        n_q=q.shape[2],
        n_k=options.page_columns * pack.page or k.shape[2],
        density=options.density,
        keep=options.keep,
        scale=options.scale,
        n_listed=options.n_listed,
        page_columns=options.page_columns,
        phase=lib.DECODE if options.decode else lib.PREFILL,
        n_new=options.n_new,
        append_completed=options.append_completed,
    )
    for tensor, layout in ((request.q, q), (request.k, k), (request.v, v), (request.o, o)):
        if layout is not None:
            tensor.stride = lib.Stride(*layout.stride)
    return request


def array_shapes(pack, request):
    """The shapes that the integer inputs of a call must have, by their names in pisa_attention."""
    batch = request.batch
    rows = -(-request.n_q // pack.query)
    return {
        "k_lengths": (batch,),
        "q_starts": (batch + 1,),
        "k_starts": (batch + 1,),
        "pages": (batch, request.page_columns),
        "lists": (batch, request.heads, rows, request.n_listed),
    }


def check_pages(pack, request, pages, lengths, n_pages):
    """Refuses entries of the table [B, columns] that are read but name none of |n_pages|: libpisa does not know how
    many there are. NumPy arrays; lengths: int32 [B] or None."""
    for b, row in enumerate(pages):
        keys = request.n_k if lengths is None else min(max(int(lengths[b]), 0), request.n_k)
        used = row[: -(-keys // pack.page)]
        for i in ((used < 0) | (used >= n_pages)).nonzero()[0][:1]:
            check(False, f"pages[{b}, {i}] is {used[i]}, must be from 0 to {n_pages - 1}: k has {n_pages} pages")


def argument(name):
    """What a caller knows the field |name| of pisa_attention as."""
    return "blocks_in" if name == "lists" else name


def check_array_shape(name, array, shape):
    found = tuple(array.shape)
    check(found == shape, f"{argument(name)} has shape {found}, must be {shape}")


def mark(request, options):
    """Sets the pointers that sizes are asked with, which are then tested for NULL alone."""
    present = 1 << 8
    request.o.data = present if options.attend else None
    request.blocks = present if options.blocks else None
    request.worth = present if options.worth else None
    request.k_lengths = present if options.has_lengths else None
    request.lists = present if options.n_listed else None
    request.pages = present if options.page_columns else None
    request.pyramid = present if options.has_pyramid else None
    request.q_starts = request.k_starts = present if options.sequences else None
    request.csr_offsets = request.csr_queries = present if options.by_leaf else None


class Outputs(NamedTuple):
    """The shapes of the outputs beside o; None where one is not asked for."""

    lse: Optional[tuple] = None
    blocks: Optional[tuple] = None
    worth: Optional[tuple] = None
    csr_offsets: Optional[tuple] = None
    csr_queries: Optional[tuple] = None


def outputs(pack, request, options):
    """The shapes of the outputs of a marked call."""
    batch = () if options.sequences else (request.batch,)
    lse = (*batch, request.heads, request.n_q) if options.lse else None
    if not (options.blocks or options.worth or options.by_leaf):
        return Outputs(lse)
    kept = c_int64()
    lib.call("pisa_kept_blocks", pack._handle, pack.variant, byref(request), byref(kept))
    heads = request.kv_heads if pack.selects else request.heads
    shape = (*batch, heads, -(-request.n_q // pack.query), kept.value)
    blocks, worth = shape if options.blocks else None, shape if options.worth else None
    if not options.by_leaf:
        return Outputs(lse, blocks, worth)
    rows, keys = (1, 1) if options.sequences else (request.batch, request.batch)
    leaves = keys * request.n_k // pack.key_block + request.batch
    return Outputs(lse, blocks, worth, (heads, leaves + 1), (heads, rows * request.n_q * kept.value))


def pyramid_size(pack, batch, kv_heads, n_k, starts):
    """Bytes of a pyramid (pisa_pyramid_size)."""
    request = lib.Attention(
        struct_size=sizeof(lib.Attention), batch=batch, heads=kv_heads * pack.group, kv_heads=kv_heads, n_q=1, n_k=n_k
    )
    if pack.page:
        request.page_columns, request.pages, request.k_lengths = -(-n_k // pack.page), 1 << 8, 1 << 8
    request.q_starts = request.k_starts = 1 << 8 if starts else None
    return pyramid_bytes(pack, request)


def pyramid_bytes(pack, request):
    """Bytes that the pyramid of a call has, no more and no less: other rooms have other layouts."""
    size = c_size_t()
    lib.call("pisa_pyramid_size", pack._handle, pack.variant, byref(request), byref(size))
    return size.value


def check_pyramid(given, wanted):
    check(
        given == wanted,
        f"pyramid has {given} bytes, that of these shapes has {wanted}: it was made for another batch, room or pack",
    )
