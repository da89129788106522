"""pisa: sparse attention for Hopper GPUs from packs of compiled kernels, and the same methods on any CPU.

    import pisa
    pack = pisa.load("flux1_dev")        # a shipped pack, or a path; choices of a variant by keyword
    o = pisa.attention(q, k, v, pack)    # q, k, v [B, H, N, D]: torch, NumPy, or anything with __dlpack__

`attention`, `select`, `decode` and `Pyramid` tell the rest; docs/python.md is the whole page. Models: `pisa.diffusers`,
`pisa.transformers`. torch is imported when its tensors come, or when torch is there before pisa.
"""

from ._api import Pyramid, attention, decode, select
from ._library import ArgumentError, Error, NotFoundError
from ._library import version as __version__
from ._pack import Pack, load, packs

__all__ = [
    "ArgumentError",
    "Error",
    "NotFoundError",
    "Pack",
    "Pyramid",
    "attention",
    "decode",
    "load",
    "packs",
    "select",
    "__version__",
]
