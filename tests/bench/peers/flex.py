"""Keep-or-drop attention with FlexAttention: 128 x 128 blocks, one random list per query block.

The mask is given; making it is not timed.
Usage: flex.py [--density 0.125] B,H,N,D [B,H,N,D ...]   (N a multiple of 128)
"""

import argparse
import functools
import json
import pathlib
import sys

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from protocol import Contestant, measure  # noqa: E402

BLOCK = 128


def random_mask(n, density):
    """The same number of full blocks for every query block, shared by all heads."""
    blocks = n // BLOCK
    kept = max(1, int(density * blocks))
    order = torch.rand(1, 1, blocks, blocks, device="cuda").argsort(-1)[..., :kept].sort(-1).values
    index = torch.zeros(1, 1, blocks, blocks, device="cuda", dtype=torch.int32)
    index[..., :kept] = order.int()
    count = torch.full((1, 1, blocks), kept, device="cuda", dtype=torch.int32)
    return BlockMask.from_kv_blocks(
        torch.zeros_like(count),
        torch.zeros_like(index),
        count,
        index,
        BLOCK_SIZE=(BLOCK, BLOCK),
        seq_lengths=(n, n),
    )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--density", type=float, default=0.125)
    options.add_argument("shapes", nargs="*", default=["1,24,4096,128", "1,24,16384,128"])
    options = options.parse_args()
    torch.manual_seed(0)
    compiled = torch.compile(flex_attention, dynamic=False)
    for shape in options.shapes:
        b, h, n, d = map(int, shape.split(","))
        q, k, v = [torch.randn(b, h, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        call = functools.partial(compiled, q, k, v, block_mask=random_mask(n, options.density))
        ms, loaded = measure([Contestant("flex", call)], rounds=5)["flex"]
        print(
            json.dumps(
                {
                    "peer": f"flex-{BLOCK}-d{options.density}",
                    "shape": shape,
                    "ms": ms,
                    "ms_sustained": loaded,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
