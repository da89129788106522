"""diffusers models that attend with a pack: `attach(model, pack)` for FLUX, SD3, Wan and HunyuanVideo transformers.

    import pisa, pisa.diffusers
    attached = pisa.diffusers.attach(pipe.transformer, pisa.load("flux1_dev"), dense_blocks=4)
    ...
    attached.remove()

Image tokens are put in tile order once, where the model embeds them, and back where they leave it: attention, norms and
position embeddings do not mind the order, and a key block becomes a patch of the picture. What a model adds to its
image tokens from outside (ControlNet) stays in raster order: use tile=None with it.
"""

import inspect

import torch
from diffusers.models.embeddings import apply_rotary_emb

from ._api import attention
from ._library import ArgumentError


def attach(model, pack, *, tile="default", dense_blocks=0, dense_steps=0, exact_text=False, grid=None):
    """Lets the self-attention of |model| run by |pack|; cross-attention stays as it is.

    model: FluxTransformer2DModel, SD3Transformer2DModel, WanTransformer3DModel or HunyuanVideoTransformer3DModel, in
        the pack's type, with the pack's head_dim. Fused projections must be unfused.
    tile: side of the tiles that image tokens are ordered in, within each frame; None: raster order. Default: 8 for
        pictures, None for videos, as the authors of piecewise attention have it.
    dense_blocks: the first blocks of the model keep their own attention; dense_steps: so do all in the first steps of a
        run. A step is a new timestep, and one larger than the last begins a run; looking at it waits for the GPU once a
        forward.
    exact_text: refuse a call whose text tokens are not all read exactly by the pack's always-set (`always tokens first
        n` or `last n`). Text is moved to the end that the pack names; without such a rule it competes like all other
        tokens.
    grid: (rows, columns) of FLUX's image tokens; None: from img_ids, which waits for the GPU once a forward.
    Returns an Attached; its remove() gives the model back. Raises pisa.ArgumentError.
    Source: arXiv 2602.01077, sections on FLUX, SD3.5, Wan and HunyuanVideo.
    """
    kind = next((KINDS[base.__name__] for base in type(model).__mro__ if base.__name__ in KINDS), None)
    if kind is None:
        raise ArgumentError(f"model is a {type(model).__name__}, must be one of {', '.join(KINDS)}")
    return kind(model, pack, kind.tile if tile == "default" else tile, dense_blocks, dense_steps, exact_text, grid)


class Attached:
    """A model that attends with a pack. What differs between models is in the classes below."""

    tile = None
    text_at = None  # the end of the sequence at which the model has its text

    def __init__(self, model, pack, tile, dense_blocks, dense_steps, exact_text, grid):
        self.model, self.pack, self.tile, self.grid = model, pack, tile, grid
        self.dense_blocks, self.dense_steps, self.exact_text = dense_blocks, dense_steps, exact_text
        self.steps, self.timestep, self.n_text = 0, None, 0
        self.order = self.back = None
        self.orders = {}
        self.exact_at, self.n_exact = _exact_end(pack)
        self.hooks = [model.register_forward_pre_hook(self._before, with_kwargs=True)]
        self.hooks.append(model.proj_out.register_forward_hook(lambda _module, _inputs, x: self.restore(x)))
        self._add_hooks(model)
        self.saved = []
        for index, attn in self._modules(model):
            self.saved.append((attn, attn.processor))
            attn.set_processor(self.processor(self, index, attn.processor))

    def remove(self):
        """Gives the model its own attention and token order back."""
        for attn, processor in self.saved:
            attn.set_processor(processor)
        for hook in self.hooks:
            hook.remove()
        self.saved, self.hooks = [], []

    def is_dense(self, index):
        return index < self.dense_blocks or self.steps <= self.dense_steps and self.dense_steps > 0

    def _before(self, model, args, kwargs):
        call = inspect.signature(model.forward).bind(*args, **kwargs)
        if self.dense_steps:
            self._count(call.arguments["timestep"])
        text = call.arguments.get("encoder_hidden_states")
        self.n_text = 0 if text is None else text.shape[1]
        if self.tile:
            self._set_order(self._grid(call.arguments), call.arguments["hidden_states"].device)
            self._reorder(call.arguments)
        return call.args, call.kwargs

    def _count(self, timestep):
        now = float(timestep.flatten()[0])
        if self.timestep is None or now > self.timestep:
            self.steps = 0
        if now != self.timestep:
            self.steps, self.timestep = self.steps + 1, now

    def _set_order(self, grid, device):
        key = (grid, device)
        if key not in self.orders:
            order = tile_order(*grid, self.tile)
            self.orders[key] = order.to(device), torch.argsort(order).to(device)
        self.order, self.back = self.orders[key]

    def tiled(self, x, dim=1):
        """|x|, whose dimension |dim| is image tokens, in tile order."""
        return x.index_select(dim, self.order) if self.tile else x

    def restore(self, x):
        return x.index_select(1, self.back) if self.tile else x

    def _reorder(self, arguments):
        """For models that get tokens."""

    def _add_hooks(self, model):
        """For models that make their tokens."""

    def attend(self, q, k, v, n_text, lengths=None):
        """q, k, v [B, N, H, D], text at the model's end; o [B, N, H D]."""
        turned = n_text and self.exact_at not in (None, self.text_at)
        if self.exact_text and n_text > self.n_exact:
            raise ArgumentError(
                f"there are {n_text} text tokens, but {self.pack.name} always reads {self.n_exact or 'none'} exactly: "
                "choose a pack with `always tokens first` or `last`, or exact_text=False"
            )
        if turned and lengths is not None:
            raise ArgumentError(f"{self.pack.name} reads the {self.exact_at} tokens exactly, but padding must be last")
        ahead = n_text if self.text_at == "first" else -n_text
        if turned:
            q, k, v = (torch.roll(x, -ahead, 1) for x in (q, k, v))
        q, k, v = (x.to(v.dtype).transpose(1, 2) for x in (q, k, v))
        o = attention(q, k, v, self.pack, k_lengths=lengths, copy=True).transpose(1, 2)
        if turned:
            o = torch.roll(o, ahead, 1)
        return o.flatten(2)


