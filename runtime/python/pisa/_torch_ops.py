"""The custom ops of torch.ops.pisa, attention, select, decode and prefill, and what torch.compile must know.

Graphs name packs by their keys (Pack.key). The first two make their outputs; decode and prefill write into given ones,
since they change a pyramid as well. What most calls ask for is an overload of its own (`default`), the same with
numbers another (`more`), everything else a third (`full`): every argument and every list costs a call a part of a
microsecond, asked for or not.
"""

import torch

from . import _pack, _request, _torch
from ._request import Layout, Options, Outputs

NAMES = ("k_lengths", "blocks_in", "q_starts", "k_starts", "pages")
ARRAYS = ", ".join(f"Tensor? {name}=None" for name in NAMES)
# The dispatcher leaves out last arguments that are their defaults, but compares each before.
SCHEMAS = {
    # o
    "attention": "(Tensor q, Tensor k, Tensor v, str pack) -> Tensor",
    "attention.more": "(Tensor q, Tensor k, Tensor v, str pack, float scale=0.0, float density=0.0, int keep=0) "
    "-> Tensor",
    # o and those asked for of lse and blocks
    "attention.full": "(Tensor q, Tensor k, Tensor v, str pack, float scale=0.0, float density=0.0, int keep=0, "
    f"{ARRAYS}, bool lse=False, bool blocks=False) -> Tensor[]",
    # blocks
    "select": "(Tensor q, Tensor k, str pack, float scale=0.0) -> Tensor",
    # blocks and those asked for of worth and (two) the lists by leaf
    "select.full": f"(Tensor q, Tensor k, str pack, float scale=0.0, {ARRAYS}, bool worth=False, bool by_leaf=False) "
    "-> Tensor[]",
    "prefill": "(Tensor q, Tensor k, Tensor? v, Tensor(a!) pyramid, Tensor(b!)? out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, Tensor(e!)? worth, str pack, float scale=0.0, {ARRAYS}) -> ()",
    "decode": "(Tensor q, Tensor k, Tensor v, Tensor(a!) pyramid, Tensor(b!) out, str pack, Tensor? k_lengths=None) "
    "-> ()",
    "decode.more": "(Tensor q, Tensor k, Tensor v, Tensor(a!) pyramid, Tensor(b!) out, str pack, "
    "Tensor? k_lengths=None, float scale=0.0, int n_new=1, bool append_completed=False) -> ()",
    "decode.full": "(Tensor q, Tensor k, Tensor v, Tensor(a!)? pyramid, Tensor(b!) out, Tensor(c!)? lse, "
    f"Tensor(d!)? blocks, str pack, float scale=0.0, {ARRAYS}, int n_new=1, bool append_completed=False) -> ()",
}

Tensor = torch.Tensor
known_pack, load_pack = _pack._packs.get, _pack.load_key
NOT_WATCHING = (Tensor, str, type(None))  # types of the third argument


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


def _attention_options(pack, name, scale, density, keep):
    return Options(scale, density, keep)


def attention(q, k, v, pack, scale=0.0, density=0.0, keep=0):
    opened, wishes = known_pack(pack) or load_pack(pack), ("attention", scale, density, keep)
    found = _torch.launch(opened, q, k, v, wishes, _attention_options)
    if found is None:
        found = _torch.eager(opened, q, k, v, _attention_options(opened, *wishes), _torch.NO_ARRAYS, None, None)
    return found[0]


def attention_full(q, k, v, pack, scale=0.0, density=0.0, keep=0, *rest):
    arrays, (lse, blocks) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, scale=scale, density=density, keep=keep, lse=lse, blocks=blocks)
    return _there(_torch.eager(_pack.by_key(pack), q, k, v, options, arrays, None, None))


def _select_options(pack, name, scale):
    return Options(scale, attend=False, blocks=True)


def select(q, k, pack, scale=0.0):
    opened, wishes = known_pack(pack) or load_pack(pack), ("select", scale)
    found = _torch.launch(opened, q, k, None, wishes, _select_options)
    if found is None:
        found = _torch.eager(opened, q, k, None, _select_options(opened, *wishes), _torch.NO_ARRAYS, None, None)
    return found[2]


def select_full(q, k, pack, scale=0.0, *rest):
    arrays, (worth, by_leaf) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, scale=scale, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)
    return _there(_torch.eager(_pack.by_key(pack), q, k, None, options, arrays, None, None))


def prefill(q, k, v, pyramid, out, lse, blocks, worth, pack, scale=0.0, *lists):
    arrays, made = _arrays(*lists), Outputs(lse=lse, blocks=blocks, worth=worth)
    wanted = {name: x is not None for name, x in zip(Outputs._fields[:3], made)}
    options = _options(arrays, scale=scale, attend=v is not None, has_pyramid=True, **wanted)
    _torch.eager(_pack.by_key(pack), q, k, v, options, arrays, pyramid, out, made)


def _decode_options(pack, name, scale, n_new, completed, has_lengths):
    more = {"n_new": n_new, "append_completed": completed}
    return Options(scale, has_lengths=has_lengths, decode=True, has_pyramid=True, **more)


