"""Dense attention a PyTorch user would run: SDPA with the cuDNN and the FlashAttention-2 backend.

As a module: `contestants(q, k, v)`. As a program, bf16, non-causal: dense.py B,H,N,D [B,H,N,D ...]
"""

import functools
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from protocol import Contestant, measure  # noqa: E402

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
SHAPES = ["1,24,4096,128", "1,24,8192,128", "1,24,16384,128"]


def contestants(q, k, v, names=tuple(BACKENDS)):
    call = functools.partial(F.scaled_dot_product_attention, q, k, v)
    return [
        Contestant(name, call, functools.partial(sdpa_kernel, BACKENDS[name])) for name in names
    ]


def main():
    torch.manual_seed(0)
    for shape in sys.argv[1:] or SHAPES:
        b, h, n, d = map(int, shape.split(","))
        q, k, v = [torch.randn(b, h, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        for name, (ms, loaded) in measure(contestants(q, k, v), rounds=5).items():
            print(
                json.dumps(
                    {
                        "peer": name,
                        "shape": shape,
                        "ms": ms,
                        "ms_sustained": loaded,
                        "tflops": 4 * b * h * n * n * d / ms / 1e9,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
