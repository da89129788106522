"""The custom ops pisa::attention, pisa::select, pisa::decode and pisa::prefill, and what torch.compile must know.

Graphs name packs by their keys (Pack.key). The first two make their outputs; decode and prefill write into given ones,
since they change a pyramid as well.
"""

import torch

from . import _pack, _request, _torch
from ._request import Layout, Options, Outputs

ARRAYS = "Tensor? k_lengths, Tensor? blocks_in, Tensor? q_starts, Tensor? k_starts, Tensor? pages"
SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, str pack, float scale, float density, int keep, "
    f"{ARRAYS}, bool lse, bool blocks) -> Tensor[]",
    "select": f"(Tensor q, Tensor k, str pack, float scale, {ARRAYS}, bool worth, bool by_leaf) -> Tensor[]",
    "prefill": "(Tensor q, Tensor k, Tensor? v, Tensor(a!) pyramid, Tensor(b!)? out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, Tensor(e!)? worth, str pack, float scale, {ARRAYS}) -> ()",
    "decode": "(Tensor q, Tensor k, Tensor v, Tensor(a!)? pyramid, Tensor(b!) out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, str pack, float scale, {ARRAYS}, int n_new, bool append_completed) -> ()",
}


def _name(lists):
    return dict(zip(("k_lengths", "lists", "q_starts", "k_starts", "pages"), lists))


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


_plain = {}  # the options of calls without integer inputs: as many as a model has settings


def attention(q, k, v, pack, scale, density, keep, k_lengths, lists, q_starts, k_starts, pages, lse, blocks):
    if k_lengths is lists is q_starts is pages is None and not (lse or blocks):
        options = _plain.get((scale, density, keep))
        if options is None:
            options = _plain[scale, density, keep] = Options(scale=scale, density=density, keep=keep)
        return [_torch.eager(_pack.by_key(pack), q, k, v, options, None, None, None)[0]]
    arrays = _name((k_lengths, lists, q_starts, k_starts, pages))
    options = _options(arrays, scale=scale, density=density, keep=keep, lse=lse, blocks=blocks)
    return _there(_torch.eager(_pack.by_key(pack), q, k, v, options, arrays, None, None))


def select(q, k, pack, scale, *rest):
    arrays, (worth, by_leaf) = _name(rest[:5]), rest[5:]
    options = _options(arrays, scale=scale, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)
    return _there(_torch.eager(_pack.by_key(pack), q, k, None, options, arrays, None, None))


def prefill(q, k, v, pyramid, out, lse, blocks, worth, pack, scale, *rest):
    arrays, made = _name(rest), Outputs(lse=lse, blocks=blocks, worth=worth)
    wanted = {name: x is not None for name, x in zip(Outputs._fields[:3], made)}
    options = _options(arrays, scale=scale, attend=v is not None, has_pyramid=True, **wanted)
    _torch.eager(_pack.by_key(pack), q, k, v, options, arrays, pyramid, out, made)


def decode(q, k, v, pyramid, out, lse, blocks, pack, scale, *rest):
    arrays, (n_new, completed), made = _name(rest[:5]), rest[5:], Outputs(lse=lse, blocks=blocks)
    options = _options(
        arrays,
        scale=scale,
        decode=True,
        n_new=n_new,
        append_completed=completed,
        has_pyramid=pyramid is not None,
        lse=lse is not None,
        blocks=blocks is not None,
    )
    _torch.eager(_pack.by_key(pack), q, k, v, options, arrays, pyramid, out, made)


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


def _fake_attention(q, k, v, pack, scale, density, keep, *rest):
    options = _options(_name(rest[:5]), density=density, keep=keep, lse=rest[5], blocks=rest[6])
    return [torch.empty_like(q), *_empty(q, _shapes(_pack.by_key(pack), q, k, v, options))]


def _fake_select(q, k, pack, scale, *rest):
    options = _options(_name(rest[:5]), attend=False, blocks=True, worth=rest[5], by_leaf=rest[6])
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
