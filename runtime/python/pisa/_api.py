"""The public calls: arrays of any kind in; the same kind out."""

import sys

import numpy

from . import _arguments, _numpy, _request
from ._library import ArgumentError
from ._request import Options

_torch = None  # the module _torch, once a torch tensor has come


def attention(
    q,
    k,
    v,
    pack,
    *,
    scale=None,
    density=None,
    keep=None,
    k_lengths=None,
    blocks_in=None,
    q_starts=None,
    k_starts=None,
    pages=None,
    pyramid=None,
    return_lse=False,
    return_blocks=False,
    out=None,
    copy=False,
):
    """o = attention(q, k, v) by the method of |pack|: statistics, routing and attention in one call.

    q [B, H, Nq, D], k and v [B, Hk, Nk, D]: all of one kind, in the pack's type (Pack.dtype).
        Torch CUDA tensors run on the GPU, on the current stream, without waiting; torch CPU tensors and NumPy arrays
        run on the CPU. NumPy has no bf16: uint16 holds its bits, or ml_dtypes.bfloat16, or float32 and float64, which
        are rounded to the pack's type (and o comes back in float32 or float64). What else has __dlpack__ is taken as a
        view.
        Strides: the last must be 1, the others multiples of 8 elements, addresses multiples of 16 bytes; any order of
        the dimensions. Others are an error, or with copy=True are copied.
    scale: multiplies q.k; None: 1/sqrt(D).
    density: share of the key blocks read exactly, in (0, 1]; keep: their number; None: the spec's. At most one.
    k_lengths: int32 [B], keys of each sequence, at most Nk; what lies behind must be finite.
    blocks_in: int32 [B, H, NTq, K], the key blocks to read exactly in place of routing; -1 for none.
    q_starts, k_starts: int32 [B + 1]: sequences packed one behind the other; q is [1, H, Nq, D], k and v [1, Hk, Nk,
        D].
    pages: int32 [B, columns]: key j of sequence b is row j mod page of k[pages[b, j // page]]; k and v are [pages, Hk,
        page, D]. What names no page is an error on the CPU; on a GPU, where nobody looks, it reads foreign memory.
    pyramid: a pisa.Pyramid that gets the means of k, for `decode` to go on from. These four: method pyramid only.
    out: an array like q to write o to; writable, and apart from the inputs.
    Returns o, in the layout of q where that is dense; with return_lse also lse, float32 [B, H, Nq], the natural log of
        the softmax's denominator; with return_blocks also the key blocks read exactly, int32, ascending, then -1:
        [B, H, NTq, kept], or [B, Hk, Nq, keep] for method pyramid. With q_starts they have no B.
    Raises ArgumentError for a wrong argument, Error for what this pack or machine cannot do. There are no gradients:
        torch tensors that ask for them are an error.

    Sources: piecewise attention, arXiv 2602.01077; block selection, arXiv 2609.31093; runtime/pisa.h.
    """
    wishes = (scale, density, keep, return_lse, return_blocks, k_lengths is not None)
    if _torch is not None and blocks_in is q_starts is k_starts is pages is pyramid is None and not copy:
        try:
            found = _torch.quick(pack, q, k, v, wishes, _attention_options, k_lengths, None, out)
        except (AttributeError, TypeError):
            _check(pack, _arrays(k_lengths), None, q=q, k=k, v=v, out=out)
            _attention_options(pack, *wishes)
            raise
        if found is not None:
            return _pick(found[0], found[1], found[2]) if return_lse or return_blocks else found[0]
    arrays = _arrays(k_lengths, blocks_in, q_starts, k_starts, pages)
    _check(pack, arrays, pyramid, q=q, k=k, v=v, out=out)
    options = _attention_options(pack, *wishes)._replace(
        sequences=_sequences(q_starts, k_starts),
        page_columns=0 if pages is None else pages.shape[-1],
        has_pyramid=pyramid is not None,
    )
    if blocks_in is not None:
        options = options._replace(n_listed=blocks_in.shape[-1])
        if density is None and keep is None:
            options = options._replace(density=0, keep=0)
    found = _run(pack, q, k, v, options, arrays, pyramid, out, copy)
    return _pick(found[0], found[1], found[2])