def tile_order(frames, rows, columns, tile):
    """Token numbers of a [frames, rows, columns] raster, frame by frame in the order of its tiles, int64."""
    f, r, c = torch.meshgrid(torch.arange(frames), torch.arange(rows), torch.arange(columns), indexing="ij")
    tiles = (f * -(-rows // tile) + r // tile) * -(-columns // tile) + c // tile
    return torch.argsort(tiles.flatten(), stable=True)


def _exact_end(pack):
    """Where the pack always reads tokens exactly: ("first" or "last", how many), or (None, 0)."""
    ends = dict(word.split("=") for word in pack.always if word.startswith(("first=", "last=")))
    return max(((end, int(n)) for end, n in ends.items()), key=lambda found: found[1], default=(None, 0))


class _Processor:
    """The attention of one module: the model's own where it is dense."""

    def __init__(self, attached, index, dense):
        self.attached, self.index, self.dense = attached, index, dense


def _project(attn, x, names=("to_q", "to_k", "to_v"), norms=("norm_q", "norm_k"), split_first=True):
    """Queries, keys and values [B, N, H, D] of tokens |x|, normed."""
    if getattr(attn, "fused_projections", False):
        raise ArgumentError("the projections of the model are fused: call its unfuse_qkv_projections first")
    q, k, v = (getattr(attn, name)(x) for name in names)
    norm_q, norm_k = (getattr(attn, name, None) or torch.nn.Identity() for name in norms)
    if not split_first:
        q, k = norm_q(q), norm_k(k)
    q, k, v = (x.unflatten(2, (attn.heads, -1)) for x in (q, k, v))
    return (norm_q(q), norm_k(k), v) if split_first else (q, k, v)


def _project_text(attn, x):
    return _project(attn, x, ("add_q_proj", "add_k_proj", "add_v_proj"), ("norm_added_q", "norm_added_k"))


def _join(first, second):
    return [torch.cat(pair, dim=1) for pair in zip(first, second)]


def _out(attn, image, text=None):
    """The output projections: image alone, or (image, text)."""
    to_out, to_add_out = getattr(attn, "to_out", None), getattr(attn, "to_add_out", None)
    if to_out is not None:
        image = to_out[1](to_out[0](image))
    if text is not None and to_add_out is not None and not getattr(attn, "context_pre_only", False):
        text = to_add_out(text)
    return image if text is None else (image, text)


class _FluxProcessor(_Processor):
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, image_rotary_emb=None):
        run = self.attached
        if run.is_dense(self.index):
            return self.dense(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
        q, k, v = _project(attn, hidden_states)
        if encoder_hidden_states is not None:
            q, k, v = _join(_project_text(attn, encoder_hidden_states), (q, k, v))
        if image_rotary_emb is not None:
            q, k = (apply_rotary_emb(x, image_rotary_emb, sequence_dim=1) for x in (q, k))
        o = run.attend(q, k, v, run.n_text)
        if encoder_hidden_states is None:
            return o
        return _out(attn, o[:, run.n_text :], o[:, : run.n_text])


class Flux(Attached):
    tile, text_at, processor = 8, "first", _FluxProcessor

    def _modules(self, model):
        return enumerate(block.attn for block in (*model.transformer_blocks, *model.single_transformer_blocks))

    def _grid(self, arguments):
        if self.grid:
            return (1, *self.grid)
        ids = arguments["img_ids"]
        ids = ids[0] if ids.ndim == 3 else ids
        low, high = ids[:, 1:].amin(0), ids[:, 1:].amax(0)
        grid = (1, *(int(n) for n in (high - low + 1).tolist()))
        if grid[1] * grid[2] != ids.shape[0]:
            sides = f"{grid[1]} x {grid[2]}"
            raise ArgumentError(f"img_ids name {ids.shape[0]} tokens, which are no picture of {sides}: use tile=None")
        return grid

    def _reorder(self, arguments):
        arguments["hidden_states"] = self.tiled(arguments["hidden_states"])
        arguments["img_ids"] = self.tiled(arguments["img_ids"], arguments["img_ids"].ndim - 2)


class _SD3Processor(_Processor):
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
        if self.attached.is_dense(self.index):
            return self.dense(attn, hidden_states, encoder_hidden_states, attention_mask)
        n = hidden_states.shape[1]
        q, k, v = _project(attn, hidden_states)
        if encoder_hidden_states is None:  # the second, image-only attention of some blocks
            return _out(attn, self.attached.attend(q, k, v, 0))
        q, k, v = _join((q, k, v), _project_text(attn, encoder_hidden_states))
        o = self.attached.attend(q, k, v, encoder_hidden_states.shape[1])
        return _out(attn, o[:, :n], o[:, n:])


class SD3(Attached):
    tile, text_at, processor = 8, "last", _SD3Processor

    def _modules(self, model):
        for index, block in enumerate(model.transformer_blocks):
            yield index, block.attn
            if getattr(block, "attn2", None) is not None:
                yield index, block.attn2

    def _grid(self, arguments):
        return (1, *(n // self.model.config.patch_size for n in arguments["hidden_states"].shape[-2:]))

    def _add_hooks(self, model):
        self.hooks.append(model.pos_embed.register_forward_hook(lambda _module, _inputs, x: self.tiled(x)))


class _WanProcessor(_Processor):
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        if self.attached.is_dense(self.index):
            return self.dense(attn, hidden_states, encoder_hidden_states, attention_mask, rotary_emb)
        q, k, v = _project(attn, hidden_states, split_first=False)
        if rotary_emb is not None:
            q, k = (_rotate(x, *rotary_emb) for x in (q, k))
        return _out(attn, self.attached.attend(q, k, v, 0))


def _rotate(x, cosine, sine):
    """Wan's position embedding: pairs of neighbours, turned."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cosine, sine = cosine[..., 0::2], sine[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2).to(x.dtype)


class Wan(Attached):
    processor = _WanProcessor

    def _modules(self, model):
        return enumerate(block.attn1 for block in model.blocks)

    def _grid(self, arguments):
        if arguments["timestep"].ndim == 2:
            raise ArgumentError("timestep has one number a token, in raster order: use tile=None")
        return tuple(n // p for n, p in zip(arguments["hidden_states"].shape[2:], self.model.config.patch_size))

    def _add_hooks(self, model):
        def embedded(_module, _inputs, x):
            return self.tiled(x.flatten(2), 2).view(x.shape)

        self.hooks.append(model.patch_embedding.register_forward_hook(embedded))
        self.hooks.append(model.rope.register_forward_hook(lambda _module, _inputs, pair: tuple(map(self.tiled, pair))))


class _HunyuanProcessor(_Processor):
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, image_rotary_emb=None):
        run = self.attached
        if run.is_dense(self.index):
            return self.dense(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
        n = hidden_states.shape[1]
        q, k, v = _project(attn, hidden_states)
        if image_rotary_emb is not None:
            q, k = (apply_rotary_emb(x, image_rotary_emb, sequence_dim=1) for x in (q, k))
        # blocks of two streams have projections for text, those of one stream share the image's
        project = _project if attn.add_q_proj is None else _project_text
        q, k, v = _join((q, k, v), project(attn, encoder_hidden_states))
        lengths = None if attention_mask is None else attention_mask.sum(-1).flatten().int()  # padding is last
        o = run.attend(q, k, v, encoder_hidden_states.shape[1], lengths)
        return _out(attn, o[:, :n], o[:, n:])


class HunyuanVideo(Attached):
    text_at, processor = "last", _HunyuanProcessor

    def _modules(self, model):
        return enumerate(block.attn for block in (*model.transformer_blocks, *model.single_transformer_blocks))

    def _grid(self, arguments):
        config = self.model.config
        sides = (config.patch_size_t, config.patch_size, config.patch_size)
        return tuple(n // p for n, p in zip(arguments["hidden_states"].shape[2:], sides))

    def _add_hooks(self, model):
        def positions(_module, _inputs, pair):
            return tuple(self.tiled(x, 0) for x in pair)

        self.hooks.append(model.x_embedder.register_forward_hook(lambda _module, _inputs, x: self.tiled(x)))
        self.hooks.append(model.rope.register_forward_hook(positions))


KINDS = {
    "FluxTransformer2DModel": Flux,
    "SD3Transformer2DModel": SD3,
    "WanTransformer3DModel": Wan,
    "HunyuanVideoTransformer3DModel": HunyuanVideo,
}
