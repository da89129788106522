"""The custom ops pisa::attention, pisa::select, pisa::decode and pisa::prefill, and what torch.compile must know.

Graphs name packs by their keys (Pack.key). The first two make their outputs; decode and prefill write into given ones,
since they change a pyramid as well.
"""

import torch

from . import _pack, _request, _torch
from ._request import Layout, Options, Outputs

NAMES = ("k_lengths", "blocks_in", "q_starts", "k_starts", "pages")
ARRAYS = ", ".join(f"Tensor? {name}=None" for name in NAMES)
# Arguments with defaults are dear only where they are given: the dispatcher leaves the last ones out.
SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, str pack, float scale=0.0, float density=0.0, int keep=0, "
    f"{ARRAYS}, bool lse=False, bool blocks=False) -> Tensor[]",
    "select": f"(Tensor q, Tensor k, str pack, float scale=0.0, {ARRAYS}, bool worth=False, bool by_leaf=False) "
    "-> Tensor[]",
    "prefill": "(Tensor q, Tensor k, Tensor? v, Tensor(a!) pyramid, Tensor(b!)? out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, Tensor(e!)? worth, str pack, float scale=0.0, {ARRAYS}) -> ()",
    "decode": "(Tensor q, Tensor k, Tensor v, Tensor(a!)? pyramid, Tensor(b!) out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, str pack, float scale=0.0, {ARRAYS}, int n_new=1, bool append_completed=False) -> ()",
}


def _arrays(k_lengths=None, lists=None, q_starts=None, k_starts=None, pages=None):
    return {"k_lengths": k_lengths, "lists": lists, "q_starts": q_starts, "k_starts": k_starts, "pages": pages}


def _options(arrays, **others):
    starts, lists, pages = arrays["q_starts"], arrays["lists"], arrays["pages"]
    return Options(
        sequences=0 if starts is None else starts.shape[0] - 1,
        has_lengths=arrays["k_lengths"] is not None,
        n_listed=0 if lists is None else lists.shape[-1],
        page_columns=0 if pages is None else pages.shape[-1],
        **others,
    )


def _there(found):
    return [x for x in found if x is not None]


def _attention_options(pack, name, scale, density, keep, lse, blocks, has_lengths):
    return Options(scale, density, keep, has_lengths=has_lengths, lse=lse, blocks=blocks)


def attention(
    q,
    k,
    v,
    pack,
    scale=0.0,
    density=0.0,
    keep=0,
    k_lengths=None,
    lists=None,
    q_starts=None,
    k_starts=None,
    pages=None,
    lse=False,
    blocks=False,
):
    opened = _pack.by_key(pack)
    if lists is q_starts is pages is None:
        wishes = ("op", scale, density, keep, lse, blocks, k_lengths is not None)
        found = _torch.quick(opened, q, k, v, wishes, _attention_options, k_lengths)
        if found is not None:
            return _there(found) if lse or blocks else [found[0]]
    arrays = _arrays(k_lengths, lists, q_starts, k_starts, pages)
    options = _options(arrays, scale=scale, density=density, keep=keep, lse=lse, blocks=blocks)
    return _there(_torch.eager(opened, q, k, v, options, arrays, None, None))


def _select_options(pack, name, scale, worth, by_leaf, has_lengths):
    return Options(scale, has_lengths=has_lengths, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)


def select(
    q,
    k,
    pack,
    scale=0.0,
    k_lengths=None,
    lists=None,
    q_starts=None,
    k_starts=None,
    pages=None,
    worth=False,
    by_leaf=False,
):
    opened = _pack.by_key(pack)
    if lists is q_starts is pages is None:
        wishes = ("op", scale, worth, by_leaf, k_lengths is not None)
        found = _torch.quick(opened, q, k, None, wishes, _select_options, k_lengths)
        if found is not None:
            return _there(found)
    arrays = _arrays(k_lengths, lists, q_starts, k_starts, pages)
    options = _options(arrays, scale=scale, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)
    return _there(_torch.eager(opened, q, k, None, options, arrays, None, None))


def prefill(q, k, v, pyramid, out, lse, blocks, worth, pack, scale=0.0, *lists):
    arrays, made = _arrays(*lists), Outputs(lse=lse, blocks=blocks, worth=worth)
    wanted = {name: x is not None for name, x in zip(Outputs._fields[:3], made)}
    options = _options(arrays, scale=scale, attend=v is not None, has_pyramid=True, **wanted)
    _torch.eager(_pack.by_key(pack), q, k, v, options, arrays, pyramid, out, made)


def _decode_options(pack, name, scale, n_new, completed, lse, blocks, has_lengths, has_pyramid):
    return Options(
        scale,
        has_lengths=has_lengths,
        decode=True,
        n_new=n_new,
        append_completed=completed,
        has_pyramid=has_pyramid,
        lse=lse,
        blocks=blocks,
    )