def select(
    q,
    k,
    pack,
    *,
    scale=None,
    k_lengths=None,
    q_starts=None,
    k_starts=None,
    pages=None,
    pyramid=None,
    worth=False,
    by_leaf=False,
    copy=False,
):
    """The key blocks (leaves) that each query should read, by a pack of method pyramid, without attention.

    Arguments as of `attention`. The G = H / Hk query heads of a key head share a list for every query.
    Returns blocks, int32 [B, Hk, Nq, keep], ascending, then -1; with worth=True also the score of each, float32 of the
        same shape: natural log for sums, +infinity where it was kept unranked, -infinity behind the last. With
        by_leaf=True also the lists turned around as compressed rows: offsets [Hk, NL + 1] and queries [Hk, B Nq keep],
        int32; the queries of leaf l of key head h are queries[h, offsets[h, l] : offsets[h, l + 1]] (how leaves are
        numbered: runtime/pisa.h, csr_offsets). With q_starts blocks and worth are [Hk, Nq, keep].
    Raises like `attention`.

    Source: block sparse attention in log-linear time, arXiv 2609.31093.
    """
    _arguments.check_pack(pack)
    if not pack.selects:
        raise ArgumentError(f"{pack.name} does not select blocks: its method is {pack.method}")
    wishes = (scale, worth, by_leaf, k_lengths is not None, pyramid is not None)
    if _torch is not None and q_starts is k_starts is pages is None and not copy:
        try:
            memory = None if pyramid is None else pyramid.memory
            found = _torch.quick(pack, q, k, None, wishes, _select_options, k_lengths, memory)
        except (AttributeError, TypeError):
            _check(pack, _arrays(k_lengths), pyramid, q=q, k=k)
            _select_options(pack, *wishes)
            raise
        if found is not None:
            return _pick(*found[2:]) if worth or by_leaf else found[2]
    arrays = _arrays(k_lengths, None, q_starts, k_starts, pages)
    _check(pack, arrays, pyramid, q=q, k=k)
    options = _select_options(pack, *wishes)._replace(
        sequences=_sequences(q_starts, k_starts), page_columns=0 if pages is None else pages.shape[-1]
    )
    found = _run(pack, q, k, None, options, arrays, pyramid, None, copy)
    return _pick(*found[2:])


def decode(
    q,
    k,
    v,
    pack,
    pyramid=None,
    *,
    k_lengths=None,
    n_new=1,
    pages=None,
    scale=None,
    return_lse=False,
    return_blocks=False,
    out=None,
    copy=False,
):
    """Attention of a few queries at the end of cached sequences, by a pack with phase decode.

    q [B, H, Nq, D]: the last Nq tokens of each sequence. k and v [B, Hk, room, D], or pages as of `attention`: the
        caches, the new keys and values already in them. k_lengths int32 [B]: keys of each sequence, the new ones
        included; None: all.
    pyramid: the pisa.Pyramid of the sequences; its last n_new keys (0 to the leaf's size) are appended to it first.
        Needed on the GPU; on the CPU the means are made anew from k, and written to it where it is given. None for
        dense packs.
    Other arguments, results and errors as of `attention`.

    Source: arXiv 2609.31093.
    """
    try:
        memory, completed = (None, False) if pyramid is None else (pyramid.memory, pyramid.append_completed)
    except AttributeError:
        _arguments.check_pyramid(pyramid)
        raise
    wishes = (scale, n_new, completed, return_lse, return_blocks, k_lengths is not None, pyramid is not None)
    if _torch is not None and pages is None and not copy:
        try:
            found = _torch.quick(pack, q, k, v, wishes, _decode_options, k_lengths, memory, out)
        except (AttributeError, TypeError):
            _check(pack, _arrays(k_lengths), pyramid, q=q, k=k, v=v, out=out)
            _decode_options(pack, *wishes)
            raise
        if found is not None:
            return _pick(found[0], found[1], found[2]) if return_lse or return_blocks else found[0]
    arrays = _arrays(k_lengths, pages=pages)
    _check(pack, arrays, pyramid, q=q, k=k, v=v, out=out)
    options = _decode_options(pack, *wishes)._replace(page_columns=0 if pages is None else pages.shape[-1])
    found = _run(pack, q, k, v, options, arrays, pyramid, out, copy)
    return _pick(found[0], found[1], found[2])


