"""What the tests of torch tensors share; imported behind torch, which may not be there."""

import numpy as np
import torch
from common import normal


def inputs(n_q, n_k, d=64, heads=4, kv_heads=2, batch=1):
    shapes = ((batch, heads, n_q, d), (batch, kv_heads, n_k, d), (batch, kv_heads, n_k, d))
    return [torch.from_numpy(normal(shape, seed)).bfloat16() for seed, shape in enumerate(shapes)]


def bits(x):
    return x.view(torch.int16).numpy().view(np.uint16)