def decode(
    q,
    k,
    v,
    pyramid,
    out,
    lse,
    blocks,
    pack,
    scale=0.0,
    k_lengths=None,
    lists=None,
    q_starts=None,
    k_starts=None,
    pages=None,
    n_new=1,
    append_completed=False,
):
    opened, has_lse, has_blocks = _pack.by_key(pack), lse is not None, blocks is not None
    has_lengths, has_pyramid = k_lengths is not None, pyramid is not None
    wishes = ("op", scale, n_new, append_completed, has_lse, has_blocks, has_lengths, has_pyramid)
    made = Outputs(lse, blocks)
    if lists is q_starts is pages is None:
        if _torch.quick(opened, q, k, v, wishes, _decode_options, k_lengths, pyramid, out, made) is not None:
            return
    arrays = _arrays(k_lengths, lists, q_starts, k_starts, pages)
    options = _decode_options(opened, *wishes)._replace(
        sequences=0 if q_starts is None else q_starts.shape[0] - 1,
        n_listed=0 if lists is None else lists.shape[-1],
        page_columns=0 if pages is None else pages.shape[-1],
    )
    _torch.eager(opened, q, k, v, options, arrays, pyramid, out, made)


def _empty(q, shapes):
    """Fake outputs beside o."""
    types = (_torch.OUTPUTS.get(name, torch.int32) for name in shapes._fields)
    return [q.new_empty(shape, dtype=kind) for shape, kind in zip(shapes, types) if shape is not None]


def _shapes(pack, q, k, v, options):
    """The shapes of the outputs; how many blocks are kept makes lengths constants of the graph."""
    if not (options.blocks or options.worth):
        batch = () if options.sequences else (q.shape[0],)
        return Outputs(lse=(*batch, q.shape[1], q.shape[2]) if options.lse else None)
    layouts = [None if x is None else Layout(tuple(map(int, x.shape)), (0, 0, 0, 1)) for x in (q, k, v)]
    request = _request.make(pack, *layouts, layouts[0] if options.attend else None, options)
    _request.mark(request, options)
    return _request.outputs(pack, request, options)


def _fake_attention(q, k, v, pack, scale=0.0, density=0.0, keep=0, *rest):
    arrays, (lse, blocks) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, density=density, keep=keep, lse=lse, blocks=blocks)
    return [torch.empty_like(q), *_empty(q, _shapes(_pack.by_key(pack), q, k, v, options))]


def _fake_select(q, k, pack, scale=0.0, *rest):
    arrays, (worth, by_leaf) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)
    return _empty(q, _shapes(_pack.by_key(pack), q, k, None, options))


def _fake_nothing(*arguments):
    return None


def _refusing(op):
    """What runs in place of autograd: an error where gradients are asked for."""

    def refuse(q, k, v, *rest):
        if torch.is_grad_enabled():
            _torch.refuse_gradients(q, k, v if isinstance(v, torch.Tensor) else None)
        with torch._C._AutoDispatchBelowAutograd():
            return op(q, k, v, *rest)

    return refuse


def _register():
    library = torch.library.Library("pisa", "DEF")
    tags = [torch.Tag.pt2_compliant_tag]
    tags.append(getattr(torch.Tag, "needs_exact_strides", None) or torch.Tag.needs_fixed_stride_order)
    fakes = {"attention": _fake_attention, "select": _fake_select}
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=tuple(tags))
        for key in ("CPU", "CUDA"):
            library.impl(name, globals()[name], key)
        torch.library.register_fake(f"pisa::{name}", fakes.get(name, _fake_nothing), lib=library)
        library.impl(name, _refusing(getattr(torch.ops.pisa, name).default), "Autograd")
    return library


_library = _register()  # lives as long as the module


def run(pack, q, k, v, options, arrays, pyramid, out):
    """A call by the ops: what _torch.run returns."""
    ops, lists = torch.ops.pisa, tuple(arrays.values())
    if options.decode or pyramid is not None:
        return _write(pack, q, k, v, options, lists, pyramid, out)
    if not options.attend:
        found = ops.select(q, k, pack.key, options.scale, *lists, options.worth, options.by_leaf)
        return _spread(found, (False, False, True, options.worth, options.by_leaf, options.by_leaf))
    budget = (float(options.density), options.keep)
    found = ops.attention(q, k, v, pack.key, options.scale, *budget, *lists, options.lse, options.blocks)
    if out is not None:
        found = [out.copy_(found[0]), *found[1:]]
    return _spread(found, (True, options.lse, options.blocks, False, False, False))


def _write(pack, q, k, v, options, lists, pyramid, out):
    """Ops that write a pyramid: they get their outputs."""
    batch = () if options.sequences else (q.shape[0],)
    heads = k.shape[1]
    o = out
    if out is None and options.attend:
        o = torch.empty_like(q)
    lse = q.new_empty((*batch, q.shape[1], q.shape[2]), dtype=torch.float32) if options.lse else None
    shape = (*batch, heads, q.shape[2], pack.keep)
    blocks = q.new_empty(shape, dtype=torch.int32) if options.blocks else None
    worth = q.new_empty(shape, dtype=torch.float32) if options.worth else None
    if options.decode:
        more = (options.n_new, options.append_completed)
        torch.ops.pisa.decode(q, k, v, pyramid, o, lse, blocks, pack.key, options.scale, *lists, *more)
    else:
        torch.ops.pisa.prefill(q, k, v, pyramid, o, lse, blocks, worth, pack.key, options.scale, *lists)
    return (o, lse, blocks, worth, None, None)


def _spread(found, asked):
    """A list of what was asked for, back in its places."""
    rest = iter(found)
    return tuple(next(rest) if is_asked else None for is_asked in asked)
