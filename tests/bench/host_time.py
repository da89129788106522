"""What a call costs the host, from torch: packs in, JSON lines out (docs/results/README.md, h200/host.jsonl).

Per call, behind a warm-up, medians over rounds in which the three take turns, on small tensors:

us ........... the call, an op of torch.ops.pisa or a function of pisa
launches_us .. the launches it makes, repeated bare from C (launches.c)
ours_us ...... the difference
dropped_us ... the call whose launches do nothing
c_us ......... pisa_launch alone, through ctypes, its launches included

    PYTHONPATH=runtime/python PISA_LIBRARY=build/lib/libpisa.so PISA_PACKS=generated \\
        python3 tests/bench/host_time.py --launches build/lib/libhost_launches.so flux1_dev pyramid_lm
    ... --no-device     # CPU tensors on the driver that PISA_LIBCUDA names, whose kernels do nothing

Exit 3: ours_us of a call is above --limit. 77: there is no torch, or no GPU.
"""

import argparse
import contextlib
import ctypes
import functools
import json
import statistics
import sys
import time

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import pisa
from pisa import _library, _torch

ROUNDS, CALLS, TOKENS = 31, 25, 2048
WARM_SECONDS = 0.2  # until the host's clocks have risen, and Python has specialised what it runs
PASS, DROP, RECORD = 0, 1, 2


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", nargs="+")
    parser.add_argument("--launches", required=True, help="libhost_launches.so")
    parser.add_argument("--facts", default="{}", help="a JSON object: what every line begins with")
    parser.add_argument("--limit", type=float, default=0)
    parser.add_argument("--no-device", action="store_true")
    return parser.parse_args()


@contextlib.contextmanager
def no_device():
    """The way of a GPU tensor for CPU tensors."""
    aligned = functools.lru_cache(maxsize=None)(_torch.make_memory)  # as the GPU's allocator does by itself

    def new_workspace(shape, stride, dtype):
        _torch.new_cpu(shape, stride, dtype)
        return aligned(shape[0], "cpu")

    changed = {
        "device_number": lambda x: 0,
        "current_device": lambda: 0,
        "current_stream": lambda device: 0,
        "new_gpu": _torch.new_cpu,
        "new_workspace": new_workspace,
    }
    saved = {name: getattr(_torch, name) for name in changed}
    for name, function in changed.items():
        setattr(_torch, name, function)
    yield
    for name, function in saved.items():
        setattr(_torch, name, function)


# ---- calls ----


def tensors(pack, n_q, device):
    kv_heads = 2
    shapes = ((1, kv_heads * pack.group, n_q), (1, kv_heads, TOKENS), (1, kv_heads, TOKENS))
    kind = _torch.TYPES[pack.dtype]
    return [torch.randn(*shape, pack.head_dim, device=device).to(kind) for shape in shapes]


def calls_of(pack, device):
    """(name, q, k, function) of every way to call |pack|."""
    q, k, v = tensors(pack, TOKENS, device)
    ops = torch.ops.pisa
    yield "pisa.attention", q, k, lambda: pisa.attention(q, k, v, pack)
    yield "torch.ops.pisa.attention", q, k, lambda: ops.attention.default(q, k, v, pack.key)
    if not pack.selects:
        return
    yield "pisa.select", q, k, lambda: pisa.select(q, k, pack)
    yield "torch.ops.pisa.select", q, k, lambda: ops.select.default(q, k, pack.key)
    if "decode" not in pack.phases:
        return
    pyramid = pisa.Pyramid(pack, 1, TOKENS, 2, device=device)
    lengths = torch.full((1,), TOKENS, dtype=torch.int32, device=device)
    pisa.attention(q, k, v, pack, pyramid=pyramid)
    last = tensors(pack, 1, device)[0]
    out = torch.empty_like(last)
    yield "pisa.decode", last, k, lambda: pisa.decode(last, k, v, pack, pyramid, k_lengths=lengths)
    rest = (pyramid.memory, out, pack.key, lengths)
    yield "torch.ops.pisa.decode", last, k, lambda: ops.decode.default(last, k, v, *rest)


def seen(function):
    """The arguments of pisa_launch in one call of |function|, and what they point to."""
    kept, launch = [], _library.launch

    def keep(module, call, place, size, stream, error):
        request = type(call._obj).from_buffer_copy(call._obj)
        kept.append((module.value, request, size.value, stream.value))
        return launch(module, call, place, size, stream, error)

    _torch._local.repeats.clear()  # the extension calls libpisa by itself
    _library.launch = keep
    try:
        held = function()
    finally:
        _library.launch = launch
    (found,) = kept
    return (*found, held)


# ---- times ----


def us_of(call, calls, wait):
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def time_call(function, launches, device, wait):
    """The line's numbers, of calls with tensors of |device|."""
    module, request, size, stream, _held = seen(function)
    workspace = _torch.make_memory(size, torch.device(device)) if size else None
    error = _library.CError()
    pointers = [ctypes.c_void_p(x) for x in (module, workspace.data_ptr() if size else None, stream)]
    arguments = (pointers[0], ctypes.byref(request), pointers[1], ctypes.c_size_t(size), pointers[2])

    def c_call():
        _library.check(error) if _library.launch(*arguments, ctypes.byref(error)) else None

    launches.launches_hook(ctypes.c_void_p(module))
    launches.launches_set(RECORD)
    c_call()
    n = launches.launches_count()
    launches.launches_set(PASS)
    begin = time.perf_counter()
    while time.perf_counter() < begin + WARM_SECONDS:
        us_of(function, CALLS, wait)
    found = {"us": [], "launches_us": [], "dropped_us": [], "c_us": []}
    for _ in range(ROUNDS):
        found["us"].append(us_of(function, CALLS, wait))
        found["launches_us"].append(us_of(lambda: launches.launches_repeat(CALLS), 1, wait) / CALLS)
        launches.launches_set(DROP)
        found["dropped_us"].append(us_of(function, CALLS, wait))
        launches.launches_set(PASS)
        found["c_us"].append(us_of(c_call, CALLS, wait))
    wait()
    us = {name: round(statistics.median(rounds), 2) for name, rounds in found.items()}
    return {"launches": n, **us, "ours_us": round(us["us"] - us["launches_us"], 2)}


def shape_of(pack, q, k):
    numbers = zip(("B", "H", "Hk", "Nq", "Nk", "D"), (*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3]))
    return {**dict(numbers), "type": pack.dtype}


def main():
    given = options()
    if not given.no_device and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        sys.exit(77)
    device = "cpu" if given.no_device else "cuda"
    launches, slow = ctypes.CDLL(given.launches), []
    with no_device() if given.no_device else contextlib.nullcontext(), torch.inference_mode():
        wait = (lambda: None) if given.no_device else torch.cuda.synchronize
        for path in given.packs:
            pack = pisa.load(path)
            for name, q, k, function in calls_of(pack, device):
                numbers = time_call(function, launches, device, wait)
                line = {**json.loads(given.facts), "bench": "host", "side": "torch", "call": name, "variant": pack.name}
                print(json.dumps({**line, "shape": shape_of(pack, q, k), **numbers}), flush=True)
                if given.limit and numbers["ours_us"] > given.limit:
                    slow.append(name)
    if slow:
        print(f"host_time.py: above {given.limit} us beside the launches: {', '.join(slow)}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
