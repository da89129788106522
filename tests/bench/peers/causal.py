"""Dense causal attention with groups, and a dense decode step, through PyTorch's SDPA."""

import functools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from protocol import Contestant

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def grouped(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def runs(call, scope):
    """Whether this backend takes these shapes."""
    try:
        with scope():
            call()
        torch.cuda.synchronize()
        return True
    except RuntimeError as error:
        print(f"left out: {str(error).splitlines()[0]}", flush=True)
        return False


def contestants(q, k, v, names=("cudnn",), causal=True):
    """q [B, H, Nq, D], k and v [B, Hk, Nk, D]; where a backend knows no groups, keys and values that
    were copied to every query head before."""
    found = []
    for name in names:
        scope = functools.partial(sdpa_kernel, BACKENDS[name])
        call = functools.partial(grouped, q, k, v, causal)
        if not runs(call, scope):
            group = q.shape[1] // k.shape[1]
            copies = [x.repeat_interleave(group, dim=1) for x in (k, v)]
            call = functools.partial(
                F.scaled_dot_product_attention, q, *copies, is_causal=causal
            )
            if not runs(call, scope):
                continue
        found.append(Contestant(name, call, scope))
    return found
