"""Piecewise attention in double precision with torch, from the formulas alone (arXiv 2602.01077).

Independent of runtime/cpu: a second opinion before anything is timed. Small shapes only: N x N
logits are stored.
"""

import math

import torch

QUERY, BLOCK = 128, 64


def block_sums(x, blocks):
    """[B, H, N, D] -> sums over blocks of 64 rows [B, H, NT, D]."""
    b, h, n, d = x.shape
    padded = torch.cat([x, x.new_zeros(b, h, blocks * BLOCK - n, d)], dim=2)
    return padded.view(b, h, blocks, BLOCK, d).sum(3)


def stored(x, dtype):
    """Rounded as the kernels store a summary."""
    return x.to(dtype).double()


def shared(x, q):
    """Keys or values [B, Hk, N, D] as every query head of q [B, H, N, D] reads them."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def selection(ids, blocks):
    """Block lists [B, H, NTq, kept] -> bool [B, H, NTq, NT]."""
    mask = torch.zeros(*ids.shape[:3], blocks + 1, dtype=torch.bool, device=ids.device)
    mask.scatter_(3, torch.where(ids < 0, blocks, ids).long(), True)
    return mask[..., :blocks]


def piecewise(q, k, v, ids, rest, scale):
    """(o, lse) in double. |ids|: lists read exactly; |rest|: drop, taylor_0, taylor_hybrid."""
    dtype = q.dtype
    gain = 64 if dtype == torch.float16 else 1  # what a stored h_sum carries (docs/ABI.md)
    q, k, v = q.double(), shared(k, q).double(), shared(v, q).double()
    n_q, n_k = q.shape[2], k.shape[2]
    blocks = -(-n_k // BLOCK)
    lengths = torch.full((blocks,), BLOCK, device=q.device, dtype=torch.double)
    lengths[-1] = n_k - BLOCK * (blocks - 1)
    k_mean = block_sums(k, blocks) / lengths[:, None]
    v_mean = block_sums(v, blocks) / lengths[:, None]
    rows = torch.arange(n_q, device=q.device) // QUERY
    columns = torch.arange(n_k, device=q.device) // BLOCK
    selected = selection(ids, blocks)[:, :, rows]
    exact = (scale * q @ k.mT).masked_fill(~selected[..., columns], -math.inf)
    means = scale * q @ stored(k_mean, dtype).mT + lengths.log()
    means = (
        torch.full_like(means, -math.inf)
        if rest == "drop"
        else means.masked_fill(selected, -math.inf)
    )
    lse = torch.cat([exact, means], dim=3).logsumexp(3)
    tail = (means - lse[..., None]).exp()
    o = (exact - lse[..., None]).exp() @ v + tail @ stored(v_mean, dtype)
    if rest == "taylor_hybrid":
        h_sum = (k - k_mean[:, :, columns]).mT @ v
        h_sum = stored(h_sum * scale / n_k * gain, dtype) / gain
        o = o + tail.sum(3, keepdim=True) * (q @ h_sum)
    return o, lse


def dense(q, k, v, scale):
    logits = scale * q.double() @ shared(k, q).double().mT
    return logits.softmax(3) @ shared(v, q).double(), logits.logsumexp(3)
