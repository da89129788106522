"""The Triton kernel of the method's authors, where someone cloned it (.peers/ is ignored by git).

cd .peers && git clone https://github.com/xie-lab-ml/piecewise-sparse-attention
"""

import functools
import importlib
import pathlib
import sys

import torch

from protocol import Contestant

CLONE = pathlib.Path(__file__).resolve().parents[3] / ".peers" / "piecewise-sparse-attention"
MODULE = "piecewise_attn.kernels.piecewise_sparse_attn_hyd"


def available():
    return (CLONE / (MODULE.replace(".", "/") + ".py")).exists()


def contestants(q, k, v, density):
    """Hybrid tail with the log-covariance router, blocks of 64; bf16 and D = 128 alone.

    Empty for other shapes, and when there is no clone.
    """
    if not available() or q.dtype != torch.bfloat16 or q.shape[3] != 128:
        return []
    sys.path.insert(0, str(CLONE))
    attend = importlib.import_module(MODULE).piecewise_sparse_attention
    call = functools.partial(attend, q, k, v, density=density, block_size=64, use_bias=True)
    return [Contestant("authors", call)]
