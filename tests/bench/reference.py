"""Piecewise attention in double precision with torch, from the formulas alone (arXiv 2602.01077).

Independent of runtime/cpu: a second opinion before anything is timed. Small shapes only: N x N
logits are stored.
"""

import math

import torch


def block_sums(x, size):
    """[B, H, N, D] -> sums over blocks of |size| rows [B, H, NT, D]."""
    b, h, n, d = x.shape
    blocks = -(-n // size)
    padded = torch.cat([x, x.new_zeros(b, h, blocks * size - n, d)], dim=2)
    return padded.view(b, h, blocks, size, d).sum(3)


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


def mean_logits(q, k, k_mean, lengths, columns, scale, second_order, dtype):
    """Scores of block means; to second order with round(q^2) times the stored variances."""
    logits = scale * q @ stored(k_mean, dtype).mT + lengths.log()
    if second_order:
        size = int(lengths.max())
        variance = block_sums((k - k_mean[:, :, columns]) ** 2, size) / lengths[:, None]
        logits = logits + scale * stored(q * q, dtype) @ stored(scale / 2 * variance, dtype).mT
    return logits


def first_order_tail(logits, columns, lengths, second_order):
    """Blocks to first order about their mean logit (taylor 1): logits [..., NT] of their mass, and what
    a token weighs of it [..., Nk]."""
    count = int(columns[-1]) + 1
    sums = torch.zeros(*logits.shape[:3], count, device=logits.device, dtype=torch.double)
    mean = sums.index_add(3, columns, logits) / lengths
    slope = logits - mean[..., columns]
    mass = mean + sums.index_add(3, columns, slope * slope) / lengths / 2 if second_order else mean
    return mass + lengths.log(), (1 + slope) / lengths[columns]


def piecewise(q, k, v, ids, attend, blocks, scale):
    """(o, lse) in double. |ids|: lists read exactly; |attend|: the manifest's words, rest=drop,
    taylor_0, taylor_1 or taylor_hybrid and mass; |blocks|: rows of a query block, tokens of a key
    block."""
    dtype = q.dtype
    gain = 64 if dtype == torch.float16 else 1  # what a stored h_sum carries (docs/ABI.md)
    q, k, v = q.double(), shared(k, q).double(), shared(v, q).double()
    rest, (query, key) = attend["rest"], blocks
    n_q, n_k = q.shape[2], k.shape[2]
    n_blocks = -(-n_k // key)
    lengths = torch.full((n_blocks,), key, device=q.device, dtype=torch.double)
    lengths[-1] = n_k - key * (n_blocks - 1)
    k_mean = block_sums(k, key) / lengths[:, None]
    v_mean = block_sums(v, key) / lengths[:, None]
    rows = torch.arange(n_q, device=q.device) // query
    columns = torch.arange(n_k, device=q.device) // key
    selected = selection(ids, n_blocks)[:, :, rows]
    logits = scale * q @ k.mT
    exact = logits.masked_fill(~selected[..., columns], -math.inf)
    second_order = attend.get("mass") == "second_order"
    if rest == "taylor_1":
        masses, weights = first_order_tail(logits, columns, lengths, second_order)
    else:
        masses = mean_logits(q, k, k_mean, lengths, columns, scale, second_order, dtype)
    masses = masses.masked_fill(selected, -math.inf)
    if rest == "drop":
        masses = torch.full_like(masses, -math.inf)
    lse = torch.cat([exact, masses], dim=3).logsumexp(3)
    tail = (masses - lse[..., None]).exp()
    o = (exact - lse[..., None]).exp() @ v
    if rest == "taylor_1":
        return o + (tail[..., columns] * weights) @ v, lse
    o = o + tail @ stored(v_mean, dtype)
    if rest == "taylor_hybrid":
        h_sum = (k - k_mean[:, :, columns]).mT @ v
        h_sum = stored(h_sum * scale / n_k * gain, dtype) / gain
        o = o + tail.sum(3, keepdim=True) * (q @ h_sum)
    return o, lse


def dense(q, k, v, scale):
    logits = scale * q.double() @ shared(k, q).double().mT
    return logits.softmax(3) @ shared(v, q).double(), logits.logsumexp(3)