def decode(q, k, v, pyramid, out, pack, k_lengths=None, scale=0.0, n_new=1, append_completed=False):
    opened = known_pack(pack) or load_pack(pack)
    wishes = ("decode", scale, n_new, append_completed, k_lengths is not None)
    if _torch.launch(opened, q, k, v, wishes, _decode_options, k_lengths, pyramid, out) is None:
        _torch.eager(opened, q, k, v, _decode_options(opened, *wishes), _arrays(k_lengths), pyramid, out)


def decode_full(q, k, v, pyramid, out, lse, blocks, pack, scale=0.0, *rest):
    arrays, (n_new, completed) = _arrays(*rest[:5]), (*rest[5:], *(1, False)[len(rest[5:]) :])
    wanted = {"lse": lse is not None, "blocks": blocks is not None, "has_pyramid": pyramid is not None}
    more = {"decode": True, "n_new": n_new, "append_completed": completed}
    options = _options(arrays, scale=scale, **wanted, **more)
    _torch.eager(_pack.by_key(pack), q, k, v, options, arrays, pyramid, out, Outputs(lse, blocks))


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


def _fake_attention(q, k, v, pack, scale=0.0, density=0.0, keep=0):
    return torch.empty_like(q)


def _fake_attention_full(q, k, v, pack, scale=0.0, density=0.0, keep=0, *rest):
    arrays, (lse, blocks) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, density=density, keep=keep, lse=lse, blocks=blocks)
    return [torch.empty_like(q), *_empty(q, _shapes(_pack.by_key(pack), q, k, v, options))]


def _fake_select(q, k, pack, scale=0.0):
    return _fake_select_full(q, k, pack, scale)[0]


def _fake_select_full(q, k, pack, scale=0.0, *rest):
    arrays, (worth, by_leaf) = _arrays(*rest[:5]), (*rest[5:], False, False)[:2]
    options = _options(arrays, attend=False, blocks=True, worth=worth, by_leaf=by_leaf)
    return _empty(q, _shapes(_pack.by_key(pack), q, k, None, options))


def _fake_nothing(*arguments):
    return None


def _refusing(op, kernel):
    """What runs in place of autograd: an error where gradients are asked for."""

    def refuse(q, k, v, *rest):
        if _torch.is_grad_enabled():
            _torch.refuse_gradients(q, k, v if isinstance(v, Tensor) else None)
        # Where nobody stands between autograd and the kernel, the way through the dispatcher is not gone twice.
        if type(q) is Tensor and type(k) is Tensor and type(v) in NOT_WATCHING and not _torch.watchers():
            return kernel(q, k, v, *rest)
        with torch._C._AutoDispatchBelowAutograd():
            return op(q, k, v, *rest)

    return refuse


def _register():
    library = torch.library.Library("pisa", "DEF")
    tags = [torch.Tag.pt2_compliant_tag]
    tags.append(getattr(torch.Tag, "needs_exact_strides", None) or torch.Tag.needs_fixed_stride_order)
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=tuple(tags))
        kernel = globals()[name.removesuffix(".more").replace(".", "_")]
        fake = globals().get(f"_fake_{kernel.__name__}", _fake_nothing)
        for key in ("CPU", "CUDA"):
            library.impl(name, kernel, key)
        torch.library.register_fake(f"pisa::{name}", fake, lib=library)
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.pisa, packet), overload or "default")
        library.impl(name, _refusing(op, kernel), "Autograd")
    return library


_library = _register()  # lives as long as the module


def run(pack, q, k, v, options, arrays, pyramid, out):
    """A call by the ops: what _torch.run returns."""
    ops, lists = torch.ops.pisa, tuple(arrays.values())
    if options.decode or pyramid is not None:
        return _write(pack, q, k, v, options, lists, pyramid, out)
    if not options.attend:
        found = ops.select.full(q, k, pack.key, options.scale, *lists, options.worth, options.by_leaf)
        return _spread(found, (False, False, True, options.worth, options.by_leaf, options.by_leaf))
    call, numbers = (q, k, v, pack.key), (options.scale, float(options.density), options.keep)
    wanted = (options.lse, options.blocks)
    if any(wanted) or any(x is not None for x in lists):
        found = ops.attention.full(*call, *numbers, *lists, *wanted)
    else:
        found = [ops.attention.more(*call, *numbers) if any(numbers) else ops.attention.default(*call)]
    if out is not None:
        found = [out.copy_(found[0]), *found[1:]]
    return _spread(found, (True, *wanted, False, False, False))


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
    key, scale, ops = pack.key, options.scale, torch.ops.pisa
    if not options.decode:
        ops.prefill.default(q, k, v, pyramid, o, lse, blocks, worth, key, scale, *lists)
        return (o, lse, blocks, worth, None, None)
    more = (options.n_new, options.append_completed)
    call, numbers = (q, k, v, pyramid, o, key, lists[0]), (scale, *more)
    if pyramid is None or options.lse or options.blocks or any(x is not None for x in lists[1:]):
        ops.decode.full(q, k, v, pyramid, o, lse, blocks, key, scale, *lists, *more)
    elif numbers != (0.0, 1, False):
        ops.decode.more(*call, *numbers)
    else:
        ops.decode.default(*call)
    return (o, lse, blocks, worth, None, None)


def _spread(found, asked):
    """A list of what was asked for, back in its places."""
    rest = iter(found)
    return tuple(next(rest) if is_asked else None for is_asked in asked)
