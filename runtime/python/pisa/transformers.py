"""The attention implementation "pisa" of transformers, for causal language models of the Llama and Qwen classes.

    import pisa, pisa.transformers
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="pisa")
    pisa.transformers.attach(model, pisa.load("smollm2_135m"))
    model.generate(..., cache_implementation="static")

With a static cache the means of keys live beside it and grow with it; with one that grows by copies they are made anew
at each call, since the room of their sequences changes. Prompts of a batch have one length.
"""

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, causal_mask_function
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ._api import Pyramid, attention, decode
from ._library import ArgumentError


def attach(model, pack):
    """Gives |model| its pack, and the attention implementation "pisa" where it has another.

    model: a causal language model in the pack's type, with the pack's head_dim and query heads per key head.
    pack: a Pack with mask causal and without pages, of method pyramid or dense; or a function of the number of a layer
        to one.
    Raises pisa.ArgumentError where they do not fit.
    """
    chosen = pack if callable(pack) else lambda layer: pack
    wanted = ("layer_idx", "num_key_value_groups")
    modules = [module for module in model.modules() if all(hasattr(module, name) for name in wanted)]
    if not modules:
        raise ArgumentError(f"model is a {type(model).__name__}, which has no attention of the Llama class")
    for module in modules:
        _check(chosen(module.layer_idx), module)
    for module in modules:
        module.pisa = Layer(chosen(module.layer_idx))
    model.set_attn_implementation("pisa")


def _check(pack, module):
    if pack.mask != "causal":
        raise ArgumentError(f"{pack.name} has mask {pack.mask}, must be causal for a language model")
    if pack.page:
        raise ArgumentError(f"{pack.name} has pages of {pack.page} keys, but caches of transformers are contiguous")
    for name, found, wanted in (
        ("head_dim", module.head_dim, pack.head_dim),
        ("query heads per key head", module.num_key_value_groups, pack.group),
    ):
        if found != wanted:
            raise ArgumentError(f"{name} of the model is {found}, of {pack.name} {wanted}")


class Layer:
    """The pack of a layer, and the pyramid of the static cache that it saw last."""

    def __init__(self, pack):
        self.pack, self.pyramid, self.place = pack, None, None

    def attend(self, q, k, v, lengths, scale):
        pack, is_one = self.pack, q.shape[2] == 1
        if lengths is None:  # the keys are those that there are
            return attention(q, k, v, pack, scale=scale, copy=True)
        if not pack.selects:
            if is_one and "decode" in pack.phases:
                return decode(q, k, v, pack, k_lengths=lengths, scale=scale, copy=True)
            return attention(q, k, v, pack, k_lengths=lengths, scale=scale, copy=True)
        if is_one and "decode" in pack.phases and self._knows(k):
            return decode(q, k, v, pack, self.pyramid, k_lengths=lengths, n_new=1, scale=scale, copy=True)
        if not self._knows(k):
            self.pyramid = Pyramid(pack, k.shape[0], k.shape[2], k.shape[1], device=k.device)
            self.place = _place(k)
        return attention(q, k, v, pack, k_lengths=lengths, pyramid=self.pyramid, scale=scale, copy=True)

    def _knows(self, k):
        """Whether the pyramid is that of the cache |k|; a compiled graph knows its cache."""
        return self.pyramid is not None and (torch.compiler.is_compiling() or self.place == _place(k))


def _place(k):
    return k.data_ptr(), tuple(k.shape)


def forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """The attention function: query [B, H, Nq, D], key and value [B, Hk, Nk, D]; attention_mask is what `mask` gave."""
    layer = getattr(module, "pisa", None)
    if layer is None:
        raise ArgumentError("the model has no pack: call pisa.transformers.attach(model, pack) first")
    if dropout:
        raise ArgumentError(f"dropout is {dropout}, must be 0: put the model into eval()")
    if kwargs.get("sliding_window") or kwargs.get("softcap") or kwargs.get("is_causal") is False:
        raise ArgumentError("pisa attends causally to all keys: without sliding windows, soft caps and other masks")
    if attention_mask is not None and attention_mask.ndim != 1:
        raise ArgumentError("attention_mask is given whole; pisa masks causally, without padding")
    return layer.attend(query, key, value, attention_mask, scaling).transpose(1, 2), None


def mask(
    batch_size,
    q_length,
    kv_length,
    q_offset=0,
    kv_offset=0,
    mask_function=causal_mask_function,
    attention_mask=None,
    device="cpu",
    **_others,
):
    """What `forward` gets as its mask: None, or for a cache with more room than keys their number, int32 [B]."""
    if mask_function is not causal_mask_function:
        raise ArgumentError("the model asks for more than a causal mask: windows, packed or blockwise sequences")
    if attention_mask is not None and not torch.compiler.is_compiling() and not attention_mask.all():
        raise ArgumentError("attention_mask has padding: give prompts of one length")
    if isinstance(q_offset, int) and q_offset + q_length == kv_length:
        return None
    lengths = torch.as_tensor(q_offset + q_length, dtype=torch.int32, device=device)
    return lengths.reshape(1).expand(batch_size).contiguous()


ALL_ATTENTION_FUNCTIONS.register("pisa", forward)
ALL_MASK_ATTENTION_FUNCTIONS.register("pisa", mask)