class Pyramid:
    """The means of cached keys, for `decode`: written by `attention` or `select` with pyramid=, grown by `decode`.

    pack: of method pyramid; batch: sequences; room: keys that each has room for (Nk of k; with pages columns times
        page; with starts the rows of all together). kv_heads: Hk, None: the spec's. device: a torch device, or None for
        NumPy.
    starts: whether calls give k_starts. append_completed: `decode` stores a node with its last token only: the same
        selections while the current leaf is always read, fewer bytes (mask causal).
    memory: the bytes, an array uint8 (layout: docs/ABI.md). One Pyramid goes with one batch of sequences, all the way.
    """

    def __init__(self, pack, batch, room, kv_heads=None, *, device=None, starts=False, append_completed=False):
        _arguments.check_pack(pack)
        for name, value in (("batch", batch), ("room", room), ("kv_heads", kv_heads or 1)):
            _arguments.whole(name, value)
        self.append_completed = append_completed
        size = _request.pyramid_size(pack, batch, kv_heads or pack.kv_heads, room, starts)
        if device is None:
            self.memory = _numpy.make_memory(size)
        else:
            self.memory = _torch_part().make_memory(size, device)


# The options of common calls from what was asked for.


def _attention_options(pack, scale, density, keep, lse, blocks, has_lengths):
    if density is None and keep is None:
        density, keep = pack.budget
    else:
        density = _arguments.budget("density", density, _arguments.real)
        keep = _arguments.budget("keep", keep, _arguments.whole)
    return Options(_arguments.scale(scale), density, keep, has_lengths=has_lengths, lse=lse, blocks=blocks)


def _select_options(pack, scale, worth, by_leaf, has_lengths, has_pyramid):
    return Options(
        _arguments.scale(scale),
        has_lengths=has_lengths,
        has_pyramid=has_pyramid,
        attend=False,
        blocks=True,
        worth=worth,
        by_leaf=by_leaf,
    )


def _decode_options(pack, scale, n_new, completed, lse, blocks, has_lengths, has_pyramid):
    return Options(
        _arguments.scale(scale),
        has_lengths=has_lengths,
        decode=True,
        n_new=_arguments.whole("n_new", n_new) if pack.selects else 0,
        append_completed=completed,
        has_pyramid=has_pyramid,
        lse=lse,
        blocks=blocks,
    )


def _sequences(q_starts, k_starts):
    if q_starts is None and k_starts is None:
        return 0
    if q_starts is None or k_starts is None:
        raise ArgumentError("q_starts and k_starts go together: set both or neither")
    return q_starts.shape[0] - 1


def _check(pack, arrays, pyramid, **tensors):
    _arguments.check_arrays(pack, pyramid, {**tensors, **arrays})


def _arrays(k_lengths, lists=None, q_starts=None, k_starts=None, pages=None):
    return {"k_lengths": k_lengths, "lists": lists, "q_starts": q_starts, "k_starts": k_starts, "pages": pages}


def _pick(*found):
    """The results that were asked for: one as itself, more as a tuple."""
    found = tuple(x for x in found if x is not None)
    return found[0] if len(found) == 1 else found


def _torch_part():
    global _torch
    if _torch is None:
        from . import _torch as part

        _torch = part
    return _torch


def _run(pack, q, k, v, options, arrays, pyramid, out, copy):
    """Brings a call to where its arrays are."""
    if isinstance(q, numpy.ndarray):
        memory = None if pyramid is None else pyramid.memory
        return _numpy.run(pack, q, k, v, options, arrays, pyramid=memory, out=out, copy=copy)
    if "torch" in sys.modules and _torch_part().is_tensor(q):
        return _torch.run(pack, q, k, v, options, arrays, pyramid, out, copy)
    return _run_dlpack(pack, q, k, v, options, arrays, pyramid, out, copy)


def _run_dlpack(pack, q, k, v, options, arrays, pyramid, out, copy):
    """Views of foreign arrays: torch's where torch is installed, else NumPy's, which has neither bf16 nor GPUs."""
    try:
        from torch import from_dlpack as view
    except ImportError:
        view = _numpy.from_dlpack

    q, k, v, out = (None if x is None else view(x) for x in (q, k, v, out))
    arrays = {name: None if x is None else view(x) for name, x in arrays.items()}
    return _run(pack, q, k, v, options, arrays, pyramid, out, copy)
