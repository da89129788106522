"""What this GPU can do at best: bf16 GEMM, copy, random L2 tiles, exp2. JSON lines."""

import functools
import json
import pathlib
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from protocol import Contestant, measure  # noqa: E402

TILE_WORDS = 4096  # 16 KB: one 64 x 128 bf16 tile


@triton.jit
def sum_tiles(source, index, out, steps, n_index, TILE: tl.constexpr):
    program = tl.program_id(0)
    lane = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.int32)
    for step in range(steps):
        tile = tl.load(index + (program * steps + step) % n_index)
        total += tl.load(source + tile * TILE + lane)
    tl.store(out + program * TILE + lane, total)


@triton.jit
def exp2_chains(out, steps, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    a = lane * 1e-3
    b = a + 0.1
    c = a + 0.2
    d = a + 0.3
    for _ in range(steps):
        a, b, c, d = tl.exp2(a) * 0.5, tl.exp2(b) * 0.5, tl.exp2(c) * 0.5, tl.exp2(d) * 0.5
    tl.store(out + tl.program_id(0) * LANES + lane, a + b + c + d)


def milliseconds(call):
    return measure([Contestant("ceiling", call)], rounds=5)["ceiling"][0]


def say(what, value, unit):
    print(json.dumps({"ceiling": what, "value": value, "unit": unit}), flush=True)


def gemm(n=8192):
    a, b = [torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    say(f"gemm bf16 {n}", 2 * n**3 / milliseconds(lambda: a @ b) / 1e9, "TFLOP/s")


def copy(size=2**31):
    source = torch.empty(size, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    say("copy read+write", 2 * size / milliseconds(lambda: target.copy_(source)) / 1e6, "GB/s")


def gather(megabytes, programs, steps=256):
    tiles = megabytes * 2**20 // (TILE_WORDS * 4)
    source = torch.randint(0, 1000, (tiles * TILE_WORDS,), device="cuda", dtype=torch.int32)
    index = torch.randint(0, tiles, (1 << 20,), device="cuda", dtype=torch.int32)
    out = torch.empty(programs * TILE_WORDS, device="cuda", dtype=torch.int32)
    call = functools.partial(
        sum_tiles[(programs,)], source, index, out, steps, 1 << 20, TILE=TILE_WORDS
    )
    bytes_read = programs * steps * TILE_WORDS * 4
    say(f"random 16 KB tiles of {megabytes} MB", bytes_read / milliseconds(call) / 1e6, "GB/s")


def exp2(programs, steps=2000, lanes=256):
    out = torch.empty(programs * lanes, device="cuda")
    ms = milliseconds(functools.partial(exp2_chains[(programs,)], out, steps, LANES=lanes))
    say("exp2", programs * lanes * 4 * steps / ms / 1e9, "1e12/s")


def main():
    programs = torch.cuda.get_device_properties(0).multi_processor_count * 16
    gemm()
    copy()
    for megabytes in (8, 16, 32, 48, 256):
        gather(megabytes, programs)
    exp2(programs)


if __name__ == "__main__":
    main()
